#include "packstone/quantize/grid.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "packstone/base/check.h"
#include "packstone/quantize/folder/encoder.h"
#include "packstone/transcode/format_ops.h"
#include "packstone/transcode/scheme_map.h"

namespace packstone {
namespace {

constexpr std::uint32_t kHalfOne = 0x3C00;

// Values and weights of groups as the searches take them.
class PaddedUnit {
 public:
  PaddedUnit(std::span<const float> x, std::span<const float> weight, std::int64_t group) {
    const auto width = static_cast<std::size_t>(group);
    const std::size_t groups = (x.size() + width - 1) / width, padded = (width + 7) / 8 * 8;
    const bool any = std::ranges::any_of(weight, [](float w) { return w > 0; });
    values_.resize(groups * padded);
    weights_.resize(groups * padded);
    for (std::size_t g = 0; g < groups; ++g) {
      const auto part = x.subspan(g * width, std::min(width, x.size() - g * width));
      std::ranges::copy(part, values_.begin() + static_cast<std::ptrdiff_t>(g * padded));
      for (std::size_t i = 0; i < part.size(); ++i)
        weights_[g * padded + i] = any ? weight[g * width + i] : 1.0f;
      const auto [low, high] = std::ranges::minmax(part);
      data_.push_back({values_.data() + g * padded, weights_.data() + g * padded,
                       static_cast<int>(padded), low, high});
    }
  }
  std::span<const FitData> groups() const { return data_; }

 private:
  std::vector<float> values_, weights_;
  std::vector<FitData> data_;
};

FitRounding rounding_of(const ParamSpec& spec, const FormatParams& params) {
  if (spec.coding == ParamCoding::kF16) return FitRounding::kF16;
  if (spec.coding != ParamCoding::kMetadata) return FitRounding::kF32;
  switch (params.metadata) {
    case FloatType::kF16:
      return FitRounding::kF16;
    case FloatType::kBF16:
      return FitRounding::kBF16;
    case FloatType::kF32:
      break;
  }
  return FitRounding::kF32;
}

bool is_qqq_g128(FormatId id) {
  return format_info(id).layout == "qqq-g128";
}

// Formats whose parameters the searches of folder/encoder.h choose. NVFP4 of ggml has its own
// scale bytes.
bool is_folder_table(FormatId id) {
  const std::string_view layout = format_info(id).layout;
  return is_qqq_g128(id) || layout == "mlx-mxfp8" || layout.ends_with("-nvfp4");
}

bool is_float(const ParamSpec& spec) {
  return spec.coding == ParamCoding::kF16 || spec.coding == ParamCoding::kF32 ||
         spec.coding == ParamCoding::kMetadata;
}

}  // namespace

bool Grid::supports(FormatId target) {
  const FormatInfo& info = format_info(target);
  // Scales that belong to more than a row are the matter of folder_encode.h.
  if (is_folder_table(target)) return true;
  for (const ParamSpec& spec : info.params)
    if (spec.kind == ParamKind::kGlobalScale ||
        (spec.kind == ParamKind::kSuperScale && spec.coding != ParamCoding::kF16))
      return false;
  return info.scheme != SchemeKind::kFloat && info.writable && !info.block_codes &&
         !info.shares_rows && !info.params.empty() && info.code_bits <= 8 &&
         (info.scheme == SchemeKind::kLinear || info.code_bits <= 4);
}

Result<Grid> Grid::make(FormatId target, const FormatParams& params, std::int64_t cols,
                        std::string_view subject) {
  const FormatInfo& info = format_info(target);
  Grid grid;
  grid.id_ = target;
  grid.params_ = params;
  grid.group_cols_ = packstone::group_cols(target, params);
  if (!supports(target) || grid.group_cols_ < 1 || grid.group_cols_ > kFitColsMax || cols < 1)
    return fail(ErrorCode::kUnsupported, "quantize.grid", subject, info.name,
                "a format with scales of its own for each group of a row");
  if (is_folder_table(target)) {
    grid.read_folder_table(cols);
    return grid;
  }
  PACKSTONE_CHECK_OK(grid.read_params(subject));
  return grid;
}

void Grid::see(const MatrixView& weight) {
  largest_ = 0;
  for (std::int64_t row = 0; row < weight.rows; ++row)
    for (std::int64_t col = 0; col < weight.cols; ++col)
      largest_ = std::max(largest_, std::abs(weight.row(row)[col]));
}

// A table whose groups the searches of folder/ choose for: their levels are sorted here.
void Grid::read_folder_table(std::int64_t cols) {
  const FormatInfo& info = format_info(id_);
  table_ = folder_ = true;
  unit_cols_ = is_qqq_g128(id_) ? cols : group_cols_;
  const auto level = [&](std::uint16_t code) { return format_ops(id_).value({}, code); };
  for (std::uint16_t code = 0; code < 1u << info.code_bits; ++code)
    if (std::isfinite(level(code))) order_.push_back(code);
  std::ranges::stable_sort(order_, std::less{}, level);
}

Status Grid::read_params(std::string_view subject) {
  const FormatInfo& info = format_info(id_);
  table_ = info.scheme == SchemeKind::kTable;
  unit_cols_ = group_cols_;
  const LinearSide side = linear_side(id_, params_);
  const bool signed_scales = info.layout.starts_with("gguf:") || info.layout.starts_with("mlx-");
  if (table_) {
    order_.resize(std::size_t{1} << info.code_bits);
    std::iota(order_.begin(), order_.end(), std::uint16_t{0});
    const auto level = [&](std::uint16_t code) { return format_ops(id_).value({}, code); };
    std::ranges::stable_sort(order_, std::less{}, level);
    for (const std::uint16_t code : order_) levels_.level[levels_.count++] = level(code);
    levels_.negative_scales = signed_scales;
  } else {
    code_least_ = info.layout == "qqq" ? 1 : 0;  // its quantizer writes -7 to 7
    linear_.code_max = static_cast<float>(side.code_max) - static_cast<float>(code_least_);
    linear_.has_offset = side.has_offset;
    linear_.center = static_cast<float>(side.center - code_least_);
    linear_.chooses_center = side.zero_bits > 0;
    linear_.center_max = static_cast<float>(
        std::min<std::int64_t>((std::int64_t{1} << side.zero_bits) - 1, side.code_max));
    linear_.negative_scales = signed_scales && !side.has_offset;
  }
  for (int which = 0; which < static_cast<int>(info.params.size()); ++which) {
    const ParamSpec& spec = info.params[static_cast<std::size_t>(which)];
    const bool offset = spec.kind == ParamKind::kOffset;
    if (spec.kind == ParamKind::kSuperScale) super_scale_ = which;
    if (spec.kind == ParamKind::kSuperOffset) super_offset_ = which;
    if (spec.kind == ParamKind::kGlobalScale || (!is_float(spec) && spec.bits > 8))
      return fail(ErrorCode::kUnsupported, "quantize.grid", subject, info.name,
                  "a format without scales of the whole tensor");
    if (spec.kind != ParamKind::kScale && !offset) continue;
    if (!is_float(spec))
      (offset ? offset_ : scale_).which = which;
    else if (offset)
      linear_.offset = rounding_of(spec, params_);
    else
      linear_.scale = levels_.scale = rounding_of(spec, params_);
  }
  if (scale_.which >= 0) scale_ = read_coded(scale_.which, false);
  if (offset_.which >= 0) offset_ = read_coded(offset_.which, true);
  if (scale_.which >= 0)
    linear_.negative_scales = levels_.negative_scales = super_scale_ >= 0 || scale_.number[0] < 0;
  if (offset_.which >= 0) linear_.offset_not_positive = offset_.number.back() <= 0;
  if (super_scale_ >= 0)
    for (std::int64_t cols = group_cols_; unit_cols_ == group_cols_; cols += group_cols_)
      if (layout_rule(id_, {1, cols}, params_) == nullptr) unit_cols_ = cols;
  return {};
}

// What every pattern of a coded parameter stands for, with super-scales of one.
Grid::Coded Grid::read_coded(int which, bool offset) const {
  const ParamSpec& spec = format_info(id_).params[static_cast<std::size_t>(which)];
  Coded coded;
  coded.which = which;
  RawParams raw;
  if (super_scale_ >= 0) raw.pattern[super_scale_] = kHalfOne;
  if (super_offset_ >= 0) raw.pattern[super_offset_] = kHalfOne;
  std::vector<std::pair<float, std::uint32_t>> all;
  for (std::uint32_t pattern = 0; pattern < 1u << spec.bits; ++pattern) {
    raw.pattern[which] = pattern;
    GroupValues values;
    format_ops(id_).values(params_, {&raw, 1}, {&values, 1});
    const float number = offset ? values.offset : values.scale;
    if (std::isfinite(number)) all.emplace_back(number, pattern);
  }
  std::ranges::stable_sort(all, std::less{}, &std::pair<float, std::uint32_t>::first);
  for (const auto& [number, pattern] : all) {
    if (!coded.number.empty() && coded.number.back() == number) continue;
    coded.number.push_back(number);
    coded.pattern.push_back(pattern);
  }
  return coded;
}

std::size_t Grid::Coded::nearest(float value) const {
  const auto after = std::ranges::lower_bound(number, value);
  if (after == number.begin()) return 0;
  const auto at = static_cast<std::size_t>(after - number.begin());
  if (at == number.size()) return at - 1;
  return value - number[at - 1] <= number[at] - value ? at - 1 : at;
}

GroupFit Grid::fit_group(const FitData& data) const {
  return table_ ? fit_table(data, levels_) : fit_linear(data, linear_);
}

float Grid::group_error(const FitData& data, float scale, float offset, float center) const {
  return table_ ? table_error(data, levels_, scale)
                : linear_error(data, linear_, scale, offset, center);
}

// Parameters that are floats of their own, already rounded.
RawParams Grid::stored(const GroupFit& fit) const {
  RawParams raw;
  const GroupValues values{fit.scale, linear_.has_offset ? fit.offset : kNoOffset,
                           static_cast<std::int32_t>(fit.center) + code_least_};
  format_ops(id_).encode(params_, {&values, 1}, {&raw, 1});
  return raw;
}

// A scale that is one of a list (E8M0, E4M3): the neighbours of the free one.
void Grid::fit_coded(const FitData& data, RawParams& raw) const {
  constexpr std::size_t kNeighbours = 4;
  const GroupFit free = fit_group(data);
  const std::size_t at = scale_.nearest(free.scale);
  const std::size_t first = at < kNeighbours ? 0 : at - kNeighbours;
  const std::size_t last = std::min(at + kNeighbours, scale_.number.size() - 1);
  float best = group_error(data, scale_.number[at], kNoOffset, linear_.center);
  std::size_t chosen = at;
  for (std::size_t i = first; i <= last; ++i) {
    const float error = group_error(data, scale_.number[i], kNoOffset, linear_.center);
    if (error < best) best = error, chosen = i;
  }
  raw.pattern[scale_.which] = scale_.pattern[chosen];
}

// Super-scales d, rounded to half precision, with which d * number is near the values, weighted by
// cost: the nearest first.
std::vector<float> Grid::super_scales(std::span<const float> values, std::span<const float> costs,
                                      const Coded& coded, std::size_t count) const {
  constexpr int kSteps = 24;
  float extreme = 0;
  for (const float value : values)
    if (std::abs(value) > std::abs(extreme)) extreme = value;
  std::vector<std::pair<double, float>> found;
  const auto try_scale = [&](float d) {
    double error = 0, dot = 0, square = 0;
    for (std::size_t i = 0; i < values.size(); ++i) {
      const double number = d == 0 ? 0 : coded.number[coded.nearest(values[i] / d)];
      const double rest = static_cast<double>(values[i]) - static_cast<double>(d) * number;
      error += costs[i] * rest * rest;
      dot += static_cast<double>(costs[i]) * values[i] * number;
      square += static_cast<double>(costs[i]) * number * number;
    }
    found.emplace_back(error, d);
    return square > 0 ? fit_round(FitRounding::kF16, static_cast<float>(dot / square)) : d;
  };
  for (const float end : {coded.number.front(), coded.number.back()}) {
    if (end == 0 || extreme == 0) continue;
    for (int step = 0; step < kSteps; ++step) {
      const float reach = end * (1.04f - 0.015f * static_cast<float>(step));
      try_scale(try_scale(fit_round(FitRounding::kF16, extreme / reach)));
    }
  }
  std::ranges::sort(found);
  std::vector<float> chosen;
  for (const auto& [error, d] : found)
    if (chosen.size() < count && std::ranges::find(chosen, d) == chosen.end()) chosen.push_back(d);
  if (chosen.empty()) chosen.push_back(0);
  return chosen;
}

// The codes of a group around the nearest ones to its free fit, with the stored super-scales;
// returns the error.
float Grid::fit_codes(const FitData& data, const GroupFit& free, float d, float d_offset,
                      RawParams& raw) const {
  const auto around = [](const Coded& coded, float value) {
    const std::size_t at = coded.nearest(value);
    return std::pair(at < 1 ? 0 : at - 1, std::min(at + 1, coded.number.size() - 1));
  };
  const auto [low, high] = around(scale_, d == 0 ? 0 : free.scale / d);
  const auto [offset_low, offset_high] =
      offset_.which < 0 ? std::pair<std::size_t, std::size_t>{0, 0}
                        : around(offset_, d_offset == 0 ? 0 : free.offset / d_offset);
  float best = -1;
  for (std::size_t i = low; i <= high; ++i)
    for (std::size_t j = offset_low; j <= offset_high; ++j) {
      const float offset = offset_.which < 0 ? kNoOffset : d_offset * offset_.number[j];
      const float error = group_error(data, d * scale_.number[i], offset, linear_.center);
      if (best >= 0 && !(error < best)) continue;
      best = error;
      raw.pattern[scale_.which] = scale_.pattern[i];
      if (offset_.which >= 0) raw.pattern[offset_.which] = offset_.pattern[j];
    }
  return best;
}

// Groups of a super-block: each as if alone, then the super-scales and every group's codes: of the
// super-scales nearest to the free scales those with the least error of the values.
void Grid::fit_nested(std::span<const FitData> data, std::span<RawParams> raw) const {
  constexpr std::size_t kTried = 4;
  std::vector<float> scales, offsets, scale_costs, offset_costs;
  std::vector<GroupFit> fits;
  for (const FitData& group : data) {
    const GroupFit fit = fits.emplace_back(fit_group(group));
    scales.push_back(fit.scale);
    offsets.push_back(fit.offset);
    scale_costs.push_back(std::max(fit.level2, 1e-30f));
    offset_costs.push_back(
        std::max(std::accumulate(group.weight, group.weight + group.count, 0.0f), 1e-30f));
  }
  const std::vector<float> tried = super_scales(scales, scale_costs, scale_, kTried);
  const std::vector<float> offsets_tried =
      offset_.which < 0 ? std::vector<float>{0} : super_scales(offsets, offset_costs, offset_, 2);
  std::vector<RawParams> attempt(raw.size());
  double best = -1;
  for (const float d : tried)
    for (const float d_offset : offsets_tried) {
      double error = 0;
      for (std::size_t g = 0; g < data.size(); ++g) {
        attempt[g].pattern[super_scale_] = float_to_half(d);
        if (super_offset_ >= 0) attempt[g].pattern[super_offset_] = float_to_half(d_offset);
        error += fit_codes(data[g], fits[g], d, d_offset, attempt[g]);
      }
      if (best >= 0 && !(error < best)) continue;
      best = error;
      std::ranges::copy(attempt, raw.begin());
    }
}

void Grid::fit(std::span<const float> x, std::span<const float> weight,
               std::span<RawParams> raw) const {
  if (folder_) {
    if (is_qqq_g128(id_)) return folder::fit_qqq_row(x, weight, group_cols_, raw);
    if (format_info(id_).code_bits == 8) return folder::fit_mxfp8_group(x, weight, raw[0]);
    return folder::fit_nvfp4_group(id_, largest_, x, weight, raw[0]);
  }
  const PaddedUnit unit(x, weight, group_cols_);
  PACKSTONE_ASSERT(raw.size() == unit.groups().size());
  if (super_scale_ >= 0) return fit_nested(unit.groups(), raw);
  for (std::size_t g = 0; g < raw.size(); ++g) {
    if (scale_.which >= 0)
      fit_coded(unit.groups()[g], raw[g]);
    else
      raw[g] = stored(fit_group(unit.groups()[g]));
  }
}

Levels Grid::levels(const GroupValues& group, LevelBuffer& buffer) const {
  Levels levels;
  levels.values_ = group;
  if (!table_) {
    levels.inverse_ = group.scale == 0 ? 0.0f : 1.0f / group.scale;
    levels.code_least_ = static_cast<float>(code_least_);
    levels.code_max_ = linear_.code_max + levels.code_least_;
    return levels;
  }
  buffer.sorted.clear();
  buffer.codes.clear();
  const auto add = [&](std::uint16_t code) {
    const float value = format_ops(id_).value(group, code);
    if (!buffer.sorted.empty() && buffer.sorted.back() == value) return;
    buffer.sorted.push_back(value);
    buffer.codes.push_back(code);
  };
  if (group.scale < 0)
    std::for_each(order_.rbegin(), order_.rend(), add);
  else
    std::ranges::for_each(order_, add);
  levels.sorted_ = buffer.sorted;
  levels.codes_ = buffer.codes;
  return levels;
}

Levels::Rounded Levels::round(float value) const {
  if (sorted_.empty()) {
    const float center = static_cast<float>(values_.center);
    const float position = (value - values_.offset) * inverse_ + center;
    // Not std::clamp: 0 * infinity, of a scale whose reciprocal is none, counts as the first code.
    const float level = position > code_least_ ? std::min(position, code_max_) : code_least_;
    const auto code = static_cast<std::uint32_t>(static_cast<std::int32_t>(std::rint(level)));
    return {code, decode_value<LinearScheme>(values_, code)};
  }
  const auto after = std::ranges::lower_bound(sorted_, value);
  auto at = static_cast<std::size_t>(after - sorted_.begin());
  if (at == sorted_.size()) --at;
  if (at > 0) {
    const float below = value - sorted_[at - 1], above = sorted_[at] - value;
    if (below < above || (below == above && std::abs(sorted_[at - 1]) < std::abs(sorted_[at])))
      --at;
  }
  return {codes_[at], sorted_[at]};
}

}  // namespace packstone
