// Writing a checkpoint as a stream: everything is decided and sized first, then one weight at a
// time passes through.
#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "packstone/checkpoint/checkpoint.h"

namespace packstone {

// One tensor of the output, in Hugging Face naming, value rule and row order.
struct OutputTensor {
  std::string name;
  std::vector<std::int64_t> shape;
  FormatId format{};
  FormatParams params;
};

struct WriteOptions {
  bool force = false;                          // replace an existing target
  std::uint64_t shard_bytes_max = 5ull << 30;  // folders
  // Folders: modules of a layout that this build only describes (EXL3, ParoQuant) are written as
  // they are, after the tensors, and config.json byte for byte; all other tensors must then be the
  // source's too.
  bool carry_described = false;
};

// What became of the metadata.
struct MetadataReport {
  // What of the source has no place in the target: "NAME: why", of tensors, keys and files.
  std::vector<std::string> not_carried;
};

class CheckpointWriter {
 public:
  // create(target, kind, source, tensors, options) opens the output, writes headers and metadata.
  // The writer maps names, row order and value rules to the target's own:
  //   stored_order(i) says in which order the rows of tensor i must be handed to write.
  // Errors: kInvalidInput when target exists without force; kUnsupported when a format or name has
  //         no place in the container (all such tensors are named); kIo, kExhausted.
  static Result<std::unique_ptr<CheckpointWriter>> create(const std::filesystem::path& target,
                                                          ContainerKind kind,
                                                          const Checkpoint& source,
                                                          std::vector<OutputTensor> tensors,
                                                          const WriteOptions& options);
  virtual ~CheckpointWriter() = default;

  // For each stored row of tensor i the Hugging Face row that goes there; empty when equal.
  virtual std::vector<std::int32_t> stored_order(std::size_t i) const = 0;
  // The value rule that the container wants of tensor i.
  virtual ValueRule value_rule(std::size_t i) const = 0;
  // write(i, planes) appends tensor i (calls come in order); planes in the target's row order.
  virtual Status write(std::size_t i, const std::vector<ByteSpan>& planes) = 0;
  // finish() ends the output where path() says: whole, on the disk, not yet at its target.
  virtual Status finish() = 0;
  virtual const std::filesystem::path& path() const = 0;
  // add_certificate(text), after finish: the certificate of the output, which commit puts in place
  // last. Without one, commit removes that of the output that it replaces. Errors: kIo, kExhausted.
  virtual Status add_certificate(std::string_view text) = 0;
  virtual Status commit() = 0;

  // report(kind, source, tensors, options): what `metadata` of a writer of these tensors says;
  // nothing is written. Errors: those of create.
  static Result<MetadataReport> report(ContainerKind kind, const Checkpoint& source,
                                       std::vector<OutputTensor> tensors,
                                       const WriteOptions& options);
  const MetadataReport& metadata() const { return metadata_; }

 protected:
  MetadataReport metadata_;
};

}  // namespace packstone
