#include "packstone/cli/output.h"

#include "packstone/cli/app.h"
#include "packstone/container/names.h"

namespace packstone::cli {

void print_json(std::ostream& out, const Json& document) {
  out << document.dump(2, ' ', false, Json::error_handler_t::replace) << '\n';
}

std::string json_line(const Json& document) {
  return document.dump(-1, ' ', false, Json::error_handler_t::replace);
}

std::string line_text(std::string_view text) {
  // More than any line that names one thing.
  constexpr std::size_t kLineBytesMax = 4096;
  return printable(text, kLineBytesMax);
}

std::string message_text(std::string_view message) {
  std::string text;
  while (true) {
    const std::size_t end = message.find("\n  ");
    text += line_text(message.substr(0, end));
    if (end == std::string_view::npos) return text;
    text += '\n';
    message.remove_prefix(end + 1);
  }
}

Json error_json(const Error& error) {
  Json json;
  json["code"] = error_code_name(error.code);
  json["message"] = error.message;
  return json;
}

std::string bytes_text(std::uint64_t bytes) {
  constexpr const char* kUnits[] = {"kB", "MB", "GB", "TB", "PB", "EB"};
  if (bytes < 1000) return fmt::format("{} B", bytes);
  double value = static_cast<double>(bytes) / 1000;
  int unit = 0;
  while (value >= 999.995 && unit < 5) {
    value /= 1000;
    ++unit;
  }
  return fmt::format("{:.2f} {}", value, kUnits[unit]);
}

}  // namespace packstone::cli
