// One packed module of a folder: its tensors against what the config says of it.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "packstone/checkpoint/module_tensors.h"
#include "packstone/checkpoint/quantization_spec.h"

namespace packstone {

// check_parts(parts, says, file, module): the tensors of a packed module are those of the layout
// that the config names: none missing, none of another layout, each of a type that the layout has.
// Errors: kCorruptData naming the tensor and the config's key.
Status check_parts(std::span<const ModuleTensor> parts, const ModuleQuantization& says,
                   std::string_view file, std::string_view module);

// Bytes of all tensors of a module.
std::uint64_t total_bytes(std::span<const ModuleTensor> parts);

// "gptq_v2 4 bit g128": for reports. The bits of an EXL3 module are those of its trellis.
std::string detail_text(std::span<const ModuleTensor> parts, const ModuleQuantization& says);

}  // namespace packstone
