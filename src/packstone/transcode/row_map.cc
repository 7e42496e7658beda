#include "packstone/transcode/row_map.h"

#include <algorithm>
#include <bit>
#include <cmath>

namespace packstone {
namespace {

bool same_bits(float a, float b) {
  return std::bit_cast<std::uint32_t>(a) == std::bit_cast<std::uint32_t>(b);
}

bool same_bits(const GroupValues& a, const GroupValues& b) {
  return same_bits(a.scale, b.scale) && same_bits(a.offset, b.offset) && a.center == b.center;
}

bool same_raw(const RawParams& a, const RawParams& b, std::size_t count) {
  return std::equal(a.pattern, a.pattern + count, b.pattern);
}

}  // namespace

RowMap::RowMap(const PackedWeight& source, FormatId target, const FormatParams& target_params)
    : source_(source),
      source_side_(linear_side(source.id(), source.params())),
      target_side_(linear_side(target, target_params)) {
  const std::int64_t cols = source.shape().cols;
  const auto source_groups = static_cast<std::size_t>(ceil_div(cols, source_side_.group_cols));
  const auto target_groups = static_cast<std::size_t>(ceil_div(cols, target_side_.group_cols));
  codes_.resize(static_cast<std::size_t>(cols));
  target_codes_.resize(static_cast<std::size_t>(cols));
  source_raw_.resize(source_groups);
  back_raw_.resize(source_groups);
  source_values_.resize(source_groups);
  back_values_.resize(source_groups);
  spare_.resize(source_groups);
  values_.resize(target_groups);
  shifts_.resize(target_groups);
  ranges_.resize(target_groups);
}

const GroupValues& RowMap::source_of(std::int64_t target_group) const {
  return source_values_[static_cast<std::size_t>(target_group * target_side_.group_cols /
                                                 source_side_.group_cols)];
}

void RowMap::need_codes(std::int64_t row) {
  if (codes_row_ == row) return;
  unpack_row(source_, row, codes_, spare_);
  codes_row_ = row;
}

RowMap::RowResult RowMap::map(std::int64_t row) {
  RowResult result;
  raw_params_row(source_, row, source_raw_);
  decode_params(source_.id(), source_.params(), source_raw_, source_values_);
  for (std::size_t i = 0; i < source_values_.size(); ++i)
    if (!std::isfinite(source_values_[i].scale) || !std::isfinite(source_values_[i].offset)) {
      if (result.nonfinite_groups++ == 0) result.first_nonfinite = static_cast<std::int64_t>(i);
    }
  for (std::size_t i = 0; i < values_.size(); ++i) {
    map_one(row, static_cast<std::int64_t>(i), result);
    if (result.fault == GroupFault::kNone) continue;
    result.group = static_cast<std::int64_t>(i);
    return result;
  }
  result.way_back = way_back();
  return result;
}

void RowMap::map_one(std::int64_t row, std::int64_t group, RowResult& result) {
  const auto at = static_cast<std::size_t>(group);
  const std::int64_t begin = group * target_side_.group_cols;
  const GroupValues& source = source_of(group);
  for (std::int64_t col = begin + source_side_.group_cols; col < begin + target_side_.group_cols;
       col += source_side_.group_cols)
    if (!same_bits(source,
                   source_values_[static_cast<std::size_t>(col / source_side_.group_cols)])) {
      result.fault = GroupFault::kNeighbours;
      return;
    }
  ranges_[at] = {0, static_cast<std::uint32_t>((std::uint64_t{1} << source_side_.code_bits) - 1)};
  MappedGroup mapped = map_group(source_side_, source, ranges_[at], target_side_);
  if (mapped.fault == GroupFault::kCodeRange) {  // perhaps the codes in use fit
    need_codes(row);
    const auto [low, high] = std::ranges::minmax(std::span(codes_).subspan(
        static_cast<std::size_t>(begin), static_cast<std::size_t>(target_side_.group_cols)));
    ranges_[at] = {low, high};
    mapped = map_group(source_side_, source, ranges_[at], target_side_);
  }
  result.fault = mapped.fault;
  values_[at] = mapped.values;
  shifts_[at] = mapped.shift;
  if (mapped.shift != 0) result.shifted = true;
  if (mapped.fault == GroupFault::kNone && !mapped.same_formula) compare_values(row, group, result);
}

void RowMap::compare_values(std::int64_t row, std::int64_t group, RowResult& result) {
  need_codes(row);
  const GroupValues source = source_of(group);
  const GroupValues target = values_[static_cast<std::size_t>(group)];
  const std::int32_t shift = shifts_[static_cast<std::size_t>(group)];
  const std::int64_t begin = group * target_side_.group_cols;
  for (std::int64_t col = begin; col < begin + target_side_.group_cols; ++col) {
    const std::uint32_t code = codes_[static_cast<std::size_t>(col)];
    const float a = decode_value<LinearScheme>(source, code);
    const float b = decode_value<LinearScheme>(target, code + static_cast<std::uint32_t>(shift));
    if (same_bits(a, b) || (std::isnan(a) && std::isnan(b))) continue;
    if (a == b) {
      if (result.zero_sign_changes++ == 0) result.first_zero_col = col;
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
  for (std::size_t i = 0; i < source_values_.size(); ++i) {
    const std::int64_t begin = static_cast<std::int64_t>(i) * source_side_.group_cols;
    const std::int64_t end = begin + source_side_.group_cols;
    for (std::int64_t col = begin; col < end; col += target_side_.group_cols) {
      const auto at = static_cast<std::size_t>(col / target_side_.group_cols);
      const auto shift = static_cast<std::uint32_t>(shifts_[at]);
      const CodeRange range{ranges_[at].low + shift, ranges_[at].high + shift};
      const MappedGroup back = map_group(target_side_, values_[at], range, source_side_);
      if (back.fault != GroupFault::kNone || back.shift != -shifts_[at]) return false;
      if (col == begin)
        back_values_[i] = back.values;
      else if (!same_bits(back_values_[i], back.values))
        return false;
    }
  }
  if (encode_params(source_.id(), source_.params(), back_values_, back_raw_) >= 0) return false;
  const std::size_t count = format_info(source_.id()).params.size();
  for (std::size_t i = 0; i < source_raw_.size(); ++i)
    if (!same_raw(source_raw_[i], back_raw_[i], count)) return false;
  return true;
}

const std::vector<std::uint32_t>& RowMap::target_codes(std::int64_t row) {
  need_codes(row);
  for (std::size_t group = 0; group < values_.size(); ++group) {
    const auto width = static_cast<std::size_t>(target_side_.group_cols);
    const auto shift = static_cast<std::uint32_t>(shifts_[group]);
    for (std::size_t i = group * width; i < (group + 1) * width; ++i)
      target_codes_[i] = codes_[i] + shift;
  }
  return target_codes_;
}

}  // namespace packstone
