// Every architecture opens from GGUF, Hugging Face and MLX files of the same weights, with the same
// config and names, and contradictions between config and tensors are refused by name.
#include "packstone/checkpoint/checkpoint.h"

#include <gtest/gtest.h>

#include "packstone/checkpoint/names.h"
#include "tests/support/packed_folders.h"

namespace packstone {
namespace {

Result<Checkpoint> reopen(const tiny::Folder& made) {
  const tiny::TemporaryFolder folder;
  const Status written = tiny::write(folder / "model", made);
  EXPECT_TRUE(written) << written.error().message;
  return open_checkpoint(folder / "model");
}

Result<Checkpoint> reopen(const tiny::Gguf& made) {
  const tiny::TemporaryFolder folder;
  const Status written = tiny::write(folder / "model.gguf", made);
  EXPECT_TRUE(written) << written.error().message;
  return open_checkpoint(folder / "model.gguf");
}

// The error of opening, which must mention every part.
template <class Made>
void expect_refused(const Made& made, ErrorCode code, const std::vector<std::string>& parts) {
  const Result<Checkpoint> checkpoint = reopen(made);
  ASSERT_FALSE(checkpoint) << "opened; expected an error about " << parts[0];
  EXPECT_EQ(checkpoint.error().code, code) << checkpoint.error().message;
  for (const std::string& part : parts)
    EXPECT_NE(checkpoint.error().message.find(part), std::string::npos)
        << checkpoint.error().message << " does not mention " << part;
}

float stored_float(const CheckpointTensor& tensor, std::int64_t row, std::int64_t col) {
  return load_le<float>(tensor.weight.plane(0).data() +
                        4 * (row * tensor.weight.shape().cols + col));
}

class Architectures : public testing::TestWithParam<const char*> {};

TEST_P(Architectures, OpenAlikeFromBothContainers) {
  const Result<Checkpoint> folder = reopen(tiny::folder(GetParam()));
  const Result<Checkpoint> gguf = reopen(tiny::gguf(GetParam()));
  ASSERT_TRUE(folder) << folder.error().message;
  ASSERT_TRUE(gguf) << gguf.error().message;
  ASSERT_EQ(folder->tensors.size(), gguf->tensors.size());
  EXPECT_TRUE(folder->unbound.empty());
  EXPECT_TRUE(gguf->unbound.empty());
  for (const CheckpointTensor& tensor : folder->tensors) {
    const CheckpointTensor* other = gguf->find(tensor.name);
    ASSERT_NE(other, nullptr) << tensor.name;
    EXPECT_EQ(other->shape, tensor.shape) << tensor.name;
    const std::vector<std::int32_t> rows = other->stored_rows();
    const Shape shape = tensor.weight.shape();
    const float shift = other->value_rule == ValueRule::kPlusOne ? 1.0f : 0.0f;
    for (std::int64_t row = 0; row < shape.rows; ++row)
      for (std::int64_t col = 0; col < shape.cols; ++col)
        ASSERT_EQ(
            stored_float(tensor, row, col) + shift,
            stored_float(*other, rows.empty() ? row : rows[static_cast<std::size_t>(row)], col))
            << tensor.name;
  }
  const ModelConfig& a = folder->config;
  const ModelConfig& b = gguf->config;
  EXPECT_EQ(a.hidden, b.hidden);
  EXPECT_EQ(a.layers, b.layers);
  EXPECT_EQ(a.head_dim, b.head_dim);
  EXPECT_EQ(a.kv_heads, b.kv_heads);
  EXPECT_EQ(a.vocab, b.vocab);
  EXPECT_EQ(a.context, b.context);
  EXPECT_EQ(a.rms_eps, b.rms_eps);
  EXPECT_EQ(a.rope_theta, b.rope_theta);
  EXPECT_EQ(a.query_scale, b.query_scale);
  EXPECT_EQ(a.sliding_window, b.sliding_window);
  EXPECT_EQ(a.sliding_layers, b.sliding_layers);
  EXPECT_EQ(a.attention_softcap, b.attention_softcap);
  EXPECT_EQ(a.tied_embeddings, b.tied_embeddings);
  EXPECT_EQ(a.qkv_bias, b.qkv_bias);
  EXPECT_EQ(a.eos, b.eos);
  EXPECT_EQ(a.bos, b.bos);
}

INSTANTIATE_TEST_SUITE_P(All, Architectures,
                         testing::Values("llama", "mistral", "qwen2", "qwen3", "gemma2",
                                         "gemma3_text"));

TEST(CheckpointTest, PairedHeadsOnlyInLlama) {
  for (const char* type : {"llama", "qwen3"}) {
    const Result<Checkpoint> gguf = reopen(tiny::gguf(type));
    ASSERT_TRUE(gguf) << gguf.error().message;
    const CheckpointTensor* q = gguf->find("model.layers.1.self_attn.q_proj.weight");
    ASSERT_NE(q, nullptr);
    EXPECT_EQ(q->row_order == RowOrder::kPairedHeads, std::string_view(type) == "llama");
    EXPECT_EQ(gguf->find("model.layers.1.self_attn.v_proj.weight")->row_order, RowOrder::kSame);
  }
}

// Of every architecture: as many rows of the producers as columns of the consumer, in every layer;
// of all other matrices a reason why their columns keep their order.
TEST(CheckpointTest, ChannelRelationsFit) {
  for (const char* type : {"llama", "mistral", "qwen2", "qwen3", "gemma2", "gemma3_text"}) {
    const Result<Checkpoint> checkpoint = reopen(tiny::folder(type, 3));
    ASSERT_TRUE(checkpoint) << checkpoint.error().message;
    const std::vector<ChannelRelation> relations = channel_relations(checkpoint->config);
    ASSERT_EQ(relations.size(), 3u) << type;
    std::size_t producers = 0;
    for (const ChannelRelation& relation : relations) {
      const CheckpointTensor* consumer = checkpoint->find(relation.consumer);
      ASSERT_NE(consumer, nullptr) << relation.consumer;
      EXPECT_TRUE(fixed_columns_reason(relation.consumer).empty());
      for (const std::string& name : relation.producers) {
        const CheckpointTensor* producer = checkpoint->find(name);
        if (producer == nullptr) continue;
        EXPECT_EQ(producer->shape[0], consumer->shape[1]) << name;
        ++producers;
      }
    }
    EXPECT_EQ(producers, 6u) << type;
    for (const CheckpointTensor& tensor : checkpoint->tensors)
      EXPECT_EQ(fixed_columns_reason(tensor.name).empty(),
                tensor.name.ends_with("mlp.down_proj.weight"))
          << tensor.name;
  }
}

TEST(CheckpointTest, PackedFolderBindsAllWidths) {
  for (const int bits : {2, 3, 4, 5, 6, 8}) {
    const Result<Checkpoint> checkpoint = reopen(tiny::mlx_folder("llama", bits, 32));
    ASSERT_TRUE(checkpoint) << checkpoint.error().message;
    const CheckpointTensor* up = checkpoint->find("model.layers.0.mlp.up_proj.weight");
    ASSERT_NE(up, nullptr);
    EXPECT_EQ(up->weight.format().name, fmt::format("mlx.affine.w{}", bits));
    EXPECT_EQ(up->weight.params().group_cols, 32);
    EXPECT_EQ(up->weight.params().metadata, FloatType::kF16);
    EXPECT_EQ(up->shape, (std::vector<std::int64_t>{tiny::kIntermediate, tiny::kHidden}));
    EXPECT_TRUE(checkpoint->problems.empty());
  }
}

// CFG-03: mixed widths; the override's spelling may lack the model prefix; a contradiction between
// shapes and config is refused.
TEST(CheckpointTest, Cfg03MixedBits) {
  for (const char* prefix : {"model.", "", "language_model.model."}) {
    tiny::Folder made = tiny::mlx_folder("llama", 4, 64);
    for (const auto& [module, bits] :
         {std::pair("layers.1.mlp.down_proj", 6), {"embed_tokens", 8}}) {
      made.erase(fmt::format("model.{}.scales", module));
      made.erase(fmt::format("model.{}.biases", module));
      tiny::Tensor& weight = made.at(fmt::format("model.{}.weight", module));
      weight.shape[1] = weight.shape[1] * 32 / 4;
      tiny::pack(made, fmt::format("model.{}", module), bits, 64);
      for (const char* key : {"quantization", "quantization_config"})
        made.config[key][fmt::format("{}{}", prefix, module)] = {{"group_size", 64},
                                                                 {"bits", bits}};
    }
    const Result<Checkpoint> checkpoint = reopen(made);
    ASSERT_TRUE(checkpoint) << checkpoint.error().message;
    EXPECT_EQ(checkpoint->find("model.embed_tokens.weight")->weight.format().code_bits, 8);
    EXPECT_EQ(checkpoint->find("model.layers.1.mlp.down_proj.weight")->weight.format().code_bits,
              6);
    for (const char* key : {"quantization", "quantization_config"})
      made.config[key].erase(fmt::format("{}embed_tokens", prefix));
    expect_refused(made, ErrorCode::kCorruptData,
                   {"model.embed_tokens.weight", "8 bits", "4 bits"});
  }
}

TEST(CheckpointTest, QuantizationBlockMustAgreeWithTensors) {
  tiny::Folder made = tiny::mlx_folder("llama", 4, 64);
  tiny::Folder broken = made;
  broken.config.erase("quantization");
  broken.config.erase("quantization_config");
  expect_refused(broken, ErrorCode::kCorruptData, {"U32", "'quantization'"});
  broken = made;
  broken.config["quantization_config"]["bits"] = 8;
  expect_refused(broken, ErrorCode::kCorruptData, {"quantization_config", "quantization"});
  broken = made;
  broken.config.erase("quantization_config");
  broken.config["quantization"]["model.layers.7.mlp.up_proj"] = {{"bits", 4}};
  expect_refused(broken, ErrorCode::kCorruptData, {"model.layers.7.mlp.up_proj"});
  broken = made;
  broken.config.erase("quantization_config");
  broken.config["quantization"]["mode"] = "mxfp4";
  expect_refused(broken, ErrorCode::kCorruptData, {"mxfp4", "model.embed_tokens.scales"});
  broken = made;
  broken.config.erase("quantization_config");
  broken.config["quantization"]["model.layers.0.mlp.up_proj"] = false;
  expect_refused(broken, ErrorCode::kCorruptData, {"model.layers.0.mlp.up_proj", "false"});
  broken = made;
  broken.erase("model.layers.0.mlp.up_proj.biases");
  expect_refused(broken, ErrorCode::kCorruptData, {"model.layers.0.mlp.up_proj", ".biases"});
  broken = made;
  broken.config.erase("quantization");
  broken.config["quantization_config"] = {{"quant_method", "gptq"}, {"bits", 4}};
  expect_refused(broken, ErrorCode::kCorruptData, {"gptq", "model.embed_tokens.weight", "U32"});
  broken.config["quantization_config"]["quant_method"] = "spqr";
  expect_refused(broken, ErrorCode::kUnsupported, {"spqr", "quant_method"});
  tiny::Folder dense = tiny::folder("llama");
  dense.config["quantization"] = {{"group_size", 64}, {"bits", 4}};
  const Result<Checkpoint> checkpoint = reopen(dense);
  ASSERT_TRUE(checkpoint) << checkpoint.error().message;
  ASSERT_EQ(checkpoint->problems.size(), 1u);
  EXPECT_NE(checkpoint->problems[0].find("no tensor is packed"), std::string::npos);
}

// A folder of another dialect opens for inspection: each module by the layout that the config
// names. Tensors that contradict the config are refused by tensor and key.
TEST(CheckpointTest, OtherDialectsAreDescribed) {
  const std::vector<std::string> modules = tiny::projections(tiny::wide_folder());
  tiny::Folder made = tiny::exl3_folder({".suh", ".svh"}, "");
  made.texts.clear();
  const Result<Checkpoint> checkpoint = reopen(made);
  ASSERT_TRUE(checkpoint) << checkpoint.error().message;
  EXPECT_TRUE(checkpoint->unbound.empty());
  ASSERT_EQ(checkpoint->unsupported.size(), modules.size());
  EXPECT_EQ(checkpoint->unsupported[0].type, "exl3");
  EXPECT_EQ(checkpoint->unsupported[0].detail, "exl3 3 bit 3inst");
  EXPECT_EQ(checkpoint->unsupported[0].bytes, 24'576u + 1024u);
  EXPECT_EQ(checkpoint->unsupported[0].shape.size(), 2u);
  tiny::Folder broken = made;
  broken.config["quantization_config"] = {{"quant_method", "gptq"}, {"bits", 4}};
  expect_refused(broken, ErrorCode::kCorruptData, {"q_proj.trellis", "gptq"});
  broken = made;
  broken.erase(modules[0] + ".trellis");
  expect_refused(broken, ErrorCode::kCorruptData, {modules[0] + ".trellis", "no such tensor"});
  broken = made;
  broken.config.erase("quantization_config");
  expect_refused(broken, ErrorCode::kCorruptData, {modules[0], "'quantization_config'"});
  broken = made;
  broken.config["quantization_config"] = {
      {"quant_method", "awq"}, {"bits", 4}, {"modules_to_not_convert", {"layers.1"}}};
  expect_refused(broken, ErrorCode::kCorruptData, {"model.layers.0", "awq-gemm"});
  broken.config["quantization_config"]["modules_to_not_convert"] = {"layers.0", "layers.1"};
  expect_refused(broken, ErrorCode::kCorruptData,
                 {"model.layers.0", "floats", "modules_to_not_convert", "'layers.0'"});
  tiny::Folder dense = tiny::folder("llama");
  dense.config["quantization_config"] = {{"quant_method", "gptq"}, {"bits", 4}, {"sym", true}};
  expect_refused(dense, ErrorCode::kCorruptData,
                 {"model.layers.0.self_attn.q_proj.weight", "floats", "quantization_config"});
}

// TIE-01, TIE-02: the head tensor decides; a flag that contradicts an absent head is refused.
TEST(CheckpointTest, Tie01Tie02HeadOrEmbedding) {
  for (const int flag : {-1, 0, 1})
    for (const bool head : {false, true})
      for (const bool packed : {false, true}) {
        tiny::Folder made = packed ? tiny::mlx_folder("llama", 4, 64) : tiny::folder("llama");
        made.config.erase("tie_word_embeddings");
        if (flag >= 0) made.config["tie_word_embeddings"] = flag == 1;
        if (head) {
          std::mt19937 random(3);
          made.tensors.push_back(
              tiny::random_tensor("lm_head.weight", {tiny::kVocab, tiny::kHidden}, random));
          if (packed) tiny::pack(made, "lm_head", 4, 64);
        }
        if (!head && flag == 0) {
          expect_refused(made, ErrorCode::kCorruptData, {"lm_head.weight", "tie_word_embeddings"});
          continue;
        }
        const Result<Checkpoint> checkpoint = reopen(made);
        ASSERT_TRUE(checkpoint) << checkpoint.error().message;
        EXPECT_EQ(checkpoint->config.tied_embeddings, !head);
        EXPECT_EQ(checkpoint->find("lm_head.weight") != nullptr, head);
        EXPECT_EQ(checkpoint->problems.size(), head && flag == 1 ? 1u : 0u);
      }
}

// SEC-10: counts from a file are refused by key before anything is sized by them.
TEST(CheckpointTest, Sec10HostileCounts) {
  const auto with = [](std::string_view key, GgufValue value) {
    tiny::Gguf made = tiny::gguf("llama");
    made.set(key, std::move(value));
    return made;
  };
  expect_refused(with("llama.block_count", std::uint32_t{513}), ErrorCode::kCorruptData,
                 {"llama.block_count", "513"});
  expect_refused(with("llama.block_count", std::uint32_t{1u << 31}), ErrorCode::kCorruptData,
                 {"llama.block_count", "2147483648"});
  expect_refused(with("llama.block_count", std::uint32_t{1}), ErrorCode::kCorruptData,
                 {"llama.block_count", "layer 1"});
  expect_refused(with("llama.attention.head_count", std::uint32_t{0}), ErrorCode::kCorruptData,
                 {"llama.attention.head_count"});
  expect_refused(with("llama.attention.head_count_kv", std::uint32_t{3}), ErrorCode::kCorruptData,
                 {"llama.attention.head_count_kv", "3"});
  expect_refused(with("llama.attention.head_count", GgufArray{std::vector<std::uint32_t>{4}}),
                 ErrorCode::kCorruptData, {"llama.attention.head_count", "1 entries"});
  expect_refused(with("llama.embedding_length", std::uint32_t{128}), ErrorCode::kCorruptData,
                 {"token_embd.weight", "128"});
  expect_refused(with("llama.vocab_size", std::uint32_t{100}), ErrorCode::kCorruptData,
                 {"llama.vocab_size"});
  expect_refused(with("llama.embedding_length", std::string("64")), ErrorCode::kCorruptData,
                 {"llama.embedding_length"});
  expect_refused(with("llama.attention.layer_norm_rms_epsilon", std::nanf("")),
                 ErrorCode::kCorruptData, {"llama.attention.layer_norm_rms_epsilon"});
  expect_refused(with("general.architecture", std::string("mamba")), ErrorCode::kUnsupported,
                 {"mamba", "general.architecture"});
  expect_refused(with("llama.expert_count", std::uint32_t{8}), ErrorCode::kUnsupported,
                 {"llama.expert_count"});
}

TEST(CheckpointTest, HostileConfigJsonNamesTheKey) {
  const std::vector<std::pair<std::string, tiny::Json>> cases = {
      {"hidden_size", "64"},
      {"hidden_size", -64},
      {"hidden_size", 9223372036854775808ull},
      {"hidden_size", 1e308},
      {"num_hidden_layers", 513},
      {"num_hidden_layers", 2147483648},
      {"num_hidden_layers", 0},
      {"num_hidden_layers", tiny::Json::array({1})},
      {"num_attention_heads", 0},
      {"num_key_value_heads", 3},
      {"head_dim", 15},
      {"head_dim", 32},
      {"vocab_size", 97},
      {"intermediate_size", 64},
      {"rms_norm_eps", -1},
      {"rms_norm_eps", true},
      {"rope_theta", "big"},
      {"rope_theta", 0},
      {"rope_scaling", 3},
      {"tie_word_embeddings", 1},
      {"eos_token_id", "</s>"},
      {"attention_bias", "no"},
      {"attention_bias", true},
      {"layer_types", tiny::Json::array({"full_attention"})},
      {"quantization", true},
      {"hidden_act", "relu"},
  };
  for (const auto& [key, value] : cases) {
    tiny::Folder made = tiny::folder("llama");
    made.config[key] = value;
    const Result<Checkpoint> checkpoint = reopen(made);
    ASSERT_FALSE(checkpoint) << key << " = " << value.dump();
    const bool by_tensor = checkpoint.error().message.find("by the config") != std::string::npos;
    EXPECT_TRUE(by_tensor || checkpoint.error().message.find(key) != std::string::npos)
        << key << ": " << checkpoint.error().message;
  }
  for (const char* key : {"model_type", "hidden_size", "num_hidden_layers", "intermediate_size",
                          "num_attention_heads", "vocab_size", "rms_norm_eps"}) {
    tiny::Folder made = tiny::folder("llama");
    made.config.erase(key);
    expect_refused(made, ErrorCode::kCorruptData, {key, "no such key"});
  }
}

TEST(CheckpointTest, ConfigJsonDepthAndSize) {
  const tiny::TemporaryFolder folder;
  ASSERT_TRUE(tiny::write(folder / "model", tiny::folder("llama")));
  const std::string deep(100'000, '[');
  std::string wide = "{";
  for (int i = 0; i < 100'000; ++i) wide += fmt::format("\"k{}\":0,", i);
  for (const std::string& text :
       {deep, wide + "\"x\":1}", std::string("{\"a\":"), std::string("]"), std::string(),
        std::string("[1]"), std::string("{\"a\":1e999}")}) {
    tiny::write_text(folder / "model/config.json", text);
    const Result<Checkpoint> checkpoint = open_checkpoint(folder / "model");
    ASSERT_FALSE(checkpoint);
    EXPECT_EQ(checkpoint.error().code, ErrorCode::kCorruptData) << checkpoint.error().message;
    EXPECT_NE(checkpoint.error().message.find("config.json"), std::string::npos);
  }
}

// CFG-06: both spellings of the kind; null is none; an unknown kind is refused.
TEST(CheckpointTest, Cfg06RopeScaling) {
  const auto opened = [](const tiny::Json& scaling, const char* key = "rope_scaling") {
    tiny::Folder made = tiny::folder("llama");
    made.config[key] = scaling;
    return reopen(made);
  };
  for (const char* spelling : {"rope_type", "type"}) {
    const Result<Checkpoint> llama3 = opened({{spelling, "llama3"},
                                              {"factor", 8.0},
                                              {"low_freq_factor", 1.0},
                                              {"high_freq_factor", 4.0},
                                              {"original_max_position_embeddings", 8192}});
    ASSERT_TRUE(llama3) << llama3.error().message;
    EXPECT_EQ(llama3->config.rope.kind, RopeKind::kLlama3);
    EXPECT_EQ(llama3->config.rope.factor, 8.0);
    EXPECT_EQ(llama3->config.rope.original_context, 8192);
    const Result<Checkpoint> linear = opened({{spelling, "linear"}, {"factor", 4}});
    ASSERT_TRUE(linear) << linear.error().message;
    EXPECT_EQ(linear->config.rope.kind, RopeKind::kLinear);
    const Result<Checkpoint> yarn = opened({{spelling, "yarn"}, {"factor", 4}});
    ASSERT_TRUE(yarn) << yarn.error().message;
    EXPECT_EQ(yarn->config.rope.kind, RopeKind::kYarn);
    EXPECT_EQ(yarn->config.rope.original_context, 256);
    const Result<Checkpoint> unknown = opened({{spelling, "spiral"}, {"factor", 4}});
    ASSERT_FALSE(unknown);
    EXPECT_EQ(unknown.error().code, ErrorCode::kUnsupported);
    EXPECT_NE(unknown.error().message.find("spiral"), std::string::npos);
  }
  const Result<Checkpoint> none = opened(nullptr);
  ASSERT_TRUE(none) << none.error().message;
  EXPECT_EQ(none->config.rope.kind, RopeKind::kNone);
  tiny::Folder made = tiny::folder("llama");
  made.config.erase("rope_theta");
  made.config["rope_parameters"] = {{"rope_type", "default"}, {"rope_theta", 500000.0}};
  const Result<Checkpoint> parameters = reopen(made);
  ASSERT_TRUE(parameters) << parameters.error().message;
  EXPECT_EQ(parameters->config.rope_theta, 500000.0);
}

TEST(CheckpointTest, UnsupportedTypesAreListedNotFatal) {
  tiny::Gguf made = tiny::gguf("llama");
  for (tiny::Tensor& tensor : made.tensors)
    if (tensor.name == "blk.0.ffn_up.weight") {
      tensor.type = "Q8_1";  // of activations; no file has it
      tensor.bytes.resize(static_cast<std::size_t>(tiny::kIntermediate * tiny::kHidden / 32 * 36));
    }
  const Result<Checkpoint> checkpoint = reopen(made);
  ASSERT_TRUE(checkpoint) << checkpoint.error().message;
  ASSERT_EQ(checkpoint->unsupported.size(), 1u);
  EXPECT_EQ(checkpoint->unsupported[0].type, "Q8_1");
  EXPECT_EQ(checkpoint->unsupported[0].name, "model.layers.0.mlp.up_proj.weight");
  const Status status = require_supported(*checkpoint, "test");
  ASSERT_FALSE(status);
  EXPECT_NE(status.error().message.find("blk.0.ffn_up.weight"), std::string::npos);
}

// A factor beside the blocks changes every value: it is never dropped in silence.
TEST(CheckpointTest, FactorsOfGgufWeightsAreNotDropped) {
  for (const float factor : {1.0f, 0.5f})
    for (const char* name : {"blk.0.ffn_up.scale", "blk.0.ffn_up.weight.scale"}) {
      tiny::Gguf made = tiny::gguf("llama");
      for (tiny::Tensor& tensor : made.tensors)
        if (tensor.name == "blk.0.ffn_up.weight") {
          tensor.type = "NVFP4";
          tensor.bytes.resize(
              static_cast<std::size_t>(tiny::kIntermediate * tiny::kHidden / 64 * 36));
        }
      made.tensors.push_back({name, "F32", {1}, tiny::float_bytes({factor})});
      made.tensors.push_back({"blk.0.ffn_up.input_scale", "F32", {1}, tiny::float_bytes({3.0f})});
      const Result<Checkpoint> checkpoint = reopen(made);
      ASSERT_TRUE(checkpoint) << checkpoint.error().message;
      ASSERT_EQ(checkpoint->unsupported.size(), factor == 1.0f ? 0u : 1u);
      if (factor == 1.0f) continue;
      const Status status = require_supported(*checkpoint, "test");
      ASSERT_FALSE(status);
      for (const char* part : {"blk.0.ffn_up.weight", "NVFP4", name})
        EXPECT_NE(status.error().message.find(part), std::string::npos) << status.error().message;
    }
}

TEST(CheckpointTest, WrapperNamesAreRead) {
  for (const char* prefix : {"language_model.model.", "model.language_model."}) {
    tiny::Folder made = tiny::folder("gemma3_text");
    tiny::Json text = made.config;
    made.config = {{"model_type", "gemma3"}, {"eos_token_id", {1, 5}}};
    made.config["text_config"] = text;
    for (tiny::Tensor& tensor : made.tensors) tensor.name.replace(0, 6, prefix);
    std::mt19937 random(1);
    made.tensors.push_back(tiny::random_tensor("vision_tower.x.weight", {4, 4}, random));
    const Result<Checkpoint> checkpoint = reopen(made);
    ASSERT_TRUE(checkpoint) << checkpoint.error().message;
    EXPECT_EQ(checkpoint->config.architecture, Architecture::kGemma3);
    EXPECT_EQ(checkpoint->config.eos, (std::vector<std::int64_t>{2, 1, 5}));
    EXPECT_EQ(checkpoint->unbound, (std::vector<std::string>{"vision_tower.x.weight"}));
  }
}

TEST(CheckpointTest, EndTokensAreAUnion) {
  tiny::Folder made = tiny::folder("llama");
  made.generation_config = {{"eos_token_id", {1, 2, 50}}};
  const Result<Checkpoint> checkpoint = reopen(made);
  ASSERT_TRUE(checkpoint) << checkpoint.error().message;
  EXPECT_EQ(checkpoint->config.eos, (std::vector<std::int64_t>{2, 1, 50}));
}

TEST(CheckpointTest, PathsThatAreNoCheckpoint) {
  const tiny::TemporaryFolder folder;
  EXPECT_EQ(open_checkpoint(folder / "nothing").error().code, ErrorCode::kNotFound);
  std::filesystem::create_directories(folder / "empty");
  EXPECT_EQ(open_checkpoint(folder / "empty").error().code, ErrorCode::kNotFound);
  tiny::write_text(folder / "x.gguf", "not a model");
  EXPECT_EQ(open_checkpoint(folder / "x.gguf").error().code, ErrorCode::kCorruptData);
}

TEST(CheckpointTest, RawOpensAnyArchitecture) {
  const tiny::TemporaryFolder folder;
  tiny::Gguf made = tiny::gguf("llama");
  made.set("general.architecture", std::string("mamba"));
  ASSERT_TRUE(tiny::write(folder / "m.gguf", made));
  const Result<RawCheckpoint> raw = open_raw(folder / "m.gguf");
  ASSERT_TRUE(raw) << raw.error().message;
  EXPECT_EQ(raw->tensors.size(), made.tensors.size());
}

// The golden models were written by MLX-LM itself.
TEST(CheckpointTest, GoldenModelsOpen) {
  int opened = 0;
  const auto folder = std::filesystem::path(PACKSTONE_SOURCE_DIR) / "tests/golden";
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    if (!std::filesystem::exists(entry.path() / "model.safetensors")) continue;
    const Result<Checkpoint> checkpoint = open_checkpoint(entry.path());
    ASSERT_TRUE(checkpoint) << checkpoint.error().message;
    EXPECT_TRUE(checkpoint->problems.empty() && checkpoint->unbound.empty()) << entry.path();
    ++opened;
  }
  EXPECT_GE(opened, 5);
}

// The published models of the project's tests, where the environment names their folder.
TEST(CheckpointTest, RealModelsOpen) {
  const char* folder = std::getenv("PACKSTONE_MODELS");
  if (folder == nullptr) GTEST_SKIP() << "PACKSTONE_MODELS is not set";
  int opened = 0;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    if (entry.path().extension() != ".gguf") continue;
    const Result<Checkpoint> checkpoint = open_checkpoint(entry.path());
    ASSERT_TRUE(checkpoint) << checkpoint.error().message;
    EXPECT_TRUE(checkpoint->unsupported.empty());
    EXPECT_TRUE(checkpoint->unbound.empty());
    EXPECT_GT(checkpoint->parameters(), 100'000'000);
    ++opened;
  }
  EXPECT_GT(opened, 0);
}

}  // namespace
}  // namespace packstone
