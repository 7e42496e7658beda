// The map of one row between two formats whose codes move (SchemeMap::kLinear, kSameTable,
// kReciprocal); shared by planning and doing, so that both decide alike.
#pragma once

#include <span>
#include <vector>

#include "packstone/transcode/scheme_map.h"
#include "packstone/transcode/unpack.h"

namespace packstone {

// Maps rows of `source` to a target format; owns the scratch of one worker.
class RowMap {
 public:
  // `target_params` fixes the target's group; its metadata type does not matter here.
  // Precondition: group_rule allows it.
  RowMap(const PackedWeight& source, FormatId target, const FormatParams& target_params);

  struct RowResult {
    GroupFault fault = GroupFault::kNone;
    std::int64_t group = 0;              // of the target, where the fault is
    std::int64_t fault_col = -1;         // of a fault of one column
    std::int64_t nonfinite_groups = 0;   // of the source
    std::int64_t first_nonfinite = -1;   // source group
    std::int64_t zero_sign_changes = 0;  // values -0 against +0
    std::int64_t first_zero_col = -1;
    bool shifted = false;  // some code moved
    bool way_back = true;  // the way back gives the source's codes and patterns
  };
  // Maps one row: shifts() and values() of the target's groups. Compares decoded values wherever
  // the formulas differ.
  RowResult map(std::int64_t row);

  const std::vector<GroupValues>& values() const { return values_; }  // of the target
  const std::vector<GroupValues>& source_values() const { return source_values_; }
  CodeRange range(std::int64_t group) const { return ranges_[static_cast<std::size_t>(group)]; }
  // The target's codes of the row last mapped without a fault.
  const std::vector<std::uint32_t>& target_codes(std::int64_t row);

  const LinearSide& source_side() const { return source_side_; }
  const LinearSide& target_side() const { return target_side_; }

 private:
  void map_one(std::int64_t row, std::int64_t group, RowResult& result);
  void compare_values(std::int64_t row, std::int64_t group, RowResult& result);
  bool way_back(std::int64_t row);
  bool group_back(std::int64_t row, std::int64_t group);
  CodeRange used_codes(std::int64_t row, std::int64_t group, std::int64_t width);
  bool finite_source(std::int64_t row);
  void need_finite(std::int64_t row, std::int64_t group, RowResult& result);
  const GroupValues& source_of(std::int64_t target_group) const;
  void need_codes(std::int64_t row);
  void make_columns();
  // Columns of a target group.
  std::span<const std::int32_t> columns(std::int64_t group) const;

  const PackedWeight& source_;
  LinearSide source_side_, target_side_;
  bool same_table_ = false;   // codes as they are
  bool reciprocal_ = false;   // and reciprocals of the scales
  bool finite_only_ = false;  // the target takes finite codes and scales only
  std::vector<bool> finite_code_;
  std::vector<std::uint32_t> codes_, target_codes_;
  std::vector<float> decoded_;
  std::int64_t codes_row_ = -1, decoded_row_ = -1;
  std::vector<std::int32_t> columns_, column_begin_;
  std::vector<RawParams> source_raw_, back_raw_;
  std::vector<GroupValues> source_values_, values_, back_values_;
  std::vector<std::int32_t> shifts_;
  std::vector<CodeRange> ranges_;
};

}  // namespace packstone
