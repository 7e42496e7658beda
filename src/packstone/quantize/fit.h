// Searches for the scale and offset of one group: the level of every value is chosen by rounding,
// then scale and offset by weighted least squares, from several starts. What counts is the error
// with scale and offset as they will be stored.
#pragma once

#include <cstdint>
#include <span>

#include "packstone/format/scheme.h"

namespace packstone {

inline constexpr int kFitColsMax = 65536;   // of a group
inline constexpr int kTableLevelsMax = 16;  // of a table that is searched

// Values and weights of one group, padded with zeros to whole vectors of 8.
struct FitData {
  const float* x;
  const float* weight;
  int count;                // a multiple of 8
  float low = 0, high = 0;  // of the values
};

// How a float of the group is stored; kFree: not rounded yet.
enum class FitRounding : std::uint8_t { kFree, kF16, kBF16, kF32 };
float fit_round(FitRounding rounding, float value);

// A linear group: value = scale * (code - center) + offset, code in [0, code_max].
struct LinearRules {
  float code_max = 0;
  bool has_offset = false;
  bool offset_not_positive = false;  // offsets above zero cannot be stored
  bool chooses_center = false;       // a stored zero point, in [0, center_max]
  float center = 0;                  // fixed otherwise
  float center_max = 0;
  bool negative_scales = false;
  FitRounding scale = FitRounding::kFree, offset = FitRounding::kFree;
};

// A table of ascending levels: value = scale * level.
struct TableRules {
  int count = 0;
  float level[kTableLevelsMax];
  bool negative_scales = false;
  FitRounding scale = FitRounding::kFree;
};

struct GroupFit {
  float scale = 0, offset = kNoOffset, center = 0;
  float error = 0;   // sum of weight * (decoded - x)^2
  float level2 = 0;  // sum of weight * level^2: how much an error of the scale costs
};

// fit_linear(data, rules), fit_table(data, rules): the best that the search finds.
GroupFit fit_linear(const FitData& data, const LinearRules& rules);
GroupFit fit_table(const FitData& data, const TableRules& rules);

// The error of a group whose scale, offset and center are given.
float linear_error(const FitData& data, const LinearRules& rules, float scale, float offset,
                   float center);
float table_error(const FitData& data, const TableRules& rules, float scale);

}  // namespace packstone
