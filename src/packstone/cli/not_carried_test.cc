// Every stored tensor and every fact of a quantization config is carried by a conversion or listed
// in not_carried with its reason, whatever the dialect and the container of the output.
#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "packstone/cli/test_call.h"
#include "tests/support/packed_folders.h"

namespace packstone::cli {
namespace {

struct Dialect {
  std::string name;
  tiny::Folder folder;
  // What the conversion to floats must list, beside tensors that no plane holds.
  std::vector<std::string> facts;
};

// A tensor beside the weights of every projection.
void add(tiny::Folder& made, const std::string& suffix, const std::string& type,
         std::vector<std::int64_t> shape) {
  std::set<std::string> modules;
  for (const tiny::Tensor& tensor : made.tensors)
    if (const std::size_t at = tensor.name.find("_proj"); at != std::string::npos)
      modules.insert(tensor.name.substr(0, at + 5));
  std::mt19937 random(19);
  for (const std::string& module : modules)
    made.tensors.push_back(tiny::small_tensor(module + suffix, type, shape, random));
}

Json& block(tiny::Folder& made) {
  return made.config["quantization_config"];
}

std::vector<Dialect> dialects() {
  std::vector<Dialect> list;
  list.push_back({"mlx", tiny::packed_folder("mlx-affine", 4, 64), {}});
  list.push_back({"gptq", tiny::packed_folder("gptq", 4, 64), {"meta", "damp_percent"}});
  block(list.back().folder)["damp_percent"] = 0.01;
  list.push_back({"gptq_v2", tiny::packed_folder("gptq_v2", 4, 64), {}});
  list.push_back({"awq", tiny::packed_folder("awq-gemm", 4, 64), {}});
  list.push_back({"marlin", tiny::packed_folder("marlin", 4, 128), {}});
  list.push_back({"qqq", tiny::packed_folder("qqq", 4, 256), {}});
  FormatParams blocks{.group_cols = 128};
  blocks.group_rows = 128;
  list.push_back(
      {"fp8", tiny::packed_folder(*find_layout("fp8", 8), blocks), {"activation_scheme"}});
  add(list.back().folder, ".input_scale", "F32", {});
  block(list.back().folder)["activation_scheme"] = "static";
  blocks.group_cols = blocks.group_rows = 256;
  list.push_back({"ct-fp8",
                  tiny::packed_folder(*find_layout("fp8", 8), blocks),
                  {"kv_cache_scheme", "config_groups.group_0.input_activations"}});
  for (const char* suffix : {".input_scale", ".k_scale", ".v_scale"})
    add(list.back().folder, suffix, "F32", {1});
  block(list.back().folder)["kv_cache_scheme"] = {{"num_bits", 8}, {"type", "float"}};
  block(list.back().folder)["config_groups"]["group_0"]["input_activations"] = {{"num_bits", 8}};
  list.push_back({"ct-pack", tiny::packed_folder("ct-pack", 4, 64), {}});
  list.push_back({"ct-nvfp4", tiny::packed_folder("ct-nvfp4", 4, 0), {}});
  add(list.back().folder, ".input_global_scale", "F32", {1});
  list.push_back(
      {"modelopt", tiny::packed_folder("modelopt-nvfp4", 4, 0), {"kv_cache_quant_algo"}});
  for (const char* suffix : {".input_scale", ".k_scale", ".v_scale"})
    add(list.back().folder, suffix, "F32", {});
  block(list.back().folder)["kv_cache_quant_algo"] = "FP8";
  list.push_back(
      {"bnb-nf4", tiny::packed_folder("bnb-nf4-nested", 4, 64), {"bnb_4bit_compute_dtype"}});
  list.push_back({"bnb-int8", tiny::packed_folder("bnb-int8", 8, 256), {}});
  add(list.back().folder, ".weight_format", "U8", {});
  for (tiny::Tensor& tensor : list.back().folder.tensors)
    if (tensor.name.ends_with(".weight_format")) tensor.bytes.assign(1, std::byte{0});
  return list;
}

class NotCarried : public ::testing::Test {
 protected:
  std::string path(std::string_view name) const { return (folder_ / name).string(); }

  // Every stored tensor of the source is a plane of a weight, or in the output with the same bytes,
  // or listed once.
  void expect_whole(const std::string& source, const std::string& target, const Json& listed) {
    const Result<Checkpoint> from = open_checkpoint(path(source));
    ASSERT_TRUE(from) << from.error().message;
    const Result<RawCheckpoint> to = open_raw(path(target));
    ASSERT_TRUE(to) << to.error().message;
    std::set<std::string> planes;
    for (const CheckpointTensor& tensor : from->tensors) {
      if (tensor.parts.empty()) planes.insert(tensor.stored_name);
      for (const StoredPart& part : tensor.parts)
        if (part.plane >= 0) planes.insert(part.view.name);
    }
    ASSERT_TRUE(from->unsupported.empty());
    std::map<std::string, const TensorView*> written;
    for (const TensorView& view : to->tensors) written.emplace(view.name, &view);
    for (const TensorView& view : from->stored_tensors()) {
      const auto count = std::ranges::count_if(listed, [&](const Json& entry) {
        return entry.get<std::string>().starts_with(fmt::format("tensor {}: ", view.name));
      });
      const auto other = written.find(view.name);
      const bool same =
          other != written.end() && std::ranges::equal(other->second->bytes, view.bytes);
      const bool index = view.name.ends_with("g_idx");
      if (index)
        EXPECT_EQ(same ? 0 : 1, count) << view.name;
      else
        EXPECT_EQ(planes.contains(view.name) || same ? 0 : 1, count) << view.name;
    }
  }

  tiny::TemporaryFolder folder_;
};

TEST_F(NotCarried, EveryTensorAndFactOfEveryDialectIsWrittenOrListed) {
  for (const Dialect& dialect : dialects()) {
    SCOPED_TRACE(dialect.name);
    tiny::Folder made = dialect.folder;
    made.tensors.push_back({"model.rotary_table", "F32", {2}, std::vector<std::byte>(8)});
    made.texts["notes.txt"] = "of the maker";
    ASSERT_TRUE(tiny::write(folder_ / dialect.name, made));
    for (const auto& [end, layout] : {std::pair("-floats", "float32"), {".gguf", "gguf:F32"}}) {
      const std::string target = dialect.name + end;
      const Called called =
          call({"convert", path(dialect.name), path(target), "--to", layout, "--json"});
      ASSERT_EQ(called.code, 0) << called.err;
      const Json listed = called.json()["not_carried"];
      expect_whole(dialect.name, target, listed);
      const std::string all = listed.dump();
      for (const std::string& fact : dialect.facts)
        EXPECT_NE(all.find(fact + ": "), std::string::npos) << fact << " in " << all;
      EXPECT_NE(all.find("file notes.txt: "), std::string::npos);
      EXPECT_EQ(call({"verify", path(target), "--against", path(dialect.name)}).code, 0);
      const Called planned = call({"plan", path(dialect.name), "--to", layout, "--json"});
      EXPECT_EQ(planned.json()["not_carried"], listed);
    }
  }
}

// A copy keeps the companions and the config's notes, so that nothing but strangers is listed.
TEST_F(NotCarried, ACopyKeepsCompanionsAndNotes) {
  for (const Dialect& dialect : dialects()) {
    SCOPED_TRACE(dialect.name);
    ASSERT_TRUE(tiny::write(folder_ / dialect.name, dialect.folder));
    const Result<Checkpoint> from = open_checkpoint(path(dialect.name));
    ASSERT_TRUE(from) << from.error().message;
    std::string layout(from->find("model.layers.0.mlp.up_proj.weight")->weight.format().layout);
    const std::string target = dialect.name + "-copy";
    const Called called =
        call({"convert", path(dialect.name), path(target), "--to", layout, "--json"});
    ASSERT_EQ(called.code, 0) << called.err;
    const Json listed = called.json()["not_carried"];
    expect_whole(dialect.name, target, listed);
    for (const Json& entry : listed) {
      const std::string text = entry.get<std::string>();
      EXPECT_TRUE(text.find(".k_scale: ") != std::string::npos ||
                  text.find(".v_scale: ") != std::string::npos)
          << text;
    }
  }
}

}  // namespace
}  // namespace packstone::cli
