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

  // The steps of run, for those who look at a layer from inside (LayerWalk). Each reads and writes
  // the rows of the buffers that it names, of at most rows_max rows.
  struct Buffers {
    float* x;       // [rows, hidden] between layers
    float* normed;  // [rows, hidden] inputs of q, k, v and of gate, up
    float* mixed;   // [rows, heads * head_dim] input of o
    float* inner;   // [rows, intermediate] input of down
  };
  Buffers buffers() const { return {x_, normed_, mixed_, gate_}; }
  DecoderWeights& weights() { return weights_; }
  // x and normed of the first layer, and the angles of the rows' positions.
  void embed(std::span<const BatchRow> rows);
  // normed from x.
  void norm(const std::vector<float>& weight, std::int64_t rows);
  // mixed from normed; keys and values go into the caches.
  void attention_heads(std::int64_t layer, std::span<const BatchRow> rows,
                       std::span<KvCache* const> caches);
  // x and normed (of the feed-forward part) from mixed.
  void attention_output(std::int64_t layer, std::int64_t rows);
  // inner from normed.
  void feed_forward_inner(std::int64_t layer, std::int64_t rows);
  // x and normed (of what comes next) from inner.
  void feed_forward_output(std::int64_t layer, std::int64_t rows);

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

  void place_row(std::int64_t layer, std::int64_t row, const BatchRow& where, SequenceCache& cache);
  void attend(std::int64_t index, std::span<const BatchRow> rows, std::span<KvCache* const> caches);
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

// load_decoder(checkpoint, pool, options): the decoder of the checkpoint's architecture, every
// weight bound to a kernel. The checkpoint's bytes must outlive it.
// Errors: those of Model::load.
Result<Decoder> load_decoder(const Checkpoint& checkpoint, ThreadPool& pool,
                             const LoadOptions& options);

}  // namespace packstone
