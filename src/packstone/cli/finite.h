// Values that are no numbers: what inspect says of a damaged tensor.
#pragma once

#include <optional>
#include <string>

#include "packstone/base/thread_pool.h"
#include "packstone/checkpoint/checkpoint.h"

namespace packstone::cli {

// nonfinite_problem(tensor, pool): one sentence that names the tensor, the first place in Hugging
// Face order, what stands there, and how many there are; nothing when all is finite. Of a packed
// tensor the decoded scale and offset of every group are looked at, of a float tensor every value.
// Exact: the same sentence for any pool. Errors: none (memory: std::bad_alloc, a row a thread).
// Cost: one pass over parameters or values. Threads: the pool given.
std::optional<std::string> nonfinite_problem(const CheckpointTensor& tensor, ThreadPool& pool);

}  // namespace packstone::cli
