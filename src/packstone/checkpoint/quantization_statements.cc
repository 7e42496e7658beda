#include "packstone/checkpoint/quantization_statements.h"

#include <algorithm>
#include <array>

namespace packstone {
namespace {

using Json = nlohmann::ordered_json;
constexpr std::string_view kWhere = "checkpoint.quantization";

struct Synonym {
  std::string_view spelling, key;
};
constexpr std::array kSynonyms = {
    Synonym{"w_bit", "bits"},
    Synonym{"wbits", "bits"},
    Synonym{"q_group_size", "group_size"},
    Synonym{"checkpoint_format", "format"},
    Synonym{"bnb_quant_type", "format"},
    Synonym{"bnb_4bit_quant_type", "format"},
    Synonym{"bnb_block_size", "block_size"},
    Synonym{"bnb_compress_statistics", "compress_statistics"},
    Synonym{"bnb_4bit_use_double_quant", "compress_statistics"},
    Synonym{"llm_int8_skip_modules", "modules_to_not_convert"},
    Synonym{"inside_layer_modules", "modules_in_block_to_quantize"},
    Synonym{"zero_point", "sym"},
    Synonym{"quant_method", "method"},
};

// Keys that decide how tensors read. All others are notes of the writer.
constexpr std::array<std::string_view, 37> kKnown = {
    "bits",
    "group_size",
    "desc_act",
    "sym",
    "format",
    "pack_dtype",
    "dynamic",
    "lm_head",
    "rotation",
    "modules_to_not_convert",
    "ignored_layers",
    "ignore",
    "exclude_modules",
    "quantized_layers",
    "modules_in_block_to_quantize",
    "config_groups",
    "weight_block_size",
    "weight_scale_method",
    "weight_scale_semantics",
    "block_size",
    "compress_statistics",
    "load_in_4bit",
    "load_in_8bit",
    "bnb_4bit_quant_storage",
    "krot",
    "codebook",
    "tensor_storage",
    "backend",
    "quant_algo",
    "sparsity_config",
    "transform_config",
    "is_marlin_format",
    "scale_fmt",
    "kv_cache_scheme",
    "kv_cache_quant_algo",
    "quantization_status",
    "method",
};

bool speaks_version(QuantizationDialect dialect) {
  return dialect == QuantizationDialect::kGptq || dialect == QuantizationDialect::kAwq;
}

std::string canonical_key(QuantizationDialect dialect, std::string_view spelling) {
  if (spelling == "version" && speaks_version(dialect)) return "format";
  if (spelling == "fmt" && dialect == QuantizationDialect::kFp8) return "format";
  for (const Synonym& synonym : kSynonyms)
    if (synonym.spelling == spelling) return std::string(synonym.key);
  return std::string(spelling);
}

// Long names of the float8 kinds (formats.md 7.1).
std::string float8_name(const std::string& name) {
  if (name == "e4m3" || name == "float8_e4m3" || name == "fp8" || name.empty() || name == "e4m3fn")
    return "float8_e4m3fn";
  if (name == "e8m0" || name == "e8m0fnu") return "float8_e8m0fnu";
  if (name == "e5m2" || name == "e4m3fnuz" || name == "e5m2fnuz") return "float8_" + name;
  return name;
}

Json canonical_value(QuantizationDialect dialect, std::string_view spelling, std::string_view key,
                     Json value) {
  if (spelling == "zero_point" && value.is_boolean()) return !value.get<bool>();
  if (key == "group_size" && value.is_null()) return kWholeRowGroup;
  if ((key == "format" || key == "method" || key == "backend") && value.is_string()) {
    const std::string text = lower_case(value.get<std::string>());
    return key == "format" && dialect == QuantizationDialect::kFp8 ? float8_name(text) : text;
  }
  return value;
}

}  // namespace

std::string lower_case(std::string text) {
  for (char& c : text)
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  return text;
}

JsonReader Statement::reader() const {
  return JsonReader(holder_, kWhere, file_, path_);
}

std::unexpected<Error> Statement::error(ErrorCode code, std::string_view need,
                                        std::string_view hint) const {
  return reader().error(code, key_, json_excerpt(value()), need, hint);
}

bool QuantizationStatements::is_known(std::string_view spelling) {
  for (const QuantizationDialect dialect : {QuantizationDialect::kGptq, QuantizationDialect::kFp8})
    if (std::ranges::find(kKnown, canonical_key(dialect, spelling)) != kKnown.end()) return true;
  return false;
}

Status QuantizationStatements::add(const Json& object, std::string_view file,
                                   std::string_view path) {
  for (const auto& [spelling, stated] : object.items()) {
    const std::string key = canonical_key(dialect_, spelling);
    if (std::ranges::find(kKnown, key) == kKnown.end()) continue;
    Json value = canonical_value(dialect_, spelling, key, stated);
    // The method names that are formats of the GPTQ method.
    if (key == "method" && (value == "marlin" || value == "bitblas")) {
      PACKSTONE_CHECK_OK(
          state("format", Statement(spelling, value, std::string(file), std::string(path))));
      value = "gptq";
    }
    if (value.is_null()) continue;
    PACKSTONE_CHECK_OK(
        state(key, Statement(spelling, std::move(value), std::string(file), std::string(path))));
  }
  return {};
}

Status QuantizationStatements::state(const std::string& key, Statement statement) {
  const auto it = by_key_.find(key);
  if (it == by_key_.end()) {
    by_key_.emplace(key, std::move(statement));
    return {};
  }
  const Statement& first = it->second;
  if (nlohmann::json(first.value()) == nlohmann::json(statement.value())) return {};
  return fail(ErrorCode::kCorruptData, kWhere, statement.subject(), json_excerpt(statement.value()),
              fmt::format("{}, as {} says", json_excerpt(first.value()), first.subject()),
              "remove the one that is wrong");
}

const Statement* QuantizationStatements::find(std::string_view key) const {
  const auto it = by_key_.find(key);
  return it == by_key_.end() ? nullptr : &it->second;
}

Result<std::optional<std::int64_t>> QuantizationStatements::integer(std::string_view key,
                                                                    std::int64_t low,
                                                                    std::int64_t high) const {
  const Statement* statement = find(key);
  if (statement == nullptr) return std::optional<std::int64_t>();
  return statement->reader().integer(statement->key(), low, high);
}

Result<std::optional<bool>> QuantizationStatements::boolean(std::string_view key) const {
  const Statement* statement = find(key);
  if (statement == nullptr) return std::optional<bool>();
  return statement->reader().boolean(statement->key());
}

Result<std::optional<std::string>> QuantizationStatements::text(std::string_view key) const {
  const Statement* statement = find(key);
  if (statement == nullptr) return std::optional<std::string>();
  return statement->reader().text(statement->key());
}

Result<std::vector<std::string>> QuantizationStatements::texts(std::string_view key) const {
  const Statement* statement = find(key);
  if (statement == nullptr) return std::vector<std::string>();
  PACKSTONE_TRY(auto list, statement->reader().texts(statement->key()));
  return list.value_or(std::vector<std::string>());
}

Result<std::optional<std::string>> stated_method(const Json& object, std::string_view file,
                                                 std::string_view path) {
  const JsonReader json(object, kWhere, file, path);
  PACKSTONE_TRY(auto first, json.text("quant_method"));
  PACKSTONE_TRY(auto second, json.text("method"));
  if (first) first = lower_case(*first);
  if (second) second = lower_case(*second);
  if (first && second && *first != *second)
    return json.error(ErrorCode::kCorruptData, "method", *second,
                      fmt::format("{}, as 'quant_method' says", *first));
  return first ? first : second;
}

}  // namespace packstone
