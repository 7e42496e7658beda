#include "packstone/checkpoint/quantization_block.h"

#include "packstone/checkpoint/json_reader.h"
#include "packstone/checkpoint/module_pattern.h"

namespace packstone {
namespace {

using Json = nlohmann::ordered_json;
constexpr std::string_view kWhere = "checkpoint.quantization";

// The defaults of each mode, where an entry leaves a number out or null (mx.quantize).
QuantizationSettings mode_defaults(const std::string& mode) {
  if (mode == "mxfp4") return {4, 32, mode};
  if (mode == "mxfp8") return {8, 32, mode};
  if (mode == "nvfp4") return {4, 16, mode};
  return {4, 64, mode};
}

Result<QuantizationSettings> read_settings(const JsonReader& json) {
  PACKSTONE_TRY(const std::optional<std::string> mode, json.text("mode"));
  QuantizationSettings settings = mode_defaults(mode.value_or("affine"));
  PACKSTONE_TRY(const auto bits, json.integer("bits", 1, 32));
  PACKSTONE_TRY(const auto group, json.integer("group_size", 1, 1 << 20));
  settings.bits = bits.value_or(settings.bits);
  settings.group_cols = group.value_or(settings.group_cols);
  return settings;
}

Status read_method(const JsonReader& json) {
  PACKSTONE_TRY(const auto method, json.text("quant_method"));
  if (method && *method != "mlx")
    return json.error(ErrorCode::kUnsupported, "quant_method", *method, "mlx, or no quant_method");
  return {};
}

}  // namespace

const QuantizationEntry* QuantizationBlock::find(std::string_view module) const {
  const auto it = overrides.find(module_key(module));
  return it == overrides.end() ? nullptr : &it->second;
}

Result<QuantizationBlock> QuantizationBlock::parse(const Json& root, std::string_view file) {
  QuantizationBlock block;
  const JsonReader outer(root, kWhere, file);
  const Json* first = outer.find("quantization");
  const Json* second = outer.find("quantization_config");
  if (first == nullptr && second == nullptr) return block;
  for (const auto& [key, value] :
       {std::pair("quantization", first), {"quantization_config", second}})
    if (value != nullptr && !value->is_object())
      return outer.error(ErrorCode::kCorruptData, key, json_excerpt(*value), "an object");
  if (first && second && nlohmann::json(*first) != nlohmann::json(*second))
    return outer.error(ErrorCode::kCorruptData, "quantization_config", "other settings",
                       "the same as 'quantization'", "remove the block that is wrong");
  block.present = true;
  block.key = first ? "quantization" : "quantization_config";
  const JsonReader json(first ? *first : *second, kWhere, file, block.key);
  PACKSTONE_CHECK_OK(read_method(json));
  PACKSTONE_TRY(block.global, read_settings(json));
  for (const auto& [path, value] : json.object().items()) {
    QuantizationEntry entry;
    entry.key = path;
    if (value.is_boolean()) {
      entry.excluded = !value.get<bool>();
      entry.settings = block.global;
      if (path == "quantize_activations") {
        if (!entry.excluded) return json.error(ErrorCode::kUnsupported, path, "true", "false");
        continue;
      }
    } else if (value.is_object()) {
      const std::string where = fmt::format("{}.{}", block.key, path);
      PACKSTONE_TRY(entry.settings, read_settings(JsonReader(value, kWhere, file, where)));
    } else {
      continue;  // bits, group_size, mode, and notes of the writer
    }
    const auto [it, added] = block.overrides.emplace(std::string(module_key(path)), entry);
    if (!added && !(it->second == entry))
      return json.error(ErrorCode::kCorruptData, path, "other settings",
                        fmt::format("the same as '{}'", it->second.key));
  }
  return block;
}

}  // namespace packstone
