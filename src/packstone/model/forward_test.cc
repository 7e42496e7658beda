// Proves that the bits of a row's logits depend on its own sequence only, not on how the rows were
// cut into calls, batched or spread over threads, and that bad calls are refused and change
// nothing.
#include <gtest/gtest.h>

#include <limits>
#include <random>

#include "packstone/model/model.h"
#include "packstone/model/test_checkpoint.h"

namespace packstone {
namespace {

using testing::kAllArchitectures;
using testing::random_checkpoint;
using testing::tiny_config;

std::vector<std::int32_t> random_tokens(std::int64_t count, std::int64_t vocab,
                                        std::uint32_t seed) {
  std::mt19937 random(seed);
  std::vector<std::int32_t> tokens(static_cast<std::size_t>(count));
  for (std::int32_t& token : tokens)
    token = static_cast<std::int32_t>(random() % static_cast<std::uint32_t>(vocab));
  return tokens;
}

// The logits of every position, run in calls of `piece` rows.
std::vector<float> run_in_pieces(Model& model, const std::vector<std::int32_t>& tokens,
                                 std::size_t piece) {
  auto cache = model.new_cache(static_cast<std::int64_t>(tokens.size())).value();
  KvCache* caches[] = {cache.get()};
  const auto vocab = static_cast<std::size_t>(model.config().vocab);
  std::vector<float> logits(tokens.size() * vocab);
  for (std::size_t first = 0; first < tokens.size(); first += piece) {
    const std::size_t count = std::min(piece, tokens.size() - first);
    std::vector<BatchRow> rows;
    for (std::size_t i = first; i < first + count; ++i)
      rows.push_back({tokens[i], static_cast<std::int64_t>(i), 0, true});
    const Status status =
        model.forward(rows, caches, std::span(logits).subspan(first * vocab, count * vocab));
    EXPECT_TRUE(status) << status.error().message;
  }
  return logits;
}

// Eight sequences side by side: sequence s starts s calls late and brings 1 + s % 3 rows a call.
std::vector<std::vector<float>> run_batch(Model& model,
                                          const std::vector<std::vector<std::int32_t>>& sequences) {
  const auto vocab = static_cast<std::size_t>(model.config().vocab);
  std::vector<std::unique_ptr<KvCache>> owned;
  std::vector<KvCache*> caches;
  std::vector<std::vector<float>> result(sequences.size());
  for (const auto& tokens : sequences) {
    owned.push_back(model.new_cache(static_cast<std::int64_t>(tokens.size())).value());
    caches.push_back(owned.back().get());
  }
  for (std::size_t call = 0; call < 1000; ++call) {
    std::vector<BatchRow> rows;
    for (std::size_t s = 0; s < sequences.size(); ++s) {
      if (call < s) continue;
      const auto done = static_cast<std::size_t>(caches[s]->length());
      for (std::size_t i = done; i < std::min(sequences[s].size(), done + 1 + s % 3); ++i)
        rows.push_back(
            {sequences[s][i], static_cast<std::int64_t>(i), static_cast<std::int32_t>(s), true});
    }
    if (rows.empty()) break;
    std::vector<float> logits(rows.size() * vocab);
    const Status status = model.forward(rows, caches, logits);
    EXPECT_TRUE(status) << status.error().message;
    for (std::size_t i = 0; i < rows.size(); ++i) {
      auto& target = result[static_cast<std::size_t>(rows[i].sequence)];
      target.insert(target.end(), logits.begin() + static_cast<std::ptrdiff_t>(i * vocab),
                    logits.begin() + static_cast<std::ptrdiff_t>((i + 1) * vocab));
    }
  }
  return result;
}

bool same_bits(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

class ForwardBits : public ::testing::TestWithParam<Architecture> {};

TEST_P(ForwardBits, DecodePrefillPiecesAndBatchAgree) {
  constexpr std::uint32_t kSeed = 11;
  SCOPED_TRACE("seed " + std::to_string(kSeed));
  const ModelConfig config = tiny_config(GetParam());
  ThreadPool pool(2);
  Model model = Model::load(random_checkpoint(config, kSeed), pool).value();
  std::vector<std::vector<std::int32_t>> sequences;
  for (std::uint32_t s = 0; s < 8; ++s)
    sequences.push_back(random_tokens(20 + 3 * s, config.vocab, kSeed + s));
  const auto batched = run_batch(model, sequences);
  for (std::size_t s = 0; s < sequences.size(); ++s) {
    const auto once = run_in_pieces(model, sequences[s], sequences[s].size());
    EXPECT_TRUE(same_bits(once, batched[s])) << "sequence " << s;
    if (s % 4 != 0) continue;
    EXPECT_TRUE(same_bits(once, run_in_pieces(model, sequences[s], 1)));
    EXPECT_TRUE(same_bits(once, run_in_pieces(model, sequences[s], 7)));
  }
}

TEST_P(ForwardBits, ThreadsAndBufferSizeDoNotMatter) {
  const ModelConfig config = tiny_config(GetParam());
  const auto tokens = random_tokens(40, config.vocab, 5);
  std::vector<std::vector<float>> results;
  for (const int threads : {1, 2, 3}) {
    ThreadPool pool(threads);
    LoadOptions options;
    options.rows_max = threads == 2 ? 9 : 512;
    Model model = Model::load(random_checkpoint(config, 2), pool, options).value();
    results.push_back(run_in_pieces(model, tokens, tokens.size()));
  }
  EXPECT_TRUE(same_bits(results[0], results[1]));
  EXPECT_TRUE(same_bits(results[0], results[2]));
}

TEST_P(ForwardBits, EveryKvTypeKeepsTheBitsAndStaysClose) {
  const ModelConfig config = tiny_config(GetParam());
  const auto tokens = random_tokens(30, config.vocab, 5);
  ThreadPool pool(1);
  std::vector<float> exact;
  for (const KvType type : {KvType::kF32, KvType::kF16, KvType::kBF16}) {
    LoadOptions options;
    options.kv_type = type;
    Model model = Model::load(random_checkpoint(config, 2), pool, options).value();
    const auto logits = run_in_pieces(model, tokens, tokens.size());
    EXPECT_TRUE(same_bits(logits, run_in_pieces(model, tokens, 1)));
    if (type == KvType::kF32) exact = logits;
    float worst = 0;
    for (std::size_t i = 0; i < logits.size(); ++i)
      worst = std::max(worst, std::abs(logits[i] - exact[i]));
    EXPECT_LT(worst, type == KvType::kF32 ? 1e-9f : type == KvType::kF16 ? 0.02f : 0.2f);
  }
}

std::string case_name(const ::testing::TestParamInfo<Architecture>& tested) {
  constexpr const char* kNames[] = {"Llama", "Mistral", "Qwen2", "Qwen3", "Gemma2", "Gemma3"};
  return kNames[static_cast<int>(tested.param)];
}
INSTANTIATE_TEST_SUITE_P(All, ForwardBits, ::testing::ValuesIn(kAllArchitectures), case_name);

TEST(Forward, SlidingWindowForgetsWhatIsFartherBack) {
  ModelConfig config = tiny_config(Architecture::kGemma3);
  config.sliding_layers = {true, true};
  ThreadPool pool(1);
  Model model = Model::load(random_checkpoint(config, 4), pool).value();
  auto tokens = random_tokens(40, config.vocab, 1);
  const auto before = run_in_pieces(model, tokens, 40);
  tokens[3] = (tokens[3] + 1) % static_cast<std::int32_t>(config.vocab);
  const auto after = run_in_pieces(model, tokens, 40);
  const auto vocab = static_cast<std::size_t>(config.vocab);
  const auto row_equal = [&](std::size_t row) {
    return std::memcmp(&before[row * vocab], &after[row * vocab], vocab * sizeof(float)) == 0;
  };
  // Two layers with a window of 7 see 12 positions back.
  EXPECT_TRUE(row_equal(2));
  EXPECT_FALSE(row_equal(3));
  EXPECT_FALSE(row_equal(15));
  EXPECT_TRUE(row_equal(16));
  EXPECT_TRUE(row_equal(39));
}

TEST(Forward, TruncateForgets) {
  ThreadPool pool(1);
  Model model = Model::load(random_checkpoint(tiny_config(Architecture::kLlama), 4), pool).value();
  const auto vocab = static_cast<std::size_t>(model.config().vocab);
  auto cache = model.new_cache(400).value();
  KvCache* caches[] = {cache.get()};
  const auto run = [&](std::int32_t token) {
    std::vector<float> logits(vocab);
    const BatchRow row{token, cache->length(), 0, true};
    EXPECT_TRUE(model.forward({&row, 1}, caches, logits));
    return logits;
  };
  run(1);
  const auto first = run(2);
  for (std::int32_t i = 0; i < 300; ++i) run(i % 50);  // past the first step of the cache
  EXPECT_EQ(cache->length(), 302);
  cache->truncate(1);
  EXPECT_EQ(cache->length(), 1);
  EXPECT_TRUE(same_bits(first, run(2)));
  cache->truncate(-5);
  EXPECT_EQ(cache->length(), 0);
}

TEST(Forward, RefusesBadCallsAndChangesNothing) {
  ThreadPool pool(1);
  Model model = Model::load(random_checkpoint(tiny_config(Architecture::kLlama), 4), pool).value();
  Model other = Model::load(random_checkpoint(tiny_config(Architecture::kLlama), 4), pool).value();
  auto cache = model.new_cache(4).value();
  auto foreign = other.new_cache(4).value();
  KvCache* caches[] = {cache.get()};
  KvCache* bad_caches[] = {foreign.get()};
  KvCache* twice[] = {cache.get(), cache.get()};
  const auto code = [&](std::vector<BatchRow> rows, std::span<KvCache* const> used) {
    const Status status = model.forward(rows, used, {});
    EXPECT_EQ(cache->length(), 0);
    return status ? std::optional<ErrorCode>() : status.error().code;
  };
  EXPECT_EQ(code({{96, 0, 0, false}}, caches), ErrorCode::kInvalidInput);
  EXPECT_EQ(code({{-1, 0, 0, false}}, caches), ErrorCode::kInvalidInput);
  EXPECT_EQ(code({{1, 1, 0, false}}, caches), ErrorCode::kInvalidInput);
  EXPECT_EQ(code({{1, 0, 0, false}, {1, 2, 0, false}}, caches), ErrorCode::kInvalidInput);
  EXPECT_EQ(code({{1, 0, 1, false}}, caches), ErrorCode::kInvalidInput);
  EXPECT_EQ(code({{1, 0, -1, false}}, caches), ErrorCode::kInvalidInput);
  EXPECT_EQ(code({{1, 0, 0, true}}, caches), ErrorCode::kInvalidInput);
  EXPECT_EQ(code({{1, 0, 0, false}}, bad_caches), ErrorCode::kInvalidInput);
  EXPECT_EQ(code({{1, 0, 0, false}, {1, 0, 1, false}}, twice), ErrorCode::kInvalidInput);
  std::vector<BatchRow> five;
  for (std::int64_t i = 0; i < 5; ++i) five.push_back({1, i, 0, false});
  EXPECT_EQ(code(five, caches), ErrorCode::kExhausted);
  EXPECT_EQ(code({}, caches), std::nullopt);
  EXPECT_EQ(model.new_cache(0).error().code, ErrorCode::kInvalidInput);
  EXPECT_EQ(model.new_cache(std::numeric_limits<std::int64_t>::max()).error().code,
            ErrorCode::kInvalidInput);
}

TEST(Load, NamesTheTensorThatIsMissingOrMisshaped) {
  ThreadPool pool(1);
  for (const Architecture architecture : kAllArchitectures) {
    const Checkpoint whole = random_checkpoint(tiny_config(architecture), 4);
    for (const CheckpointTensor& tensor : whole.tensors) {
      Checkpoint broken = whole;
      broken.index.erase(tensor.name);
      auto missing = Model::load(broken, pool);
      ASSERT_FALSE(missing);
      EXPECT_EQ(missing.error().code, ErrorCode::kCorruptData);
      EXPECT_NE(missing.error().message.find(tensor.name), std::string::npos);
      testing::add_tensor(broken, tensor.name, 3, 5, std::vector<float>(15));
      auto misshaped = Model::load(broken, pool);
      ASSERT_FALSE(misshaped);
      EXPECT_EQ(misshaped.error().code, ErrorCode::kCorruptData);
      EXPECT_NE(misshaped.error().message.find("[3, 5]"), std::string::npos);
    }
  }
}

TEST(Load, RefusesConfigsThatCannotBeRun) {
  ThreadPool pool(1);
  const auto code = [&](auto change) {
    Checkpoint checkpoint = random_checkpoint(tiny_config(Architecture::kGemma3), 4);
    change(checkpoint.config);
    auto model = Model::load(std::move(checkpoint), pool);
    return model ? std::optional<ErrorCode>() : model.error().code;
  };
  EXPECT_EQ(code([](ModelConfig& c) { c.kv_heads = 0; }), ErrorCode::kCorruptData);
  EXPECT_EQ(code([](ModelConfig& c) { c.kv_heads = 3; }), ErrorCode::kCorruptData);
  EXPECT_EQ(code([](ModelConfig& c) { c.heads = -4; }), ErrorCode::kCorruptData);
  EXPECT_EQ(code([](ModelConfig& c) { c.layers = 0; }), ErrorCode::kCorruptData);
  EXPECT_EQ(code([](ModelConfig& c) { c.layers = 1 << 30; }), ErrorCode::kCorruptData);
  EXPECT_EQ(code([](ModelConfig& c) { c.sliding_window = 0; }), ErrorCode::kCorruptData);
  EXPECT_EQ(code([](ModelConfig& c) { c.rope_theta = -1; }), ErrorCode::kInvalidInput);
  LoadOptions options;
  options.rows_max = 0;
  EXPECT_EQ(Model::load(random_checkpoint(tiny_config(Architecture::kLlama), 4), pool, options)
                .error()
                .code,
            ErrorCode::kInvalidInput);
}

// The stored rows of q and k in the order of GGUF's llama give the bits of the Hugging Face order.
TEST(Load, RowOrderAndValueRuleGiveTheSameBits) {
  ThreadPool pool(1);
  for (const Architecture architecture : {Architecture::kLlama, Architecture::kGemma3}) {
    const Checkpoint plain = random_checkpoint(tiny_config(architecture), 8);
    Checkpoint stored = plain;
    for (CheckpointTensor& tensor : stored.tensors) {
      const Shape shape = tensor.weight.shape();
      std::vector<float> values(static_cast<std::size_t>(shape.rows * shape.cols));
      std::memcpy(values.data(), tensor.weight.plane(0).data(), tensor.weight.plane(0).size());
      std::vector<float> changed = values;
      const bool is_qk = tensor.name.find("q_proj") != std::string::npos ||
                         tensor.name.find("k_proj") != std::string::npos;
      if (architecture == Architecture::kLlama && is_qk) {
        tensor.row_order = RowOrder::kPairedHeads;
        tensor.order_head_dim = 16;
        const auto order = tensor.stored_rows();
        for (std::int64_t row = 0; row < shape.rows; ++row)
          std::copy_n(values.begin() + row * shape.cols, shape.cols,
                      changed.begin() + order[static_cast<std::size_t>(row)] * shape.cols);
      } else if (architecture == Architecture::kGemma3 &&
                 tensor.name.find("norm") != std::string::npos) {
        tensor.value_rule = ValueRule::kPlusOne;
        for (float& value : changed) value = 1.0f + value;
      } else {
        continue;
      }
      auto owner = std::make_shared<std::vector<float>>(changed);
      tensor.weight = PackedWeight::bind(kFloat32, shape, {}, {std::as_bytes(std::span(*owner))},
                                         owner, tensor.name)
                          .value();
    }
    Model a = Model::load(plain, pool).value(), b = Model::load(stored, pool).value();
    const auto tokens = random_tokens(12, 96, 3);
    EXPECT_TRUE(same_bits(run_in_pieces(a, tokens, 12), run_in_pieces(b, tokens, 12)));
  }
}

}  // namespace
}  // namespace packstone
