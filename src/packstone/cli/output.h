// What commands print: JSON documents, byte counts, and small files.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <ostream>
#include <string>

#include "packstone/base/result.h"

namespace packstone::cli {

using Json = nlohmann::ordered_json;

// Prints one document, indented, with a newline. Bytes that are not UTF-8 become U+FFFD.
void print_json(std::ostream& out, const Json& document);

// The document on one line, without a newline; the same rule for bytes that are not UTF-8.
std::string json_line(const Json& document);

// {"code": "corrupt_data", "message": "..."}.
Json error_json(const Error& error);

// "1.23 MB" (powers of 1000).
std::string bytes_text(std::uint64_t bytes);

}  // namespace packstone::cli
