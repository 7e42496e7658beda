// What is written in one container opens in the other with the same values and the same config, and
// metadata without a place is listed.
#include "packstone/checkpoint/writer.h"

#include <gtest/gtest.h>

#include <fstream>

#include "packstone/checkpoint/metadata.h"
#include "packstone/checkpoint/quantization_writer.h"
#include "packstone/checkpoint/value_rule.h"
#include "packstone/format/registry.h"
#include "tests/support/packed_folders.h"

namespace packstone {
namespace {

// All tensors of a source in their own formats.
std::vector<OutputTensor> same_outputs(const Checkpoint& source) {
  std::vector<OutputTensor> outputs;
  for (const CheckpointTensor& tensor : source.tensors)
    outputs.push_back({tensor.name, tensor.shape, tensor.weight.id(), tensor.weight.params()});
  return outputs;
}

std::vector<ByteSpan> planes_of(const PackedWeight& weight) {
  std::vector<ByteSpan> planes;
  for (int i = 0; i < weight.plane_count(); ++i) planes.push_back(weight.plane(i));
  return planes;
}

// Writes a source's tensors: float32 ones by value, in the order and rule asked for; others as they
// are, which is only right where the order does not change.
Result<MetadataReport> copy_checkpoint(const Checkpoint& source,
                                       const std::filesystem::path& target, ContainerKind kind,
                                       const WriteOptions& options = {}) {
  PACKSTONE_TRY(auto writer,
                CheckpointWriter::create(target, kind, source, same_outputs(source), options));
  for (std::size_t i = 0; i < source.tensors.size(); ++i) {
    const CheckpointTensor& tensor = source.tensors[i];
    if (tensor.weight.id() != kFloat32) {
      PACKSTONE_CHECK_OK(writer->write(i, planes_of(tensor.weight)));
      continue;
    }
    std::vector<std::int32_t> order = writer->stored_order(i);
    const std::vector<std::int32_t> stored = tensor.stored_rows();
    const std::size_t rows = std::max(std::max(order.size(), stored.size()), std::size_t{1});
    const std::size_t row_bytes = tensor.weight.bytes() / rows;
    std::vector<float> values(tensor.weight.bytes() / sizeof(float));
    for (std::size_t row = 0; row < rows; ++row) {
      const std::size_t named = order.empty() ? row : static_cast<std::size_t>(order[row]);
      const std::size_t from = stored.empty() ? named : static_cast<std::size_t>(stored[named]);
      std::memcpy(reinterpret_cast<std::byte*>(values.data()) + row * row_bytes,
                  tensor.weight.plane(0).data() + from * row_bytes, row_bytes);
    }
    PACKSTONE_CHECK_OK(
        apply_value_rule(tensor.value_rule, writer->value_rule(i), values, tensor.name));
    PACKSTONE_CHECK_OK(writer->write(i, {std::as_bytes(std::span(values))}));
  }
  PACKSTONE_CHECK_OK(writer->commit());
  return writer->metadata();
}

void expect_same_tensors(const Checkpoint& a, const Checkpoint& b) {
  ASSERT_EQ(a.tensors.size(), b.tensors.size());
  for (const CheckpointTensor& tensor : a.tensors) {
    const CheckpointTensor* other = b.find(tensor.name);
    ASSERT_NE(other, nullptr) << tensor.name;
    ASSERT_EQ(tensor.weight.id(), other->weight.id()) << tensor.name;
    for (int plane = 0; plane < tensor.weight.plane_count(); ++plane) {
      const ByteSpan x = tensor.weight.plane(plane);
      const ByteSpan y = other->weight.plane(plane);
      EXPECT_TRUE(std::equal(x.begin(), x.end(), y.begin(), y.end())) << tensor.name;
    }
  }
}

void expect_same_config(const ModelConfig& a, const ModelConfig& b) {
  EXPECT_EQ(a.hidden, b.hidden);
  EXPECT_EQ(a.layers, b.layers);
  EXPECT_EQ(a.intermediate, b.intermediate);
  EXPECT_EQ(a.heads, b.heads);
  EXPECT_EQ(a.kv_heads, b.kv_heads);
  EXPECT_EQ(a.head_dim, b.head_dim);
  EXPECT_EQ(a.vocab, b.vocab);
  EXPECT_EQ(a.context, b.context);
  EXPECT_EQ(a.rms_eps, b.rms_eps);
  EXPECT_EQ(a.rope_theta, b.rope_theta);
  EXPECT_EQ(a.rope_local_theta, b.rope_local_theta);
  EXPECT_EQ(a.rope.kind, b.rope.kind);
  EXPECT_EQ(a.rope.factor, b.rope.factor);
  EXPECT_EQ(a.query_scale, b.query_scale);
  EXPECT_EQ(a.sliding_window, b.sliding_window);
  EXPECT_EQ(a.sliding_layers, b.sliding_layers);
  EXPECT_EQ(a.attention_softcap, b.attention_softcap);
  EXPECT_EQ(a.final_softcap, b.final_softcap);
  EXPECT_EQ(a.tied_embeddings, b.tied_embeddings);
  EXPECT_EQ(a.eos, b.eos);
  EXPECT_EQ(a.bos, b.bos);
}

bool lists(const MetadataReport& report, std::string_view name) {
  for (const std::string& entry : report.not_carried)
    if (entry.find(name) != std::string::npos) return true;
  return false;
}

class Writers : public testing::TestWithParam<const char*> {};

TEST_P(Writers, GgufToFolderToGguf) {
  const tiny::TemporaryFolder folder;
  ASSERT_TRUE(tiny::write(folder / "a.gguf", tiny::gguf(GetParam())));
  const Result<Checkpoint> first = open_checkpoint(folder / "a.gguf");
  ASSERT_TRUE(first) << first.error().message;
  const auto out = copy_checkpoint(*first, folder / "b", ContainerKind::kFolder);
  ASSERT_TRUE(out) << out.error().message;
  const Result<Checkpoint> second = open_checkpoint(folder / "b");
  ASSERT_TRUE(second) << second.error().message;
  EXPECT_TRUE(second->problems.empty());
  expect_same_config(first->config, second->config);
  const auto back = copy_checkpoint(*second, folder / "c.gguf", ContainerKind::kGguf);
  ASSERT_TRUE(back) << back.error().message;
  const Result<Checkpoint> third = open_checkpoint(folder / "c.gguf");
  ASSERT_TRUE(third) << third.error().message;
  expect_same_tensors(*first, *third);
  expect_same_config(first->config, third->config);
  for (const GgufKey& key : first->gguf.keys) {
    const GgufValue* value = third->gguf.find(key.name);
    ASSERT_NE(value, nullptr) << key.name;
    EXPECT_EQ(value->index(), key.value.index()) << key.name;
  }
  // The folder holds the Hugging Face values of the same seed.
  ASSERT_TRUE(tiny::write(folder / "d", tiny::folder(GetParam())));
  const Result<Checkpoint> original = open_checkpoint(folder / "d");
  ASSERT_TRUE(original) << original.error().message;
  expect_same_tensors(*original, *second);
}

TEST_P(Writers, GgufToGgufKeepsEveryKey) {
  const tiny::TemporaryFolder folder;
  tiny::Gguf made = tiny::gguf(GetParam());
  made.set("general.author", std::string("nobody"));
  made.set("custom.list", GgufArray{std::vector<std::int64_t>{1, -2}});
  ASSERT_TRUE(tiny::write(folder / "a.gguf", made));
  const Result<Checkpoint> first = open_checkpoint(folder / "a.gguf");
  ASSERT_TRUE(first) << first.error().message;
  const auto out = copy_checkpoint(*first, folder / "b.gguf", ContainerKind::kGguf);
  ASSERT_TRUE(out) << out.error().message;
  EXPECT_TRUE(out->not_carried.empty());
  const Result<Checkpoint> second = open_checkpoint(folder / "b.gguf");
  ASSERT_TRUE(second) << second.error().message;
  expect_same_tensors(*first, *second);
  for (const GgufKey& key : made.keys) EXPECT_NE(second->gguf.find(key.name), nullptr) << key.name;
}

INSTANTIATE_TEST_SUITE_P(All, Writers,
                         testing::Values("llama", "qwen2", "qwen3", "gemma2", "gemma3_text"));

TEST(WriterTest, FolderToFolderKeepsPacksShardsAndKeys) {
  const tiny::TemporaryFolder folder;
  tiny::Folder made = tiny::mlx_folder("llama", 4, 64);
  made.config["custom"] = {1, "two"};
  made.generation_config = {{"temperature", 0.5}, {"eos_token_id", {2, 3}}};
  made.texts["tokenizer.json"] = "{\"odd\":   \"spacing\"}";
  made.texts["special_tokens_map.json"] = "{}";
  ASSERT_TRUE(tiny::write(folder / "a", made));
  const Result<Checkpoint> first = open_checkpoint(folder / "a");
  ASSERT_TRUE(first) << first.error().message;
  const auto out =
      copy_checkpoint(*first, folder / "b", ContainerKind::kFolder, {.shard_bytes_max = 20'000});
  ASSERT_TRUE(out) << out.error().message;
  EXPECT_TRUE(out->not_carried.empty());
  EXPECT_FALSE(std::filesystem::exists(folder / "b/model.safetensors"));
  EXPECT_TRUE(std::filesystem::exists(folder / "b/model.safetensors.index.json"));
  EXPECT_TRUE(std::filesystem::exists(folder / "b/special_tokens_map.json"));
  const Result<Checkpoint> second = open_checkpoint(folder / "b");
  ASSERT_TRUE(second) << second.error().message;
  expect_same_tensors(*first, *second);
  EXPECT_EQ(second->tokenizer_json_text, made.texts["tokenizer.json"]);
  EXPECT_EQ(second->config_json["custom"], made.config["custom"]);
  EXPECT_EQ(second->generation_config_json, made.generation_config);
  EXPECT_EQ(second->safetensors_metadata.at("format"), "mlx");
  EXPECT_EQ(second->config_json["quantization"]["bits"], 4);
}

// SEC-17: a link out of the folder would bring another file's text into the output.
TEST(WriterTest, Sec17TokenizerFilesStayInTheFolder) {
  const tiny::TemporaryFolder folder;
  ASSERT_TRUE(tiny::write(folder / "a", tiny::mlx_folder("llama", 4, 64)));
  tiny::write_text(folder / "secret", "{}");
  std::filesystem::create_symlink(folder / "secret", folder / "a/vocab.json");
  const Result<Checkpoint> source = open_checkpoint(folder / "a");
  ASSERT_TRUE(source) << source.error().message;
  const auto out = copy_checkpoint(*source, folder / "b", ContainerKind::kFolder);
  ASSERT_FALSE(out);
  EXPECT_EQ(out.error().code, ErrorCode::kCorruptData) << out.error().message;
  EXPECT_FALSE(std::filesystem::exists(folder / "b"));
}

// SEC-17: no file of a model folder is read through a link out of it, on any path.
TEST(WriterTest, Sec17NoModelFileIsReadThroughALinkOut) {
  for (const char* name : {"config.json", "generation_config.json", "tokenizer.json",
                           "tokenizer_config.json", "chat_template.jinja", "model.safetensors"}) {
    const tiny::TemporaryFolder folder;
    ASSERT_TRUE(tiny::write(folder / "a", tiny::mlx_folder("llama", 4, 64)));
    const std::filesystem::path file = folder / "a" / name;
    if (std::filesystem::exists(file))
      std::filesystem::rename(file, folder / "outside");
    else
      tiny::write_text(folder / "outside", "{}");
    std::filesystem::create_symlink(folder / "outside", file);
    const Result<Checkpoint> source = open_checkpoint(folder / "a");
    if (std::string_view(name) == "chat_template.jinja") {
      ASSERT_TRUE(source) << source.error().message;
      const auto out = copy_checkpoint(*source, folder / "b", ContainerKind::kFolder);
      ASSERT_FALSE(out) << name;
      EXPECT_EQ(out.error().code, ErrorCode::kCorruptData) << out.error().message;
      continue;
    }
    ASSERT_FALSE(source) << name;
    EXPECT_EQ(source.error().code, ErrorCode::kCorruptData) << source.error().message;
    EXPECT_NE(source.error().message.find("link"), std::string::npos) << source.error().message;
  }
}

// A copy of a packed folder keeps every tensor's name, type, shape and bytes, companions included,
// and the source's own config, whatever program wrote it.
TEST(WriterTest, CopyKeepsNamesCompanionsAndConfig) {
  tiny::Folder made = tiny::folder("llama", 1);
  std::vector<std::string> modules;
  for (const tiny::Tensor& tensor : made.tensors)
    if (tensor.name.ends_with("_proj.weight"))
      modules.push_back(tensor.name.substr(0, tensor.name.size() - 7));
  for (const std::string& module : modules) {
    const std::vector<std::int64_t> shape = made.at(module + ".weight").shape;
    made.erase(module + ".weight");
    const std::int64_t weights = shape[0] * shape[1];
    made.tensors.push_back({module + "_blocks",
                            "U8",
                            {shape[0], shape[1] / 32, 16},
                            std::vector<std::byte>(weights / 2, std::byte{0x2A})});
    made.tensors.push_back({module + "_scales",
                            "U8",
                            {shape[0], shape[1] / 32},
                            std::vector<std::byte>(weights / 32, std::byte{120})});
  }
  made.config["quantization_config"] = {{"quant_method", "mxfp4"},
                                        {"modules_to_not_convert", {"lm_head"}}};
  const tiny::TemporaryFolder folder;
  ASSERT_TRUE(tiny::write(folder / "a", made));
  const Result<Checkpoint> source = open_checkpoint(folder / "a");
  ASSERT_TRUE(source) << source.error().message;
  const auto out = copy_checkpoint(*source, folder / "b", ContainerKind::kFolder);
  ASSERT_TRUE(out) << out.error().message;
  const Result<RawCheckpoint> raw = open_raw(folder / "b");
  ASSERT_TRUE(raw) << raw.error().message;
  EXPECT_EQ(raw->config_json["quantization_config"], made.config["quantization_config"]);
  ASSERT_EQ(raw->tensors.size(), made.tensors.size());
  for (const TensorView& view : raw->tensors) {
    const tiny::Tensor& tensor = made.at(view.name);
    EXPECT_EQ(view.shape, tensor.shape) << view.name;
    EXPECT_EQ(view.type->name, tensor.type) << view.name;
    EXPECT_TRUE(std::ranges::equal(view.bytes, tensor.bytes)) << view.name;
  }
  const Result<Checkpoint> again = open_checkpoint(folder / "b");
  ASSERT_TRUE(again) << again.error().message;
  expect_same_tensors(*source, *again);
}

// EXL3 and ParoQuant modules have no format here; a copy of the folder carries them byte for byte.
TEST(WriterTest, DescribedModulesAreCarried) {
  tiny::Folder made = tiny::exl3_folder();
  const std::vector<std::string> modules = tiny::projections(tiny::wide_folder());
  const tiny::TemporaryFolder folder;
  ASSERT_TRUE(tiny::write(folder / "a", made));
  const Result<Checkpoint> source = open_checkpoint(folder / "a");
  ASSERT_TRUE(source) << source.error().message;
  ASSERT_EQ(source->unsupported.size(), modules.size());
  const auto out = copy_checkpoint(*source, folder / "b", ContainerKind::kFolder,
                                   {.shard_bytes_max = 70'000, .carry_described = true});
  ASSERT_TRUE(out) << out.error().message;
  const Result<RawCheckpoint> raw = open_raw(folder / "b");
  ASSERT_TRUE(raw) << raw.error().message;
  EXPECT_EQ(raw->config_json, made.config);
  ASSERT_EQ(raw->tensors.size(), made.tensors.size());
  for (const TensorView& view : raw->tensors) {
    EXPECT_EQ(view.shape, made.at(view.name).shape) << view.name;
    EXPECT_TRUE(std::ranges::equal(view.bytes, made.at(view.name).bytes)) << view.name;
  }
  const Result<Checkpoint> again = open_checkpoint(folder / "b");
  ASSERT_TRUE(again) << again.error().message;
  EXPECT_EQ(again->unsupported.size(), modules.size());
}

TEST(WriterTest, QuantizationBlockNamesModulesThatDiffer) {
  const FormatId four = kFormatId<MlxAffine<4>>;
  const FormatId eight = kFormatId<MlxAffine<8>>;
  const FormatParams params{64, FloatType::kBF16};
  const nlohmann::ordered_json keys = quantization_keys({{"a.weight", {64, 64}, four, params},
                                                         {"b.weight", {64, 64}, four, params},
                                                         {"c.weight", {64, 64}, eight, params},
                                                         {"d.weight", {64}, kFloat32, {}}},
                                                        false);
  EXPECT_EQ(keys["quantization"], keys["quantization_config"]);
  const nlohmann::ordered_json block = keys["quantization"];
  EXPECT_EQ(block["bits"], 4);
  EXPECT_EQ(block["group_size"], 64);
  EXPECT_EQ(block["c"]["bits"], 8);
  EXPECT_FALSE(block.contains("a"));
  EXPECT_FALSE(block.contains("d"));
  EXPECT_TRUE(quantization_keys({{"d.weight", {64}, kFloat32, {}}}, false).empty());
}

// CFG-06: rope scaling survives the way through GGUF.
TEST(WriterTest, Cfg06RopeScalingThroughGguf) {
  const std::vector<nlohmann::ordered_json> scalings = {
      {{"rope_type", "llama3"},
       {"factor", 32.0},
       {"low_freq_factor", 1.0},
       {"high_freq_factor", 4.0},
       {"original_max_position_embeddings", 128}},
      {{"rope_type", "linear"}, {"factor", 4.0}},
      {{"type", "yarn"}, {"factor", 8.0}, {"original_max_position_embeddings", 64}},
      {{"type", "yarn"},
       {"factor", 8.0},
       {"original_max_position_embeddings", 64},
       {"attention_factor", 1.5}},
  };
  for (const nlohmann::ordered_json& scaling : scalings) {
    const tiny::TemporaryFolder folder;
    tiny::Folder made = tiny::folder("llama");
    made.config["rope_scaling"] = scaling;
    ASSERT_TRUE(tiny::write(folder / "a", made));
    const Result<Checkpoint> first = open_checkpoint(folder / "a");
    ASSERT_TRUE(first) << first.error().message;
    ASSERT_NE(first->config.rope.kind, RopeKind::kNone);
    const auto out = copy_checkpoint(*first, folder / "b.gguf", ContainerKind::kGguf);
    ASSERT_TRUE(out) << out.error().message;
    const Result<Checkpoint> second = open_checkpoint(folder / "b.gguf");
    ASSERT_TRUE(second) << second.error().message;
    expect_same_config(first->config, second->config);
    EXPECT_EQ(first->config.rope.original_context, second->config.rope.original_context)
        << scaling.dump();
    EXPECT_EQ(first->config.rope.low_freq_factor, second->config.rope.low_freq_factor);
    EXPECT_EQ(first->config.rope.high_freq_factor, second->config.rope.high_freq_factor);
    EXPECT_NEAR(yarn_attention_factor(first->config.rope),
                yarn_attention_factor(second->config.rope), 1e-6);
    EXPECT_TRUE(second->unbound.empty());
  }
}

TEST(WriterTest, MetadataWithoutAPlaceIsListed) {
  const tiny::TemporaryFolder folder;
  tiny::Gguf made = tiny::gguf("llama");
  made.set("general.license", std::string("x"));
  made.set("llama.something_new", std::uint32_t{3});
  made.set("tokenizer.ggml.add_sep_token", false);
  ASSERT_TRUE(tiny::write(folder / "a.gguf", made));
  const Result<Checkpoint> first = open_checkpoint(folder / "a.gguf");
  ASSERT_TRUE(first) << first.error().message;
  const auto out = copy_checkpoint(*first, folder / "b", ContainerKind::kFolder);
  ASSERT_TRUE(out) << out.error().message;
  for (const char* key : {"general.license", "llama.something_new", "tokenizer.ggml.add_sep_token"})
    EXPECT_TRUE(lists(*out, key)) << key;
  EXPECT_EQ(out->not_carried.size(), 3u);

  tiny::Folder source = tiny::folder("mistral");
  source.config["sliding_window"] = 16;
  source.config["use_cache"] = true;
  source.generation_config = {{"temperature", 0.5}};
  std::mt19937 random(1);
  source.tensors.push_back(tiny::random_tensor("extra.weight", {4, 4}, random));
  ASSERT_TRUE(tiny::write(folder / "c", source));
  const Result<Checkpoint> second = open_checkpoint(folder / "c");
  ASSERT_TRUE(second) << second.error().message;
  const auto report = copy_checkpoint(*second, folder / "d.gguf", ContainerKind::kGguf);
  ASSERT_TRUE(report) << report.error().message;
  for (const char* key :
       {"sliding_window", "use_cache", "temperature", "extra.weight", "tokenizer"})
    EXPECT_TRUE(lists(*report, key)) << key;
}

TEST(WriterTest, ChatTemplateFileTravelsAndTokenizerSettingsAreListed) {
  const tiny::TemporaryFolder folder;
  ASSERT_TRUE(tiny::write(folder / "a.gguf", tiny::gguf("llama")));
  const Result<Checkpoint> first = open_checkpoint(folder / "a.gguf");
  ASSERT_TRUE(first) << first.error().message;
  ASSERT_TRUE(copy_checkpoint(*first, folder / "b", ContainerKind::kFolder));
  const nlohmann::ordered_json config = {
      {"chat_template", "old"}, {"model_max_length", 96}, {"clean_up_tokenization_spaces", false}};
  std::ofstream(folder / "b/tokenizer_config.json") << config.dump();
  std::ofstream(folder / "b/chat_template.jinja") << "{{ messages }}\n";
  const Result<Checkpoint> second = open_checkpoint(folder / "b");
  ASSERT_TRUE(second) << second.error().message;
  const auto report = copy_checkpoint(*second, folder / "c.gguf", ContainerKind::kGguf);
  ASSERT_TRUE(report) << report.error().message;
  EXPECT_TRUE(lists(*report, "tokenizer_config.json: model_max_length"));
  EXPECT_FALSE(lists(*report, "chat_template"));
  EXPECT_FALSE(lists(*report, "clean_up_tokenization_spaces"));
  const Result<Checkpoint> third = open_checkpoint(folder / "c.gguf");
  ASSERT_TRUE(third) << third.error().message;
  const auto vocabulary = checkpoint_vocabulary(*third);
  ASSERT_TRUE(vocabulary) << vocabulary.error().message;
  EXPECT_EQ(vocabulary->chat_template, "{{ messages }}\n");
}

TEST(WriterTest, BiasesOfLlamaArePaired) {
  const tiny::TemporaryFolder folder;
  tiny::Folder made = tiny::folder("llama");
  made.config["attention_bias"] = true;
  std::mt19937 random(4);
  for (const char* layer : {"0", "1"})
    for (const auto& [name, size] : {std::pair("q", tiny::kHeads * tiny::kHeadDim),
                                     {"k", tiny::kKvHeads * tiny::kHeadDim},
                                     {"v", tiny::kKvHeads * tiny::kHeadDim},
                                     {"o", tiny::kHidden}})
      made.tensors.push_back(tiny::random_tensor(
          fmt::format("model.layers.{}.self_attn.{}_proj.bias", layer, name), {size}, random));
  ASSERT_TRUE(tiny::write(folder / "a", made));
  const Result<Checkpoint> first = open_checkpoint(folder / "a");
  ASSERT_TRUE(first) << first.error().message;
  EXPECT_TRUE(first->config.qkv_bias && first->config.o_bias);
  ASSERT_TRUE(copy_checkpoint(*first, folder / "b.gguf", ContainerKind::kGguf));
  const Result<Checkpoint> second = open_checkpoint(folder / "b.gguf");
  ASSERT_TRUE(second) << second.error().message;
  const CheckpointTensor* bias = second->find("model.layers.0.self_attn.q_proj.bias");
  ASSERT_NE(bias, nullptr);
  EXPECT_EQ(bias->row_order, RowOrder::kPairedHeads);
  EXPECT_EQ(bias->weight.shape(), (Shape{tiny::kHeads * tiny::kHeadDim, 1}));
  ASSERT_TRUE(copy_checkpoint(*second, folder / "c", ContainerKind::kFolder));
  const Result<Checkpoint> third = open_checkpoint(folder / "c");
  ASSERT_TRUE(third) << third.error().message;
  expect_same_tensors(*first, *third);
}

// TIE-01: the written flag follows the written tensors.
TEST(WriterTest, TieFlagFollowsTheTensors) {
  const tiny::TemporaryFolder folder;
  tiny::Folder made = tiny::folder("qwen3");
  std::mt19937 random(3);
  made.tensors.push_back(
      tiny::random_tensor("lm_head.weight", {tiny::kVocab, tiny::kHidden}, random));
  ASSERT_TRUE(tiny::write(folder / "a", made));
  const Result<Checkpoint> first = open_checkpoint(folder / "a");
  ASSERT_TRUE(first) << first.error().message;
  ASSERT_EQ(first->problems.size(), 1u);
  ASSERT_TRUE(copy_checkpoint(*first, folder / "b", ContainerKind::kFolder));
  const Result<Checkpoint> second = open_checkpoint(folder / "b");
  ASSERT_TRUE(second) << second.error().message;
  EXPECT_TRUE(second->problems.empty());
  EXPECT_EQ(second->config_json["tie_word_embeddings"], false);
}

// TOK-07: all end tokens survive the way to GGUF and back.
TEST(WriterTest, Tok07EndTokensThroughFolder) {
  const tiny::TemporaryFolder folder;
  tiny::Gguf made = tiny::gguf("llama");
  made.set("tokenizer.ggml.eot_token_id", std::uint32_t{0});
  ASSERT_TRUE(tiny::write(folder / "a.gguf", made));
  const Result<Checkpoint> first = open_checkpoint(folder / "a.gguf");
  ASSERT_TRUE(first) << first.error().message;
  EXPECT_EQ(first->config.eos, (std::vector<std::int64_t>{2, 0}));
  ASSERT_TRUE(copy_checkpoint(*first, folder / "b", ContainerKind::kFolder));
  const Result<Checkpoint> second = open_checkpoint(folder / "b");
  ASSERT_TRUE(second) << second.error().message;
  EXPECT_EQ(second->config.eos, first->config.eos);
  ASSERT_TRUE(copy_checkpoint(*second, folder / "c.gguf", ContainerKind::kGguf));
  EXPECT_EQ(open_checkpoint(folder / "c.gguf")->config.eos, first->config.eos);
}

TEST(WriterTest, RefusalsNameTheTensorAndLeaveNothing) {
  const tiny::TemporaryFolder folder;
  ASSERT_TRUE(tiny::write(folder / "a", tiny::mlx_folder("llama", 4, 64)));
  const Result<Checkpoint> source = open_checkpoint(folder / "a");
  ASSERT_TRUE(source) << source.error().message;
  const auto refused = [&](ContainerKind kind, std::vector<OutputTensor> outputs, ErrorCode code,
                           std::string_view part) {
    const auto writer =
        CheckpointWriter::create(folder / "out", kind, *source, std::move(outputs), {});
    ASSERT_FALSE(writer) << part;
    EXPECT_EQ(writer.error().code, code) << writer.error().message;
    EXPECT_NE(writer.error().message.find(part), std::string::npos) << writer.error().message;
    EXPECT_FALSE(std::filesystem::exists(folder / "out"));
  };
  std::vector<OutputTensor> outputs = same_outputs(*source);
  refused(ContainerKind::kGguf, outputs, ErrorCode::kUnsupported, "model.embed_tokens.weight");
  outputs[0].format = kFormatId<GgufQ4_0>;
  outputs[0].params = {};
  refused(ContainerKind::kFolder, outputs, ErrorCode::kUnsupported, outputs[0].name);
  outputs = same_outputs(*source);
  outputs[1].name = "model.layers.9.input_layernorm.weight";
  refused(ContainerKind::kFolder, outputs, ErrorCode::kUnsupported, "model.layers.9");
  outputs = same_outputs(*source);
  outputs.push_back(outputs[0]);
  refused(ContainerKind::kFolder, outputs, ErrorCode::kInvalidInput, "twice");
  outputs = same_outputs(*source);
  outputs[0].shape[0] += 1;
  refused(ContainerKind::kFolder, outputs, ErrorCode::kInvalidInput, "shape");
  outputs = {{"model.norm.weight", {tiny::kHidden}, kBFloat16, {}}};
  refused(ContainerKind::kGguf, outputs, ErrorCode::kUnsupported, "float32");
  EXPECT_EQ(CheckpointWriter::create(folder / "a", ContainerKind::kFolder, *source,
                                     same_outputs(*source), {})
                .error()
                .code,
            ErrorCode::kInvalidInput);
  {
    auto writer = CheckpointWriter::create(folder / "out", ContainerKind::kFolder, *source,
                                           same_outputs(*source), {});
    ASSERT_TRUE(writer) << writer.error().message;
    EXPECT_EQ((*writer)->write(1, planes_of(source->tensors[1].weight)).error().code,
              ErrorCode::kInvalidInput);
    EXPECT_EQ((*writer)->write(0, planes_of(source->tensors[1].weight)).error().code,
              ErrorCode::kInvalidInput);
    EXPECT_EQ((*writer)->commit().error().code, ErrorCode::kInvalidInput);
  }
  EXPECT_FALSE(std::filesystem::exists(folder / "out"));
}

TEST(ValueRuleTest, KeepsTheMultiplierOrRefuses) {
  std::vector<float> values = {0.5f, -1.0f, 3.25f, 0.0f};
  const std::vector<float> before = values;
  ASSERT_TRUE(apply_value_rule(ValueRule::kSame, ValueRule::kPlusOne, values, "n"));
  EXPECT_EQ(values, (std::vector<float>{1.5f, 0.0f, 4.25f, 1.0f}));
  ASSERT_TRUE(apply_value_rule(ValueRule::kPlusOne, ValueRule::kSame, values, "n"));
  EXPECT_EQ(values, before);
  values = {1.0f, 1e-9f};
  const Status status = apply_value_rule(ValueRule::kPlusOne, ValueRule::kSame, values, "n");
  ASSERT_FALSE(status);
  EXPECT_EQ(status.error().code, ErrorCode::kNotRepresentable);
  EXPECT_NE(status.error().message.find("at 1"), std::string::npos);
  EXPECT_EQ(values[0], 1.0f);
}

}  // namespace
}  // namespace packstone
