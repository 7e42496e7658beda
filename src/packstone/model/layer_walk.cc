#include "packstone/model/layer_walk.h"

#include <algorithm>
#include <new>

#include "packstone/model/decoder.h"
#include "packstone/model/registry.h"

namespace packstone {
namespace {

constexpr std::string_view kWhere = "model.layer_walk";

struct Slot {
  std::string_view name;
  BoundLinear LayerWeights::* matrix;
  LayerStage stage;
};
constexpr Slot kSlots[] = {
    {"self_attn.q_proj", &LayerWeights::q, LayerStage::kAttentionInput},
    {"self_attn.k_proj", &LayerWeights::k, LayerStage::kAttentionInput},
    {"self_attn.v_proj", &LayerWeights::v, LayerStage::kAttentionInput},
    {"self_attn.o_proj", &LayerWeights::o, LayerStage::kAttentionOutput},
    {"mlp.gate_proj", &LayerWeights::gate, LayerStage::kFeedForwardInput},
    {"mlp.up_proj", &LayerWeights::up, LayerStage::kFeedForwardInput},
    {"mlp.down_proj", &LayerWeights::down, LayerStage::kFeedForwardOutput},
};

std::string slot_name(std::int64_t layer, const Slot& slot) {
  return fmt::format("model.layers.{}.{}.weight", layer, slot.name);
}

}  // namespace

struct LayerWalk::State {
  ModelConfig config;
  std::vector<std::vector<BatchRow>> sequences;
  std::vector<std::int64_t> first_row;  // of each sequence
  std::int64_t tokens = 0;
  Decoder decoder;
  std::unique_ptr<KvCache> cache;
  std::vector<float> x, mixed;  // [tokens, hidden], [tokens, heads * head_dim]
  std::int64_t layer = 0;
  std::size_t stages_done = 0;  // of the current layer

  std::int64_t mixed_width() const { return config.heads * config.head_dim; }
  LayerWeights& weights() { return decoder.weights().layers[static_cast<std::size_t>(layer)]; }
  void load_x(std::size_t sequence) {
    const auto rows = static_cast<std::int64_t>(sequences[sequence].size());
    std::copy_n(x.data() + first_row[sequence] * config.hidden, rows * config.hidden,
                decoder.buffers().x);
  }
  void store_x(std::size_t sequence) {
    const auto rows = static_cast<std::int64_t>(sequences[sequence].size());
    std::copy_n(decoder.buffers().x, rows * config.hidden,
                x.data() + first_row[sequence] * config.hidden);
  }
  // To the inputs of a stage; returns them.
  Result<MatrixView> run_to(LayerStage stage, std::size_t sequence);
  MatrixView run_to_head(std::size_t sequence);
  Status check_stage(LayerStage stage) const;
  Status check_pair(const State& other) const;
  Status check_end() const;
};

LayerWalk::LayerWalk(std::unique_ptr<State> state) : state_(std::move(state)) {}
LayerWalk::LayerWalk(LayerWalk&&) noexcept = default;
LayerWalk& LayerWalk::operator=(LayerWalk&&) noexcept = default;
LayerWalk::~LayerWalk() = default;

Result<LayerWalk> LayerWalk::make(const Checkpoint& checkpoint,
                                  std::vector<std::vector<std::int32_t>> sequences,
                                  ThreadPool& pool) {
  const ModelConfig& config = checkpoint.config;
  std::size_t longest = 0;
  std::int64_t tokens = 0;
  std::vector<std::vector<BatchRow>> rows;
  std::vector<std::int64_t> first_row;
  for (std::size_t s = 0; s < sequences.size(); ++s) {
    longest = std::max(longest, sequences[s].size());
    if (sequences[s].empty())
      return fail(ErrorCode::kInvalidInput, kWhere, fmt::format("sequence {}", s), "no token",
                  "at least one");
    first_row.push_back(tokens);
    std::vector<BatchRow>& batch = rows.emplace_back();
    for (const std::int32_t token : sequences[s]) {
      if (token < 0 || token >= config.vocab)
        return fail(ErrorCode::kInvalidInput, kWhere, fmt::format("sequence {}", s),
                    fmt::format("token {}", token), fmt::format("0 to {}", config.vocab - 1));
      batch.push_back({token, static_cast<std::int64_t>(batch.size()), 0, false});
    }
    tokens += static_cast<std::int64_t>(batch.size());
  }
  if (sequences.empty() || static_cast<std::int64_t>(longest) > config.context)
    return fail(ErrorCode::kInvalidInput, kWhere, "calibration",
                fmt::format("{} sequences, the longest of {} tokens", sequences.size(), longest),
                fmt::format("at least one, of at most {} tokens", config.context));
  LoadOptions options;
  options.rows_max = static_cast<std::int64_t>(longest);
  PACKSTONE_TRY(Decoder decoder, load_decoder(checkpoint, pool, options));
  try {
    auto state = std::make_unique<State>(config, std::move(rows), std::move(first_row), tokens,
                                         std::move(decoder));
    state->cache = std::make_unique<SequenceCache>(config.layers, config.kv_heads * config.head_dim,
                                                   options.kv_type, options.rows_max, nullptr);
    state->x.resize(static_cast<std::size_t>(tokens * config.hidden));
    state->mixed.resize(static_cast<std::size_t>(tokens * state->mixed_width()));
    for (std::size_t s = 0; s < state->sequences.size(); ++s) {
      state->decoder.embed(state->sequences[s]);
      state->store_x(s);
    }
    return LayerWalk(std::move(state));
  } catch (const std::bad_alloc&) {
    return fail(ErrorCode::kExhausted, kWhere, "calibration", "too little memory",
                fmt::format("{} MiB between layers",
                            tokens * (config.hidden + config.heads * config.head_dim) >> 18),
                "use fewer or shorter sequences");
  }
}

std::int64_t LayerWalk::layers() const {
  return state_->config.layers;
}
std::int64_t LayerWalk::layer() const {
  return state_->layer;
}
std::int64_t LayerWalk::tokens() const {
  return state_->tokens;
}

std::vector<std::string> LayerWalk::matrices(LayerStage stage) const {
  std::vector<std::string> names;
  for (const Slot& slot : kSlots)
    if (slot.stage == stage) names.push_back(slot_name(state_->layer, slot));
  return names;
}

Result<MatrixView> LayerWalk::State::run_to(LayerStage stage, std::size_t sequence) {
  const std::vector<BatchRow>& batch = sequences[sequence];
  const auto rows = static_cast<std::int64_t>(batch.size());
  const Decoder::Buffers buffers = decoder.buffers();
  const std::int64_t hidden = config.hidden, width = mixed_width();
  float* mixed_rows = mixed.data() + first_row[sequence] * width;
  load_x(sequence);
  switch (stage) {
    case LayerStage::kAttentionInput:
      decoder.norm(weights().attention_norm, rows);
      return MatrixView{buffers.normed, rows, hidden, hidden};
    case LayerStage::kAttentionOutput: {
      decoder.norm(weights().attention_norm, rows);
      KvCache* caches[] = {cache.get()};
      cache->truncate(0);
      PACKSTONE_CHECK_OK(decoder.reserve(batch, caches));
      decoder.attention_heads(layer, batch, caches);
      std::copy_n(buffers.mixed, rows * width, mixed_rows);
      return MatrixView{buffers.mixed, rows, width, width};
    }
    case LayerStage::kFeedForwardInput:
      std::copy_n(mixed_rows, rows * width, buffers.mixed);
      decoder.attention_output(layer, rows);
      store_x(sequence);
      return MatrixView{buffers.normed, rows, hidden, hidden};
    case LayerStage::kFeedForwardOutput:
      break;
  }
  decoder.norm(weights().ffn_norm, rows);
  decoder.feed_forward_inner(layer, rows);
  return MatrixView{buffers.inner, rows, config.intermediate, config.intermediate};
}

Status LayerWalk::State::check_stage(LayerStage stage) const {
  if (layer >= config.layers || stages_done >= kLayerStages.size() ||
      kLayerStages[stages_done] != stage)
    return fail(ErrorCode::kInvalidInput, kWhere, fmt::format("layer {}", layer),
                "stages out of order", "each stage of a layer once");
  return {};
}

Status LayerWalk::inputs(LayerStage stage, const InputSink& sink) {
  State& state = *state_;
  PACKSTONE_CHECK_OK(state.check_stage(stage));
  for (std::size_t s = 0; s < state.sequences.size(); ++s) {
    PACKSTONE_TRY(const MatrixView rows, state.run_to(stage, s));
    sink(rows);
  }
  ++state.stages_done;
  return {};
}

Status LayerWalk::probe(std::int64_t count, const ProbeSink& sink) {
  State& state = *state_;
  PACKSTONE_CHECK_OK(state.check_stage(LayerStage::kAttentionInput));
  const ModelConfig& config = state.config;
  const Decoder::Buffers buffers = state.decoder.buffers();
  const auto last = static_cast<std::size_t>(
      std::clamp<std::int64_t>(count, 0, static_cast<std::int64_t>(state.sequences.size())));
  for (std::size_t s = 0; s < last; ++s) {
    const auto rows = static_cast<std::int64_t>(state.sequences[s].size());
    const auto show = [&](LayerStage stage, const float* data, std::int64_t width) {
      sink(stage, {data, rows, width, width});
    };
    state.load_x(s);
    state.decoder.norm(state.weights().attention_norm, rows);
    show(LayerStage::kAttentionInput, buffers.normed, config.hidden);
    KvCache* caches[] = {state.cache.get()};
    state.cache->truncate(0);
    PACKSTONE_CHECK_OK(state.decoder.reserve(state.sequences[s], caches));
    state.decoder.attention_heads(state.layer, state.sequences[s], caches);
    show(LayerStage::kAttentionOutput, buffers.mixed, state.mixed_width());
    state.decoder.attention_output(state.layer, rows);
    show(LayerStage::kFeedForwardInput, buffers.normed, config.hidden);
    state.decoder.feed_forward_inner(state.layer, rows);
    show(LayerStage::kFeedForwardOutput, buffers.inner, config.intermediate);
  }
  return {};
}

std::span<const float> LayerWalk::norm(LayerStage stage) const {
  if (stage == LayerStage::kAttentionInput) return state_->weights().attention_norm;
  if (stage == LayerStage::kFeedForwardInput) return state_->weights().ffn_norm;
  return {};
}

void LayerWalk::set_norm(LayerStage stage, std::span<const float> factors) {
  LayerWeights& weights = state_->weights();
  std::ranges::copy(factors, (stage == LayerStage::kAttentionInput ? weights.attention_norm
                                                                   : weights.ffn_norm)
                                 .begin());
}

Status LayerWalk::State::check_pair(const State& other) const {
  if (layer != other.layer || stages_done != other.stages_done || first_row != other.first_row ||
      tokens != other.tokens)
    return fail(ErrorCode::kInvalidInput, kWhere, fmt::format("layer {}", layer),
                fmt::format("another walk at layer {}", other.layer),
                "two walks over the same text at the same stage");
  return {};
}

Status LayerWalk::paired_inputs(LayerWalk& wanted, LayerWalk& walk, LayerStage stage,
                                const PairSink& sink) {
  State &first = *wanted.state_, &second = *walk.state_;
  PACKSTONE_CHECK_OK(second.check_stage(stage));
  PACKSTONE_CHECK_OK(second.check_pair(first));
  for (std::size_t s = 0; s < second.sequences.size(); ++s) {
    PACKSTONE_TRY(const MatrixView want, first.run_to(stage, s));
    PACKSTONE_TRY(const MatrixView have, second.run_to(stage, s));
    sink(want, have);
  }
  ++first.stages_done;
  ++second.stages_done;
  return {};
}

Status LayerWalk::replace(std::string_view name, PackedWeight weight) {
  for (const Slot& slot : kSlots) {
    if (state_->layer >= layers() || slot_name(state_->layer, slot) != name) continue;
    BoundLinear& bound = state_->weights().*slot.matrix;
    const Shape have = bound.matrix->shape(), got = weight.shape();
    if (have != got)
      return fail(ErrorCode::kInvalidInput, kWhere, name,
                  fmt::format("[{}, {}]", got.rows, got.cols),
                  fmt::format("[{}, {}]", have.rows, have.cols));
    PACKSTONE_TRY(bound.matrix, Linear::prepare(std::move(weight)));
    return {};
  }
  return fail(ErrorCode::kInvalidInput, kWhere, name, "no matrix of this name",
              fmt::format("one of layer {}", state_->layer));
}

Status LayerWalk::next_layer() {
  State& state = *state_;
  while (state.stages_done < kLayerStages.size())
    PACKSTONE_CHECK_OK(inputs(kLayerStages[state.stages_done], [](const MatrixView&) {}));
  for (std::size_t s = 0; s < state.sequences.size(); ++s) {
    PACKSTONE_TRY(const MatrixView inner, state.run_to(LayerStage::kFeedForwardOutput, s));
    state.decoder.feed_forward_output(state.layer, inner.rows);
    state.store_x(s);
  }
  for (const Slot& slot : kSlots) (state.weights().*slot.matrix).matrix.reset();
  ++state.layer;
  state.stages_done = 0;
  return {};
}

MatrixView LayerWalk::State::run_to_head(std::size_t sequence) {
  const auto rows = static_cast<std::int64_t>(sequences[sequence].size());
  load_x(sequence);
  decoder.norm(decoder.weights().final_norm, rows);
  return {decoder.buffers().normed, rows, config.hidden, config.hidden};
}

Status LayerWalk::State::check_end() const {
  if (layer < config.layers)
    return fail(ErrorCode::kInvalidInput, kWhere, "head", fmt::format("layer {}", layer),
                "a walk past the last layer");
  return {};
}

Status LayerWalk::head_inputs(const InputSink& sink) {
  PACKSTONE_CHECK_OK(state_->check_end());
  for (std::size_t s = 0; s < state_->sequences.size(); ++s) sink(state_->run_to_head(s));
  return {};
}

Status LayerWalk::paired_head_inputs(LayerWalk& wanted, LayerWalk& walk, const PairSink& sink) {
  PACKSTONE_CHECK_OK(walk.state_->check_end());
  PACKSTONE_CHECK_OK(walk.state_->check_pair(*wanted.state_));
  for (std::size_t s = 0; s < walk.state_->sequences.size(); ++s) {
    const MatrixView want = wanted.state_->run_to_head(s);
    sink(want, walk.state_->run_to_head(s));
  }
  return {};
}

}  // namespace packstone
