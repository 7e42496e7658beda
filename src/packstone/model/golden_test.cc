// Proves logits and greedy tokens of every architecture against mlx_lm in float32, on the tiny
// models of tests/golden (made by tests/golden/make_golden.py).
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>

#include "packstone/model/evaluate.h"
#include "packstone/model/generate.h"

namespace packstone {
namespace {

namespace fs = std::filesystem;

std::string read_file(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

// The values of a little-endian float32 .npy file of version 1: magic, 2-byte header size at 8.
std::vector<float> read_npy(const fs::path& path) {
  const std::string bytes = read_file(path);
  EXPECT_EQ(bytes.substr(1, 5), "NUMPY");
  EXPECT_NE(bytes.find("'<f4'"), std::string::npos);
  const std::size_t start = 10 + static_cast<std::size_t>(load_le<std::uint16_t>(bytes.data() + 8));
  std::vector<float> values((bytes.size() - start) / 4);
  std::memcpy(values.data(), bytes.data() + start, values.size() * 4);
  return values;
}

struct Golden {
  std::vector<std::int32_t> tokens, greedy;
  double margin = 0, spread = 0;
  std::vector<float> logits;
};

class GoldenModel : public ::testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    const fs::path root = fs::path(PACKSTONE_SOURCE_DIR) / "tests/golden";
    const fs::path source = root / GetParam();
    const auto json = nlohmann::json::parse(read_file(source / "expected.json"));
    golden_.tokens = json["tokens"].get<std::vector<std::int32_t>>();
    golden_.greedy = json["greedy"].get<std::vector<std::int32_t>>();
    golden_.margin = json["margin_min"];
    golden_.spread = json["logits_std"];
    golden_.logits = read_npy(source / "logits.npy");
    // Variants have the config only; their weights are those of the folder named in expected.json.
    folder_ =
        fs::temp_directory_path() / fmt::format("packstone_golden_{}_{}", GetParam(), ::getpid());
    fs::create_directories(folder_);
    fs::copy_file(source / "config.json", folder_ / "config.json",
                  fs::copy_options::overwrite_existing);
    fs::copy_file(root / json["weights"].get<std::string>() / "model.safetensors",
                  folder_ / "model.safetensors", fs::copy_options::overwrite_existing);
  }
  void TearDown() override { fs::remove_all(folder_); }

  Result<Model> load() {
    PACKSTONE_TRY(Checkpoint checkpoint, open_checkpoint(folder_));
    return Model::load(std::move(checkpoint), pool_);
  }

  ThreadPool pool_{2};
  Golden golden_;
  fs::path folder_;
};

TEST_P(GoldenModel, LogitsWithinToleranceOfMlxLm) {
  auto model = load();
  ASSERT_TRUE(model) << model.error().message;
  std::vector<float> logits;
  const auto sink = [&](std::int64_t, std::span<const float> rows) -> Status {
    logits.insert(logits.end(), rows.begin(), rows.end());
    return {};
  };
  ASSERT_TRUE(each_logits(*model, golden_.tokens, 10, sink));
  ASSERT_EQ(logits.size(), golden_.logits.size());
  double worst = 0;
  for (std::size_t i = 0; i < logits.size(); ++i)
    worst = std::max(worst, std::abs(static_cast<double>(logits[i]) - golden_.logits[i]));
  RecordProperty("worst_over_spread", fmt::format("{:.3g}", worst / golden_.spread));
  EXPECT_LT(worst / golden_.spread, 2e-4);
}

TEST_P(GoldenModel, GreedyTokensEqualMlxLm) {
  auto model = load();
  ASSERT_TRUE(model) << model.error().message;
  ASSERT_GT(golden_.margin, 4e-4 * golden_.spread)
      << "the golden file leaves the choice to rounding";
  GenerateOptions options;
  options.tokens_max = static_cast<std::int64_t>(golden_.greedy.size());
  const auto result =
      generate(*model, golden_.tokens, model->config().vocab, options, {}, nullptr).value();
  EXPECT_EQ(result.tokens, golden_.greedy);
}

std::string case_name(const ::testing::TestParamInfo<const char*>& tested) {
  return tested.param;
}

INSTANTIATE_TEST_SUITE_P(All, GoldenModel,
                         ::testing::Values("llama", "llama_linear", "llama_llama3", "llama_yarn",
                                           "mistral", "qwen2", "qwen3", "gemma2", "gemma3"),
                         case_name);

}  // namespace
}  // namespace packstone
