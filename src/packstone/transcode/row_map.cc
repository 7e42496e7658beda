#include "packstone/transcode/row_map.h"

#include <algorithm>
#include <bit>
#include <cmath>

#include "packstone/transcode/format_ops.h"

namespace packstone {
namespace {

bool same_bits(float a, float b) {
  return std::bit_cast<std::uint32_t>(a) == std::bit_cast<std::uint32_t>(b);
}

bool same_bits(const GroupValues& a, const GroupValues& b) {
  return same_bits(a.scale, b.scale) && same_bits(a.offset, b.offset) && a.center == b.center &&
         same_bits(a.inner, b.inner);
}

// Whether value = scale * (code - center) is all there is to the group.
bool has_no_offset(const GroupValues& group) {
  return same_bits(group.offset, kNoOffset);
}

bool same_raw(const RawParams& a, const RawParams& b, std::size_t count) {
  return std::equal(a.pattern, a.pattern + count, b.pattern);
}

}  // namespace

RowMap::RowMap(const PackedWeight& source, FormatId target, const FormatParams& target_params)
    : source_(source),
      source_side_(linear_side(source.id(), source.params())),
      target_side_(linear_side(target, target_params)),
      same_table_(scheme_map(source.format(), format_info(target)) == SchemeMap::kSameTable) {
  const std::int64_t cols = source.shape().cols;
  const auto source_groups = static_cast<std::size_t>(ceil_div(cols, source_side_.group_cols));
  const auto target_groups = static_cast<std::size_t>(ceil_div(cols, target_side_.group_cols));
  codes_.resize(static_cast<std::size_t>(cols));
  target_codes_.resize(static_cast<std::size_t>(cols));
  decoded_.resize(static_cast<std::size_t>(cols));
  source_raw_.resize(source_groups);
  back_raw_.resize(source_groups);
  source_values_.resize(source_groups);
  back_values_.resize(source_groups);
  values_.resize(target_groups);
  shifts_.resize(target_groups);
  ranges_.resize(target_groups, {0, source_side_.code_max});
  equal_groups_ = source_side_.group_cols == target_side_.group_cols;
  if (!same_table_ && !source_side_.levels.empty())
    for (const std::int16_t level : source_side_.levels)
      code_table_.push_back(static_cast<std::uint8_t>(level + source_side_.center));
  make_columns();
  prepare_keeping();
}

// When map_group of every group would give shift 0, the same numbers and the same way back.
void RowMap::prepare_keeping() {
  may_keep_ = equal_groups_;
  if (same_table_ || !may_keep_) return;
  const LinearSide &from = source_side_, &to = target_side_;
  may_keep_ =
      from.levels.empty() && from.code_max <= to.code_max && (to.has_offset || !from.has_offset);
  keep_low_ = to.center, keep_high_ = to.center;
  if (!to.has_offset && to.zero_bits > 0)
    keep_low_ = 0, keep_high_ = static_cast<std::int32_t>((std::int64_t{1} << to.zero_bits) - 1);
  if (from.zero_bits == 0) {
    may_keep_ = may_keep_ && from.center >= keep_low_ && from.center <= keep_high_;
  } else {
    const auto zero_max = static_cast<std::int32_t>((std::int64_t{1} << from.zero_bits) - 1);
    keep_low_ = std::max(keep_low_, 0), keep_high_ = std::min(keep_high_, zero_max);
  }
}

// Columns sorted by target group. With act-order both sides have the source's groups.
void RowMap::make_columns() {
  const std::int64_t cols = source_.shape().cols;
  std::vector<std::int32_t> group(static_cast<std::size_t>(cols));
  const bool stored = source_.format().index_plane >= 0 && source_.params().act_order;
  for (std::size_t col = 0; col < group.size(); ++col)
    group[col] =
        stored
            ? static_cast<std::int32_t>(read_bits(
                  source_.plane_pointers()[static_cast<std::size_t>(source_.format().index_plane)],
                  32 * col, 32))
            : static_cast<std::int32_t>(static_cast<std::int64_t>(col) / target_side_.group_cols);
  column_begin_.assign(values_.size() + 1, 0);
  for (const std::int32_t one : group) ++column_begin_[static_cast<std::size_t>(one) + 1];
  for (std::size_t i = 1; i < column_begin_.size(); ++i) column_begin_[i] += column_begin_[i - 1];
  columns_.resize(group.size());
  std::vector<std::int32_t> next(column_begin_.begin(), column_begin_.end() - 1);
  for (std::size_t col = 0; col < group.size(); ++col)
    columns_[static_cast<std::size_t>(next[static_cast<std::size_t>(group[col])]++)] =
        static_cast<std::int32_t>(col);
}

std::span<const std::int32_t> RowMap::columns(std::int64_t group) const {
  const auto at = static_cast<std::size_t>(group);
  return std::span(columns_).subspan(
      static_cast<std::size_t>(column_begin_[at]),
      static_cast<std::size_t>(column_begin_[at + 1] - column_begin_[at]));
}

const GroupValues& RowMap::source_of(std::int64_t target_group) const {
  return source_values_[static_cast<std::size_t>(target_group * target_side_.group_cols /
                                                 source_side_.group_cols)];
}

void RowMap::need_codes(std::int64_t row) {
  if (codes_row_ == row) return;
  unpack_row(source_, row, codes_, back_values_);
  if (!same_table_ && !source_side_.levels.empty())
    for (std::uint32_t& code : codes_)
      code = static_cast<std::uint32_t>(source_side_.levels[code] + source_side_.center);
  codes_row_ = row;
}

void RowMap::need_code_bytes(std::int64_t row) {
  if (bytes_row_ == row) return;
  const auto planes = source_.plane_pointers();
  const std::int64_t cols = source_.shape().cols;
  code_bytes_.resize(static_cast<std::size_t>(cols));
  format_ops(source_.id())
      .read_code_bytes({planes.data(), source_.shape(), source_.params()}, {row, 1, 0, cols, cols},
                       code_bytes_.data());
  bytes_row_ = row;
}

RowMap::RowResult RowMap::map(std::int64_t row, Purpose purpose) {
  RowResult result;
  purpose_ = purpose;
  any_shift_ = false;
  raw_params_row(source_, row, source_raw_);
  decode_params(source_.id(), source_.params(), source_raw_, source_values_);
  const bool whole_levels = !same_table_ && !source_side_.levels.empty();
  for (std::size_t i = 0; i < source_values_.size(); ++i) {
    GroupValues& values = source_values_[i];
    if (!std::isfinite(values.scale) || !std::isfinite(values.offset)) {
      if (result.nonfinite_groups++ == 0) result.first_nonfinite = static_cast<std::int64_t>(i);
    }
    if (whole_levels) {
      values.scale *= source_side_.unit;
      values.center = source_side_.center;
    }
  }
  if (keep_row()) {
    if (purpose == Purpose::kPlan) result.way_back = same_when_encoded(values_);
    return result;
  }
  for (std::size_t i = 0; i < values_.size(); ++i) {
    map_one(row, static_cast<std::int64_t>(i), result);
    if (result.fault == GroupFault::kNone) continue;
    result.group = static_cast<std::int64_t>(i);
    return result;
  }
  result.shifted = any_shift_;
  if (purpose == Purpose::kPlan) result.way_back = way_back();
  return result;
}

// Sets the values of a row whose groups all keep codes and numbers, or says false.
bool RowMap::keep_row() {
  if (!may_keep_) return false;
  if (same_table_) {
    std::ranges::copy(source_values_, values_.begin());
    return true;
  }
  bool keep = true;
  for (std::size_t i = 0; i < values_.size(); ++i) {
    const GroupValues& group = source_values_[i];
    keep = keep && group.center >= keep_low_ && group.center <= keep_high_ &&
           (target_side_.has_offset || has_no_offset(group));
    values_[i] = {group.scale, group.offset, group.center};
    shifts_[i] = 0;
  }
  return keep;
}

void RowMap::map_one(std::int64_t row, std::int64_t group, RowResult& result) {
  const auto at = static_cast<std::size_t>(group);
  const GroupValues& source = equal_groups_ ? source_values_[at] : source_of(group);
  if (!equal_groups_) {
    const std::int64_t begin = group * target_side_.group_cols;
    const std::int64_t end = std::min(begin + target_side_.group_cols, source_.shape().cols);
    for (std::int64_t col = begin + source_side_.group_cols; col < end;
         col += source_side_.group_cols)
      if (!same_bits(source,
                     source_values_[static_cast<std::size_t>(col / source_side_.group_cols)])) {
        result.fault = GroupFault::kNeighbours;
        return;
      }
  }
  if (same_table_) {
    values_[at] = source;
    return;
  }
  ranges_[at] = {0, source_side_.code_max};
  MappedGroup mapped = map_group(source_side_, source, ranges_[at], target_side_);
  if (mapped.fault == GroupFault::kCodeRange) {  // perhaps the codes in use fit
    need_codes(row);
    CodeRange used{source_side_.code_max, 0};
    for (const std::int32_t col : columns(group)) {
      const std::uint32_t code = codes_[static_cast<std::size_t>(col)];
      used = {std::min(used.low, code), std::max(used.high, code)};
    }
    if (used.low > used.high) used = {0, 0};
    ranges_[at] = used;
    mapped = map_group(source_side_, source, ranges_[at], target_side_);
  }
  result.fault = mapped.fault;
  values_[at] = mapped.values;
  shifts_[at] = mapped.shift;
  if (mapped.shift != 0) any_shift_ = true;
  if (mapped.fault != GroupFault::kNone || mapped.same_formula) return;
  if (exact_on_both_sides(source, mapped.values, mapped.shift)) {
    if (purpose_ == Purpose::kPlan) count_zero_signs(row, group, result);
  } else {
    compare_values(row, group, result);
  }
}

// Whether both formulas give scale * (code - zero) without rounding, zero a whole number: one side
// has no offset, and the offset of the other is a whole multiple of the scale. All numbers on the
// way are then multiples of the scale's last bit, and none has more than 24 bits or passes the
// largest float. Equal reals by construction, signs of zero aside.
bool RowMap::exact_on_both_sides(const GroupValues& source, const GroupValues& target,
                                 std::int32_t shift) const {
  if (!source_side_.levels.empty()) return false;
  const std::uint32_t bits = std::bit_cast<std::uint32_t>(source.scale);
  const std::uint32_t exponent = bits >> 23 & 255u, fraction = bits & 0x7FFFFFu;
  if (exponent == 0 || exponent == 255) return false;
  const std::int32_t away = target.center - shift - source.center;
  const float offset = has_no_offset(source) ? target.offset : -source.offset;
  if (!has_no_offset(source) && !has_no_offset(target)) return false;
  if (static_cast<double>(offset) != static_cast<double>(source.scale) * static_cast<double>(away))
    return false;
  const auto size = [](std::int32_t number) {
    return static_cast<std::uint32_t>(std::abs(number));
  };
  const std::uint32_t largest = source_side_.code_max + target_side_.code_max +
                                size(source.center) + size(target.center) + size(shift);
  const int level_bits = std::bit_width(largest);
  const int scale_bits = 24 - std::countr_zero(fraction | 0x800000u);
  return scale_bits + level_bits <= 24 && static_cast<int>(exponent) + level_bits < 255;
}

// Of a group whose formulas are exact: only the code of zero can change, by its sign.
void RowMap::count_zero_signs(std::int64_t row, std::int64_t group, RowResult& result) {
  const auto at = static_cast<std::size_t>(group);
  const GroupValues& source = equal_groups_ ? source_values_[at] : source_of(group);
  const GroupValues& target = values_[at];
  const std::int32_t zero = has_no_offset(source) ? source.center : target.center - shifts_[at];
  if (zero < 0 || zero > static_cast<std::int32_t>(source_side_.code_max)) return;
  const auto code = static_cast<std::uint32_t>(zero);
  if (same_bits(decode_value<LinearScheme>(source, code),
                decode_value<LinearScheme>(target, code + static_cast<std::uint32_t>(shifts_[at]))))
    return;
  const auto take = [&](std::int64_t col) {
    if (result.zero_sign_changes++ == 0 || col < result.first_zero_col) result.first_zero_col = col;
  };
  if (source_.params().act_order || source_side_.code_bits > 8) {
    need_codes(row);
    for (const std::int32_t col : columns(group))
      if (codes_[static_cast<std::size_t>(col)] == code) take(col);
    return;
  }
  need_code_bytes(row);
  const std::span<const std::uint8_t> codes =
      std::span(code_bytes_)
          .subspan(static_cast<std::size_t>(columns(group).front()), columns(group).size());
  const auto byte = static_cast<std::uint8_t>(code);
  std::int32_t count = 0;
  for (const std::uint8_t one : codes) count += one == byte;
  if (count == 0) return;
  if (result.zero_sign_changes == 0)
    result.first_zero_col =
        columns(group).front() + (std::ranges::find(codes, byte) - codes.begin());
  result.zero_sign_changes += count;
}

void RowMap::compare_values(std::int64_t row, std::int64_t group, RowResult& result) {
  need_codes(row);
  if (decoded_row_ != row) {
    decode_row(source_, row, decoded_);
    decoded_row_ = row;
  }
  const GroupValues target = values_[static_cast<std::size_t>(group)];
  const std::int32_t shift = shifts_[static_cast<std::size_t>(group)];
  for (const std::int32_t col : columns(group)) {
    const auto at = static_cast<std::size_t>(col);
    const float a = decoded_[at];
    const float b =
        decode_value<LinearScheme>(target, codes_[at] + static_cast<std::uint32_t>(shift));
    if (same_bits(a, b) || (std::isnan(a) && std::isnan(b))) continue;
    if (a == b) {
      if (result.zero_sign_changes++ == 0 || col < result.first_zero_col)
        result.first_zero_col = col;
      continue;
    }
    result.fault = GroupFault::kValue;
    result.fault_col = col;
    return;
  }
}

// Maps the target's groups back with the same rule and compares what would be stored. Codes agree
// exactly when every shift is undone.
bool RowMap::way_back() {
  if (!same_table_ && !source_side_.levels.empty()) return false;
  const std::int64_t cols = source_.shape().cols;
  for (std::size_t i = 0; i < source_values_.size(); ++i) {
    const std::int64_t begin = static_cast<std::int64_t>(i) * source_side_.group_cols;
    const std::int64_t end = std::min(begin + source_side_.group_cols, cols);
    for (std::int64_t col = begin; col < end; col += target_side_.group_cols) {
      const auto at = static_cast<std::size_t>(col / target_side_.group_cols);
      GroupValues values = values_[at];
      if (!same_table_) {
        const auto shift = static_cast<std::uint32_t>(shifts_[at]);
        const CodeRange range{ranges_[at].low + shift, ranges_[at].high + shift};
        const MappedGroup back = map_group(target_side_, values, range, source_side_);
        if (back.fault != GroupFault::kNone || back.shift != -shifts_[at]) return false;
        values = back.values;
      }
      if (col == begin)
        back_values_[i] = values;
      else if (!same_bits(back_values_[i], values))
        return false;
    }
  }
  return same_when_encoded(back_values_);
}

// Whether the source's format stores these values as the row stores its own.
bool RowMap::same_when_encoded(std::span<const GroupValues> values) {
  if (encode_params(source_.id(), source_.params(), values, back_raw_) >= 0) return false;
  const std::size_t count = source_.format().params.size();
  for (std::size_t i = 0; i < source_raw_.size(); ++i)
    if (!same_raw(source_raw_[i], back_raw_[i], count)) return false;
  return true;
}

const std::vector<std::uint32_t>& RowMap::target_codes(std::int64_t row) {
  need_codes(row);
  if (!any_shift_) return codes_;
  for (std::size_t group = 0; group < values_.size(); ++group) {
    const auto shift = static_cast<std::uint32_t>(shifts_[group]);
    for (const std::int32_t col : columns(static_cast<std::int64_t>(group)))
      target_codes_[static_cast<std::size_t>(col)] = codes_[static_cast<std::size_t>(col)] + shift;
  }
  return target_codes_;
}

}  // namespace packstone
