// Rules for names that come from files or go into them, and how messages show them.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>

namespace packstone {

// Whether text is UTF-8 without overlong forms, surrogates or values above U+10FFFF.
bool is_utf8(std::string_view text);

// Whether text is a legal name of a tensor or key: 1 to bytes_max bytes of UTF-8 without NUL.
bool is_legal_name(std::string_view text, std::size_t bytes_max);

// Whether text is a plain file name: no separator, no NUL, not empty, not "." or "..".
bool is_plain_file_name(std::string_view text);

// shown(text) is text in quotes, fit for a message: control characters and bytes that are not
// UTF-8 as \xNN, the middle of long texts left out.
std::string shown(std::string_view text);

// text fit for a message as `shown` gives it, without the quotes; longer texts than bytes_max lose
// their middle.
std::string printable(std::string_view text, std::size_t bytes_max);

// A path for a message: as it is, or as `shown` gives it when it holds what shown would change.
std::string shown_path(const std::filesystem::path& path);

}  // namespace packstone
