#include "packstone/container/names.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>

namespace packstone {
namespace {

// Length of the valid UTF-8 character at the start of text, or 0.
std::size_t utf8_length(std::string_view text) {
  const auto byte = [&](std::size_t i) { return static_cast<std::uint8_t>(text[i]); };
  const std::uint8_t first = byte(0);
  if (first < 0x80) return 1;
  const std::size_t length = first >= 0xF0 ? 4 : first >= 0xE0 ? 3 : 2;
  if (first < 0xC2 || first > 0xF4 || text.size() < length) return 0;
  // The second byte's range excludes overlong forms, surrogates and values above U+10FFFF.
  const std::uint8_t low = first == 0xE0 ? 0xA0 : first == 0xF0 ? 0x90 : 0x80;
  const std::uint8_t high = first == 0xED ? 0x9F : first == 0xF4 ? 0x8F : 0xBF;
  if (byte(1) < low || byte(1) > high) return 0;
  for (std::size_t i = 2; i < length; ++i)
    if (byte(i) < 0x80 || byte(i) > 0xBF) return 0;
  return length;
}

void append_shown(std::string& out, std::string_view text) {
  while (!text.empty()) {
    const std::size_t length = utf8_length(text);
    const auto first = static_cast<std::uint8_t>(text[0]);
    // U+0080 to U+009F are control characters too (C2 80 to C2 9F).
    const bool control =
        first < 0x20 || first == 0x7F ||
        (first == 0xC2 && length == 2 && static_cast<std::uint8_t>(text[1]) < 0xA0);
    if (length == 0 || control) {
      out += fmt::format("\\x{:02X}", first);
      text.remove_prefix(1);
      continue;
    }
    out += text.substr(0, length);
    text.remove_prefix(length);
  }
}

}  // namespace

bool is_utf8(std::string_view text) {
  while (!text.empty()) {
    const std::size_t length = utf8_length(text);
    if (length == 0) return false;
    text.remove_prefix(length);
  }
  return true;
}

bool is_legal_name(std::string_view text, std::size_t bytes_max) {
  return !text.empty() && text.size() <= bytes_max && text.find('\0') == std::string_view::npos &&
         is_utf8(text);
}

bool is_plain_file_name(std::string_view text) {
  constexpr std::string_view kForbidden("/\\\0", 3);
  return !text.empty() && text != "." && text != ".." &&
         text.find_first_of(kForbidden) == std::string_view::npos;
}

std::string printable(std::string_view text, std::size_t bytes_max) {
  std::string out;
  if (text.size() <= bytes_max) {
    append_shown(out, text);
    return out;
  }
  constexpr std::size_t kMiddle = 40;  // what stands for the middle
  const std::size_t end = (bytes_max - std::min(bytes_max, kMiddle)) / 2;
  append_shown(out, text.substr(0, end));
  out += fmt::format("...({} bytes)...", text.size());
  append_shown(out, text.substr(text.size() - end));
  return out;
}

std::string shown(std::string_view text) {
  constexpr std::size_t kBytesMax = 240;
  return "'" + printable(text, kBytesMax) + "'";
}

std::string shown_path(const std::filesystem::path& path) {
  std::string text = path.string();
  std::string quoted = shown(text);
  const bool same = quoted.size() == text.size() + 2 && quoted.find(text) == 1;
  return same ? text : quoted;
}

}  // namespace packstone
