// What every dialect of quantization config says, module by module: synonyms, precedence of files,
// dynamic rules and skip lists; contradictions and unknown features are refused by file and key.
#include "packstone/checkpoint/quantization_spec.h"

#include <gtest/gtest.h>

#include <chrono>

namespace packstone {
namespace {

using Json = nlohmann::ordered_json;

Result<QuantizationSpec> parse(const Json& block, const std::vector<QuantizationFile>& files = {}) {
  std::vector<std::string> problems;
  return QuantizationSpec::parse({"config.json", {{"quantization_config", block}}}, files,
                                 problems);
}

Result<QuantizationSpec> parse_text(std::string_view block) {
  return parse(Json::parse(block));
}

QuantizationSpec parsed(std::string_view block) {
  Result<QuantizationSpec> spec = parse_text(block);
  EXPECT_TRUE(spec) << block << ": " << spec.error().message;
  return spec ? *spec : QuantizationSpec();
}

ModuleQuantization module(const QuantizationSpec& spec, std::string_view name) {
  Result<ModuleQuantization> says = spec.module({name, name});
  EXPECT_TRUE(says) << says.error().message;
  return says ? *says : ModuleQuantization();
}

void expect_refused(const Result<QuantizationSpec>& spec, ErrorCode code,
                    const std::vector<std::string>& parts) {
  ASSERT_FALSE(spec) << parts[0];
  EXPECT_EQ(spec.error().code, code) << spec.error().message;
  for (const std::string& part : parts)
    EXPECT_NE(spec.error().message.find(part), std::string::npos)
        << spec.error().message << " does not mention " << part;
}

constexpr std::string_view kUp = "model.layers.0.mlp.up_proj";

TEST(QuantizationSpecTest, GptqWithAllSynonyms) {
  for (const char* text :
       {R"({"quant_method":"gptq","bits":4,"group_size":64,"sym":true,"desc_act":true,
            "checkpoint_format":"gptq_v2"})",
        R"({"method":"gptq","wbits":4,"q_group_size":64,"zero_point":false,"desc_act":true,
            "format":"gptq_v2","checkpoint_format":"gptq_v2","pack_dtype":"int32"})",
        R"({"quant_method":"GPTQ","w_bit":4.0,"group_size":64,"sym":true,"desc_act":true,
            "version":"gptq_v2"})"}) {
    const QuantizationSpec spec = parsed(text);
    EXPECT_EQ(spec.dialect(), QuantizationDialect::kGptq);
    const ModuleQuantization says = module(spec, kUp);
    EXPECT_EQ(says.packed, true);
    EXPECT_EQ(says.layout, "gptq_v2");
    EXPECT_EQ(says.bits, 4);
    EXPECT_EQ(says.group_cols, 64);
    EXPECT_EQ(says.symmetric, true);
    EXPECT_TRUE(says.act_order);
    EXPECT_EQ(says.zeros, ZeroConvention::kRaw);
    EXPECT_EQ(module(spec, "lm_head").packed, std::nullopt);
    EXPECT_EQ(module(spec, "model.embed_tokens").packed, std::nullopt);
  }
}

TEST(QuantizationSpecTest, GptqFormatsAndZeros) {
  const auto zeros = [](const char* format) {
    return module(parsed(fmt::format(
                      R"({{"quant_method":"gptq","bits":4,"sym":true,"format":"{}"}})", format)),
                  kUp)
        .zeros;
  };
  EXPECT_EQ(zeros("gptq"), ZeroConvention::kMinusOneWords);
  EXPECT_EQ(zeros("gptq_v2"), ZeroConvention::kRaw);
  EXPECT_EQ(zeros("gptq_p"), ZeroConvention::kRaw);
  EXPECT_EQ(zeros("marlin"), ZeroConvention::kMidpoint);
  EXPECT_EQ(zeros("bitblas"), ZeroConvention::kNone);
  const QuantizationSpec method = parsed(R"({"quant_method":"marlin","bits":8,"sym":true})");
  EXPECT_EQ(module(method, kUp).layout, "gptq");
  EXPECT_EQ(module(method, kUp).zeros, ZeroConvention::kMidpoint);
  EXPECT_EQ(
      module(parsed(R"({"quant_method":"gptq","bits":4,"is_marlin_format":true})"), kUp).layout,
      "marlin");
  expect_refused(parse_text(R"({"quant_method":"gptq","bits":3,"sym":true,"format":"marlin"})"),
                 ErrorCode::kCorruptData, {"marlin", "3 bits"});
  expect_refused(parse_text(R"({"quant_method":"gptq","bits":4,"format":"tiles"})"),
                 ErrorCode::kUnsupported, {"tiles", "quantization_config.format", "gptq_p"});
  expect_refused(parse_text(R"({"quant_method":"gptq","bits":4,"rotation":"hadamard"})"),
                 ErrorCode::kUnsupported, {"rotation", "hadamard"});
}

// GRP-02: -1, null and (by the shapes) the row's length are one group; 0 is refused.
TEST(QuantizationSpecTest, Grp02WholeRow) {
  for (const char* group : {"-1", "null"}) {
    const QuantizationSpec spec = parsed(
        fmt::format(R"({{"quant_method":"gptq","bits":4,"group_size":{},"sym":true}})", group));
    EXPECT_EQ(module(spec, kUp).group_cols, kWholeRowGroup);
    EXPECT_EQ(module(spec, kUp).scales, ScaleGranularity::kRow);
  }
  for (const char* method : {"gptq", "awq", "qqq", "paroquant"})
    expect_refused(
        parse_text(fmt::format(R"({{"quant_method":"{}","bits":4,"group_size":0}})", method)),
        ErrorCode::kCorruptData, {"group_size", "got 0"});
}

TEST(QuantizationSpecTest, DynamicRules) {
  const QuantizationSpec spec = parsed(
      R"({"quant_method":"gptq","bits":4,"group_size":128,"sym":true,"dynamic":{
          "+:.*down_proj":{"bits":8,"group_size":32}, "model\\.layers\\.0\\.":{"bits":2},
          "-:.*mlp\\.gate$":{}, "-:self_attn\\.k":{}, "^model.layers.3.mlp.up_proj$":{"bits":3},
          "model\\.layers\\.1\\.self_attn\\.q":{"sym":false}}})");
  EXPECT_EQ(module(spec, "model.layers.0.mlp.down_proj").bits, 8);
  EXPECT_EQ(module(spec, "model.layers.0.mlp.down_proj").group_cols, 32);
  EXPECT_EQ(module(spec, kUp).bits, 2);
  EXPECT_EQ(module(spec, kUp).group_cols, 128);
  // Excluding rules come first, and are tried on the name inside the layer too.
  EXPECT_EQ(module(spec, "model.layers.0.mlp.gate").packed, false);
  EXPECT_EQ(module(spec, "model.layers.0.mlp.gate_proj").packed, true);
  EXPECT_EQ(module(spec, "model.layers.7.self_attn.k_proj").packed, false);
  EXPECT_NE(module(spec, "model.layers.7.self_attn.k_proj").key.find("-:self_attn"),
            std::string::npos);
  EXPECT_EQ(module(spec, "model.layers.3.mlp.up_proj").bits, 3);
  EXPECT_EQ(module(spec, "model.layers.3.mlp.up_proj_x").bits, 4);
  EXPECT_EQ(module(spec, "model.layers.1.self_attn.q_proj").symmetric, false);
  // Anchored at the start only: layers.1 is layers.10 too.
  const QuantizationSpec start = parsed(
      R"({"quant_method":"gptq","bits":4,"sym":true,"dynamic":{"model.layers\\.1":{"bits":8}}})");
  EXPECT_EQ(module(start, "model.layers.10.mlp.up_proj").bits, 8);
  EXPECT_EQ(module(start, "model.layers.0.mlp.up_proj").bits, 4);
  // One 6-bit rule makes the whole checkpoint planar.
  const QuantizationSpec planar =
      parsed(R"({"quant_method":"gptq","bits":3,"sym":true,"dynamic":{".*up_proj":{"bits":6}}})");
  EXPECT_EQ(module(planar, "model.layers.0.mlp.gate_proj").layout, "gptq_p");
  EXPECT_EQ(module(planar, "model.layers.0.mlp.gate_proj").zeros, ZeroConvention::kRaw);
  expect_refused(parse_text(R"({"quant_method":"gptq","bits":4,"dynamic":{"(":{"bits":8}}})"),
                 ErrorCode::kCorruptData, {"dynamic", "'('"});
  expect_refused(parse_text(R"({"quant_method":"gptq","bits":4,"dynamic":{"a":{"bits":9}}})"),
                 ErrorCode::kCorruptData, {"dynamic", "bits", "9"});
  expect_refused(parse_text(R"({"quant_method":"gptq","bits":4,"dynamic":{"a":3}})"),
                 ErrorCode::kCorruptData, {"dynamic", "'a'"});
}

// A pattern that backtracks without end is an error, soon.
TEST(QuantizationSpecTest, HostilePatternsEnd) {
  const QuantizationSpec spec = parsed(
      R"({"quant_method":"gptq","bits":4,"sym":true,
          "dynamic":{"([a-z.0-9_]+)+[^a-z.0-9_]":{"bits":8}}})");
  const Result<ModuleQuantization> says = spec.module({kUp, kUp});
  ASSERT_FALSE(says);
  EXPECT_EQ(says.error().code, ErrorCode::kExhausted);
  Json many = {{"quant_method", "gptq"}, {"bits", 4}, {"sym", true}};
  for (int i = 0; i < 2000; ++i) many["dynamic"][fmt::format(".*x{}", i)] = {{"bits", 8}};
  expect_refused(parse(many), ErrorCode::kCorruptData, {"rules"});
}

// CFG-02: skip lists match whole path parts, with and without wildcards, tails and prefixes.
TEST(QuantizationSpecTest, Cfg02SkipLists) {
  const QuantizationSpec spec = parsed(
      R"({"quant_method":"awq","bits":4,"group_size":128,"zero_point":true,"version":"gemm",
          "modules_to_not_convert":["visual","model.layers.1.mlp","lm_head","gate",
          "model.layers.2.self_attn.q_proj.linear","re:.*layers\\.4\\..*k_proj",
          "model.layers.*.mlp.down_proj","model.language_model.layers.6.self_attn"]})");
  const auto packed = [&](std::string_view name) { return module(spec, name).packed; };
  EXPECT_EQ(packed("visual.blocks.0.attn"), false);
  EXPECT_EQ(packed("model.visual.merger"), false);
  EXPECT_EQ(packed("model.layers.1.mlp.up_proj"), false);
  EXPECT_EQ(packed("model.layers.10.mlp.up_proj"), true);
  EXPECT_EQ(packed("model.layers.0.mlp.gate"), false);
  EXPECT_EQ(packed("model.layers.0.mlp.gate_proj"), true);
  EXPECT_EQ(packed("lm_head"), false);
  EXPECT_EQ(packed("model.layers.2.self_attn.q_proj"), false);
  EXPECT_EQ(packed("model.layers.2.self_attn.k_proj"), true);
  EXPECT_EQ(packed("model.layers.4.self_attn.k_proj"), false);
  EXPECT_EQ(packed("model.layers.3.mlp.down_proj"), false);
  EXPECT_EQ(packed("model.layers.6.self_attn.q_proj"), false);
  EXPECT_EQ(packed("model.layers.60.self_attn.q_proj"), true);
  EXPECT_NE(module(spec, "lm_head").key.find("[2] 'lm_head'"), std::string::npos);
  const Result<ModuleQuantization> wrapped =
      spec.module({"model.language_model.layers.1.mlp.up_proj", "model.layers.1.mlp.up_proj"});
  EXPECT_EQ(wrapped->packed, false);
}

TEST(QuantizationSpecTest, GlobsAndKeys) {
  EXPECT_TRUE(glob_match("a*b*c", "aXXbYYc"));
  EXPECT_TRUE(glob_match("*", ""));
  EXPECT_TRUE(glob_match("q?proj", "q_proj"));
  EXPECT_FALSE(glob_match("a*b", "ac"));
  EXPECT_FALSE(glob_match("", "a"));
  EXPECT_EQ(module_key("model.language_model.layers.1"), "layers.1");
}

// CFG-05: the layout of AWQ comes from its label; an unknown label is refused.
TEST(QuantizationSpecTest, Cfg05AwqVersions) {
  const auto layout = [](const char* rest) {
    return module(
               parsed(fmt::format(R"({{"quant_method":"awq","bits":4,"group_size":64{}}})", rest)),
               kUp)
        .layout;
  };
  EXPECT_EQ(layout(""), "awq-gemm");
  EXPECT_EQ(layout(R"(,"version":"GEMM")"), "awq-gemm");
  EXPECT_EQ(layout(R"(,"version":"gemv")"), "awq-gemv");
  EXPECT_EQ(layout(R"(,"version":"gemv_fast")"), "awq-gemv_fast");
  EXPECT_EQ(layout(R"(,"version":"exllama")"), "awq-gemm");
  EXPECT_EQ(layout(R"(,"format":"marlin")"), "awq-gemm");
  EXPECT_EQ(layout(R"(,"backend":"llm-awq")"), "llm-awq");
  expect_refused(parse_text(R"({"quant_method":"awq","bits":4,"version":"gemx"})"),
                 ErrorCode::kUnsupported, {"version", "gemx"});
  const std::vector<QuantizationFile> old = {
      {"quant_config.json",
       Json::parse(R"({"zero_point":true,"q_group_size":128,"w_bit":4,"version":"GEMM"})")}};
  std::vector<std::string> problems;
  const Result<QuantizationSpec> spec =
      QuantizationSpec::parse({"config.json", Json::object()}, old, problems);
  ASSERT_TRUE(spec) << spec.error().message;
  EXPECT_EQ(spec->dialect(), QuantizationDialect::kAwq);
  EXPECT_EQ(module(*spec, kUp).symmetric, false);
}

TEST(QuantizationSpecTest, FilesCompleteEachOtherAndMustAgree) {
  const Json block = Json::parse(R"({"quant_method":"gptq","bits":4,"group_size":128,"sym":true})");
  const auto with = [&](std::string_view text) {
    return parse(block, {{"quantize_config.json", Json::parse(text)}});
  };
  const Result<QuantizationSpec> whole =
      with(R"({"bits":4,"group_size":128,"desc_act":false,"checkpoint_format":"gptq_v2"})");
  ASSERT_TRUE(whole) << whole.error().message;
  EXPECT_EQ(module(*whole, kUp).layout, "gptq_v2");
  expect_refused(
      with(R"({"bits":8})"), ErrorCode::kCorruptData,
      {"config.json: 'quantization_config.bits'", "quantize_config.json: 'bits'", "4", "8"});
  expect_refused(with(R"({"w_bit":4,"q_group_size":64,"quant_method":"awq"})"),
                 ErrorCode::kCorruptData, {"quant_method", "gptq", "awq"});
  expect_refused(with(R"([1])"), ErrorCode::kCorruptData, {"quantize_config.json"});
  expect_refused(parse_text(R"({"quant_method":"gptq","bits":4,"format":"gptq",
                                "checkpoint_format":"gptq_v2"})"),
                 ErrorCode::kCorruptData, {"checkpoint_format", "'quantization_config.format'"});
  expect_refused(parse_text(R"({"quant_method":"gptq","method":"awq","bits":4})"),
                 ErrorCode::kCorruptData, {"method"});
  expect_refused(parse_text(R"({"quant_method":"hqq","bits":4})"), ErrorCode::kUnsupported,
                 {"hqq", "compressed-tensors"});
  std::vector<std::string> problems;
  const Result<QuantizationSpec> mlx = QuantizationSpec::parse(
      {"config.json", Json::parse(R"({"quantization":{"bits":4,"group_size":64}})")},
      {{"quantize_config.json", Json::parse(R"({"bits":4})")}}, problems);
  expect_refused(mlx, ErrorCode::kCorruptData, {"'quantization'", "quantize_config.json"});
}

TEST(QuantizationSpecTest, NestedTextConfig) {
  std::vector<std::string> problems;
  const auto parse_root = [&](std::string_view text) {
    return QuantizationSpec::parse({"config.json", Json::parse(text)}, {}, problems);
  };
  const Result<QuantizationSpec> nested = parse_root(
      R"({"text_config":{"quantization_config":{"quant_method":"gptq","bits":4,"sym":true}}})");
  ASSERT_TRUE(nested) << nested.error().message;
  EXPECT_EQ(nested->dialect(), QuantizationDialect::kGptq);
  EXPECT_EQ(nested->key(), "config.json: 'text_config.quantization_config'");
  expect_refused(parse_root(R"({"quantization_config":{"quant_method":"gptq","bits":8,"sym":true},
          "text_config":{"quantization_config":{"quant_method":"gptq","bits":4,"sym":true}}})"),
                 ErrorCode::kCorruptData, {"text_config.quantization_config.bits"});
  const Result<QuantizationSpec> none = parse_root(R"({"model_type":"llama"})");
  ASSERT_TRUE(none);
  EXPECT_FALSE(none->present());
  EXPECT_EQ(module(*none, kUp).packed, false);
}

TEST(QuantizationSpecTest, Fp8DirectionOfTheScale) {
  const ModuleQuantization divisor = module(
      parsed(R"({"quant_method":"fp8","bits":8,"format":"float8_e5m2","weight_scale_method":"row",
                 "weight_scale_semantics":"inverse"})"),
      kUp);
  EXPECT_TRUE(divisor.scale_divides);
  EXPECT_EQ(divisor.code_type, "float8_e5m2");
  EXPECT_EQ(divisor.scales, ScaleGranularity::kRow);
  const ModuleQuantization multiplier =
      module(parsed(R"({"quant_method":"fp8","fmt":"e4m3","weight_block_size":[128,64],
                 "ignored_layers":["lm_head"],"activation_scheme":"dynamic"})"),
             kUp);
  EXPECT_FALSE(multiplier.scale_divides);
  EXPECT_EQ(multiplier.code_type, "float8_e4m3fn");
  EXPECT_EQ(multiplier.block_rows, 128);
  EXPECT_EQ(multiplier.group_cols, 64);
  expect_refused(parse_text(R"({"quant_method":"fp8","bits":8,"weight_scale_method":"row"})"),
                 ErrorCode::kCorruptData, {"weight_scale_semantics"});
  expect_refused(parse_text(R"({"quant_method":"fp8","weight_scale_semantics":"up"})"),
                 ErrorCode::kUnsupported, {"weight_scale_semantics", "up"});
  expect_refused(parse_text(R"({"quant_method":"fp8","weight_block_size":[0,128]})"),
                 ErrorCode::kCorruptData, {"weight_block_size"});
  // NUM-09: an unknown kind of float8 is refused.
  expect_refused(parse_text(R"({"quant_method":"fp8","fmt":"e3m4"})"), ErrorCode::kUnsupported,
                 {"fmt", "e3m4", "float8_e4m3fnuz"});
}

TEST(QuantizationSpecTest, Bitsandbytes) {
  const ModuleQuantization nf4 =
      module(parsed(R"({"load_in_4bit":true,"bnb_4bit_quant_type":"nf4","load_in_8bit":false,
                 "bnb_4bit_use_double_quant":true,"bnb_4bit_quant_storage":"uint8"})"),
             kUp);
  EXPECT_EQ(nf4.layout, "bnb-nf4");
  EXPECT_TRUE(nf4.nested_scales);
  const ModuleQuantization int8 =
      module(parsed(R"({"quant_method":"bitsandbytes","load_in_8bit":true,"load_in_4bit":false,
                 "bnb_4bit_quant_type":"fp4","llm_int8_skip_modules":["lm_head"]})"),
             kUp);
  EXPECT_EQ(int8.layout, "bnb-int8");
  // GPTQModel's defaults: fp4, statistics compressed.
  const ModuleQuantization fp4 =
      module(parsed(R"({"quant_method":"bitsandbytes","bits":4,"block_size":128})"), kUp);
  EXPECT_EQ(fp4.layout, "bnb-fp4");
  EXPECT_TRUE(fp4.nested_scales);
  EXPECT_EQ(fp4.group_cols, 128);
  expect_refused(parse_text(R"({"load_in_4bit":true,"load_in_8bit":true})"),
                 ErrorCode::kCorruptData, {"load_in_8bit"});
  expect_refused(parse_text(R"({"load_in_4bit":true,"bnb_4bit_quant_type":"nf3"})"),
                 ErrorCode::kUnsupported, {"nf3", "bnb_4bit_quant_type"});
}

// CFG-09: a sparsity block that says dense is harmless; unknown features are refused before any
// weight.
TEST(QuantizationSpecTest, Cfg09CompressedTensors) {
  const std::string head =
      R"({"quant_method":"compressed-tensors","format":"pack-quantized","ignore":["lm_head",
          "re:.*gate$"],"sparsity_config":{"format":"dense"},"config_groups":{
          "group_0":{"targets":["Linear"],"weights":{"num_bits":4,"type":"int","symmetric":false,
          "strategy":"group","group_size":32}},
          "group_1":{"targets":["re:.*down_proj"],"weights":{"num_bits":8,"type":"int",
          "strategy":"channel","group_size":null,"symmetric":true}}})";
  const QuantizationSpec spec = parsed(head + "}");
  EXPECT_EQ(module(spec, kUp).layout, "ct-pack");
  EXPECT_EQ(module(spec, kUp).bits, 4);
  EXPECT_EQ(module(spec, kUp).group_cols, 32);
  EXPECT_EQ(module(spec, kUp).zeros, ZeroConvention::kRaw);
  EXPECT_EQ(module(spec, "model.layers.0.mlp.down_proj").bits, 8);
  EXPECT_EQ(module(spec, "model.layers.0.mlp.down_proj").group_cols, kWholeRowGroup);
  EXPECT_EQ(module(spec, "lm_head").packed, false);
  EXPECT_EQ(module(spec, "model.layers.0.mlp.gate").packed, false);
  EXPECT_EQ(module(spec, "model.embed_tokens").packed, false);
  expect_refused(parse_text(head + R"(,"transform_config":{"config_groups":{"a":{}}}})"),
                 ErrorCode::kUnsupported, {"transform_config"});
  expect_refused(
      parse_text(R"({"quant_method":"compressed-tensors","sparsity_config":{"format":"2:4"}})"),
      ErrorCode::kUnsupported, {"sparsity_config"});
  expect_refused(parse_text(R"({"quant_method":"compressed-tensors"})"), ErrorCode::kCorruptData,
                 {"config_groups"});
  const auto layout = [](const char* format, const char* weights) {
    return module(parsed(fmt::format(R"({{"quant_method":"compressed-tensors","format":"{}",
        "config_groups":{{"g":{{"targets":["Linear"],"weights":{}}}}}}})",
                                     format, weights)),
                  kUp)
        .layout;
  };
  EXPECT_EQ(layout("float-quantized", R"({"num_bits":8,"type":"float","strategy":"channel"})"),
            "fp8");
  EXPECT_EQ(layout("nvfp4-pack-quantized",
                   R"({"num_bits":4,"type":"float","strategy":"tensor_group","group_size":16})"),
            "ct-nvfp4");
  EXPECT_EQ(layout("mxfp4-pack-quantized",
                   R"({"num_bits":4,"type":"float","strategy":"group","group_size":32})"),
            "mxfp4");
  // An EXL3 config with an unknown codebook is refused before weights.
  expect_refused(parse_text(R"({"quant_method":"exl3","bits":4.0,"codebook":"spiral"})"),
                 ErrorCode::kUnsupported, {"codebook", "spiral"});
}

TEST(QuantizationSpecTest, ModelOptFiles) {
  const std::vector<QuantizationFile> file = {
      {"hf_quant_config.json", Json::parse(R"({"producer":{"name":"modelopt"},"quantization":{
          "quant_algo":"NVFP4","group_size":16,"exclude_modules":["lm_head",
          "model.layers.0.self_attn*"]}})")}};
  std::vector<std::string> problems;
  const Result<QuantizationSpec> spec =
      QuantizationSpec::parse({"config.json", Json::object()}, file, problems);
  ASSERT_TRUE(spec) << spec.error().message;
  EXPECT_EQ(spec->dialect(), QuantizationDialect::kModelOpt);
  EXPECT_EQ(module(*spec, kUp).layout, "modelopt-nvfp4");
  EXPECT_EQ(module(*spec, "model.layers.0.self_attn.q_proj").packed, false);
  EXPECT_EQ(module(*spec, "model.layers.1.self_attn.q_proj").packed, true);
  EXPECT_EQ(module(*spec, "lm_head").packed, false);
  const QuantizationSpec mixed = parsed(
      R"({"quant_method":"modelopt","quant_algo":"MIXED_PRECISION","quantized_layers":{
          "model.layers.0.mlp.up_proj":{"quant_algo":"FP8"}}})");
  EXPECT_EQ(module(mixed, kUp).layout, "fp8");
  EXPECT_EQ(module(mixed, "model.layers.0.mlp.gate_proj").packed, false);
  expect_refused(parse_text(R"({"quant_method":"modelopt","quant_algo":"W4A8_AWQ"})"),
                 ErrorCode::kUnsupported, {"quant_algo", "W4A8_AWQ"});
}

// GRP-04: a group that the method's layout does not have is refused by key.
TEST(QuantizationSpecTest, Grp04GroupsOfQqq) {
  for (const int group : {-1, 128})
    EXPECT_EQ(
        module(parsed(fmt::format(R"({{"quant_method":"qqq","bits":4,"group_size":{}}})", group)),
               kUp)
            .group_cols,
        group);
  for (const int group : {32, 64, 256})
    expect_refused(
        parse_text(fmt::format(R"({{"quant_method":"qqq","bits":4,"group_size":{}}})", group)),
        ErrorCode::kUnsupported, {"group_size", std::to_string(group)});
  expect_refused(parse_text(R"({"quant_method":"qqq","bits":4,"desc_act":true})"),
                 ErrorCode::kUnsupported, {"desc_act"});
}

TEST(QuantizationSpecTest, GgufRowsAndOthers) {
  const auto layout = [](const char* rest) {
    return module(parsed(fmt::format(R"({{"quant_method":"gguf",{}}})", rest)), kUp).layout;
  };
  EXPECT_EQ(layout(R"("bits":4,"format":"q_k_m")"), "gguf:Q4_K");
  EXPECT_EQ(layout(R"("bits":4,"format":"q4_k_s")"), "gguf:Q4_K");
  EXPECT_EQ(layout(R"("bits":4)"), "gguf:Q4_0");
  EXPECT_EQ(layout(R"("bits":5)"), "gguf:Q5_K");
  EXPECT_EQ(layout(R"("bits":6)"), "gguf:Q6_K");
  EXPECT_EQ(layout(R"("bits":8,"format":"q_0")"), "gguf:Q8_0");
  EXPECT_EQ(layout(R"("bits":1,"format":"q_0_g128")"), "gguf:Q1_0");
  expect_refused(parse_text(R"({"quant_method":"gguf","bits":4,"format":"q8_0"})"),
                 ErrorCode::kUnsupported, {"q8_0", "4 bits"});
  EXPECT_EQ(module(parsed(R"({"quant_method":"paroquant","bits":4,"krot":8})"), kUp).layout,
            "paroquant");
  EXPECT_EQ(module(parsed(R"({"quant_method":"exl3","bits":3.5,"head_bits":6.0})"), kUp).layout,
            "exl3");
  const QuantizationSpec mxfp4 = parsed(
      R"({"quant_method":"mxfp4","modules_to_not_convert":["model.layers.*.self_attn",
          "model.layers.*.mlp.router","model.embed_tokens","lm_head"]})");
  EXPECT_EQ(module(mxfp4, "model.layers.3.self_attn.q_proj").packed, false);
  EXPECT_EQ(module(mxfp4, kUp).layout, "mxfp4");
}

TEST(QuantizationSpecTest, HostileBlocksAreRefused) {
  for (const char* text :
       {R"({"quant_method":3,"bits":4})", R"({"quant_method":"gptq"})",
        R"({"quant_method":"gptq","bits":"4"})", R"({"quant_method":"gptq","bits":1e300})",
        R"({"quant_method":"gptq","bits":4,"group_size":1e9})",
        R"({"quant_method":"gptq","bits":4,"sym":"yes"})",
        R"({"quant_method":"gptq","bits":4,"format":{}})",
        R"({"quant_method":"gptq","bits":4,"dynamic":[]})",
        R"({"quant_method":"gptq","bits":4,"modules_in_block_to_quantize":[3]})",
        R"({"quant_method":"awq","bits":4,"modules_to_not_convert":"lm_head"})",
        R"({"quant_method":"awq","bits":4,"modules_to_not_convert":[""]})",
        R"({"quant_method":"compressed-tensors","config_groups":{"g":[]}})",
        R"({"quant_method":"compressed-tensors","config_groups":{"g":{"targets":[]}}})",
        R"({"quant_method":"compressed-tensors","config_groups":{"g":{"targets":["Linear"],
            "weights":{"num_bits":4,"strategy":"block","block_structure":[1]}}}})",
        R"({"quant_method":"exl3","tensor_storage":[]})",
        R"({"quant_method":"fp8","weight_block_size":"128"})"}) {
    const Result<QuantizationSpec> spec = parse_text(text);
    EXPECT_FALSE(spec) << text;
  }
  EXPECT_FALSE(parse(Json::parse("[1]")));
  EXPECT_FALSE(parse(Json::parse("3")));
}

}  // namespace
}  // namespace packstone
