#include "packstone/model/decoder.h"

#include <algorithm>
#include <cmath>
#include <new>

#include "packstone/base/bytes.h"
#include "packstone/base/check.h"

namespace packstone {
namespace {

// Matrices that share one input: q, k and v.
constexpr std::size_t kGroupMax = 3;

std::int64_t widest(const DecoderWeights& weights) {
  std::int64_t cols = 1;
  weights.each_linear([&](const Linear& linear) { cols = std::max(cols, linear.shape().cols); });
  return cols;
}

std::optional<MatmulWorkspace> make_workspace(int threads, std::int64_t cols_max) {
  try {
    return MatmulWorkspace(threads, cols_max);
  } catch (const std::exception&) {
    return std::nullopt;
  }
}

SequenceCache& sequence(std::span<KvCache* const> caches, const BatchRow& row) {
  return static_cast<SequenceCache&>(*caches[static_cast<std::size_t>(row.sequence)]);
}

}  // namespace

Decoder::Decoder(DecoderWeights weights, const ModelConfig& config, const DecoderRecipe& recipe,
                 ThreadPool& pool, const LoadOptions& options, MatmulWorkspace workspace)
    : weights_(std::move(weights)),
      config_(config),
      recipe_(recipe),
      pool_(&pool),
      ops_(&ops()),
      kv_type_(options.kv_type),
      eps_(static_cast<float>(config.rms_eps)),
      workspace_(std::move(workspace)) {
  const double head_dim = static_cast<double>(config.head_dim);
  const double scale = config.query_scale > 0 ? config.query_scale : 1.0 / std::sqrt(head_dim);
  problem_ = {config.heads, config.kv_heads, config.head_dim, static_cast<float>(scale),
              recipe.attention_softcap};
}

Result<Decoder> Decoder::make(DecoderWeights weights, const ModelConfig& config,
                              const DecoderRecipe& recipe, ThreadPool& pool,
                              const LoadOptions& options) {
  std::optional<MatmulWorkspace> workspace = make_workspace(pool.size(), widest(weights));
  if (!workspace)
    return fail(ErrorCode::kExhausted, "model.load", "matmul workspace",
                fmt::format("no memory for {} threads", pool.size()), "", "use fewer threads");
  Decoder decoder(std::move(weights), config, recipe, pool, options, *std::move(workspace));
  PACKSTONE_TRY(decoder.rope_, make_rope(config.head_dim, config.rope_theta, config.rope));
  decoder.has_local_rope_ = recipe.local_rope && !config.sliding_layers.empty();
  if (decoder.has_local_rope_) {
    PACKSTONE_TRY(decoder.local_rope_, make_rope(config.head_dim, config.rope_local_theta, {}));
  }
  PACKSTONE_CHECK_OK(decoder.allocate(options.rows_max));
  return decoder;
}

Status Decoder::allocate(std::int64_t rows) {
  struct Part {
    float** buffer;
    std::int64_t width;
  };
  const std::int64_t q_width = config_.heads * config_.head_dim;
  const std::int64_t kv_width = config_.kv_heads * config_.head_dim;
  const Part parts[] = {{&x_, config_.hidden},
                        {&normed_, config_.hidden},
                        {&q_, q_width},
                        {&k_, kv_width},
                        {&v_, kv_width},
                        {&mixed_, q_width},
                        {&gate_, config_.intermediate},
                        {&up_, config_.intermediate},
                        {&y_, config_.hidden},
                        {&angles_, config_.head_dim},
                        {&local_angles_, has_local_rope_ ? config_.head_dim : 0}};
  std::uint64_t total = 0;
  for (const Part& part : parts) {
    const auto size = checked_mul(static_cast<std::uint64_t>(rows),
                                  static_cast<std::uint64_t>((part.width + 15) / 16 * 16));
    const auto sum = size ? checked_add(total, *size) : std::nullopt;
    if (!sum)
      return fail(ErrorCode::kInvalidInput, "model.load", "rows_max", fmt::to_string(rows),
                  "buffers that can be counted in 64 bits");
    total = *sum;
  }
  try {
    memory_.resize(total);
    ids_.resize(static_cast<std::size_t>(rows));
  } catch (const std::exception&) {
    return fail(ErrorCode::kExhausted, "model.load", "rows_max", fmt::to_string(rows),
                fmt::format("memory for {} float32 values", total), "lower rows_max");
  }
  float* next = memory_.data();
  for (const Part& part : parts) {
    *part.buffer = next;
    next += rows * ((part.width + 15) / 16 * 16);
  }
  return {};
}

Status Decoder::reserve(std::span<const BatchRow> rows, std::span<KvCache* const> caches) {
  std::int64_t longest = 0;
  for (const BatchRow& row : rows) {
    PACKSTONE_CHECK_OK(sequence(caches, row).reserve(row.position + 1));
    longest = std::max(longest, row.position + 1);
  }
  if (longest <= scores_stride_) return {};
  const std::int64_t stride = std::max((longest + 255) / 256 * 256, 2 * scores_stride_);
  try {
    scores_.resize(static_cast<std::size_t>(stride * pool_->size()));
  } catch (const std::exception&) {
    return fail(ErrorCode::kExhausted, "model.forward", "attention scores",
                fmt::format("no memory for {} positions", stride), "", "use a shorter context");
  }
  scores_stride_ = stride;
  return {};
}

template <class Function>
void Decoder::each_row(std::int64_t rows, Function function) {
  auto task = [&](std::int64_t begin, std::int64_t end, int) {
    for (std::int64_t row = begin; row < end; ++row) function(row);
  };
  if (rows == 1)
    task(0, 1, 0);
  else
    pool_->parallel(rows, 1, task);
}

void Decoder::run_group(const float* x, std::int64_t cols, std::int64_t rows,
                        std::initializer_list<LinearRun> group) {
  const Linear* layers[kGroupMax];
  float* y[kGroupMax];
  std::int64_t y_stride[kGroupMax];
  std::size_t count = 0;
  PACKSTONE_ASSERT(group.size() <= kGroupMax);
  for (const LinearRun& member : group) {
    layers[count] = &**member.linear;
    y[count] = member.y;
    y_stride[count] = layers[count]->shape().rows;
    ++count;
  }
  Linear::run_many({layers, count}, x, rows, cols, {y, count}, {y_stride, count}, *pool_,
                   workspace_);
}

bool Decoder::slides(std::int64_t layer) const {
  const auto index = static_cast<std::size_t>(layer);
  return index < config_.sliding_layers.size() && config_.sliding_layers[index];
}

const float* Decoder::rope_table(std::int64_t layer) const {
  return has_local_rope_ && slides(layer) ? local_angles_ : angles_;
}

void Decoder::embed(std::span<const BatchRow> rows) {
  const auto count = static_cast<std::int64_t>(rows.size());
  const std::int64_t half = config_.head_dim / 2;
  for (std::size_t i = 0; i < rows.size(); ++i) ids_[i] = rows[i].token;
  each_row(count, [&](std::int64_t row) {
    float* x = x_ + row * config_.hidden;
    weights_.embedding->gather({&ids_[static_cast<std::size_t>(row)], 1}, x);
    if (recipe_.embedding_scale != 1.0f) ops_->scale(x, recipe_.embedding_scale, config_.hidden);
    ops_->rms_norm(x, weights_.layers[0].attention_norm.data(), eps_, config_.hidden,
                   normed_ + row * config_.hidden);
    const std::int64_t position = rows[static_cast<std::size_t>(row)].position;
    float* angles = angles_ + row * config_.head_dim;
    rope_.fill(position, angles, angles + half);
    if (!has_local_rope_) return;
    float* local = local_angles_ + row * config_.head_dim;
    local_rope_.fill(position, local, local + half);
  });
}

// Bias, norm and rope on one row of q and k; k and v go into the cache.
void Decoder::place_row(std::int64_t layer, std::int64_t row, const BatchRow& where,
                        SequenceCache& cache) {
  const LayerWeights& weights = weights_.layers[static_cast<std::size_t>(layer)];
  const std::int64_t d = config_.head_dim;
  const std::int64_t q_width = config_.heads * d, kv_width = config_.kv_heads * d;
  const float* angles = rope_table(layer) + row * d;
  const auto place = [&](float* values, std::int64_t heads, const std::vector<float>& bias,
                         const std::vector<float>& norm) {
    if (!bias.empty()) ops_->add(values, bias.data(), heads * d);
    for (std::int64_t head = 0; head < heads; ++head) {
      float* at = values + head * d;
      if (!norm.empty()) ops_->rms_norm(at, norm.data(), eps_, d, at);
      ops_->rope(at, angles, angles + d / 2, d);
    }
  };
  float* k = k_ + row * kv_width;
  float* v = v_ + row * kv_width;
  place(q_ + row * q_width, config_.heads, weights.q.bias, weights.q_norm);
  place(k, config_.kv_heads, weights.k.bias, weights.k_norm);
  if (!weights.v.bias.empty()) ops_->add(v, weights.v.bias.data(), kv_width);
  ops_->store_kv(k, kv_width, kv_type_, cache.key(layer, where.position));
  ops_->store_kv(v, kv_width, kv_type_, cache.value(layer, where.position));
}

void Decoder::attend(std::int64_t index, std::span<const BatchRow> rows,
                     std::span<KvCache* const> caches) {
  const std::int64_t heads = config_.heads, d = config_.head_dim;
  const std::int64_t group = heads / config_.kv_heads;
  const std::int64_t window = slides(index) ? config_.sliding_window : 0;
  auto task = [&](std::int64_t begin, std::int64_t end, int worker) {
    float* scores = scores_.data() + worker * scores_stride_;
    for (std::int64_t unit = begin; unit < end; ++unit) {
      const std::int64_t row = unit / heads, head = unit % heads;
      const BatchRow& where = rows[static_cast<std::size_t>(row)];
      const std::int64_t last = where.position + 1;
      const std::int64_t first = window > 0 ? std::max<std::int64_t>(0, last - window) : 0;
      ops_->attend(q_ + unit * d, sequence(caches, where).view(index), problem_, head / group,
                   first, last, scores, mixed_ + unit * d);
    }
  };
  pool_->parallel(static_cast<std::int64_t>(rows.size()) * heads, 1, task);
}

void Decoder::add_residual(const std::vector<float>& bias, const std::vector<float>& post_norm,
                           std::int64_t row) {
  const std::int64_t n = config_.hidden;
  float* y = y_ + row * n;
  if (!bias.empty()) ops_->add(y, bias.data(), n);
  if (!post_norm.empty()) ops_->rms_norm(y, post_norm.data(), eps_, n, y);
  ops_->add(x_ + row * n, y, n);
}

void Decoder::norm(const std::vector<float>& weight, std::int64_t rows) {
  const std::int64_t n = config_.hidden;
  each_row(rows, [&](std::int64_t row) {
    ops_->rms_norm(x_ + row * n, weight.data(), eps_, n, normed_ + row * n);
  });
}

void Decoder::attention_heads(std::int64_t index, std::span<const BatchRow> rows,
                              std::span<KvCache* const> caches) {
  const LayerWeights& layer = weights_.layers[static_cast<std::size_t>(index)];
  const auto count = static_cast<std::int64_t>(rows.size());
  run_group(normed_, config_.hidden, count, {{&layer.q, q_}, {&layer.k, k_}, {&layer.v, v_}});
  each_row(count, [&](std::int64_t row) {
    const BatchRow& where = rows[static_cast<std::size_t>(row)];
    place_row(index, row, where, sequence(caches, where));
  });
  attend(index, rows, caches);
}

void Decoder::attention_output(std::int64_t index, std::int64_t rows) {
  const LayerWeights& layer = weights_.layers[static_cast<std::size_t>(index)];
  const std::int64_t n = config_.hidden;
  run_group(mixed_, config_.heads * config_.head_dim, rows, {{&layer.o, y_}});
  each_row(rows, [&](std::int64_t row) {
    add_residual(layer.o.bias, layer.post_attention_norm, row);
    ops_->rms_norm(x_ + row * n, layer.ffn_norm.data(), eps_, n, normed_ + row * n);
  });
}

void Decoder::feed_forward_inner(std::int64_t index, std::int64_t rows) {
  const LayerWeights& layer = weights_.layers[static_cast<std::size_t>(index)];
  const std::int64_t inner = config_.intermediate;
  run_group(normed_, config_.hidden, rows, {{&layer.gate, gate_}, {&layer.up, up_}});
  each_row(rows, [&](std::int64_t row) {
    float* gate = gate_ + row * inner;
    float* up = up_ + row * inner;
    if (!layer.gate.bias.empty()) ops_->add(gate, layer.gate.bias.data(), inner);
    if (!layer.up.bias.empty()) ops_->add(up, layer.up.bias.data(), inner);
    if (recipe_.activation == Activation::kSilu)
      ops_->silu_mul(gate, up, inner);
    else
      ops_->gelu_mul(gate, up, inner);
  });
}

// Ends with the norm that comes next: the following layer's first, or the final one.
void Decoder::feed_forward_output(std::int64_t index, std::int64_t rows) {
  const auto at = static_cast<std::size_t>(index);
  const LayerWeights& layer = weights_.layers[at];
  const std::int64_t n = config_.hidden;
  run_group(gate_, config_.intermediate, rows, {{&layer.down, y_}});
  const bool is_last = at + 1 == weights_.layers.size();
  const std::vector<float>& next =
      is_last ? weights_.final_norm : weights_.layers[at + 1].attention_norm;
  each_row(rows, [&](std::int64_t row) {
    add_residual(layer.down.bias, layer.post_ffn_norm, row);
    ops_->rms_norm(x_ + row * n, next.data(), eps_, n, normed_ + row * n);
  });
}

std::int64_t Decoder::logits(std::span<const BatchRow> rows, float* out) {
  const std::int64_t n = config_.hidden, vocab = config_.vocab;
  std::int64_t wanted = 0;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    if (!rows[i].wants_logits) continue;
    const float* from = normed_ + static_cast<std::int64_t>(i) * n;
    std::copy(from, from + n, y_ + wanted * n);
    ++wanted;
  }
  if (wanted == 0) return 0;
  weights_.head().run(y_, wanted, n, out, vocab, *pool_, workspace_);
  if (recipe_.final_softcap > 0)
    each_row(wanted, [&](std::int64_t row) {
      ops_->softcap(out + row * vocab, recipe_.final_softcap, vocab);
    });
  return wanted;
}

std::int64_t Decoder::run(std::span<const BatchRow> rows, std::span<KvCache* const> caches,
                          float* out) {
  PACKSTONE_ASSERT(!rows.empty());
  PACKSTONE_ASSERT(rows.size() <= ids_.size());
  embed(rows);
  for (std::int64_t layer = 0; layer < config_.layers; ++layer) {
    const auto count = static_cast<std::int64_t>(rows.size());
    attention_heads(layer, rows, caches);
    attention_output(layer, count);
    feed_forward_inner(layer, count);
    feed_forward_output(layer, count);
  }
  for (const BatchRow& row : rows) sequence(caches, row).set_length(row.position + 1);
  return logits(rows, out);
}

}  // namespace packstone
