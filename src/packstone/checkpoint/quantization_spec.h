// What the configs of a model folder say about packed weights, module by module, in one form for
// every dialect. Deciding what a tensor is from its values is no part of this: a reader asks here
// and then checks the tensors that are there (formats.md 1.2 to 1.4, 13).
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "packstone/base/result.h"
#include "packstone/checkpoint/module_pattern.h"
#include "packstone/checkpoint/quantization_block.h"

namespace packstone {

// Whose config it is.
enum class QuantizationDialect : std::uint8_t {
  kNone,
  kMlx,
  kGptq,  // GPTQModel, AutoGPTQ, optimum
  kAwq,
  kQqq,
  kParoQuant,
  kExl3,
  kFp8,  // GPTQModel and Hugging Face (DeepSeek, fbgemm)
  kBitsandbytes,
  kGguf,  // raw ggml rows in safetensors
  kCompressedTensors,
  kModelOpt,
  kMxfp4,  // gpt-oss
};

// What a stored zero point means.
enum class ZeroConvention : std::uint8_t {
  kNone,           // none are stored
  kRaw,            // the zero point
  kMinusOneWords,  // 32-bit words less one in every lane, borrows included (GPTQ v1)
  kMidpoint,       // stored, but the middle of the code range whatever they say (Marlin)
  kScaled,         // -scale * zero as a float (GEMV_FAST, LLM_AWQ)
};

// What shares a scale.
enum class ScaleGranularity : std::uint8_t { kGroup, kRow, kTensor, kBlock };

inline constexpr std::int64_t kWholeRowGroup = -1;

// What the config says of one module.
struct ModuleQuantization {
  // true: its weight must be packed; false: it must be floats; nothing: the tensors decide.
  std::optional<bool> packed;
  std::string key;              // who says so: "config.json: 'quantization_config.ignore[3]'"
  std::string layout;           // name of the layout on the command line: "gptq_v2", "awq-gemm"
  std::string format;           // as the config spells it
  std::string code_type;        // "float8_e4m3fn", "nf4", ...: where a layout has several
  std::int64_t bits = 0;        // 0: as the tensors say
  std::int64_t group_cols = 0;  // kWholeRowGroup; 0: as the tensors say
  std::int64_t block_rows = 1;  // with kBlock
  ScaleGranularity scales = ScaleGranularity::kGroup;
  ZeroConvention zeros = ZeroConvention::kNone;
  std::optional<bool> symmetric;
  bool act_order = false;      // desc_act: group numbers are stored
  bool scale_divides = false;  // FP8: the stored scale is a divisor
  bool nested_scales = false;  // bitsandbytes compress_statistics
  std::int64_t rotations = 0;  // ParoQuant krot
  std::string pack_type = "int32";
};

// One JSON file that speaks of quantization.
struct QuantizationFile {
  std::string name;  // for messages: "model/quantize_config.json"
  nlohmann::ordered_json json;
};

// A rule of a config, in the order of precedence: the first that names a module decides.
struct ModuleRule {
  ModulePattern pattern;
  ModuleQuantization says;
};

class QuantizationSpec {
 public:
  // parse(config, companions, problems) reads config.json's `quantization_config` (or
  // `quantization`, `compression_config`; of text_config where the top level has none) and, in
  // this order, what is there of quantize_config.json, quant_config.json and hf_quant_config.json.
  // Files may complete each other. What is odd but harmless is added to `problems`.
  // Errors: kCorruptData when two files, or two keys of one, disagree, or for a value of a wrong
  //         type or range; kUnsupported for a method, format or feature that this build does not
  //         read. All name file and key.
  static Result<QuantizationSpec> parse(const QuantizationFile& config,
                                        const std::vector<QuantizationFile>& companions,
                                        std::vector<std::string>& problems);

  QuantizationDialect dialect() const { return dialect_; }
  bool present() const { return dialect_ != QuantizationDialect::kNone; }
  const std::string& key() const { return key_; }  // "config.json: 'quantization_config'"
  const QuantizationBlock& mlx() const { return mlx_; }
  const std::vector<ModuleRule>& rules() const { return rules_; }
  const ModuleQuantization& base() const { return base_; }

  // module(name): what is said of a module that has a matrix.
  // Errors: those of ModulePattern::matches. Cost: one look at each rule.
  Result<ModuleQuantization> module(const ModuleName& name) const;

 private:
  friend class SpecBuilder;
  ModuleQuantization mlx_module(const ModuleName& name) const;

  QuantizationDialect dialect_ = QuantizationDialect::kNone;
  std::string key_;
  ModuleQuantization base_;        // of modules that no rule names
  std::vector<ModuleRule> rules_;  // of all dialects but MLX
  bool only_rules_ = false;        // modules that no rule names are floats
  std::optional<bool> head_;       // GPTQ lm_head: packed or not
  QuantizationBlock mlx_;
};

}  // namespace packstone
