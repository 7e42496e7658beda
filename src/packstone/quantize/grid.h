// How values become codes of a format: the stored parameters of a unit of columns, and the nearest
// code under them. Plain rounding and error feedback share it.
#pragma once

#include <span>
#include <string_view>
#include <vector>

#include "packstone/base/matrix_view.h"
#include "packstone/base/result.h"
#include "packstone/format/packed_weight.h"
#include "packstone/quantize/fit.h"

namespace packstone {

// The levels of one group, ready for rounding.
class Levels {
 public:
  // The nearest code of a value and what it decodes to. Ties: linear formats round the level half
  // to even, tables take the level of smaller magnitude. Values beyond the ends take the end.
  struct Rounded {
    std::uint32_t code;
    float value;
  };
  Rounded round(float value) const;

 private:
  friend class Grid;
  // Linear: value = scale * (code - center) + offset.
  GroupValues values_;
  float inverse_ = 0;
  float code_least_ = 0, code_max_ = 0;
  // Tables: decoded values in ascending order, their codes, and how many there are.
  std::span<const float> sorted_;
  std::span<const std::uint16_t> codes_;
};

// A format with its group, as a grid that values are rounded to.
class Grid {
 public:
  // make(target, params, subject): Errors: kUnsupported for a format whose parameters cannot be
  // chosen unit by unit (float formats, block codes, parameters that bands of rows share).
  static Result<Grid> make(FormatId target, const FormatParams& params, std::int64_t cols,
                           std::string_view subject);
  static bool supports(FormatId target);
  // see(weight): the weight that is fitted next, for the parameters that all of it shares: its
  // largest magnitude. Errors: none.
  void see(const MatrixView& weight);

  FormatId id() const { return id_; }
  const FormatParams& params() const { return params_; }
  // Columns whose parameters are chosen together: a group, or a super-block of groups. The last
  // unit of a row may be shorter.
  std::int64_t unit_cols() const { return unit_cols_; }
  std::int64_t group_cols() const { return group_cols_; }

  // fit(x, weight, raw): the stored parameters with the least sum of weight * (decoded - x)^2 that
  // the search finds; the sum counts what is decoded from the stored, rounded parameters.
  // Shapes: x, weight [columns of the unit], weight >= 0 (all zero: as all one), raw [groups of the
  // unit]. Exact: deterministic; measured. Errors: none: x must be finite; where no finite scale
  // can hold it the largest one is taken. Threads: safe.
  void fit(std::span<const float> x, std::span<const float> weight, std::span<RawParams> raw) const;

  // The scratch of levels(): decoded values and codes of one group.
  struct LevelBuffer {
    std::vector<float> sorted;
    std::vector<std::uint16_t> codes;
  };
  Levels levels(const GroupValues& group, LevelBuffer& buffer) const;

 private:
  Grid() = default;
  // Stored patterns of a coded parameter and the numbers they stand for, ascending.
  struct Coded {
    int which = -1;  // the parameter, or -1: none
    std::vector<float> number;
    std::vector<std::uint32_t> pattern;
    std::size_t nearest(float value) const;
  };
  Status read_params(std::string_view subject);
  void read_folder_table(std::int64_t cols);
  Coded read_coded(int which, bool offset) const;
  GroupFit fit_group(const FitData& data) const;
  float group_error(const FitData& data, float scale, float offset, float center) const;
  RawParams stored(const GroupFit& fit) const;
  void fit_coded(const FitData& data, RawParams& raw) const;
  void fit_nested(std::span<const FitData> data, std::span<RawParams> raw) const;
  float fit_codes(const FitData& data, const GroupFit& free, float d, float d_offset,
                  RawParams& raw) const;
  std::vector<float> super_scales(std::span<const float> values, std::span<const float> costs,
                                  const Coded& coded, std::size_t count) const;

  FormatId id_{};
  FormatParams params_;
  std::int64_t unit_cols_ = 0, group_cols_ = 0;
  bool table_ = false;
  float largest_ = 0;            // of the weight
  bool folder_ = false;          // parameters are chosen by a search of folder/encoder.h
  std::int32_t code_least_ = 0;  // of a linear format
  LinearRules linear_;
  TableRules levels_;
  std::vector<std::uint16_t> order_;  // codes of a table by ascending level
  int super_scale_ = -1, super_offset_ = -1;
  Coded scale_, offset_;
};

}  // namespace packstone
