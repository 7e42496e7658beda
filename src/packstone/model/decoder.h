// The layers of a decoder, run on rows of one or more sequences. Every operation on a row depends
// on that row, its position and its sequence only; so do the bits of the result.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "packstone/base/thread_pool.h"
#include "packstone/kernel/ops.h"
#include "packstone/model/kv_cache.h"
#include "packstone/model/rope.h"
#include "packstone/model/weights.h"

namespace packstone {

class Decoder {
 public:
  // make(weights, config, recipe, pool, options): all buffers for options.rows_max rows.
  // Errors: kInvalidInput (config), kExhausted (memory).
  static Result<Decoder> make(DecoderWeights weights, const ModelConfig& config,
                              const DecoderRecipe& recipe, ThreadPool& pool,
                              const LoadOptions& options);

  // Makes room for the rows in their caches and for the scores of attention. Errors: kExhausted.
  Status reserve(std::span<const BatchRow> rows, std::span<KvCache* const> caches);

  // Runs at most rows_max checked rows whose room is reserved; writes the logits of those that want
  // them and returns their number. No allocation, no failure.
  std::int64_t run(std::span<const BatchRow> rows, std::span<KvCache* const> caches, float* logits);

  const DecoderWeights& weights() const { return weights_; }
  std::uint64_t buffer_bytes() const { return memory_.size() * sizeof(float); }

 private:
  Decoder(DecoderWeights weights, const ModelConfig& config, const DecoderRecipe& recipe,
          ThreadPool& pool, const LoadOptions& options, MatmulWorkspace workspace);
  Status allocate(std::int64_t rows);

  struct LinearRun {
    const BoundLinear* linear;
    float* y;
  };
  // y = W x for a group of matrices that share their input [rows, cols], in one dispatch.
  void run_group(const float* x, std::int64_t cols, std::int64_t rows,
                 std::initializer_list<LinearRun> group);
  template <class Function>
  void each_row(std::int64_t rows, Function function);

  void embed(std::span<const BatchRow> rows);
  void attention(std::int64_t index, std::span<const BatchRow> rows,
                 std::span<KvCache* const> caches);
  void place_row(std::int64_t layer, std::int64_t row, const BatchRow& where, SequenceCache& cache);
  void attend(std::int64_t index, std::span<const BatchRow> rows, std::span<KvCache* const> caches);
  void feed_forward(std::int64_t index, std::int64_t rows);
  // x += [post norm] (y + bias) for one row.
  void add_residual(const std::vector<float>& bias, const std::vector<float>& post_norm,
                    std::int64_t row);
  std::int64_t logits(std::span<const BatchRow> rows, float* out);
  bool slides(std::int64_t layer) const;
  const float* rope_table(std::int64_t layer) const;

  DecoderWeights weights_;
  ModelConfig config_;
  DecoderRecipe recipe_;
  ThreadPool* pool_;
  const Ops* ops_;
  KvType kv_type_;
  AttentionProblem problem_{};
  float eps_ = 0;
  Rope rope_, local_rope_;
  bool has_local_rope_ = false;
  MatmulWorkspace workspace_;

  std::vector<float> memory_;  // all buffers below, each [rows_max, width]
  float *x_ = nullptr, *normed_ = nullptr, *q_ = nullptr, *k_ = nullptr, *v_ = nullptr;
  float *mixed_ = nullptr, *gate_ = nullptr, *up_ = nullptr, *y_ = nullptr;
  float *angles_ = nullptr, *local_angles_ = nullptr;  // cosines [head_dim / 2], then sines
  std::vector<std::int32_t> ids_;
  std::vector<float> scores_;  // [workers, scores_stride_]
  std::int64_t scores_stride_ = 0;
};

}  // namespace packstone
