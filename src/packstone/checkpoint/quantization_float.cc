// The dialects of float codes and of tools beside GPTQModel: FP8, bitsandbytes,
// compressed-tensors, ModelOpt and gpt-oss.
// Source: formats.md 7 and 8; compressed-tensors quant_config.py and quant_args.py; transformers
// utils/quantization_config.py; ModelOpt export.
#include <algorithm>
#include <array>

#include "packstone/checkpoint/spec_builder.h"

namespace packstone {
namespace {

constexpr std::string_view kWhere = "checkpoint.quantization";
constexpr std::int64_t kBlockMax = 1 << 20;

// "[128, 128]" as rows and columns.
Result<std::array<std::int64_t, 2>> block_shape(const JsonReader& json, std::string_view key) {
  PACKSTONE_TRY(const std::vector<std::int64_t> sides, json.integers(key));
  const auto fits = [](std::int64_t side) { return side >= 1 && side <= kBlockMax; };
  if (sides.size() != 2 || !fits(sides[0]) || !fits(sides[1]))
    return json.error(ErrorCode::kCorruptData, key, json_excerpt(*json.find(key)),
                      "two block sides, rows and columns");
  return std::array{sides[0], sides[1]};
}

void set_fp8(ModuleQuantization& says) {
  says.layout = "fp8";
  says.bits = 8;
  says.symmetric = true;
}

}  // namespace

Status SpecBuilder::fp8() {
  ModuleQuantization& base = spec_.base_;
  PACKSTONE_TRY(base.code_type,
                read_format("float8_e4m3fn", {"float8_e4m3fn", "float8_e5m2", "float8_e4m3fnuz",
                                              "float8_e5m2fnuz"}));
  PACKSTONE_TRY(const auto bits, statements_.integer("bits", 8, 8));
  set_fp8(base);
  PACKSTONE_TRY(const auto semantics, statements_.text("weight_scale_semantics"));
  PACKSTONE_TRY(const auto method, statements_.text("weight_scale_method"));
  if (semantics && *semantics != "inverse" && *semantics != "multiplier")
    return statements_.find("weight_scale_semantics")
        ->error(ErrorCode::kUnsupported, "inverse or multiplier");
  // GPTQModel's own keys without its semantics: the direction of the scale is not said.
  if (!semantics && (method || bits))
    return fail(ErrorCode::kCorruptData, kWhere, spec_.key_, "no 'weight_scale_semantics'",
                "whether 'weight_scale_inv' divides ('inverse') or multiplies");
  base.scale_divides = semantics == "inverse";
  base.scales = ScaleGranularity::kTensor;
  if (const Statement* block = statements_.find("weight_block_size")) {
    PACKSTONE_TRY(const auto sides, block_shape(block->reader(), block->key()));
    base.scales = ScaleGranularity::kBlock;
    base.block_rows = sides[0];
    base.group_cols = sides[1];
  } else if (base.scale_divides || method) {
    base.scales = ScaleGranularity::kRow;  // GPTQModel's default
  }
  if (statements_.find("method")->value() == "fbgemm_fp8") base.scales = ScaleGranularity::kRow;
  if (method) {
    const Statement& stated = *statements_.find("weight_scale_method");
    const bool block = base.scales == ScaleGranularity::kBlock;
    if (*method != "tensor" && *method != "row" && *method != "block")
      return stated.error(ErrorCode::kUnsupported, "tensor, row or block");
    if ((*method == "block") != block)
      return stated.error(ErrorCode::kCorruptData, block ? "block, as 'weight_block_size' is there"
                                                         : "a 'weight_block_size' beside it");
    if (*method == "tensor") base.scales = ScaleGranularity::kTensor;
  }
  if (base.scales == ScaleGranularity::kRow) base.group_cols = kWholeRowGroup;
  PACKSTONE_CHECK_OK(skip("modules_to_not_convert"));
  PACKSTONE_CHECK_OK(skip("ignored_layers"));
  return read_dynamic();
}

Status SpecBuilder::bitsandbytes() {
  ModuleQuantization& base = spec_.base_;
  PACKSTONE_TRY(const auto four, statements_.boolean("load_in_4bit"));
  PACKSTONE_TRY(const auto eight, statements_.boolean("load_in_8bit"));
  PACKSTONE_TRY(const auto bits, statements_.integer("bits", 4, 8));
  PACKSTONE_TRY(const auto format, statements_.text("format"));
  PACKSTONE_TRY(const auto nested, statements_.boolean("compress_statistics"));
  if (four == true && eight == true)
    return statements_.find("load_in_8bit")
        ->error(ErrorCode::kCorruptData, "false, as 'load_in_4bit' is true");
  const bool hugging_face = four || eight;
  if (hugging_face && four != true && eight != true)
    return statements_.find(four ? "load_in_4bit" : "load_in_8bit")
        ->error(ErrorCode::kCorruptData, "true for 4 or for 8 bits");
  // Hugging Face writes the 4-bit type of 8-bit models too, unused.
  const bool int8 =
      eight == true || (!hugging_face && (format == "int8" || (!format && bits == 8)));
  base.bits = int8 ? 8 : 4;
  if (bits && *bits != base.bits)
    return statements_.find("bits")->error(ErrorCode::kCorruptData,
                                           fmt::format("{}, as the format says", base.bits));
  base.code_type = int8 ? "int8" : format.value_or("fp4");
  if (base.code_type != "int8" && base.code_type != "nf4" && base.code_type != "fp4")
    return statements_.find("format")->error(ErrorCode::kUnsupported, "nf4, fp4 or int8");
  base.format = base.code_type;
  base.layout = "bnb-" + base.code_type;
  base.symmetric = true;
  base.nested_scales = !int8 && nested.value_or(!hugging_face);
  base.scales = int8 ? ScaleGranularity::kRow : ScaleGranularity::kGroup;
  PACKSTONE_TRY(const auto block, statements_.integer("block_size", 32, 4096));
  if (int8) {
    base.group_cols = kWholeRowGroup;
  } else if (block && (*block & (*block - 1)) != 0) {
    return statements_.find("block_size")->error(ErrorCode::kUnsupported, "a power of two");
  } else {
    base.group_cols = block.value_or(hugging_face ? 0 : 64);
  }
  PACKSTONE_TRY(const auto storage, statements_.text("bnb_4bit_quant_storage"));
  if (storage && *storage != "uint8" && *storage != "torch.uint8" && !int8)
    return statements_.find("bnb_4bit_quant_storage")->error(ErrorCode::kUnsupported, "uint8");
  PACKSTONE_CHECK_OK(skip("modules_to_not_convert"));
  return read_dynamic();
}

Status SpecBuilder::check_sparsity_and_transforms() {
  if (const Statement* sparsity = statements_.find("sparsity_config")) {
    const Json& value = sparsity->value();
    const bool dense = value.is_object() &&
                       (value.empty() || !value.contains("format") || value["format"] == "dense");
    if (!dense)
      return sparsity->error(ErrorCode::kUnsupported, "format 'dense'",
                             "sparse weights have no format in this build");
  }
  if (const Statement* transform = statements_.find("transform_config")) {
    const Json& value = transform->value();
    const bool none =
        value.is_object() && (!value.contains("config_groups") || value["config_groups"].empty());
    if (!none)
      return transform->error(ErrorCode::kUnsupported, "none",
                              "inputs would have to be transformed at run time");
  }
  for (const std::string_view key : {"kv_cache_scheme", "kv_cache_quant_algo"})
    if (const Statement* cache = statements_.find(key))
      problems_.push_back(
          fmt::format("{}: scales of the key-value cache are not used", cache->subject()));
  return {};
}

Result<ModuleQuantization> SpecBuilder::scheme_of(const JsonReader& weights,
                                                  std::string_view format) const {
  ModuleQuantization says;
  says.packed = true;
  says.key = spec_.key_;
  says.format = format;
  PACKSTONE_TRY(const auto bits, weights.integer("num_bits", 2, 16));
  PACKSTONE_TRY(const auto type, weights.text("type"));
  PACKSTONE_TRY(const auto strategy, weights.text("strategy"));
  PACKSTONE_TRY(const auto group, weights.integer("group_size", kWholeRowGroup, 1 << 24));
  PACKSTONE_TRY(const auto symmetric, weights.boolean("symmetric"));
  if (!bits)
    return weights.error(ErrorCode::kCorruptData, "num_bits", "no such key", "the bits of a code");
  if (group == 0)
    return weights.error(ErrorCode::kCorruptData, "group_size", "0",
                         "a positive number, or -1 for the whole row");
  says.bits = *bits;
  says.symmetric = symmetric.value_or(true);
  if (const Json* order = weights.find("actorder"))
    says.act_order = *order == true || *order == "group" || *order == "GROUP";
  const std::string kind = strategy                 ? lower_case(*strategy)
                           : group.value_or(-1) > 0 ? "group"
                                                    : "tensor";
  if (kind == "tensor") {
    says.scales = ScaleGranularity::kTensor;
    says.group_cols = kWholeRowGroup;
  } else if (kind == "channel" || group == kWholeRowGroup) {
    says.scales = ScaleGranularity::kRow;
    says.group_cols = kWholeRowGroup;
  } else if (kind == "block") {
    PACKSTONE_TRY(const auto sides, block_shape(weights, "block_structure"));
    says.scales = ScaleGranularity::kBlock;
    says.block_rows = sides[0];
    says.group_cols = sides[1];
  } else if ((kind == "group" || kind == "tensor_group") && group) {
    says.group_cols = *group;
  } else {
    return weights.error(ErrorCode::kUnsupported, "strategy", kind,
                         "tensor, channel, block, or group with a group_size");
  }
  const bool floats = type == "float";
  if (format == "pack-quantized" && !floats) {
    says.layout = "ct-pack";
    says.zeros = says.symmetric == true ? ZeroConvention::kNone : ZeroConvention::kRaw;
  } else if ((format == "float-quantized" || format == "naive-quantized") && floats && bits == 8) {
    says.code_type = "float8_e4m3fn";
    set_fp8(says);
  } else if (format == "nvfp4-pack-quantized" && floats && bits == 4) {
    says.layout = "ct-nvfp4";
    says.scale_divides = true;  // weight_global_scale
  } else if (format == "mxfp4-pack-quantized" && floats && bits == 4) {
    says.layout = "mxfp4";
  } else {
    says.layout = fmt::format("compressed-tensors {}", format);
  }
  return says;
}

Status SpecBuilder::read_group_of_targets(const JsonReader& group, std::string_view format) {
  PACKSTONE_TRY(const auto own_format, group.text("format"));
  if (own_format) format = *own_format;
  const Json* weights = group.find("weights");
  PACKSTONE_TRY(const auto targets, group.texts("targets"));
  if (!targets || targets->empty())
    return group.error(ErrorCode::kCorruptData, "targets", "none", "the modules of the group");
  ModuleQuantization says = floats(group.subject("weights"));
  if (weights != nullptr) {
    if (!weights->is_object())
      return group.error(ErrorCode::kCorruptData, "weights", json_excerpt(*weights), "an object");
    const std::string subject = group.subject("weights");
    PACKSTONE_TRY(says, scheme_of(JsonReader(*weights, kWhere, subject), format));
    says.key = subject;
  }
  for (const std::string& target : *targets) {
    ModuleQuantization target_says = says;
    target_says.key = fmt::format("{} '{}'", group.subject("targets"), target);
    if (target == "Linear") {
      // Class names give way to names of modules.
      spec_.rules_.push_back({ModulePattern::linear(), std::move(target_says)});
    } else if (target.starts_with("re:")) {
      PACKSTONE_TRY(
          ModulePattern names,
          ModulePattern::start_regex(std::string_view(target).substr(3), false, target_says.key));
      PACKSTONE_CHECK_OK(add_rule(std::move(names), std::move(target_says)));
    } else {
      PACKSTONE_CHECK_OK(add_rule(ModulePattern::exact(target), std::move(target_says)));
    }
  }
  return {};
}

Status SpecBuilder::compressed_tensors() {
  PACKSTONE_CHECK_OK(check_sparsity_and_transforms());
  PACKSTONE_TRY(const auto format, statements_.text("format"));
  PACKSTONE_TRY(const auto status, statements_.text("quantization_status"));
  if (status && *status != "compressed")
    problems_.push_back(fmt::format("{}: '{}': read as compressed",
                                    statements_.find("quantization_status")->subject(), *status));
  const Statement* groups = statements_.find("config_groups");
  if (groups == nullptr || !groups->value().is_object() || groups->value().empty())
    return fail(ErrorCode::kCorruptData, kWhere, spec_.key_,
                groups ? json_excerpt(groups->value()) : "no 'config_groups'",
                "an object of groups");
  PACKSTONE_CHECK_OK(skip("ignore"));
  const std::size_t skipped = spec_.rules_.size();
  for (const auto& [name, group] : groups->value().items()) {
    const std::string subject = fmt::format("{}.{}", groups->subject(), name);
    if (!group.is_object())
      return fail(ErrorCode::kCorruptData, kWhere, subject, json_excerpt(group), "an object");
    PACKSTONE_CHECK_OK(
        read_group_of_targets(JsonReader(group, kWhere, subject), format.value_or("dense")));
  }
  // Skip lists first, then names, then classes.
  std::stable_sort(spec_.rules_.begin() + static_cast<std::ptrdiff_t>(skipped), spec_.rules_.end(),
                   [](const ModuleRule& a, const ModuleRule& b) {
                     return !a.pattern.is_class() && b.pattern.is_class();
                   });
  spec_.only_rules_ = true;
  return {};
}

Result<ModuleQuantization> SpecBuilder::algorithm(std::string_view name, std::int64_t group,
                                                  const Statement& statement) const {
  ModuleQuantization says;
  says.key = statement.subject();
  says.format = name;
  if (name == "FP8" || name == "FP8_PER_CHANNEL_PER_TOKEN") {
    says.code_type = "float8_e4m3fn";
    set_fp8(says);
    says.scales = name == "FP8" ? ScaleGranularity::kTensor : ScaleGranularity::kRow;
    says.group_cols = kWholeRowGroup;
  } else if (name == "NVFP4") {
    says.layout = "modelopt-nvfp4";
    says.bits = 4;
    says.group_cols = group;
    says.symmetric = true;
  } else {
    return statement.error(ErrorCode::kUnsupported,
                           "FP8, FP8_PER_CHANNEL_PER_TOKEN, NVFP4 or MIXED_PRECISION");
  }
  return says;
}

Status SpecBuilder::modelopt() {
  PACKSTONE_CHECK_OK(check_sparsity_and_transforms());
  for (const std::string_view key : {"exclude_modules", "ignore", "modules_to_not_convert"})
    PACKSTONE_CHECK_OK(skip(key));
  const Statement* stated = statements_.find("quant_algo");
  PACKSTONE_TRY(const auto name, statements_.text("quant_algo"));
  PACKSTONE_TRY(const auto group, statements_.integer("group_size", 16, 1 << 24));
  if (!name)
    return fail(ErrorCode::kCorruptData, kWhere, spec_.key_, "no 'quant_algo'", "the algorithm");
  if (*name != "MIXED_PRECISION") {
    PACKSTONE_TRY(spec_.base_, algorithm(*name, group.value_or(16), *stated));
    return {};
  }
  const Statement* layers = statements_.find("quantized_layers");
  if (layers == nullptr || !layers->value().is_object())
    return stated->error(ErrorCode::kCorruptData, "a 'quantized_layers' object beside it");
  for (const auto& [module, entry] : layers->value().items()) {
    const std::string subject = fmt::format("{}.'{}'", layers->subject(), module);
    if (!entry.is_object())
      return fail(ErrorCode::kCorruptData, kWhere, subject, json_excerpt(entry), "an object");
    const JsonReader json(entry, kWhere, subject);
    PACKSTONE_TRY(const auto own, json.text("quant_algo"));
    PACKSTONE_TRY(const auto own_group, json.integer("group_size", 16, 1 << 24));
    const Statement own_statement("quant_algo", own.value_or(""), subject, "");
    PACKSTONE_TRY(ModuleQuantization says,
                  algorithm(own.value_or(""), own_group.value_or(16), own_statement));
    says.packed = true;
    PACKSTONE_CHECK_OK(add_rule(ModulePattern::exact(module), std::move(says)));
  }
  spec_.only_rules_ = true;
  return {};
}

Status SpecBuilder::mxfp4() {
  spec_.base_.layout = "mxfp4";
  spec_.base_.bits = 4;
  spec_.base_.group_cols = 32;
  spec_.base_.symmetric = true;
  return skip("modules_to_not_convert");
}

}  // namespace packstone
