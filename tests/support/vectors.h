// Oracle vectors of tests/vectors: packed planes beside the values that the producing library reads
// from them, or makes them of.
#pragma once

#include <gtest/gtest.h>

#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "packstone/format/packed_weight.h"

namespace packstone::vectors {

// One weight of a vector file.
struct Case {
  FormatId id{};
  Shape shape;
  FormatParams params;
  std::vector<std::vector<std::byte>> planes;
  std::vector<std::int64_t> value_rows;  // rows whose values are given
  std::vector<float> values;             // of those rows, row-major

  PackedWeight weight() const {
    std::vector<ByteSpan> spans(planes.begin(), planes.end());
    return PackedWeight::bind(id, shape, params, spans, nullptr, "vector").value();
  }
};

inline std::vector<std::byte> from_hex(const std::string& text) {
  std::vector<std::byte> bytes(text.size() / 2);
  for (std::size_t i = 0; i < bytes.size(); ++i)
    bytes[i] = static_cast<std::byte>(std::stoi(text.substr(2 * i, 2), nullptr, 16));
  return bytes;
}

// The cases of tests/vectors/<folder>/<name with underscores>.json; fails the test when the file
// cannot be read or has none.
inline std::vector<Case> load(const std::string& folder, std::string_view format_name) {
  std::string file(format_name);
  for (char& letter : file)
    if (letter == '.') letter = '_';
  std::ifstream stream(std::string(PACKSTONE_SOURCE_DIR "/tests/vectors/") + folder + "/" + file +
                       ".json");
  const auto json = nlohmann::json::parse(stream, nullptr, false);
  std::vector<Case> cases;
  if (!json.is_object()) {
    ADD_FAILURE() << "no vector file for " << file;
    return cases;
  }
  for (const auto& item : json["cases"]) {
    Case one;
    one.id = find_format(json["name"].get<std::string>()).value();
    one.shape = {item["rows"], item["cols"]};
    one.params.group_cols = item["group"];
    const std::string metadata = item["metadata"];
    one.params.metadata = metadata == "float32"   ? FloatType::kF32
                          : metadata == "float16" ? FloatType::kF16
                                                  : FloatType::kBF16;
    one.params.group_rows = item.value("group_rows", 1);
    one.params.act_order = item.value("act_order", false);
    one.params.constant = item.value("constant", std::uint32_t{0});
    for (const auto& plane : item["planes"]) one.planes.push_back(from_hex(plane));
    if (item.contains("value_rows"))
      one.value_rows = item["value_rows"].get<std::vector<std::int64_t>>();
    else
      for (std::int64_t row = 0; row < one.shape.rows; ++row) one.value_rows.push_back(row);
    const std::vector<std::byte> bytes = from_hex(item["values"]);
    one.values.resize(bytes.size() / 4);
    std::memcpy(one.values.data(), bytes.data(), bytes.size());
    cases.push_back(std::move(one));
  }
  EXPECT_FALSE(cases.empty()) << file;
  return cases;
}

}  // namespace packstone::vectors
