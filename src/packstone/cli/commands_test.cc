// Every command on tiny random models: its exit code, its JSON keys, and what it leaves on disk.
#include <gtest/gtest.h>

#include <cstring>
#include <fstream>
#include <limits>

#include "packstone/checkpoint/checkpoint.h"
#include "packstone/cli/test_call.h"
#include "tests/support/tiny_checkpoint.h"

namespace packstone::cli {
namespace {

class Commands : public ::testing::Test {
 protected:
  void SetUp() override {
    ASSERT_TRUE(tiny::write(folder_ / "model.gguf", tiny::gguf("llama")).has_value());
    ASSERT_TRUE(tiny::write(folder_ / "gemma.gguf", tiny::gguf("gemma3_text")).has_value());
  }
  std::string path(std::string_view name) const { return (folder_ / name).string(); }
  // A call that must succeed and print one document.
  Json ok(std::vector<std::string> arguments) const {
    arguments.push_back("--json");
    const Called called = call(arguments);
    EXPECT_EQ(called.code, 0) << called.err;
    const Json json = called.json();
    EXPECT_FALSE(json.is_discarded()) << called.out;
    return json;
  }
  void has(const Json& json, std::initializer_list<const char*> keys) const {
    for (const char* key : keys) EXPECT_TRUE(json.contains(key)) << key;
  }
  tiny::TemporaryFolder folder_;
};

constexpr auto kConversionKeys = {
    "tensors", "worst_verdict", "bytes", "peak_memory_predicted", "peak_memory_measured",
    "seconds"};

TEST_F(Commands, Inspect) {
  const Json json = ok({"inspect", path("model.gguf")});
  has(json,
      {"architecture", "layout", "parameters", "bytes", "bits_per_weight", "tensors", "problems"});
  EXPECT_EQ(json["architecture"], "llama");
  has(json["tensors"][0], {"name", "layout", "shape", "bytes", "bits_per_weight"});
  EXPECT_EQ(call({"inspect", path("model.gguf")}).code, 0);
}

TEST_F(Commands, InspectOfDamageIsFour) {
  std::filesystem::copy_file(folder_ / "model.gguf", folder_ / "bad.gguf");
  std::filesystem::resize_file(folder_ / "bad.gguf", 1000);
  const Called called = call({"inspect", path("bad.gguf"), "--json"});
  EXPECT_EQ(called.code, 4) << called.err;
  EXPECT_EQ(called.json()["error"]["code"], "corrupt_data");
}

TEST_F(Commands, InspectOfAnotherArchitectureSaysSo) {
  tiny::Gguf other = tiny::gguf("llama");
  other.set("general.architecture", std::string("mamba"));
  ASSERT_TRUE(tiny::write(folder_ / "other.gguf", other).has_value());
  const Json json = ok({"inspect", path("other.gguf")});
  EXPECT_EQ(json["architecture"], "mamba");
  EXPECT_FALSE(json["problems"].empty());
  EXPECT_EQ(call({"convert", path("other.gguf"), path("x"), "--to", "mlx-affine"}).code, 5);
}

// float -> Q4_1 -> MLX -> Q4_1: the way back gives the same bytes.
TEST_F(Commands, QuantizeConvertAndBack) {
  const Json quantized = ok(
      {"quantize", path("model.gguf"), path("q41.gguf"), "--method", "rtn", "--to", "gguf:Q4_1"});
  has(quantized, kConversionKeys);
  EXPECT_EQ(quantized["worst_verdict"], "changed");
  for (const Json& tensor : quantized["tensors"]) {
    has(tensor, {"name", "from", "to", "verdict", "conditions", "reason"});
    if (tensor["verdict"] == "changed") has(tensor, {"relative_rms", "max_abs"});
  }
  const Json there = ok({"convert", path("q41.gguf"), path("mlx"), "--to", "mlx-affine"});
  has(there, kConversionKeys);
  for (const Json& tensor : there["tensors"])
    EXPECT_TRUE(tensor["to"] == "mlx-affine" || tensor["to"] == "float32") << tensor.dump();
  const Json same = ok({"diff", path("q41.gguf"), path("mlx")});
  has(same, {"same_bytes", "same_values", "different", "only_in_a", "only_in_b"});
  EXPECT_EQ(same["same_values"], same["tensors"].size());
  ok({"convert", path("mlx"), path("back.gguf"), "--to", "gguf:Q4_1"});
  const Json back = ok({"diff", path("q41.gguf"), path("back.gguf")});
  EXPECT_EQ(back["same_bytes"], back["tensors"].size());
}

TEST_F(Commands, GemmaNormsKeepTheirMultiplier) {
  ok({"convert", path("gemma.gguf"), path("gemma"), "--to", "float32"});
  const Json same = ok({"diff", path("gemma.gguf"), path("gemma")});
  EXPECT_EQ(same["same_values"], same["tensors"].size());
  EXPECT_LT(same["same_bytes"], same["tensors"].size());
  ok({"convert", path("gemma"), path("back.gguf"), "--to", "gguf:F32"});
  const Json back = ok({"diff", path("gemma.gguf"), path("back.gguf")});
  EXPECT_EQ(back["same_bytes"], back["tensors"].size());
}

TEST_F(Commands, DiffOfOtherValuesIsThreeAndSaysWhere) {
  ok({"quantize", path("model.gguf"), path("w8"), "--method", "rtn", "--to", "mlx-affine", "--bits",
      "8"});
  const Called called = call({"diff", path("model.gguf"), path("w8"), "--json"});
  EXPECT_EQ(called.code, 3);
  const Json first = called.json()["different"][0];
  has(first, {"name", "max_abs", "at"});
  EXPECT_EQ(first["at"].size(), 2u);
  EXPECT_GT(first["max_abs"].get<double>(), 0);
  EXPECT_EQ(call({"diff", path("model.gguf"), path("w8")}).code, 3);
}

TEST_F(Commands, RefusalNamesEveryTensorAndWritesNothing) {
  ok({"quantize", path("model.gguf"), path("w8"), "--method", "rtn", "--to", "mlx-affine", "--bits",
      "8"});
  const Called called = call({"convert", path("w8"), path("half"), "--to", "bfloat16", "--json"});
  EXPECT_EQ(called.code, 3);
  const Json json = called.json();
  EXPECT_EQ(json["worst_verdict"], "refused");
  for (const Json& tensor : json["tensors"])
    if (tensor["verdict"] == "refused") {
      EXPECT_FALSE(tensor["reason"].get<std::string>().empty());
      EXPECT_NE(called.err.find(tensor["name"].get<std::string>()), std::string::npos);
    }
  EXPECT_FALSE(std::filesystem::exists(folder_ / "half"));
}

TEST_F(Commands, Plan) {
  const Json convert = ok({"plan", path("model.gguf"), "--to", "mlx-affine"});
  has(convert, kConversionKeys);
  const Json quantize = ok({"plan", path("model.gguf"), "--to", "gguf:Q8_0", "--method", "rtn"});
  EXPECT_EQ(quantize["worst_verdict"], "changed");
  const Json done =
      ok({"quantize", path("model.gguf"), path("q8.gguf"), "--method", "rtn", "--to", "gguf:Q8_0"});
  EXPECT_EQ(quantize["bytes"], done["bytes"]);
}

TEST_F(Commands, DestinationRules) {
  const std::string model = path("model.gguf");
  EXPECT_EQ(call({"convert", model, model, "--to", "gguf:F32", "--force"}).code, 2);
  ok({"convert", model, path("out"), "--to", "float32"});
  EXPECT_EQ(call({"convert", model, path("out"), "--to", "float32"}).code, 2);
  ok({"convert", model, path("out"), "--to", "float32", "--force"});
  EXPECT_EQ(call({"convert", path("out"), path("out/inner"), "--to", "float32"}).code, 2);
  EXPECT_EQ(call({"convert", path("out"), path("."), "--to", "float32", "--force"}).code, 2);
  EXPECT_EQ(call({"convert", model, path("out"), "--to", "gguf:F32", "--force"}).code, 2);
  std::filesystem::create_directories(folder_ / "precious");
  std::ofstream(folder_ / "precious/file") << "keep";
  EXPECT_EQ(call({"convert", model, path("precious"), "--to", "float32", "--force"}).code, 2);
  EXPECT_TRUE(std::filesystem::exists(folder_ / "precious/file"));
}

TEST_F(Commands, RelativeNamesAreTheSamePlaces) {
  const std::filesystem::path before = std::filesystem::current_path();
  std::filesystem::current_path(folder_ / ".");
  EXPECT_EQ(call({"convert", "model.gguf", "new", "--to", "float32"}).code, 0);
  EXPECT_EQ(call({"convert", "new", "new", "--to", "float32", "--force"}).code, 2);
  EXPECT_EQ(call({"convert", "new", "new/inner", "--to", "float32"}).code, 2);
  EXPECT_EQ(call({"convert", "new", "absent/x", "--to", "float32"}).code, 2);
  EXPECT_TRUE(std::filesystem::exists("new/config.json"));
  std::filesystem::current_path(before);
}

TEST_F(Commands, TokenizeAndDetokenize) {
  const Json json = ok({"tokenize", path("model.gguf"), "--text", "ab!"});
  has(json, {"ids", "pieces"});
  ASSERT_EQ(json["ids"].size(), json["pieces"].size());
  std::string ids;
  for (const Json& id : json["ids"]) ids += (ids.empty() ? "" : ",") + id.dump();
  EXPECT_EQ(call({"detokenize", path("model.gguf"), "--ids", ids}).out, "ab!");
  std::ofstream(folder_ / "lines.jsonl") << "\"ab\"\n\"!\"\n";
  const Called lines = call({"tokenize", path("model.gguf"), "--jsonl", path("lines.jsonl")});
  EXPECT_EQ(lines.code, 0) << lines.err;
  EXPECT_EQ(std::ranges::count(lines.out, '\n'), 2);
  std::ofstream(folder_ / "bad.jsonl") << "\"ab\"\n7\n";
  const Called bad = call({"tokenize", path("model.gguf"), "--jsonl", path("bad.jsonl")});
  EXPECT_EQ(bad.code, 2);
  EXPECT_NE(bad.err.find("line 2"), std::string::npos);
  for (const char* wrong : {"999999999", "-1", "1,x", "1,,2", "18446744073709551616"})
    EXPECT_EQ(call({"detokenize", path("model.gguf"), "--ids", wrong}).code, 2) << wrong;
  EXPECT_EQ(call({"tokenize", path("model.gguf")}).code, 2);
}

TEST_F(Commands, Generate) {
  const Json json = ok({"generate", path("model.gguf"), "-p", "ab", "--max-tokens", "5"});
  has(json, {"text", "tokens", "prompt_tokens", "prefill_tokens_per_s", "decode_tokens_per_s",
             "time_to_first_token_s", "peak_rss_bytes", "numerics", "finish_reason"});
  EXPECT_EQ(json["numerics"], "exact");
  EXPECT_GE(json["tokens"].size(), 1u);
  EXPECT_LE(json["tokens"].size(), 5u);
  const Json one =
      ok({"generate", path("model.gguf"), "-p", "ab", "--max-tokens", "5", "--threads", "1"});
  EXPECT_EQ(json["tokens"], one["tokens"]);
  EXPECT_EQ(call({"generate", path("model.gguf"), "-p", "ab!", "--context", "1"}).code, 2);
  EXPECT_EQ(call({"generate", path("model.gguf"), "-p", ""}).code, 2);
}

TEST_F(Commands, Eval) {
  std::ofstream text(folder_ / "text");
  for (int i = 0; i < 200; ++i) text << "!\"#$%ab"[i % 7];
  text.close();
  const std::vector<std::string> common = {"--text", path("text"), "--context", "32"};
  std::vector<std::string> words = {"eval", "ppl", path("model.gguf")};
  words.insert(words.end(), common.begin(), common.end());
  const Json ppl = ok(words);
  has(ppl, {"ppl", "nll_mean", "tokens", "context", "text_sha256", "model_sha256", "numerics"});
  EXPECT_EQ(ppl["model_sha256"].get<std::string>().size(), 64u);
  words = {"eval", "kld", path("model.gguf"), "--against", path("model.gguf")};
  words.insert(words.end(), common.begin(), common.end());
  const Json kld = ok(words);
  has(kld, {"kld_mean", "kld_p99", "kld_max", "top1_agreement", "ppl", "ppl_against", "tokens",
            "text_sha256", "model_sha256", "model_sha256_against"});
  EXPECT_EQ(kld["kld_max"], 0.0);
  EXPECT_EQ(kld["top1_agreement"], 1.0);
  EXPECT_EQ(kld["ppl"], ppl["ppl"]);
  EXPECT_EQ(
      call({"eval", "ppl", path("model.gguf"), "--text", path("text"), "--context", "9999"}).code,
      2);
}

// SEC-20: a damaged model has no perplexity: neither NaN nor null with exit 0.
TEST_F(Commands, EvalOfWeightsThatAreNotFiniteIsFour) {
  tiny::Gguf damaged = tiny::gguf("llama");
  const float nan = std::numeric_limits<float>::quiet_NaN();
  for (tiny::Tensor& tensor : damaged.tensors)
    if (tensor.name == "output_norm.weight") std::memcpy(tensor.bytes.data(), &nan, sizeof nan);
  ASSERT_TRUE(tiny::write(folder_ / "nan.gguf", damaged).has_value());
  tiny::write_text(folder_ / "text", std::string(200, 'a'));
  for (const auto& [model, other] :
       {std::pair("nan.gguf", "model.gguf"), std::pair("model.gguf", "nan.gguf")}) {
    const Called kld = call({"eval", "kld", path(model), "--against", path(other), "--text",
                             path("text"), "--context", "32", "--json"});
    EXPECT_EQ(kld.code, 4) << kld.err;
    EXPECT_EQ(kld.json()["error"]["code"], "corrupt_data");
  }
  const Called ppl =
      call({"eval", "ppl", path("nan.gguf"), "--text", path("text"), "--context", "32"});
  EXPECT_EQ(ppl.code, 4) << ppl.err;
  EXPECT_EQ(ppl.out, "");
}

TEST_F(Commands, InspectWritesNoControlBytesOfNames) {
  tiny::Gguf hostile = tiny::gguf("llama");
  hostile.tensors.push_back({"\x1B[2J", "F32", {1}, tiny::float_bytes({1.0f})});
  ASSERT_TRUE(tiny::write(folder_ / "hostile.gguf", hostile).has_value());
  const Called called = call({"inspect", path("hostile.gguf")});
  EXPECT_NE(called.out.find("\\x1B[2J"), std::string::npos) << called.out;
  EXPECT_EQ(called.out.find('\x1B'), std::string::npos);
}

TEST_F(Commands, EvalLogitsIsANumpyFile) {
  std::ofstream(folder_ / "ids.json") << "[1, 5, 6]";
  ok({"eval", "logits", path("model.gguf"), "--tokens", path("ids.json"), "--out", path("x.npy")});
  std::ifstream file(folder_ / "x.npy", std::ios::binary);
  const std::string bytes((std::istreambuf_iterator<char>(file)), {});
  EXPECT_EQ(bytes.substr(0, 8), std::string("\x93NUMPY\x01\x00", 8));
  EXPECT_NE(bytes.find("'shape': (3, 96)"), std::string::npos);
  const std::size_t header =
      10 + static_cast<unsigned char>(bytes[8]) + 256 * static_cast<unsigned char>(bytes[9]);
  EXPECT_EQ(header % 64, 0u);
  EXPECT_EQ(bytes.size(), header + 3 * 96 * 4);
  EXPECT_EQ(call({"eval", "logits", path("model.gguf"), "--tokens", path("ids.json"), "--out",
                  path("x.npy")})
                .code,
            2);
  std::ofstream(folder_ / "bad.json") << "[1, 99999]";
  EXPECT_EQ(call({"eval", "logits", path("model.gguf"), "--tokens", path("bad.json"), "--out",
                  path("y.npy")})
                .code,
            2);
  EXPECT_FALSE(std::filesystem::exists(folder_ / "y.npy"));
}

TEST_F(Commands, Bench) {
  const Json model = ok(
      {"bench", "model", path("model.gguf"), "--prefill", "8", "--decode", "4", "--repeats", "2"});
  has(model, {"prefill", "decode", "peak_rss_bytes", "numerics", "kernels", "machine"});
  has(model["prefill"], {"tokens", "tokens_per_s_median", "tokens_per_s"});
  EXPECT_EQ(model["decode"]["tokens_per_s"].size(), 2u);
  const Json kernel = ok({"bench", "kernel", "--layout", "gguf:Q4_0", "--rows", "512", "--cols",
                          "1024", "--repeats", "1"});
  has(kernel["rows"][0], {"name", "shape", "seconds_median", "bytes", "gb_per_s", "gops",
                          "ceiling_fraction", "checked"});
  EXPECT_EQ(kernel["rows"][0]["checked"], true);
}

}  // namespace
}  // namespace packstone::cli
