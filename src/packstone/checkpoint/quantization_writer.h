// The quantization keys of an output folder's config.json, in the dialect that the consumers of its
// layout read.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <vector>

#include "packstone/checkpoint/folder_parts.h"
#include "packstone/checkpoint/writer.h"

namespace packstone {

// common_family(tensors, where): the family of all packed tensors; nothing when none is packed.
// Errors: kUnsupported for formats without a place in folders, all named, for two families in one
//         folder, and for two layouts of one family that its config cannot tell apart.
Result<std::optional<FolderFamily>> common_family(const std::vector<OutputTensor>& tensors,
                                                  std::string_view where);

// quantization_keys(tensors, symmetric): the members to set in config.json ("quantization_config",
// for MLX also "quantization"); an empty object when no tensor is packed. The commonest setting is
// the base, each module that differs has its own entry, and matrices of floats are listed as
// skipped. `symmetric`: all stored zero points are in the middle.
nlohmann::ordered_json quantization_keys(const std::vector<OutputTensor>& tensors, bool symmetric);

}  // namespace packstone
