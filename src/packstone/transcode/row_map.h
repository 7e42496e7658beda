// The map of one row between two formats whose codes move (SchemeMap::kLinear, kSameTable); shared
// by planning and doing, so that both decide alike.
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
    std::int64_t fault_col = 0;          // of a kValue fault
    std::int64_t nonfinite_groups = 0;   // of the source
    std::int64_t first_nonfinite = -1;   // source group
    std::int64_t zero_sign_changes = 0;  // values -0 against +0
    std::int64_t first_zero_col = -1;
    bool shifted = false;  // some code moved
    bool way_back = true;  // the way back gives the source's codes and patterns
  };
  // What the result is for: a plan counts zeros that change their sign and goes the way back.
  enum class Purpose { kPlan, kFill };

  // Maps one row: shifts() and values() of the target's groups. Compares decoded values wherever
  // neither the formulas are equal nor both are exact.
  RowResult map(std::int64_t row, Purpose purpose);

  const std::vector<GroupValues>& values() const { return values_; }  // of the target
  const std::vector<GroupValues>& source_values() const { return source_values_; }
  CodeRange range(std::int64_t group) const { return ranges_[static_cast<std::size_t>(group)]; }
  // The target's codes of the row last mapped without a fault.
  const std::vector<std::uint32_t>& target_codes(std::int64_t row);

  const std::vector<std::int32_t>& shifts() const { return shifts_; }
  bool any_shift() const { return any_shift_; }
  // Of a table of whole levels that becomes linear: the linear code of each code; else empty.
  std::span<const std::uint8_t> code_table() const { return code_table_; }

  const LinearSide& source_side() const { return source_side_; }
  const LinearSide& target_side() const { return target_side_; }

 private:
  void prepare_keeping();
  bool keep_row();
  void map_one(std::int64_t row, std::int64_t group, RowResult& result);
  bool exact_on_both_sides(const GroupValues& source, const GroupValues& target,
                           std::int32_t shift) const;
  void count_zero_signs(std::int64_t row, std::int64_t group, RowResult& result);
  void compare_values(std::int64_t row, std::int64_t group, RowResult& result);
  bool way_back();
  bool same_when_encoded(std::span<const GroupValues> values);
  const GroupValues& source_of(std::int64_t target_group) const;
  void need_codes(std::int64_t row);
  void need_code_bytes(std::int64_t row);
  void make_columns();
  // Columns of a target group.
  std::span<const std::int32_t> columns(std::int64_t group) const;

  const PackedWeight& source_;
  LinearSide source_side_, target_side_;
  bool same_table_ = false;
  bool equal_groups_ = false;
  Purpose purpose_ = Purpose::kPlan;
  // Codes and values of a group are the target's when its center is in this range.
  bool may_keep_ = false;
  std::int32_t keep_low_ = 0, keep_high_ = 0;
  bool any_shift_ = false;
  std::vector<std::uint32_t> codes_, target_codes_;
  std::vector<float> decoded_;
  std::vector<std::uint8_t> code_bytes_, code_table_;
  std::int64_t codes_row_ = -1, decoded_row_ = -1, bytes_row_ = -1;
  std::vector<std::int32_t> columns_, column_begin_;
  std::vector<RawParams> source_raw_, back_raw_;
  std::vector<GroupValues> source_values_, values_, back_values_;
  std::vector<std::int32_t> shifts_;
  std::vector<CodeRange> ranges_;
};

}  // namespace packstone
