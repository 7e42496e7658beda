// Files with one JSON value a line, and lists of token ids in JSON.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "packstone/cli/command.h"
#include "packstone/cli/output.h"

namespace packstone::cli {

// each_json_line(command, path, context, f) calls f with the value of every line and prints its
// result as one line. Empty lines are errors like any other that is not JSON.
// Errors: those of f and kInvalidInput for a line that is not JSON, with the line's number; nothing
//         is printed for that line and those after it. kCancelled.
Status each_json_line(std::string_view command, const std::string& path, Context& context,
                      const std::function<Result<Json>(const Json&)>& f);

// The ids of a JSON array. Errors: kInvalidInput for anything else, or an id out of [0, vocab).
Result<std::vector<std::int32_t>> json_ids(std::string_view command, const Json& value,
                                           std::int64_t vocab);

// Parses a JSON text from the user; nothing when it is not JSON or nested too deeply.
std::optional<Json> parse_user_json(std::string_view text);

}  // namespace packstone::cli
