// packstone quantize with calibration on tiny models: what it writes, that a stopped run goes on to
// the same bytes, and what it refuses.
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <map>
#include <set>
#include <thread>

#include "packstone/checkpoint/content_hash.h"
#include "packstone/cli/calibrated.h"
#include "packstone/cli/test_call.h"
#include "packstone/cli/vectors.h"
#include "packstone/transcode/unpack.h"
#include "tests/support/tiny_checkpoint.h"

namespace packstone::cli {
namespace {

namespace fs = std::filesystem;

class Quantize : public ::testing::Test {
 protected:
  void SetUp() override {
    ASSERT_TRUE(tiny::write(folder_ / "model.gguf", tiny::gguf("llama")).has_value());
    std::ofstream ids(folder_ / "ids.json");
    ids << "[";
    for (int i = 0; i < 200; ++i) ids << (i ? "," : "") << i * 7 % 23;
    ids << "]";
  }
  std::string path(std::string_view name) const { return (folder_ / name).string(); }
  std::vector<std::string> arguments(const std::string& target, std::string_view layout) const {
    return {"quantize",
            path("model.gguf"),
            path(target),
            "--method",
            "gptq",
            "--to",
            std::string(layout),
            "--calibration",
            path("ids.json"),
            "--sequence-length",
            "16",
            "--group-size",
            "32",
            "--json"};
  }
  static std::string bytes(const fs::path& file) {
    std::ifstream in(file, std::ios::binary);
    return {std::istreambuf_iterator<char>(in), {}};
  }
  tiny::TemporaryFolder folder_;
};

TEST_F(Quantize, GptqWritesAModelThatRuns) {
  for (const std::string_view layout : {"mlx-affine", "gptq", "awq-gemm", "ct-pack"}) {
    const Called called = call(arguments("out-" + std::string(layout), layout));
    ASSERT_EQ(called.code, 0) << layout << called.err;
    const Json json = called.json();
    EXPECT_EQ(json["worst_verdict"], "changed");
    EXPECT_EQ(json["calibration"]["samples"], 12);
    int fed = 0;
    for (const Json& tensor : json["tensors"]) fed += tensor.contains("proxy_error");
    EXPECT_EQ(fed, layout == "mlx-affine" ? 15 : 14)
        << layout << " takes embeddings packed, or not";
    EXPECT_FALSE(fs::exists(folder_ / ("out-" + std::string(layout) + ".journal")));
    const Called run = call({"eval", "logits", path("out-" + std::string(layout)), "--tokens",
                             path("ids.json"), "--out", path("x.npy"), "--force", "--json"});
    EXPECT_EQ(run.code, 0) << layout << run.err;
  }
}

TEST_F(Quantize, SameBytesForAnyThreadCount) {
  std::vector<std::string> one = arguments("one", "mlx-affine"), three(one);
  three[2] = path("three");
  one.insert(one.end(), {"--threads", "1"});
  three.insert(three.end(), {"--threads", "3"});
  ASSERT_EQ(call(one).code, 0);
  ASSERT_EQ(call(three).code, 0);
  EXPECT_EQ(bytes(folder_ / "one/model.safetensors"), bytes(folder_ / "three/model.safetensors"));
}

TEST_F(Quantize, MethodsDifferAndKeepTheirSharesInBounds) {
  std::set<std::string> seen;
  for (const std::string_view method : {"gptq", "gptaq", "foem", "awq"}) {
    std::vector<std::string> run = arguments(std::string(method), "mlx-affine");
    run[4] = method;
    ASSERT_EQ(call(run).code, 0) << method;
    seen.insert(bytes(folder_ / method / "model.safetensors"));
  }
  EXPECT_EQ(seen.size(), 4u);
  std::vector<std::string> none = arguments("none", "mlx-affine"), beyond(none);
  none[4] = beyond[4] = "gptaq";
  none.insert(none.end(), {"--alpha", "0"});
  beyond.insert(beyond.end(), {"--alpha", "1.5"});
  ASSERT_EQ(call(none).code, 0);
  EXPECT_TRUE(seen.contains(bytes(folder_ / "none/model.safetensors")))
      << "gptaq with alpha 0 is gptq";
  EXPECT_EQ(call(beyond).code, 2);
}

// W[r, c] times the factor of the norm that makes channel c: what a layer computes with.
std::vector<float> with_norm(const Checkpoint& checkpoint, const std::string& matrix,
                             const std::string& norm, bool plus_one) {
  ThreadPool pool(1);
  std::vector<float> values = *decode_matrix(*checkpoint.find(matrix), pool);
  const CheckpointTensor& tensor = *checkpoint.find(norm);
  const std::vector<float> stored = decode_all(tensor.weight);
  const bool add = plus_one && tensor.value_rule != ValueRule::kPlusOne;
  for (std::size_t i = 0; i < values.size(); ++i)
    values[i] *= stored[i % stored.size()] + (add ? 1.0f : 0.0f);
  return values;
}

double relative_error(const std::vector<float>& have, const std::vector<float>& want) {
  double error = 0, whole = 0;
  for (std::size_t i = 0; i < want.size(); ++i) {
    error += (static_cast<double>(have[i]) - want[i]) * (have[i] - want[i]);
    whole += static_cast<double>(want[i]) * want[i];
  }
  return std::sqrt(error / whole);
}

// The size of column c of one matrix times that of the row of another that makes this channel.
template <class RowOf>
std::vector<float> channel_sizes(const Checkpoint& checkpoint, const std::string& reader,
                                 const std::vector<float>& maker, const RowOf& row_of) {
  ThreadPool pool(1);
  const CheckpointTensor& tensor = *checkpoint.find("model.layers.1." + reader + ".weight");
  const std::vector<float> read = *decode_matrix(tensor, pool);
  const auto [rows, cols] = tensor.weight.shape();
  const std::int64_t width = checkpoint.config.hidden;
  std::vector<float> sizes(static_cast<std::size_t>(cols));
  for (std::int64_t c = 0; c < cols; ++c) {
    double column = 0, row = 0;
    for (std::int64_t r = 0; r < rows; ++r)
      column += std::abs(read[static_cast<std::size_t>(r * cols + c)]);
    for (std::int64_t k = 0; k < width; ++k)
      row += std::abs(maker[static_cast<std::size_t>(row_of(c) * width + k)]);
    sizes[static_cast<std::size_t>(c)] = static_cast<float>(column * row);
  }
  return sizes;
}

// AWQ changes norms and rows so that, rounding aside, the model stays what it was: for norms stored
// as w and as 1 + w, and in both containers.
TEST_F(Quantize, AwqScalesAreFoldedAway) {
  for (const std::string model : {"llama", "qwen2", "gemma3_text"}) {
    const std::string source = model + ".gguf";
    ASSERT_TRUE(tiny::write(folder_ / source, tiny::gguf(model)).has_value());
    const Checkpoint original = *open_checkpoint(path(source));
    for (const std::string layout : {"mlx-affine", "gguf:Q4_0"}) {
      const std::string out = model + "-awq" + (layout[0] == 'g' ? ".gguf" : "");
      std::vector<std::string> run = arguments(out, layout);
      run[1] = path(source);
      run[4] = "awq";
      run.insert(run.end(), {"--mode", "parity"});
      const Called called = call(run);
      ASSERT_EQ(called.code, 0) << out << called.err;
      const Checkpoint made = *open_checkpoint(path(out));
      const bool gemma = model.starts_with("gemma");
      const std::string ffn_norm = gemma ? "pre_feedforward_layernorm" : "post_attention_layernorm";
      const auto product = [&](const Checkpoint& checkpoint, const std::string& matrix,
                               const std::string& norm) {
        return with_norm(checkpoint, "model.layers.1." + matrix + ".weight",
                         "model.layers.1." + norm + ".weight", gemma);
      };
      for (const auto& [matrix, norm] :
           {std::pair<std::string, std::string>("self_attn.q_proj", "input_layernorm"),
            {"mlp.gate_proj", ffn_norm}})
        EXPECT_LT(
            relative_error(product(made, matrix, norm), product(original, matrix, norm)), 0.15)
            << out << matrix;
      const ModelConfig& config = original.config;
      const std::int64_t dim = config.head_dim, repeat = config.heads / config.kv_heads;
      const auto attention = [&](const Checkpoint& checkpoint) {
        return channel_sizes(checkpoint, "self_attn.o_proj",
                             product(checkpoint, "self_attn.v_proj", "input_layernorm"),
                             [&](std::int64_t c) { return c / dim / repeat * dim + c % dim; });
      };
      EXPECT_LT(relative_error(attention(made), attention(original)), 0.05) << out;
      const auto feed_forward = [&](const Checkpoint& checkpoint) {
        return channel_sizes(checkpoint, "mlp.down_proj",
                             product(checkpoint, "mlp.up_proj", ffn_norm),
                             [](std::int64_t c) { return c; });
      };
      EXPECT_LT(relative_error(feed_forward(made), feed_forward(original)), 0.05) << out;
    }
  }
}

// A run that was stopped after any number of matrices goes on to the bytes of one that was not.
TEST_F(Quantize, ResumeGivesTheSameBytes) {
  ASSERT_EQ(call(arguments("whole", "mlx-affine")).code, 0);
  const std::string expected = bytes(folder_ / "whole/model.safetensors");
  std::atomic<bool> cancel{false};
  std::jthread stopper([&](const std::stop_token& stop) {
    while (!stop.stop_requested() && !fs::exists(folder_ / "part.journal/5.weight"))
      std::this_thread::yield();
    cancel = true;
  });
  const Called stopped = call(arguments("part", "mlx-affine"), &cancel);
  stopper.request_stop();
  ASSERT_EQ(stopped.code, 130) << stopped.err;
  ASSERT_TRUE(fs::exists(folder_ / "part.journal/call.json"));
  EXPECT_FALSE(fs::exists(folder_ / "part"));
  std::vector<std::string> resume = arguments("part", "mlx-affine");
  resume.push_back("--resume");
  // A damaged file counts as not done; a half-written one is never under its name.
  for (const auto& entry : fs::directory_iterator(folder_ / "part.journal"))
    if (entry.path().extension() == ".weight") {
      fs::resize_file(entry.path(), fs::file_size(entry.path()) - 1);
      break;
    }
  const Called called = call(resume);
  ASSERT_EQ(called.code, 0) << called.err;
  EXPECT_EQ(bytes(folder_ / "part/model.safetensors"), expected);
  EXPECT_FALSE(fs::exists(folder_ / "part.journal"));
}

TEST_F(Quantize, ResumeOfAnotherCallIsTwo) {
  fs::create_directory(folder_ / "x.journal");
  std::ofstream(folder_ / "x.journal/call.json") << "{\"damping\": \"0.5\"}";
  std::vector<std::string> resume = arguments("x", "mlx-affine");
  resume.push_back("--resume");
  const Called called = call(resume);
  EXPECT_EQ(called.code, 2) << called.err;
  EXPECT_TRUE(fs::exists(folder_ / "x.journal/call.json"));
}

TEST_F(Quantize, ResumeWithoutJournalSaysSo) {
  std::vector<std::string> resume = arguments("y", "mlx-affine");
  resume.push_back("--resume");
  const Called called = call(resume);
  EXPECT_EQ(called.code, 0);
  EXPECT_NE(called.err.find("starting from the beginning"), std::string::npos) << called.err;
}

// What convert makes of four-bit floats, verify finds as convert makes it: formats of one group may
// have it spelled out in one container and not in the other.
TEST_F(Quantize, MovesOfFloatBlocksVerify) {
  const std::string source = path("mx.gguf");
  ASSERT_EQ(
      call({"quantize", path("model.gguf"), source, "--method", "rtn", "--to", "gguf:MXFP4"}).code,
      0);
  for (const std::string layout : {"mlx-mxfp4", "mlx-nvfp4", "ct-nvfp4"}) {
    const Called made = call({"convert", source, path(layout), "--to", layout});
    if (made.code == 3) continue;  // a scale that the target's numbers do not have
    ASSERT_EQ(made.code, 0) << made.err;
    const Called verified = call({"verify", path(layout), "--against", source});
    EXPECT_EQ(verified.code, 0) << layout << verified.err << verified.out;
  }
}

// The work of a run that stopped is not thrown away unasked; what a kill left half begun is.
TEST_F(Quantize, JournalsThatAreThere) {
  const fs::path journal = folder_ / "j.journal";
  fs::create_directory(journal);
  EXPECT_EQ(call(arguments("j", "mlx-affine")).code, 0) << "an empty folder";
  fs::create_directory(journal);
  std::ofstream(journal / "3.weight") << "left over";
  std::vector<std::string> again = arguments("j", "mlx-affine");
  again.push_back("--force");
  EXPECT_EQ(call(again).code, 0) << "no call.json";
  fs::create_directory(journal);
  std::ofstream(journal / "call.json") << "{}";
  EXPECT_EQ(call(arguments("j2", "mlx-affine")).code, 0);
  std::ofstream(folder_ / "k.journal") << "a file";
  EXPECT_EQ(call(arguments("k", "mlx-affine")).code, 2);
  fs::create_directory(folder_ / "l.journal");
  std::ofstream(folder_ / "l.journal/call.json") << "{}";
  EXPECT_EQ(call(arguments("l", "mlx-affine")).code, 2) << "neither --resume nor --force";
  fs::create_directory(folder_ / "m.journal");
  std::ofstream(folder_ / "m.journal/precious.txt") << "mine";
  EXPECT_EQ(call(arguments("m", "mlx-affine")).code, 2);
  EXPECT_TRUE(fs::exists(folder_ / "m.journal/precious.txt"));
}

// A file of the journal whose sum is right and whose header is not is no finished weight.
TEST_F(Quantize, HostileJournalFiles) {
  ASSERT_EQ(call(arguments("whole", "mlx-affine")).code, 0);
  std::atomic<bool> cancel{false};
  std::jthread stopper([&](const std::stop_token& stop) {
    while (!stop.stop_requested() && !fs::exists(folder_ / "h.journal/5.weight"))
      std::this_thread::yield();
    cancel = true;
  });
  ASSERT_EQ(call(arguments("h", "mlx-affine"), &cancel).code, 130);
  stopper.request_stop();
  const char* const headers[] = {"{\"name\": 1}\n", "[]\n", "no json\n", "", "{}\n"};
  std::size_t next = 0;
  for (const auto& entry : fs::directory_iterator(folder_ / "h.journal")) {
    if (entry.path().extension() != ".weight") continue;
    const std::string body = headers[next++ % std::size(headers)];
    std::ofstream(entry.path(), std::ios::trunc) << body << sha256_text(body);
  }
  std::vector<std::string> resume = arguments("h", "mlx-affine");
  resume.push_back("--resume");
  const Called called = call(resume);
  EXPECT_EQ(called.code, 0) << called.err;
  EXPECT_EQ(bytes(folder_ / "h/model.safetensors"), bytes(folder_ / "whole/model.safetensors"));
}

TEST_F(Quantize, BadCallsAreTwo) {
  struct Case {
    std::vector<std::string> more;
    int code;
  };
  std::ofstream(folder_ / "bad.jsonl") << "{\"no\": 1}\n";
  std::ofstream(folder_ / "bad.json") << "[1, 100000]";
  std::ofstream(folder_ / "short.json") << "[1, 2]";
  const std::vector<std::string> base = {"quantize",   path("model.gguf"), path("z"), "--to",
                                         "mlx-affine", "--group-size",     "32",      "--json"};
  const Case cases[] = {
      {{"--method", "gptq"}, 2},
      {{"--method", "rtn", "--calibration", path("ids.json")}, 2},
      {{"--method", "rtn", "--seed", "1"}, 2},
      {{"--method", "gptq", "--calibration", path("ids.json"), "--beta", "0.1"}, 2},
      {{"--method", "gptq", "--calibration", path("ids.json"), "--damping", "0"}, 2},
      {{"--method", "gptq", "--calibration", path("ids.json"), "--damping", "1"}, 2},
      {{"--method", "gptq", "--calibration", path("ids.json"), "--mode", "parity"}, 2},
      {{"--method", "foem", "--calibration", path("ids.json"), "--beta", "1.5"}, 2},
      {{"--method", "gptq", "--calibration", path("bad.jsonl")}, 2},
      {{"--method", "gptq", "--calibration", path("bad.json")}, 2},
      {{"--method", "gptq", "--calibration", path("short.json")}, 2},
      {{"--method", "gptq", "--calibration", path("absent.txt")}, 2},
      {{"--method", "exl3", "--calibration", path("ids.json")}, 5},
  };
  for (const Case& one : cases) {
    std::vector<std::string> arguments = base;
    arguments.insert(arguments.end(), one.more.begin(), one.more.end());
    const Called called = call(arguments);
    EXPECT_EQ(called.code, one.code) << one.more.back() << called.err;
    EXPECT_FALSE(fs::exists(folder_ / "z"));
  }
}

// The first override that matches a module decides; the others of its kind keep what was asked for.
TEST_F(Quantize, OverridesGiveModulesOtherWidths) {
  std::vector<std::string> run = {"quantize", path("model.gguf"), path("mixed"), "--method", "rtn",
                                  "--to", "mlx-affine", "--group-size", "32", "--override",
                                  "mlp\\.down_proj=8:64", "--override", "model.layers.1.mlp=3",
                                  "--override", ".*o_proj=keep", "--json"};
  const Called called = call(run);
  ASSERT_EQ(called.code, 0) << called.err;
  const Json report = called.json();
  std::map<std::string, std::pair<int, int>> seen;
  for (const Json& tensor : report["tensors"])
    seen[tensor["name"]] = {tensor["bits"], tensor.value("group_size", 0)};
  for (const std::string layer : {"0", "1"}) {
    const std::string prefix = "model.layers." + layer + ".";
    EXPECT_EQ(seen[prefix + "mlp.down_proj.weight"], std::pair(8, 64));
    EXPECT_EQ(seen[prefix + "mlp.up_proj.weight"], std::pair(layer == "1" ? 3 : 4, 32));
    EXPECT_EQ(seen[prefix + "self_attn.q_proj.weight"], std::pair(4, 32));
    EXPECT_EQ(seen[prefix + "self_attn.o_proj.weight"].first, 32);
  }
  // The written folder says so too.
  const Checkpoint made = *open_checkpoint(path("mixed"));
  EXPECT_EQ(format_info(made.find("model.layers.1.mlp.up_proj.weight")->weight.id()).name,
            "mlx.affine.w3");
  EXPECT_EQ(format_info(made.find("model.layers.0.mlp.down_proj.weight")->weight.id()).name,
            "mlx.affine.w8");
}

TEST_F(Quantize, OverridesOfGgufNameTypes) {
  std::vector<std::string> run = {"quantize", path("model.gguf"), path("mixed.gguf"), "--method",
                                  "rtn", "--to", "gguf:Q4_0", "--override", "mlp=gguf:Q8_0",
                                  "--json"};
  ASSERT_EQ(call(run).code, 0);
  const Checkpoint made = *open_checkpoint(path("mixed.gguf"));
  EXPECT_EQ(format_info(made.find("model.layers.0.mlp.up_proj.weight")->weight.id()).name,
            "gguf.q8_0");
  EXPECT_EQ(format_info(made.find("model.layers.0.self_attn.q_proj.weight")->weight.id()).name,
            "gguf.q4_0");
}

// A pattern that names nothing is a slip of the pen, not a wish.
TEST_F(Quantize, OverridesThatNameNothingAreRefused) {
  for (const std::string text : {"mlp.dwn_proj=8", "mlp=9", "mlp=8:33", "mlp", "=8", "(=8",
                                 "mlp=gguf:Q8_0", "norm=8"}) {
    const Called called = call({"quantize", path("model.gguf"), path("out"), "--method", "rtn",
                                "--to", "mlx-affine", "--override", text});
    EXPECT_EQ(called.code, 2) << text << called.err;
    EXPECT_FALSE(fs::exists(path("out"))) << text;
  }
}

}  // namespace
}  // namespace packstone::cli
