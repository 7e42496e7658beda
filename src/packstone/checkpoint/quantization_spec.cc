#include "packstone/checkpoint/quantization_spec.h"

#include <array>

#include "packstone/checkpoint/config.h"
#include "packstone/checkpoint/json_reader.h"
#include "packstone/checkpoint/names.h"
#include "packstone/checkpoint/spec_builder.h"

namespace packstone {
namespace {

using Json = nlohmann::ordered_json;
using Dialect = QuantizationDialect;
constexpr std::string_view kWhere = "checkpoint.quantization";

struct Method {
  std::string_view name;
  Dialect dialect;
};
constexpr std::array kMethods = {
    Method{"gptq", Dialect::kGptq},
    Method{"marlin", Dialect::kGptq},
    Method{"bitblas", Dialect::kGptq},
    Method{"awq", Dialect::kAwq},
    Method{"qqq", Dialect::kQqq},
    Method{"paroquant", Dialect::kParoQuant},
    Method{"exl3", Dialect::kExl3},
    Method{"fp8", Dialect::kFp8},
    Method{"fbgemm_fp8", Dialect::kFp8},
    Method{"bitsandbytes", Dialect::kBitsandbytes},
    Method{"gguf", Dialect::kGguf},
    Method{"compressed-tensors", Dialect::kCompressedTensors},
    Method{"modelopt", Dialect::kModelOpt},
    Method{"mxfp4", Dialect::kMxfp4},
    Method{"mlx", Dialect::kMlx},
};

std::optional<Dialect> dialect_of(std::string_view method) {
  for (const Method& known : kMethods)
    if (known.name == method) return known.dialect;
  return std::nullopt;
}

std::string known_methods() {
  std::string list;
  for (const Method& known : kMethods) {
    if (!list.empty()) list += ", ";
    list += known.name;
  }
  return list;
}

// One object that speaks of quantization, wherever it was found.
struct Block {
  const Json* object;
  std::string file;
  std::string path;  // key path within the file; may be empty
};

bool has(const Json& object, std::string_view key) {
  return object.contains(std::string(key)) && !object[std::string(key)].is_null();
}

// The dialect that the keys imply where no method is stated.
std::optional<Dialect> implied_dialect(const Block& block, bool companion) {
  const Json& object = *block.object;
  if (has(object, "config_groups")) return Dialect::kCompressedTensors;
  if (has(object, "quant_algo")) return Dialect::kModelOpt;
  if (has(object, "load_in_4bit") || has(object, "load_in_8bit")) return Dialect::kBitsandbytes;
  if (has(object, "w_bit") || has(object, "q_group_size") || has(object, "zero_point"))
    return Dialect::kAwq;
  if (companion && has(object, "bits")) return Dialect::kGptq;
  return std::nullopt;
}

// The object under `key`, or nothing; another type is an error.
Result<const Json*> object_at(const Json& root, std::string_view key, std::string_view file) {
  const JsonReader json(root, kWhere, file);
  const Json* value = json.find(key);
  if (value != nullptr && !value->is_object())
    return json.error(ErrorCode::kCorruptData, key, json_excerpt(*value), "an object");
  return value;
}

// quantization_config of the top level, else of text_config; both must agree.
Result<std::vector<Block>> config_blocks(const QuantizationFile& config) {
  std::vector<Block> blocks;
  const Json& text = text_config_of(config.json);
  for (const std::string_view key : {"quantization_config", "compression_config"}) {
    PACKSTONE_TRY(const Json* top, object_at(config.json, key, config.name));
    if (top != nullptr) blocks.push_back({top, config.name, std::string(key)});
    if (&text == &config.json) continue;
    PACKSTONE_TRY(const Json* inner, object_at(text, key, config.name));
    if (inner != nullptr)
      blocks.push_back({inner, config.name, fmt::format("text_config.{}", key)});
  }
  return blocks;
}

Result<std::vector<Block>> companion_blocks(const std::vector<QuantizationFile>& companions) {
  std::vector<Block> blocks;
  for (const QuantizationFile& file : companions) {
    if (!file.json.is_object())
      return fail(ErrorCode::kCorruptData, kWhere, file.name, json_excerpt(file.json), "an object");
    // hf_quant_config.json keeps its settings one level down.
    PACKSTONE_TRY(const Json* inner, object_at(file.json, "quantization", file.name));
    if (inner != nullptr) {
      blocks.push_back({inner, file.name, "quantization"});
    } else {
      blocks.push_back({&file.json, file.name, ""});
    }
  }
  return blocks;
}

// The method that all blocks agree on. Nothing: no block states or implies one.
Result<std::optional<Dialect>> agreed_dialect(const std::vector<Block>& blocks,
                                              std::size_t companions) {
  std::optional<Dialect> agreed;
  std::string first;  // where the method was stated, and as what
  for (std::size_t i = 0; i < blocks.size(); ++i) {
    const Block& block = blocks[i];
    PACKSTONE_TRY(const auto method, stated_method(*block.object, block.file, block.path));
    const JsonReader json(*block.object, kWhere, block.file, block.path);
    std::optional<Dialect> dialect = implied_dialect(block, i < companions);
    if (method) {
      dialect = dialect_of(*method);
      if (!dialect)
        return json.error(ErrorCode::kUnsupported, "quant_method", *method, known_methods());
    }
    if (!dialect) continue;
    // AutoGPTQ wrote the keys of both; a stated method rules over what other files imply.
    if (!method && agreed) continue;
    if (agreed && method && !first.empty() && *agreed != *dialect)
      return json.error(ErrorCode::kCorruptData, "quant_method", *method, first,
                        "remove the one that is wrong");
    agreed = dialect;
    if (method) first = fmt::format("{}, as {} says", *method, json.subject("quant_method"));
  }
  return agreed;
}

// text_config.quantization_config is lifted when the top level has none, as MLX-LM does.
const Json& block_holder(const Json& config) {
  for (const char* key : {"quantization", "quantization_config"})
    if (has(config, key)) return config;
  return text_config_of(config);
}

}  // namespace

Result<QuantizationSpec> QuantizationSpec::parse(const QuantizationFile& config,
                                                 const std::vector<QuantizationFile>& companions,
                                                 std::vector<std::string>& problems) {
  QuantizationSpec spec;
  PACKSTONE_TRY(std::vector<Block> blocks, companion_blocks(companions));
  const std::size_t companion_count = blocks.size();
  PACKSTONE_TRY(const std::vector<Block> own, config_blocks(config));
  blocks.insert(blocks.end(), own.begin(), own.end());
  PACKSTONE_TRY(const std::optional<Dialect> dialect, agreed_dialect(blocks, companion_count));
  const Json& holder = block_holder(config.json);
  const bool mlx_key = has(holder, "quantization");
  if (mlx_key && companion_count != 0)
    return fail(ErrorCode::kCorruptData, kWhere, fmt::format("{}: 'quantization'", config.name),
                "a block of MLX", fmt::format("none, as {} is there", blocks.front().file),
                "remove the one that is wrong");
  if (mlx_key || !dialect || *dialect == Dialect::kMlx) {
    // MLX-LM writes its block under both keys: they are checked against each other there.
    PACKSTONE_TRY(spec.mlx_, QuantizationBlock::parse(holder, config.name));
    if (!spec.mlx_.present) return spec;
    spec.dialect_ = Dialect::kMlx;
    spec.key_ = fmt::format("{}: '{}'", config.name, spec.mlx_.key);
    return spec;
  }
  spec.dialect_ = *dialect;
  const Block& named = own.empty() ? blocks.front() : own.front();
  spec.key_ = named.path.empty() ? named.file : fmt::format("{}: '{}'", named.file, named.path);
  QuantizationStatements statements(*dialect);
  for (const Block& block : blocks)
    PACKSTONE_CHECK_OK(statements.add(*block.object, block.file, block.path));
  PACKSTONE_CHECK_OK(SpecBuilder(statements, spec, problems).build());
  return spec;
}

ModuleQuantization QuantizationSpec::mlx_module(const ModuleName& name) const {
  ModuleQuantization says;
  const QuantizationEntry* entry = mlx_.find(name.text);
  const QuantizationSettings& settings = entry ? entry->settings : mlx_.global;
  says.key = key_;
  if (entry != nullptr) {
    says.packed = !entry->excluded;
    says.key = fmt::format("{}.'{}'{}", key_, entry->key, entry->excluded ? " (false)" : "");
  }
  says.layout = fmt::format("mlx-{}", settings.mode);
  says.format = settings.mode;
  says.bits = settings.bits;
  says.group_cols = settings.group_cols;
  return says;
}

Result<ModuleQuantization> QuantizationSpec::module(const ModuleName& name) const {
  ModuleQuantization says = base_;
  if (dialect_ == Dialect::kNone) {
    says.packed = false;
    return says;
  }
  if (dialect_ == Dialect::kMlx) return mlx_module(name);
  bool found = false;
  for (const ModuleRule& rule : rules_) {
    PACKSTONE_TRY(found, rule.pattern.matches(name));
    if (!found) continue;
    says = rule.says;
    break;
  }
  if (says.packed) return says;
  if (only_rules_ && !found) {
    says.packed = false;
  } else if (layer_of(name.text)) {
    says.packed = true;
  } else if (name.text == "lm_head") {
    says.packed = head_;
  }
  return says;
}

}  // namespace packstone
