// The `quantization` block of an MLX config.json: global settings and per-path overrides.
// Source: MLX-LM 0.32, utils.py (load_model, quantize_model).
#pragma once

#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "packstone/base/result.h"

namespace packstone {

struct QuantizationSettings {
  std::int64_t bits = 4;
  std::int64_t group_cols = 64;
  std::string mode = "affine";
  friend bool operator==(const QuantizationSettings&, const QuantizationSettings&) = default;
};

// What the block says of one module.
struct QuantizationEntry {
  bool excluded = false;  // false in the file
  QuantizationSettings settings;
  std::string key;  // as the file spells it
  friend bool operator==(const QuantizationEntry& a, const QuantizationEntry& b) {
    return a.excluded == b.excluded && a.settings == b.settings;
  }
};

struct QuantizationBlock {
  bool present = false;
  std::string key;  // "quantization" or "quantization_config"
  QuantizationSettings global;
  std::map<std::string, QuantizationEntry, std::less<>> overrides;  // by module_key

  // parse(root, file) reads both spellings of the block.
  // Errors: kCorruptData when both are there and disagree, or for a wrong type or two entries that
  //         disagree on one module; kUnsupported for another quant_method, by name.
  static Result<QuantizationBlock> parse(const nlohmann::ordered_json& root, std::string_view file);

  const QuantizationEntry* find(std::string_view module) const;
};

}  // namespace packstone
