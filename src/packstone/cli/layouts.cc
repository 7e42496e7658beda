#include "packstone/cli/layouts.h"

#include <algorithm>

#include "packstone/cli/arguments.h"

namespace packstone::cli {
namespace {

// Layouts of the design that this build does not have: their names are valid, so the answer is
// "not supported" and not "no such layout".
constexpr std::string_view kAbsent[] = {
    "mlx-mxfp4", "mlx-mxfp8", "mlx-nvfp4", "gptq",          "gptq_v2", "gptq_p", "marlin",
    "bitblas",   "awq-gemm",  "awq-gemv",  "awq-gemv_fast", "llm-awq", "mxfp4",  "qqq",
    "fp8",       "bnb-nf4",   "bnb-fp4",   "bnb-int8",      "ct-pack"};

// The mixes of llama-quantize: recipes over several layouts, not layouts.
constexpr std::string_view kMixes[] = {"gguf:Q2_K_S", "gguf:Q3_K_S", "gguf:Q3_K_M", "gguf:Q3_K_L",
                                       "gguf:Q4_K_S", "gguf:Q4_K_M", "gguf:Q5_K_S", "gguf:Q5_K_M"};

struct FloatAlias {
  std::string_view alias, name;
};
constexpr FloatAlias kGgufFloats[] = {
    {"gguf:F32", "float32"}, {"gguf:F16", "float16"}, {"gguf:BF16", "bfloat16"}};

// Whether a layout is the name's own or a variant of it: "ct-pack-asym" of "ct-pack".
bool is_member(std::string_view layout, std::string_view name) {
  return layout == name ||
         (layout.starts_with(name) && layout.size() > name.size() && layout[name.size()] == '-');
}

bool contains(std::span<const std::string_view> list, std::string_view name) {
  return std::ranges::find(list, name) != list.end();
}

}  // namespace

std::vector<FormatId> all_formats() {
  std::vector<FormatId> ids;
  for (std::size_t i = 0; i < format_count(); ++i)
    ids.push_back(FormatId{static_cast<std::uint16_t>(i)});
  return ids;
}

bool is_float_format(FormatId id) {
  return format_info(id).scheme == SchemeKind::kFloat;
}
bool is_mlx_format(FormatId id) {
  return format_info(id).layout == "mlx-affine";
}
bool is_gguf_format(FormatId id) {
  return format_info(id).layout.starts_with("gguf:");
}

std::optional<FormatId> mlx_format(int bits) {
  for (FormatId id : all_formats())
    if (is_mlx_format(id) && format_info(id).code_bits == bits) return id;
  return std::nullopt;
}

double bits_per_weight(FormatId id, Shape shape, const FormatParams& params) {
  const double elements = static_cast<double>(shape.rows) * static_cast<double>(shape.cols);
  return elements > 0 ? 8 * static_cast<double>(weight_bytes(id, shape, params)) / elements : 0;
}

std::string layout_text(FormatId id, const FormatParams& params) {
  const FormatInfo& info = format_info(id);
  if (is_float_format(id) || is_gguf_format(id)) return std::string(info.layout);
  std::string text =
      fmt::format("{} {} bit g{}", info.layout, info.code_bits, group_cols(id, params));
  if (params.group_rows > 1) text += fmt::format("x{} rows", params.group_rows);
  if (params.act_order) text += " act-order";
  const bool typed = std::ranges::any_of(
      info.params, [](const ParamSpec& spec) { return spec.coding == ParamCoding::kMetadata; });
  return typed ? fmt::format("{} {}", text, float_name(params.metadata)) : text;
}

Result<LayoutTarget> parse_layout(std::string_view command, std::string_view text) {
  LayoutTarget target{std::string(text), std::nullopt, text.starts_with("gguf:"), {}, false};
  target.described = is_described_layout(text);
  if (target.described) return target;
  std::string_view name = text == "mlx-mxfp4" ? "mxfp4" : text;
  std::vector<std::string_view> choices(described_layouts().begin(), described_layouts().end());
  for (const FloatAlias& alias : kGgufFloats) {
    choices.push_back(alias.alias);
    if (alias.alias == text) name = alias.name;
  }
  for (FormatId id : all_formats()) {
    const std::string_view layout = format_info(id).layout;
    choices.push_back(layout);
    if (is_member(layout, name)) target.family.push_back(id);
  }
  std::ranges::stable_sort(target.family, {},
                           [](FormatId id) { return format_info(id).code_bits; });
  if (target.family.size() == 1 && !is_mlx_format(target.family[0]))
    target.format = target.family[0];
  if (!target.family.empty()) return target;
  if (contains(kMixes, text))
    return fail(ErrorCode::kUnsupported, fmt::format("cli.{}", command), "--to",
                fmt::format("`{}`", text), "one layout",
                "a mix of layouts is no target in this build");
  if (contains(kAbsent, text))
    return fail(ErrorCode::kUnsupported, fmt::format("cli.{}", command), "--to",
                fmt::format("`{}`", text), "a layout of this build",
                "`packstone formats` lists them");
  return no_choice(fmt::format("cli.{}", command), "--to", text, choices);
}

std::vector<FormatId> candidate_formats(const LayoutTarget& target, const PackedWeight& source) {
  if (!target.format || (!target.gguf && !is_float_format(*target.format))) {
    std::vector<FormatId> ids;
    for (FormatId id : target.family)
      if (id == source.id())
        ids.insert(ids.begin(), id);
      else if (target.format || format_info(id).code_bits >= source.format().code_bits)
        ids.push_back(id);
    return ids;
  }
  if (is_float_format(*target.format)) return {*target.format};
  std::vector<FormatId> rest;
  for (FormatId id : all_formats())
    if (is_gguf_format(id) && id != *target.format && format_info(id).writable &&
        layout_rule(id, source.shape(), FormatParams{}) == nullptr)
      rest.push_back(id);
  std::ranges::stable_sort(
      rest, {}, [&](FormatId id) { return weight_bytes(id, source.shape(), FormatParams{}); });
  rest.insert(rest.begin(), *target.format);
  return rest;
}

Result<ContainerKind> target_container(std::string_view command, const LayoutTarget& target,
                                       std::string_view destination) {
  const bool gguf_name = destination.ends_with(".gguf");
  const bool gguf_can = target.gguf || (target.format && is_float_format(*target.format));
  if (gguf_name && !gguf_can)
    return fail(ErrorCode::kInvalidInput, fmt::format("cli.{}", command), "DST",
                fmt::format("`{}` with --to {}", destination, target.name),
                "a folder's name, not one ending in .gguf", "a GGUF file cannot hold this layout");
  return target.gguf || gguf_name ? ContainerKind::kGguf : ContainerKind::kFolder;
}

}  // namespace packstone::cli
