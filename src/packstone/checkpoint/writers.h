// The two writers behind CheckpointWriter::create, and what they share.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "packstone/checkpoint/names.h"
#include "packstone/checkpoint/writer.h"

namespace packstone {

// One tensor of the output with the rule of its architecture.
struct PlannedTensor {
  OutputTensor output;
  ExpectedTensor expected;
  Shape bound;  // of the planes that write is given
};

// plan_output(source, tensors, where): each tensor must be one of the architecture, once, with the
// config's shape; a source with packed weights that the architecture does not name is no model that
// could be written whole.
// Errors: kUnsupported naming all tensors without a rule; kInvalidInput otherwise.
Result<std::vector<PlannedTensor>> plan_output(const Checkpoint& source,
                                               std::vector<OutputTensor> tensors,
                                               std::string_view where);

// outputs_of(tensors): the outputs without the rules, for the metadata. Errors: none.
std::vector<OutputTensor> outputs_of(const std::vector<PlannedTensor>& tensors);

// has_head(tensors): lm_head.weight is one of them. Errors: none.
bool has_head(const std::vector<PlannedTensor>& tensors);

// lacks_tokenizer(source, report): whether a GGUF source has no tokenizer for a folder; the report
// then says so. Errors: those of the key's read.
Result<bool> lacks_tokenizer(const Checkpoint& source, MetadataReport& report);

// folder_report(source, tensors, options): what a folder of these tensors does not carry; nothing
// is written. Errors: those of create_folder_writer, the containers' aside.
Result<MetadataReport> folder_report(const Checkpoint& source,
                                     const std::vector<PlannedTensor>& tensors,
                                     const WriteOptions& options);

// Whether the file of a folder is a form of the tokenizer beside tokenizer.json and
// tokenizer_config.json that stock loaders read; a folder's are copied.
bool is_tokenizer_file(std::string_view name);

// check_planes(tensor, planes, where): the planes have the sizes of the format.
Status check_planes(const PlannedTensor& tensor, const std::vector<ByteSpan>& planes,
                    std::string_view where);

// "a, b, c and 5 more": for messages.
std::string name_list(const std::vector<std::string>& names);

// create_folder_writer(...): safetensors shards under Hugging Face or MLX names, config and
// tokenizer files beside them. Errors: kUnsupported for formats without a safetensors form, all
// named; those of folder_config and of the containers.
Result<std::unique_ptr<CheckpointWriter>> create_folder_writer(const std::filesystem::path& target,
                                                               const Checkpoint& source,
                                                               std::vector<PlannedTensor> tensors,
                                                               const WriteOptions& options);

// create_gguf_writer(...): one GGUF file as llama.cpp reads it. Errors: kUnsupported for formats
// without a GGUF type and for vectors that are not float32, all named; those of gguf_keys and of
// the container.
Result<std::unique_ptr<CheckpointWriter>> create_gguf_writer(const std::filesystem::path& target,
                                                             const Checkpoint& source,
                                                             std::vector<PlannedTensor> tensors);

}  // namespace packstone
