// What the config files of a folder state about quantization, under one spelling of each key.
// Source of the synonyms: formats.md 1.2.
#pragma once

#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "packstone/checkpoint/json_reader.h"
#include "packstone/checkpoint/quantization_spec.h"

namespace packstone {

// One canonical key: where it is stated, and its value.
class Statement {
 public:
  Statement(std::string key, nlohmann::ordered_json value, std::string file, std::string path)
      : holder_({{key, std::move(value)}}),
        key_(std::move(key)),
        file_(std::move(file)),
        path_(std::move(path)) {}

  const nlohmann::ordered_json& value() const { return holder_.front(); }
  const std::string& key() const { return key_; }
  JsonReader reader() const;
  std::string subject() const { return reader().subject(key_); }
  std::unexpected<Error> error(ErrorCode code, std::string_view need,
                               std::string_view hint = {}) const;

 private:
  nlohmann::ordered_json holder_;
  std::string key_, file_, path_;
};

class QuantizationStatements {
 public:
  explicit QuantizationStatements(QuantizationDialect dialect) : dialect_(dialect) {}

  // is_known(spelling): the key decides how tensors read; all others are notes of the writer.
  static bool is_known(std::string_view spelling);

  // add(object, file, path) takes the known keys of one object. Null states nothing, but a null
  // group size is the whole row.
  // Errors: kCorruptData for a key that was stated otherwise before, naming both places.
  Status add(const nlohmann::ordered_json& object, std::string_view file, std::string_view path);

  const Statement* find(std::string_view key) const;
  Result<std::optional<std::int64_t>> integer(std::string_view key, std::int64_t low,
                                              std::int64_t high) const;
  Result<std::optional<bool>> boolean(std::string_view key) const;
  Result<std::optional<std::string>> text(std::string_view key) const;
  Result<std::vector<std::string>> texts(std::string_view key) const;

 private:
  Status state(const std::string& key, Statement statement);

  QuantizationDialect dialect_;
  std::map<std::string, Statement, std::less<>> by_key_;
};

// What an object says of its own method: quant_method or method, in lower case; nothing when it
// says none. Errors: kCorruptData when both are there and differ, or for another type than text.
Result<std::optional<std::string>> stated_method(const nlohmann::ordered_json& object,
                                                 std::string_view file, std::string_view path);

// The text with A to Z in lower case.
std::string lower_case(std::string text);

}  // namespace packstone
