// What both containers share when stored tensors become the weights of an architecture.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "packstone/checkpoint/checkpoint.h"
#include "packstone/checkpoint/config.h"
#include "packstone/checkpoint/names.h"

namespace packstone {

// Collects tensors into a checkpoint and checks, at the end, that the architecture is whole.
class Binder {
 public:
  Binder(Checkpoint& checkpoint, const ParsedConfig& parsed, std::string_view where,
         std::string_view file);

  std::span<const ExpectedTensor> expected() const { return expected_; }

  // Adds a dense or block-wise tensor stored as one view; another type than the build's formats
  // goes to `unsupported`. Errors: kCorruptData for another shape than the config's.
  Status add_view(std::size_t index, const TensorView& view, RowOrder order, ValueRule rule);
  void add(std::size_t index, CheckpointTensor tensor);
  void add_unsupported(std::size_t index, const TensorView& view);
  void add_unsupported(std::size_t index, UnsupportedTensor tensor);
  // A stored tensor with no rule. Errors: kCorruptData for a layer that the config does not have.
  Status add_unbound(const std::string& name, std::string_view stored_name);

  // All needed tensors are there; biases are all or none; the head is there or tied.
  Status finish();

  std::string subject(std::string_view stored_name) const;
  const std::string& file() const { return file_; }

 private:
  Status check_biases(Need need, std::optional<bool> stated, std::string_view flag, bool& set);
  Status check_head();

  Checkpoint& checkpoint_;
  const ParsedConfig& parsed_;
  std::string where_, file_;
  std::vector<ExpectedTensor> expected_;
  std::vector<bool> present_;
};

// The format of a stored type: dense floats and GGUF blocks by name; nothing for others.
std::optional<FormatId> format_of_storage(const StorageType& type);

// "[2, 3]": for messages.
std::string shape_text(const std::vector<std::int64_t>& shape);

}  // namespace packstone
