// What of a source has no place in an output, each with its reason: nothing is dropped in silence.
#pragma once

#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "packstone/checkpoint/metadata.h"
#include "packstone/checkpoint/writers.h"

namespace packstone {

// The tensors beside planes that an output writes, by stored name.
using WrittenCompanions = std::map<std::string, std::vector<std::byte>, std::less<>>;

// list_stored_rest(source, tensors, written, report): the stored tensors that no output tensor
// stands for: those without a rule, companions of packed modules (activation scales, shapes,
// states, tables) that the output does not write with the same bytes, and group numbers where the
// target has no plane for them.
void list_stored_rest(const Checkpoint& source, const std::vector<OutputTensor>& tensors,
                      const WrittenCompanions& written, MetadataReport& report);

// list_quantization_rest(source, written, report): the facts of the source's quantization blocks,
// in config.json and the files beside it, that neither the tensors themselves nor the output's
// block (`written`, or null) say.
void list_quantization_rest(const Checkpoint& source, const nlohmann::ordered_json& written,
                            MetadataReport& report);

// list_files_rest(source, kind, report): the files of a folder that the output has no place for.
// Errors: those of checkpoint_files.
Status list_files_rest(const Checkpoint& source, ContainerKind kind, MetadataReport& report);

}  // namespace packstone
