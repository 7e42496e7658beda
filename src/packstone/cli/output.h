// What commands print: JSON documents, byte counts, and small files.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <ostream>
#include <string>
#include <string_view>

#include "packstone/base/result.h"

namespace packstone::cli {

using Json = nlohmann::ordered_json;

// Prints one document, indented, with a newline. Bytes that are not UTF-8 become U+FFFD.
void print_json(std::ostream& out, const Json& document);

// The document on one line, without a newline; the same rule for bytes that are not UTF-8.
std::string json_line(const Json& document);

// Text of a line for people: names come from files, and none may write control sequences to a
// terminal; a long text loses its middle.
std::string line_text(std::string_view text);

// The same of a message of several lines: lists go on in lines set in by two blanks.
std::string message_text(std::string_view message);

// {"code": "corrupt_data", "message": "..."}.
Json error_json(const Error& error);

// "1.23 MB" (powers of 1000).
std::string bytes_text(std::uint64_t bytes);

}  // namespace packstone::cli
