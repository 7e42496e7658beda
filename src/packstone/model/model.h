// A decoder model that runs from packed weights.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "packstone/checkpoint/checkpoint.h"
#include "packstone/kernel/matmul/linear.h"
#include "packstone/kernel/ops.h"

namespace packstone {

struct LoadOptions {
  KvType kv_type = KvType::kF32;
  std::int64_t rows_max = 512;  // rows of one forward call; longer prompts go in pieces
};

// Keys and values of one sequence, all layers. Grows in steps up to its context.
class KvCache;

// One row of a batch.
struct BatchRow {
  std::int32_t token = 0;
  std::int64_t position = 0;  // 0-based, must equal the number of tokens before it in its sequence
  std::int32_t sequence = 0;  // index into the caches given to forward
  bool wants_logits = false;
};

class Model {
 public:
  // load(checkpoint, pool, options) binds every weight to a kernel; no weight is copied or decoded.
  // Errors: kCorruptData (missing or misshaped tensor, by name), kUnsupported, kExhausted.
  static Result<Model> load(Checkpoint checkpoint, ThreadPool& pool,
                            const LoadOptions& options = {});
  Model(Model&&) noexcept;
  Model& operator=(Model&&) noexcept;
  ~Model();

  const ModelConfig& config() const;
  const Checkpoint& checkpoint() const;
  std::vector<std::string> kernel_names() const;  // distinct, sorted
  std::uint64_t weight_bytes() const;             // of the packed matrices
  std::uint64_t buffer_bytes() const;             // of the activations
  std::int64_t rows_max() const;
  ThreadPool& pool() const;

  // A new, empty sequence of at most `context` tokens. Errors: kInvalidInput, kExhausted.
  Result<std::unique_ptr<KvCache>> new_cache(std::int64_t context) const;

  // forward(rows, caches, logits) appends the rows to their sequences and writes the logits of
  // those that want them, in row order. Shapes: logits [count of wants_logits, vocab]. Exact:
  // bounded; the bits of a row's logits do not depend on the other rows of the call, nor on
  //        how the sequence was cut into calls.
  // Any number of rows: they are run in pieces of rows_max. Rows of one sequence come in the order
  // of their positions.
  // Errors: kInvalidInput for a token or position out of range, a cache of another model, or a
  //         wrong number of logits; kExhausted when a cache or the memory is full. Nothing is
  //         changed then.
  // Cost: no allocation, except when a cache grows by a step.
  // Threads: one caller at a time; work is spread over the pool given to load.
  Status forward(std::span<const BatchRow> rows, std::span<KvCache* const> caches,
                 std::span<float> logits);

 private:
  struct State;
  explicit Model(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

class KvCache {
 public:
  virtual ~KvCache() = default;
  virtual std::int64_t length() const = 0;
  virtual std::int64_t context() const = 0;
  virtual std::uint64_t bytes() const = 0;
  virtual void truncate(std::int64_t length) = 0;  // forgets the tokens from `length` on
};

}  // namespace packstone
