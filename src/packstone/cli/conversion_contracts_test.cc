// The numbered contracts of conversions (contracts.md D.7): what runs, what is known, what makes a
// whole conversion fail, and that nothing is lossy, marked or changed unasked.
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <iterator>
#include <map>

#include "packstone/cli/test_call.h"
#include "tests/support/packed_folders.h"

namespace packstone::cli {
namespace {

namespace fs = std::filesystem;
constexpr std::int64_t kWide = tiny::kWide;
const std::string kUp = "model.layers.0.mlp.up_proj";

struct Known {
  std::string layout;
  int bits;
  std::int32_t group;
};
const std::vector<Known>& known_layouts() {
  static const std::vector<Known> list = {
      {"gptq", 4, 64},     {"gptq_v2", 4, 64},  {"gptq_p", 5, 64},    {"marlin", 4, 128},
      {"bitblas", 4, 64},  {"awq-gemm", 4, 64}, {"awq-gemv", 4, 128}, {"awq-gemv_fast", 4, 128},
      {"llm-awq", 4, 128}, {"qqq", 4, 256},     {"bnb-nf4", 4, 64},   {"bnb-fp4", 4, 64},
      {"bnb-int8", 8, 256}};
  return list;
}

// Rows of ggml in a folder, as GPTQModel writes them.
tiny::Folder rows_folder() {
  tiny::Folder made = tiny::wide_folder();
  std::mt19937 random(23);
  tiny::replace_projections(made, [&](const std::string& module) {
    return std::vector<tiny::Tensor>{
        tiny::small_tensor(module + ".qweight", "U8", {kWide, kWide / 32 * 18}, random)};
  });
  made.config["quantization_config"] = {
      {"quant_method", "gguf"}, {"bits", 4}, {"format", "q_0"}, {"lm_head", false}};
  return made;
}

tiny::Folder fp8_folder() {
  FormatParams params;
  params.group_cols = params.group_rows = 128;
  return tiny::packed_folder(*find_layout("fp8", 8), params);
}

// Every file of a folder with its time and bytes.
std::map<std::string, std::pair<fs::file_time_type, std::string>> snapshot(const fs::path& folder) {
  std::map<std::string, std::pair<fs::file_time_type, std::string>> files;
  for (const auto& entry : fs::directory_iterator(folder)) {
    std::ifstream file(entry.path(), std::ios::binary);
    files[entry.path().filename().string()] = {fs::last_write_time(entry.path()),
                                               {std::istreambuf_iterator<char>(file), {}}};
  }
  return files;
}

class Conversion : public ::testing::Test {
 protected:
  std::string path(std::string_view name) const { return (folder_ / name).string(); }
  void write(std::string_view name, const tiny::Folder& made) {
    const Status status = tiny::write(folder_ / name, made);
    ASSERT_TRUE(status) << status.error().message;
  }
  Called convert(std::string_view source, std::string_view target, const std::string& layout) {
    return call({"convert", path(source), path(target), "--to", layout, "--force"});
  }
  void expect_refused(const Called& called, int code, const std::vector<std::string>& parts) {
    EXPECT_EQ(called.code, code) << called.err;
    for (const std::string& part : parts)
      EXPECT_NE(called.err.find(part), std::string::npos)
          << called.err << " does not mention " << part;
    EXPECT_FALSE(fs::exists(folder_ / "none"));
  }
  tiny::TemporaryFolder folder_;
};

// No weight is a holder that must be converted first: packed weights run where they lie.
TEST_F(Conversion, D41_PackedWeightsRunWhereTheyLie) {
  tiny::write_text(folder_ / "tokens.json", "[1, 5, 7, 9]");
  for (const Known& known : known_layouts()) {
    SCOPED_TRACE(known.layout);
    write("model", tiny::packed_folder(known.layout, known.bits, known.group));
    const Called called = call({"eval", "logits", path("model"), "--tokens", path("tokens.json"),
                                "--out", path("x.npy"), "--force"});
    EXPECT_EQ(called.code, 0) << called.err;
  }
  write("exl3", tiny::exl3_folder());
  expect_refused(call({"eval", "logits", path("exl3"), "--tokens", path("tokens.json"), "--out",
                       path("none")}),
                 5, {"convert --to exl3"});
}

TEST_F(Conversion, D42_KnownFormatsOpenAndOthersAreRefused) {
  std::vector<std::pair<std::string, tiny::Folder>> folders = {
      {"exl3", tiny::exl3_folder()},
      {"paroquant", tiny::paroquant_folder()},
      {"gguf:Q4_0", rows_folder()},
      {"fp8", fp8_folder()}};
  for (const Known& known : known_layouts())
    folders.emplace_back(known.layout, tiny::packed_folder(known.layout, known.bits, known.group));
  for (const auto& [layout, made] : folders) {
    SCOPED_TRACE(layout);
    write("model", made);
    const Called called = call({"inspect", path("model"), "--json"});
    ASSERT_EQ(called.code, 0) << called.err;
    const Json json = called.json();
    std::size_t found = 0;
    for (const Json& tensor : json["tensors"]) found += tensor["layout"] == layout;
    EXPECT_EQ(found, 7u) << called.out;
    fs::remove_all(folder_ / "model");
  }
  for (const auto& [key, value] : {std::pair("quant_method", "hqq"), {"format", "gptq_v9"}}) {
    tiny::Folder made = tiny::packed_folder("gptq", 4, 64);
    tiny::Json& block = made.config["quantization_config"];
    block = {{"quant_method", "gptq"}, {"bits", 4}, {"group_size", 64}};
    block[key] = value;
    write("unknown", made);
    expect_refused(convert("unknown", "none", "float32"), 5, {value, key});
  }
}

// A rule may leave the width to the base, as the tensors then must have it; a width that is none is
// refused with the rule's name.
TEST_F(Conversion, D43_DynamicRulesGiveAWidthOrAMessage) {
  const auto with_rule = [&](const tiny::Json& rule) {
    tiny::Folder made = tiny::packed_folder("gptq", 4, 64);
    made.config["quantization_config"]["dynamic"] = {{"+:.*up_proj", rule}};
    write("model", made);
    return convert("model", "none", "float32");
  };
  for (const tiny::Json& rule :
       {tiny::Json::object(), tiny::Json{{"group_size", 64}}, tiny::Json{{"bits", 4}}}) {
    const Called called = with_rule(rule);
    EXPECT_EQ(called.code, 0) << called.err;
    fs::remove_all(folder_ / "none");
  }
  for (const tiny::Json& bits : {tiny::Json(9), tiny::Json("four"), tiny::Json(-1)})
    expect_refused(with_rule({{"bits", bits}}), 4, {"bits", "up_proj"});
  expect_refused(with_rule({{"bits", 8}}), 4, {kUp, "8 bits", "up_proj"});
  expect_refused(with_rule({{"group_size", 32}}), 4, {kUp, "groups of 32"});
}

// Packed weights that the architecture does not name: nothing is written, not a part of a model.
TEST_F(Conversion, D44_PackedNamesTheModelDoesNotHave) {
  std::mt19937 random(29);
  for (const auto& [suffix, type] : {std::pair(".qweight", "I32"),
                                     {".weight", "U32"},
                                     {".weight", "F8_E4M3"},
                                     {".weight", "I8"},
                                     {".trellis", "I16"},
                                     {".weight_packed", "I32"}})
    for (const std::string module : {"model.layers.0.mlp.extra_proj", "mtp.fc"}) {
      tiny::Folder made = tiny::packed_folder("gptq", 4, 64);
      made.tensors.push_back(tiny::small_tensor(module + suffix, type, {8, 8}, random));
      write("model", made);
      for (const char* layout : {"float32", "gptq", "mlx-affine", "gguf:Q8_0"})
        expect_refused(convert("model", "none", layout), 5, {module + suffix, "does not name"});
      expect_refused(call({"plan", path("model"), "--to", "float32"}), 5, {module + suffix});
      EXPECT_NE(call({"inspect", path("model")}).out.find(module + suffix), std::string::npos);
    }
}

// There is no lossy fallback to opt into by accident: a refusal names the command that is lossy,
// and nothing is written.
TEST_F(Conversion, D45_NoLossyFallbackForGptqAndAwq) {
  for (const auto& [layout, group] : {std::pair("gptq", 64), {"awq-gemm", 64}, {"gptq", 256}}) {
    write("model", tiny::packed_folder(layout, 4, group));
    for (const char* target : {"qqq", "bnb-nf4", "mxfp4"})
      expect_refused(convert("model", "none", target), 3, {"quantize changes values", kUp});
  }
  // Whole rows are not re-grouped, and layers of floats stay floats.
  write("model", tiny::packed_folder("gptq", 4, 256));
  ASSERT_EQ(convert("model", "mlx", "mlx-affine").code, 0);
  EXPECT_EQ(call({"diff", path("model"), path("mlx")}).code, 0);
  const Result<Checkpoint> mlx = open_checkpoint(path("mlx"));
  ASSERT_TRUE(mlx) << mlx.error().message;
  EXPECT_EQ(mlx->find("model.embed_tokens.weight")->weight.id(), kFloat32);
}

TEST_F(Conversion, D46_NoLossyFallbackForAnyOtherLayout) {
  std::vector<std::pair<std::string, tiny::Folder>> folders = {{"gguf", rows_folder()},
                                                               {"fp8", fp8_folder()}};
  for (const Known& known : known_layouts())
    folders.emplace_back(known.layout, tiny::packed_folder(known.layout, known.bits, known.group));
  for (const auto& [layout, made] : folders) {
    SCOPED_TRACE(layout);
    write("model", made);
    const bool table = layout == "bnb-nf4" || layout == "bnb-fp4";
    expect_refused(convert("model", "none", table ? "gptq" : "bnb-nf4"), 3,
                   {"quantize changes values", kUp});
    fs::remove_all(folder_ / "model");
  }
  for (const char* layout : {"exl3", "paroquant"}) {
    write(layout, layout == std::string("exl3") ? tiny::exl3_folder() : tiny::paroquant_folder());
    expect_refused(convert(layout, "none", "gptq"), 5, {std::string("--to ") + layout});
  }
}

// An affine layer that stock MLX-LM rebuilds has its settings in the config and no mark of ours.
TEST_F(Conversion, D47_PlainAffineLayersAreUnmarked) {
  for (const char* layout : {"gptq", "awq-gemm"}) {
    write("model", tiny::packed_folder(layout, 4, 64));
    ASSERT_EQ(convert("model", "mlx", "mlx-affine").code, 0);
    const Result<RawCheckpoint> raw = open_raw(path("mlx"));
    ASSERT_TRUE(raw) << raw.error().message;
    const tiny::Json block = {{"group_size", 64}, {"bits", 4}, {"mode", "affine"}};
    EXPECT_EQ(raw->config_json["quantization"], block);
    EXPECT_EQ(raw->config_json["quantization_config"], block);
    tiny::Json rest = raw->config_json;
    rest.erase("quantization");
    rest.erase("quantization_config");
    tiny::Json before = tiny::wide_folder().config;
    EXPECT_EQ(nlohmann::json(rest), nlohmann::json(before));
    EXPECT_EQ(raw->safetensors_metadata, (std::map<std::string, std::string>{{"format", "mlx"}}));
    for (const TensorView& view : raw->tensors)
      EXPECT_TRUE(view.name.ends_with(".weight") || view.name.ends_with(".scales") ||
                  view.name.ends_with(".biases"))
          << view.name;
  }
}

TEST_F(Conversion, D48_TheSourceIsLeftAsItWas) {
  write("model", tiny::packed_folder("gptq", 4, 64));
  write("exl3", tiny::exl3_folder());
  const auto first = snapshot(folder_ / "model"), copied = snapshot(folder_ / "exl3");
  const auto old = fs::last_write_time(folder_ / "model");
  for (const char* layout : {"mlx-affine", "gptq", "float32", "gguf:Q4_1", "qqq", "exl3"}) {
    convert("model", "out", layout);
    convert("exl3", "out", layout);
    EXPECT_EQ(snapshot(folder_ / "model"), first) << layout;
    EXPECT_EQ(snapshot(folder_ / "exl3"), copied) << layout;
    EXPECT_EQ(fs::last_write_time(folder_ / "model"), old) << layout;
  }
  EXPECT_NE(convert("model", "model", "float32").code, 0);
  EXPECT_EQ(snapshot(folder_ / "model"), first);
}

}  // namespace
}  // namespace packstone::cli
