// One packed module of a folder: its tensors against what the config says of it, and the weight
// that they are.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "packstone/checkpoint/checkpoint.h"
#include "packstone/checkpoint/module_tensors.h"
#include "packstone/checkpoint/quantization_spec.h"
#include "packstone/format/packed_weight.h"

namespace packstone {

// The tensors of one module, and what the model and the config say of it. Does not own.
struct PackedModule {
  std::string_view file;    // for messages
  std::string_view stored;  // the module's name in the file
  Shape shape;
  std::span<const ModuleTensor> parts;
  const ModuleQuantization& says;

  // "file: 'module.suffix'".
  std::string subject(std::string_view suffix) const;
  // The part that is this plane or companion, under any of its names; nullptr when absent.
  const ModuleTensor* find(std::string_view plane) const;
  // A part whose name begins so; nullptr when absent.
  const ModuleTensor* find_suffix(std::string_view begin) const;
  std::unexpected<Error> misfit(std::string_view suffix, std::string_view got,
                                std::string_view need) const;
};

// check_parts(module): the tensors are those of the layout that the config names: none missing,
// none of another layout, each of a type that the layout has.
// Errors: kCorruptData naming the tensor and the config's key.
Status check_parts(const PackedModule& module);

// bind_parts(module): the weight, or nothing for a layout that this build has no format for. Planes
// are found by name, and their types and shapes are those of the format for the config's bits and
// groups. What a file leaves out because it is trivial (group numbers without act order, a global
// scale of one) is made here.
// Exact: bitwise; plane bytes are not copied. Zero points of a symmetric layout and companions
// (quant_state, weight_shape, ...) are read and checked.
// Errors: kCorruptData and kUnsupported naming the tensor and the config's key.
struct BoundModule {
  PackedWeight weight;
  std::vector<StoredPart> parts;
};
Result<std::optional<BoundModule>> bind_parts(const PackedModule& module);

// Bytes of all tensors of a module.
std::uint64_t total_bytes(std::span<const ModuleTensor> parts);

// What the tensors beside the planes say.
struct Companions {
  std::optional<std::int64_t> block_size;  // of bitsandbytes' quant_state
  std::uint32_t offset_bits = 0;           // its nested_offset, binary32
};

// read_companions(module): checks and reads weight_shape, quant_state, quant_map and their like.
// Errors: kCorruptData where they contradict the model or the config; kUnsupported for tables that
// are not the layout's own.
Result<Companions> read_companions(const PackedModule& module);

}  // namespace packstone
