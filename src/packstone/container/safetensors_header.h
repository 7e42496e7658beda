// The JSON header of a safetensors file as records, before any of them is compared with the file.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "packstone/container/container.h"

namespace packstone::internal {

struct SafetensorsRecord {
  std::string name;
  const StorageType* type = nullptr;
  std::vector<std::int64_t> shape;
  std::uint64_t begin = 0;
  std::uint64_t end = 0;
};

struct SafetensorsHeader {
  std::vector<SafetensorsRecord> records;  // header order, names unique
  std::map<std::string, std::string> metadata;
};

// Errors: kCorruptData, naming tensor and rule. Members of a tensor other than dtype, shape and
// data_offsets are passed over, as the reference library does.
Result<SafetensorsHeader> parse_safetensors_header(std::string_view text, std::string_view file);

}  // namespace packstone::internal
