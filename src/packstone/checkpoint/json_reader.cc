#include "packstone/checkpoint/json_reader.h"

#include <cmath>

#include "packstone/base/limits.h"

namespace packstone {
namespace {

using Json = nlohmann::ordered_json;

// Members of one object are found by walking: the sum of squares of the counts bounds the work.
constexpr std::uint64_t kLookupWorkMax = std::uint64_t{1} << 28;

struct Scan {
  int depth = 0;
  bool unbalanced = false;
  std::uint64_t lookup_work = 0;
};

// Depth and object widths of a text, without parsing it. Wrong JSON gives some answer; the parser
// then refuses it.
Scan scan_json(std::string_view text) {
  Scan scan;
  std::vector<std::uint64_t> members(1, 0);
  bool quoted = false;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (quoted) {
      if (c == '\\') ++i;
      if (c == '"') quoted = false;
      continue;
    }
    if (c == '"') quoted = true;
    if (c == ':') ++members.back();
    if (c == '{' || c == '[') {
      if (members.size() > static_cast<std::size_t>(limits::kJsonDepthMax)) {
        scan.depth = limits::kJsonDepthMax + 1;
        return scan;
      }
      members.push_back(0);
    }
    if (c == '}' || c == ']') {
      if (members.size() == 1) {
        scan.unbalanced = true;
        return scan;
      }
      scan.lookup_work += members.back() * members.back();
      members.pop_back();
    }
  }
  return scan;
}

std::unexpected<Error> broken(std::string_view where, std::string_view file) {
  return fail(ErrorCode::kCorruptData, where, file, "text that is not JSON", "a JSON document");
}

Status check_depth(const Scan& scan, std::string_view where, std::string_view file) {
  if (scan.unbalanced) return broken(where, file);
  if (scan.depth > limits::kJsonDepthMax)
    return fail(ErrorCode::kCorruptData, where, file,
                fmt::format("nesting deeper than {}", limits::kJsonDepthMax),
                fmt::format("at most {} levels", limits::kJsonDepthMax));
  return {};
}

}  // namespace

Result<Json> parse_json(std::string_view text, std::string_view where, std::string_view file) {
  const Scan scan = scan_json(text);
  PACKSTONE_CHECK_OK(check_depth(scan, where, file));
  if (scan.lookup_work > kLookupWorkMax)
    return fail(ErrorCode::kCorruptData, where, file, "an object with too many keys",
                "at most about 16,000 keys in one object");
  Json json = Json::parse(text, nullptr, false);
  if (json.is_discarded()) return broken(where, file);
  return json;
}

Result<Json> parse_large_json(std::string_view text, std::string_view where,
                              std::string_view file) {
  PACKSTONE_CHECK_OK(check_depth(scan_json(text), where, file));
  nlohmann::json sorted = nlohmann::json::parse(text, nullptr, false);
  if (sorted.is_discarded()) return broken(where, file);
  return Json(sorted);
}

std::string json_excerpt(const Json& value) {
  if (value.is_object()) return "an object";
  if (value.is_array()) return fmt::format("an array of {}", value.size());
  std::string text = value.dump(-1, ' ', true, Json::error_handler_t::replace);
  if (text.size() > 60) text = text.substr(0, 57) + "...";
  return text;
}

const Json* JsonReader::find(std::string_view key) const {
  if (!object_.is_object()) return nullptr;
  const auto it = object_.find(std::string(key));
  return it == object_.end() || it->is_null() ? nullptr : &*it;
}

std::string JsonReader::subject(std::string_view key) const {
  return path_.empty() ? fmt::format("{}: '{}'", file_, key)
                       : fmt::format("{}: '{}.{}'", file_, path_, key);
}

std::unexpected<Error> JsonReader::error(ErrorCode code, std::string_view key, std::string_view got,
                                         std::string_view need, std::string_view hint) const {
  return fail(code, where_, subject(key), got, need, hint);
}

Result<std::optional<std::int64_t>> JsonReader::integer(std::string_view key, std::int64_t low,
                                                        std::int64_t high) const {
  const Json* value = find(key);
  if (value == nullptr) return std::optional<std::int64_t>();
  const std::string need = fmt::format("an integer from {} to {}", low, high);
  std::optional<std::int64_t> got;
  if (value->is_number_unsigned()) {
    const std::uint64_t wide = value->get<std::uint64_t>();
    if (wide <= static_cast<std::uint64_t>(INT64_MAX)) got = static_cast<std::int64_t>(wide);
  } else if (value->is_number_integer()) {
    got = value->get<std::int64_t>();
  } else if (value->is_number_float()) {  // 8192.0, as some writers spell it
    const double wide = value->get<double>();
    if (std::abs(wide) < 9e15 && wide == std::floor(wide)) got = static_cast<std::int64_t>(wide);
  }
  if (!got || *got < low || *got > high)
    return error(ErrorCode::kCorruptData, key, json_excerpt(*value), need);
  return got;
}

Result<std::optional<double>> JsonReader::number(std::string_view key, double low,
                                                 double high) const {
  const Json* value = find(key);
  if (value == nullptr) return std::optional<double>();
  const double got = value->is_number() ? value->get<double>() : NAN;
  if (!(got >= low && got <= high))
    return error(ErrorCode::kCorruptData, key, json_excerpt(*value),
                 fmt::format("a number from {} to {}", low, high));
  return std::optional(got);
}

Result<std::optional<bool>> JsonReader::boolean(std::string_view key) const {
  const Json* value = find(key);
  if (value == nullptr) return std::optional<bool>();
  if (!value->is_boolean())
    return error(ErrorCode::kCorruptData, key, json_excerpt(*value), "true or false");
  return std::optional(value->get<bool>());
}

Result<std::optional<std::string>> JsonReader::text(std::string_view key) const {
  const Json* value = find(key);
  if (value == nullptr) return std::optional<std::string>();
  if (!value->is_string())
    return error(ErrorCode::kCorruptData, key, json_excerpt(*value), "a string");
  return std::optional(value->get<std::string>());
}

Result<std::optional<std::vector<std::string>>> JsonReader::texts(std::string_view key) const {
  const Json* value = find(key);
  if (value == nullptr) return std::optional<std::vector<std::string>>();
  std::vector<std::string> list;
  bool good = value->is_array();
  if (good)
    for (const Json& item : *value) {
      good = good && item.is_string();
      if (good) list.push_back(item.get<std::string>());
    }
  if (!good)
    return error(ErrorCode::kCorruptData, key, json_excerpt(*value), "an array of strings");
  return std::optional(std::move(list));
}

Result<std::vector<std::int64_t>> JsonReader::integers(std::string_view key) const {
  const Json* value = find(key);
  std::vector<std::int64_t> list;
  if (value == nullptr) return list;
  auto take = [&](const Json& item) {
    if (!item.is_number_integer()) return false;
    if (item.is_number_unsigned() && item.get<std::uint64_t>() > std::uint64_t{INT64_MAX})
      return false;
    list.push_back(item.get<std::int64_t>());
    return true;
  };
  bool good = true;
  if (value->is_array()) {
    for (const Json& item : *value) good = good && take(item);
  } else {
    good = take(*value);
  }
  if (!good)
    return error(ErrorCode::kCorruptData, key, json_excerpt(*value),
                 "an integer or an array of integers");
  return list;
}

}  // namespace packstone
