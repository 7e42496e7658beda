#include "packstone/transcode/target_params.h"

#include <algorithm>

namespace packstone {
namespace {

bool shares_parameters(const FormatInfo& info) {
  return std::ranges::any_of(info.params, [](const ParamSpec& spec) {
    return spec.kind == ParamKind::kSuperScale || spec.kind == ParamKind::kSuperOffset;
  });
}

// The target's group: the one asked for, else the source's, else the largest that divides it; 0
// where the target has only one.
std::int32_t choose_group(const FormatInfo& target, std::int64_t source_group, std::int32_t asked) {
  if (asked != 0 || target.group_sizes.size() < 2) return asked;
  std::int32_t chosen = target.group_sizes.front();
  for (const std::int32_t size : target.group_sizes)
    if (source_group % size == 0 && size > chosen) chosen = size;
  return chosen;
}

// Metadata types to try, smallest first, the source's own type before the other.
std::vector<FloatType> choose_metadata(FormatId source, const FormatParams& params, FormatId target,
                                       std::optional<FloatType> asked) {
  if (!has_metadata_type(target)) return {FloatType::kF16};
  if (asked) return {*asked};
  const bool brain = has_metadata_type(source) && params.metadata == FloatType::kBF16;
  if (brain) return {FloatType::kBF16, FloatType::kF16, FloatType::kF32};
  return {FloatType::kF16, FloatType::kBF16, FloatType::kF32};
}

std::string refuse_map(const FormatInfo& source, const FormatInfo& target) {
  return fmt::format("{} has no codes that {} could keep; use quantize", source.name, target.name);
}

std::string illegal(const FormatInfo& format, Shape shape, const FormatParams& params,
                    const char* rule) {
  return fmt::format("{} of [{}, {}], group {}: need {}", format.name, shape.rows, shape.cols,
                     params.group_cols, rule);
}

// Bits that no place uses are not carried by codes and parameters.
bool has_padding(FormatId id, Shape shape, const FormatParams& params) {
  return visit(id, [&]<class F>() {
    std::uint64_t bits = 0;
    for (int plane = 0; plane < static_cast<int>(F::kPlanes.size()); ++plane)
      bits += F::padding_bits(plane, shape, params);
    return bits != 0;
  });
}

void decide_linear(FormatId id, const FormatParams& params, FormatId target_id,
                   HeaderDecision& decision) {
  const FormatInfo& source = format_info(id);
  const FormatInfo& target = format_info(target_id);
  if (shares_parameters(target)) {
    decision.refused = true;
    decision.reason = fmt::format(
        "{} shares parameters between groups, so that only a {} weight fits it; use quantize",
        target.name, target.name);
    return;
  }
  const LinearSide from = linear_side(id, params);
  const LinearSide to = linear_side(target_id, decision.candidates.front());
  if (const char* rule = group_rule(from, to)) {
    decision.refused = true;
    decision.reason = fmt::format(
        "{} has groups of {} columns, {} of {}: got {}, need {}; use quantize", source.name,
        from.group_cols, target.name, to.group_cols, from.group_cols, rule);
    return;
  }
  decision.way_back_possible = !shares_parameters(source) && group_rule(to, from) == nullptr;
}

}  // namespace

bool has_metadata_type(FormatId id) {
  return std::ranges::any_of(format_info(id).params, [](const ParamSpec& spec) {
    return spec.coding == ParamCoding::kMetadata;
  });
}

FloatType float_type(FormatId id) {
  return visit(id, []<class F>() {
    if constexpr (F::Scheme::kKind == SchemeKind::kFloat)
      return F::kType;
    else
      return FloatType::kF32;
  });
}

HeaderDecision decide_from_headers(FormatId id, Shape shape, const FormatParams& params,
                                   const TranscodeTarget& target) {
  HeaderDecision decision;
  const FormatInfo& from = format_info(id);
  const FormatInfo& to = format_info(target.id);
  if (const char* rule = layout_rule(id, shape, params)) {
    decision.refused = true;
    decision.reason = illegal(from, shape, params, rule);
    return decision;
  }
  const std::int64_t source_group = group_cols(id, params);
  const std::int32_t group = choose_group(to, source_group, target.group_cols);
  for (FloatType type : choose_metadata(id, params, target.id, target.metadata))
    decision.candidates.push_back({group, type});
  if (const char* rule = layout_rule(target.id, shape, decision.candidates.front())) {
    decision.refused = true;
    decision.reason = illegal(to, shape, decision.candidates.front(), rule);
    return decision;
  }
  const bool same_group = group_cols(target.id, decision.candidates.front()) == source_group;
  const bool same_type =
      !has_metadata_type(id) || !target.metadata || *target.metadata == params.metadata;
  if (id == target.id && same_group && same_type) {
    decision.copy = true;
    decision.way_back_possible = true;
    decision.candidates = {params};
    return decision;
  }
  decision.map = scheme_map(from.scheme, to.scheme);
  if (decision.map == SchemeMap::kNone) {
    decision.refused = true;
    decision.reason = refuse_map(from, to);
  } else if (decision.map == SchemeMap::kLinear) {
    decide_linear(id, params, target.id, decision);
  } else {
    decision.way_back_possible = from.scheme == SchemeKind::kFloat;
  }
  if (has_padding(id, shape, params)) decision.way_back_possible = false;
  return decision;
}

}  // namespace packstone
