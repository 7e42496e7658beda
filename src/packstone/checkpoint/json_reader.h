// JSON files of a checkpoint folder: bounded parsing, and typed reads that name file and key.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "packstone/base/result.h"

namespace packstone {

// parse_json(text, where, file): the document, keys in file order.
// Errors: kCorruptData for broken JSON, for nesting deeper than limits::kJsonDepthMax, and for
//         objects so wide that looking keys up in file order would take seconds.
// Cost: one scan before the parse; nothing is allocated for a refused file.
Result<nlohmann::ordered_json> parse_json(std::string_view text, std::string_view where,
                                          std::string_view file);

// parse_large_json is the same for tokenizer.json, whose vocabulary is one wide object: members of
// objects come sorted by key, so that no look-up is quadratic.
Result<nlohmann::ordered_json> parse_large_json(std::string_view text, std::string_view where,
                                                std::string_view file);

// One JSON object with typed, range-checked reads. An absent or null key gives nothing; another
// type or a value out of range is kCorruptData naming file and key. Does not own.
class JsonReader {
 public:
  JsonReader(const nlohmann::ordered_json& object, std::string_view where, std::string_view file,
             std::string_view path = {})
      : object_(object), where_(where), file_(file), path_(path) {}

  const nlohmann::ordered_json& object() const { return object_; }
  const nlohmann::ordered_json* find(std::string_view key) const;  // nullptr: absent or null
  std::string subject(std::string_view key) const;                 // "file: 'path.key'"
  std::string_view where() const { return where_; }

  Result<std::optional<std::int64_t>> integer(std::string_view key, std::int64_t low,
                                              std::int64_t high) const;
  Result<std::optional<double>> number(std::string_view key, double low, double high) const;
  Result<std::optional<bool>> boolean(std::string_view key) const;
  Result<std::optional<std::string>> text(std::string_view key) const;
  Result<std::optional<std::vector<std::string>>> texts(std::string_view key) const;
  // One integer or an array of them.
  Result<std::vector<std::int64_t>> integers(std::string_view key) const;

  std::unexpected<Error> error(ErrorCode code, std::string_view key, std::string_view got,
                               std::string_view need, std::string_view hint = {}) const;

 private:
  const nlohmann::ordered_json& object_;
  std::string where_, file_, path_;
};

// A JSON value cut short for a message.
std::string json_excerpt(const nlohmann::ordered_json& value);

}  // namespace packstone
