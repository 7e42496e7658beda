// Two tensors of one name, in any two containers.
#pragma once

#include <string>

#include "packstone/checkpoint/checkpoint.h"
#include "packstone/cli/channel_moves.h"
#include "packstone/transcode/transcode.h"

namespace packstone::cli {

// equal_storage(a, b): the same planes, read by the same rules. Errors: none.
bool equal_storage(const CheckpointTensor& a, const CheckpointTensor& b);

// compare_tensors(a, b, pool): values of two tensors of one shape in Hugging Face order; where the
// value rules differ, what a Gemma norm multiplies by. Of vectors `row` is 0. Errors: none.
ValueComparison compare_tensors(const CheckpointTensor& a, const CheckpointTensor& b,
                                ThreadPool& pool);

// The same with the channels of `a` in the order of a joint move; row and column are those of `b`.
// Errors: those of with_columns. Cost: a copy of `a` where columns move.
Result<ValueComparison> compare_tensors(const CheckpointTensor& a, const ChannelOrder& channels,
                                        const CheckpointTensor& b, ThreadPool& pool);

// way_back_fault(source, target, pool): makes the way back from `target` to the source's format,
// rows and rule, and compares the planes bit by bit. Empty when they are equal, else what differs.
// Cost: one tensor in memory.
std::string way_back_fault(const CheckpointTensor& source, const CheckpointTensor& target,
                           ThreadPool& pool);

}  // namespace packstone::cli
