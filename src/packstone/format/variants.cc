#include "packstone/format/variants.h"

#include <algorithm>

namespace packstone {
namespace {

bool has_metadata_type(const FormatInfo& info) {
  return std::ranges::any_of(
      info.params, [](const ParamSpec& spec) { return spec.coding == ParamCoding::kMetadata; });
}

std::vector<std::int32_t> group_choices(const FormatInfo& info, Shape shape) {
  std::vector<std::int32_t> groups;
  for (const std::int32_t size : info.group_sizes)
    groups.push_back(size == kWholeRow ? static_cast<std::int32_t>(shape.cols) : size);
  std::ranges::sort(groups);
  const auto repeated = std::ranges::unique(groups);
  groups.erase(repeated.begin(), repeated.end());
  if (groups.empty() || (groups.size() == 1 && info.group_sizes[0] != kWholeRow)) groups = {0};
  return groups;
}

}  // namespace

std::vector<FormatParams> legal_variants(FormatId id, Shape shape) {
  const FormatInfo& info = format_info(id);
  std::vector<FloatType> types{FloatType::kF16};
  if (has_metadata_type(info)) types = {FloatType::kF16, FloatType::kBF16, FloatType::kF32};
  std::vector<std::int32_t> rows{1};
  if (info.shares_rows)
    rows = {1, 2, static_cast<std::int32_t>(std::max<std::int64_t>(shape.rows, 1))};
  std::vector<FormatParams> variants;
  for (const bool act_order : {false, true})
    for (const std::int32_t group_rows : rows)
      for (const std::int32_t group_cols : group_choices(info, shape))
        for (const FloatType type : types) {
          FormatParams params;
          params.group_cols = group_cols;
          params.metadata = type;
          params.group_rows = group_rows;
          params.act_order = act_order;
          if (act_order && info.index_plane < 0) continue;
          if (layout_rule(id, shape, params) != nullptr) continue;
          if (std::ranges::find(variants, params) == variants.end()) variants.push_back(params);
        }
  return variants;
}

FormatParams sample_params(FormatId id) {
  const std::vector<FormatParams> variants = legal_variants(id, kSampleShape);
  return variants.empty() ? FormatParams{} : variants.front();
}

}  // namespace packstone
