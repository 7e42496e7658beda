#include "packstone/model/model.h"

#include <algorithm>
#include <set>

#include "packstone/base/limits.h"
#include "packstone/model/decoder.h"
#include "packstone/model/registry.h"

namespace packstone {
namespace {

// Rows of one call beyond which a larger buffer gains nothing.
constexpr std::int64_t kRowsMax = 65'536;

Status check_number(std::string_view name, std::int64_t value, std::int64_t max) {
  if (value >= 1 && value <= max) return {};
  return fail(ErrorCode::kCorruptData, "model.load", fmt::format("config: {}", name),
              fmt::to_string(value), fmt::format("1 to {}", max));
}

// What the decoder divides by, indexes with or multiplies; tensor shapes are checked when bound.
Status check_config(const ModelConfig& config) {
  constexpr std::int64_t kWidthMax = 1 << 24;
  PACKSTONE_CHECK_OK(check_number("layers", config.layers, limits::kLayersMax));
  PACKSTONE_CHECK_OK(check_number("hidden", config.hidden, kWidthMax));
  PACKSTONE_CHECK_OK(check_number("intermediate", config.intermediate, kWidthMax));
  PACKSTONE_CHECK_OK(check_number("heads", config.heads, kWidthMax));
  PACKSTONE_CHECK_OK(check_number("kv_heads", config.kv_heads, config.heads));
  PACKSTONE_CHECK_OK(check_number("head_dim", config.head_dim, kWidthMax));
  PACKSTONE_CHECK_OK(check_number("vocab", config.vocab, limits::kVocabularyMax));
  PACKSTONE_CHECK_OK(check_number("context", config.context, limits::kContextMax));
  if (config.heads % config.kv_heads != 0)
    return fail(ErrorCode::kCorruptData, "model.load", "config: kv_heads",
                fmt::to_string(config.kv_heads),
                fmt::format("a divisor of {} heads", config.heads));
  const bool slides = std::find(config.sliding_layers.begin(), config.sliding_layers.end(), true) !=
                      config.sliding_layers.end();
  if (slides) PACKSTONE_CHECK_OK(check_number("sliding_window", config.sliding_window, INT64_MAX));
  return {};
}

const ArchitectureEntry* find_architecture(Architecture architecture) {
  for (const ArchitectureEntry& entry : kArchitectures)
    if (entry.architecture == architecture) return &entry;
  return nullptr;
}

}  // namespace

struct Model::State {
  Checkpoint checkpoint;
  LoadOptions options;
  ThreadPool* pool;
  Decoder decoder;

  Status check(std::span<const BatchRow> rows, std::span<KvCache* const> caches,
               std::size_t logits_size) const;
  Status check_row(const BatchRow& row, std::span<KvCache* const> caches) const;
};

Model::Model(std::unique_ptr<State> state) : state_(std::move(state)) {}
Model::Model(Model&&) noexcept = default;
Model& Model::operator=(Model&&) noexcept = default;
Model::~Model() = default;

Result<Decoder> load_decoder(const Checkpoint& checkpoint, ThreadPool& pool,
                             const LoadOptions& options) {
  if (options.rows_max < 1 || options.rows_max > kRowsMax)
    return fail(ErrorCode::kInvalidInput, "model.load", "rows_max",
                fmt::to_string(options.rows_max), fmt::format("1 to {}", kRowsMax));
  PACKSTONE_CHECK_OK(check_config(checkpoint.config));
  const ArchitectureEntry* entry = find_architecture(checkpoint.config.architecture);
  if (entry == nullptr)
    return fail(ErrorCode::kUnsupported, "model.load", "architecture",
                architecture_name(checkpoint.config.architecture), "one that this build runs");
  const DecoderRecipe recipe = entry->recipe(checkpoint.config);
  PACKSTONE_TRY(DecoderWeights weights, bind_weights(checkpoint, recipe));
  return Decoder::make(std::move(weights), checkpoint.config, recipe, pool, options);
}

Result<Model> Model::load(Checkpoint checkpoint, ThreadPool& pool, const LoadOptions& options) {
  PACKSTONE_TRY(Decoder decoder, load_decoder(checkpoint, pool, options));
  return Model(std::make_unique<State>(std::move(checkpoint), options, &pool, std::move(decoder)));
}

const ModelConfig& Model::config() const {
  return state_->checkpoint.config;
}
const Checkpoint& Model::checkpoint() const {
  return state_->checkpoint;
}
ThreadPool& Model::pool() const {
  return *state_->pool;
}
std::int64_t Model::rows_max() const {
  return state_->options.rows_max;
}
std::uint64_t Model::buffer_bytes() const {
  return state_->decoder.buffer_bytes();
}

std::vector<std::string> Model::kernel_names() const {
  std::set<std::string> names;
  state_->decoder.weights().each_linear(
      [&](const Linear& linear) { names.emplace(linear.kernel_name()); });
  return {names.begin(), names.end()};
}

std::uint64_t Model::weight_bytes() const {
  std::uint64_t bytes = 0;
  state_->decoder.weights().each_linear(
      [&](const Linear& linear) { bytes += linear.weight().bytes(); });
  return bytes;
}

Result<std::unique_ptr<KvCache>> Model::new_cache(std::int64_t context) const {
  const ModelConfig& c = config();
  if (context < 1 || context > limits::kContextMax)
    return fail(ErrorCode::kInvalidInput, "model.new_cache", "context", fmt::to_string(context),
                fmt::format("1 to {}", limits::kContextMax));
  return std::make_unique<SequenceCache>(c.layers, c.kv_heads * c.head_dim, state_->options.kv_type,
                                         context, state_.get());
}

Status Model::State::check_row(const BatchRow& row, std::span<KvCache* const> caches) const {
  constexpr std::string_view kWhere = "model.forward";
  if (row.sequence < 0 || static_cast<std::size_t>(row.sequence) >= caches.size())
    return fail(ErrorCode::kInvalidInput, kWhere, "sequence", fmt::to_string(row.sequence),
                fmt::format("below {}", caches.size()));
  if (row.token < 0 || row.token >= checkpoint.config.vocab)
    return fail(ErrorCode::kInvalidInput, kWhere, "token", fmt::to_string(row.token),
                fmt::format("0 to {}", checkpoint.config.vocab - 1));
  auto& cache = static_cast<SequenceCache&>(*caches[static_cast<std::size_t>(row.sequence)]);
  const std::int64_t next = cache.length() + cache.pending;
  if (row.position != next)
    return fail(ErrorCode::kInvalidInput, kWhere,
                fmt::format("position of sequence {}", row.sequence), fmt::to_string(row.position),
                fmt::to_string(next));
  if (next >= cache.context())
    return fail(ErrorCode::kExhausted, kWhere, fmt::format("sequence {}", row.sequence),
                fmt::format("position {}", next), fmt::format("below {}", cache.context()),
                "the context is full");
  ++cache.pending;
  return {};
}

Status Model::State::check(std::span<const BatchRow> rows, std::span<KvCache* const> caches,
                           std::size_t logits_size) const {
  for (KvCache* cache : caches) {
    auto* sequence = dynamic_cast<SequenceCache*>(cache);
    if (sequence == nullptr || sequence->model() != this)
      return fail(ErrorCode::kInvalidInput, "model.forward", "cache", "one of another model",
                  "one made by this model's new_cache");
    sequence->pending = 0;
  }
  std::size_t wanted = 0;
  for (const BatchRow& row : rows) {
    PACKSTONE_CHECK_OK(check_row(row, caches));
    wanted += row.wants_logits;
  }
  const std::size_t need = wanted * static_cast<std::size_t>(checkpoint.config.vocab);
  if (logits_size == need) return {};
  return fail(ErrorCode::kInvalidInput, "model.forward", "logits",
              fmt::format("{} values", logits_size), fmt::to_string(need));
}

Status Model::forward(std::span<const BatchRow> rows, std::span<KvCache* const> caches,
                      std::span<float> logits) {
  PACKSTONE_CHECK_OK(state_->check(rows, caches, logits.size()));
  PACKSTONE_CHECK_OK(state_->decoder.reserve(rows, caches));
  float* out = logits.data();
  while (!rows.empty()) {
    const auto piece =
        rows.first(std::min(rows.size(), static_cast<std::size_t>(state_->options.rows_max)));
    out += state_->decoder.run(piece, caches, out) * config().vocab;
    rows = rows.subspan(piece.size());
  }
  return {};
}

}  // namespace packstone
