// Joint moves: the columns of a weight with act-order, sorted by group, and the rows of those that
// make them. No value changes; the order does, in all of them together.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "packstone/checkpoint/checkpoint.h"
#include "packstone/transcode/transcode.h"

namespace packstone::cli {

// The channels of a tensor in another order: row i of the target is row rows()[i] of the source, in
// Hugging Face order, or column i is column columns()[i].
struct ChannelOrder {
  std::shared_ptr<const std::vector<std::int32_t>> order;  // null: the source's own
  bool of_columns = false;  // of the consumer; else of a producer's rows, or a bias's elements
  std::string condition;    // what a certificate says of it

  // The order of rows; empty when they stay.
  std::span<const std::int32_t> rows() const {
    return order && !of_columns ? std::span(*order) : std::span<const std::int32_t>();
  }
  std::span<const std::int32_t> columns() const {
    return order && of_columns ? std::span(*order) : std::span<const std::int32_t>();
  }
};

// One consumer whose act-order has no place in its target.
struct ChannelMove {
  const CheckpointTensor* consumer = nullptr;
  std::vector<const CheckpointTensor*> producers;
  std::shared_ptr<const std::vector<std::int32_t>> order;
  std::string fault;  // why there is no such order; empty when there is one

  // The producers, then the consumer.
  std::vector<const CheckpointTensor*> tensors() const;
  // The order of one of them; empty for any other tensor.
  ChannelOrder of(const CheckpointTensor& tensor) const;
};

// The joint moves of a conversion. The order is a function of the source's group numbers alone, so
// that verify finds the one that convert took.
class ChannelMoves {
 public:
  // Whether the columns of a tensor with act-order are to be sorted.
  using MustSort = std::function<bool(const CheckpointTensor&)>;
  ChannelMoves() = default;
  ChannelMoves(const Checkpoint& source, const MustSort& must_sort);

  // The move that a tensor is part of, or null.
  const ChannelMove* find(const CheckpointTensor& tensor) const;
  std::span<const ChannelMove> all() const { return moves_; }
  std::uint64_t bytes() const;  // of the orders

 private:
  std::vector<ChannelMove> moves_;
  std::map<const CheckpointTensor*, std::size_t> index_;
};

// with_columns(weight, channels, pool): the weight with its columns in that order; itself, not
// copied, when they stay. Errors: those of permute_columns. Cost: one copy of the weight.
Result<PackedWeight> with_columns(const PackedWeight& weight, const ChannelOrder& channels,
                                  ThreadPool& pool);

// needs_sorting(weight, target): the weight has act-order and codes, not values, would move to a
// format without group numbers. Errors: none.
bool needs_sorting(const PackedWeight& weight, FormatId target);

// unsorted_reason(tensor, target): why such a weight, of no joint move, is refused: the first
// column out of place, why its order is fixed, and what would work. Errors: none.
std::string unsorted_reason(const CheckpointTensor& tensor, FormatId target);

}  // namespace packstone::cli
