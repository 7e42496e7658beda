#include "packstone/cli/jsonl.h"

#include "packstone/base/limits.h"
#include "packstone/cli/load.h"

namespace packstone::cli {

std::optional<Json> parse_user_json(std::string_view text) {
  bool deep = false;
  const auto callback = [&](int depth, Json::parse_event_t, Json&) {
    if (depth > limits::kJsonDepthMax) deep = true;
    return !deep;
  };
  Json value = Json::parse(text.begin(), text.end(), callback, false);
  if (deep || value.is_discarded()) return std::nullopt;
  return value;
}

Result<std::vector<std::int32_t>> json_ids(std::string_view command, const Json& value,
                                           std::int64_t vocab) {
  const std::string where = fmt::format("cli.{}", command);
  if (!value.is_array())
    return fail(ErrorCode::kInvalidInput, where, "ids", value.type_name(), "a JSON array of ids");
  std::vector<std::int32_t> ids;
  ids.reserve(value.size());
  for (const Json& item : value) {
    const bool fits = item.is_number_integer() &&
                      !(item.is_number_unsigned() && item.get<std::uint64_t>() > INT64_MAX) &&
                      item.get<std::int64_t>() >= 0 && item.get<std::int64_t>() < vocab;
    if (!fits)
      return fail(ErrorCode::kInvalidInput, where, fmt::format("id {}", ids.size()),
                  json_line(item), fmt::format("an id in [0, {})", vocab));
    ids.push_back(item.get<std::int32_t>());
  }
  return ids;
}

Status each_json_line(std::string_view command, const std::string& path, Context& context,
                      const std::function<Result<Json>(const Json&)>& f) {
  PACKSTONE_TRY(const std::string text, read_user_text(path));
  std::string_view rest = text;
  for (std::int64_t number = 1; !rest.empty(); ++number) {
    PACKSTONE_CHECK_OK(context.check_cancel(command));
    const std::size_t end = rest.find('\n');
    const std::string_view line = rest.substr(0, end);
    rest = end == std::string_view::npos ? std::string_view() : rest.substr(end + 1);
    const std::optional<Json> value = parse_user_json(line);
    if (!value)
      return fail(ErrorCode::kInvalidInput, fmt::format("cli.{}", command),
                  fmt::format("{}, line {}", path, number), "no JSON", "one JSON value a line");
    Result<Json> result = f(*value);
    if (!result) {
      Error error = std::move(result).error();
      error.message += fmt::format(" ({}, line {})", path, number);
      return std::unexpected(std::move(error));
    }
    context.out << json_line(*result) << '\n';
  }
  return {};
}

}  // namespace packstone::cli
