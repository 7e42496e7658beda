#include "packstone/checkpoint/describe_module.h"

#include <algorithm>
#include <array>
#include <vector>

#include "packstone/base/bytes.h"
#include "packstone/checkpoint/binder.h"

namespace packstone {
namespace {

constexpr std::string_view kWhere = "checkpoint.describe_module";
constexpr std::int64_t kTransform = 128;  // inputs and outputs that EXL3 transforms together

using Dims = std::vector<std::int64_t>;

Status check_shape(const PackedModule& module, const ModuleTensor& part, const Dims& need) {
  if (part.view->shape == need) return {};
  return module.misfit(part.suffix,
                       fmt::format("{} {}", part.view->type->name, shape_text(part.view->shape)),
                       fmt::format("{} for a [{}, {}] matrix", shape_text(need), module.shape.rows,
                                   module.shape.cols));
}

const ModuleTensor* exact(const PackedModule& module, std::string_view suffix) {
  const auto it = std::ranges::find(module.parts, suffix, &ModuleTensor::suffix);
  return it == module.parts.end() ? nullptr : &*it;
}

std::unexpected<Error> no_place(const PackedModule& module, std::string_view got,
                                std::string_view need) {
  return fail(
      ErrorCode::kUnsupported, kWhere, module.subject(module.parts.front().suffix), got,
      fmt::format("{} of layout {}, as {} says", need, module.says.layout, module.says.key));
}

// One vector of an axis, as floats or as packed signs: one of the two spellings.
Status check_signs(const PackedModule& module, std::string_view floats, std::string_view packed,
                   std::int64_t length) {
  const ModuleTensor* wide = exact(module, floats);
  const ModuleTensor* narrow = exact(module, packed);
  if (wide != nullptr && narrow != nullptr)
    return module.misfit(packed, fmt::format("a tensor beside '{}'", floats), "one of the two");
  if (wide == nullptr && narrow == nullptr)
    return module.misfit(floats, "no such tensor", fmt::format("it or '{}'", packed));
  return wide ? check_shape(module, *wide, {length}) : check_shape(module, *narrow, {length / 16});
}

// The codebook by the markers; mcg goes before mul1.
Result<std::string> codebook_of(const PackedModule& module) {
  std::string codebook = "3inst";
  for (const std::string_view marker : {"mul1", "mcg"}) {
    const ModuleTensor* part = exact(module, fmt::format(".{}", marker));
    if (part == nullptr) continue;
    const Dims& shape = part->view->shape;
    if (!shape.empty() && shape != Dims{1})
      return module.misfit(part->suffix, shape_text(shape), "a scalar");
    codebook = marker;
  }
  const std::string& stated = module.says.code_type;
  if (stated.empty() || stated == codebook) return codebook;
  return module.misfit(fmt::format(".{}", stated == "3inst" ? codebook : stated),
                       fmt::format("codebook {} by the markers", codebook),
                       fmt::format("codebook {}", stated));
}

Result<ModuleDescription> describe_exl3(const PackedModule& module) {
  const auto [rows, cols] = module.shape;
  if (rows % kTransform != 0 || cols % kTransform != 0 || rows == 0 || cols == 0)
    return no_place(module, fmt::format("a [{}, {}] matrix", rows, cols),
                    "rows and columns in multiples of 128");
  const ModuleTensor& trellis = *exact(module, ".trellis");
  const Dims& shape = trellis.view->shape;
  const std::int64_t bits = shape.size() == 3 ? shape[2] / 16 : 0;
  if (bits < 1 || bits > 8 || shape[2] % 16 != 0)
    return module.misfit(trellis.suffix, shape_text(shape),
                         fmt::format("[{}, {}, 16 b] with b of 1 to 8", cols / 16, rows / 16));
  PACKSTONE_CHECK_OK(check_shape(module, trellis, {cols / 16, rows / 16, 16 * bits}));
  if (module.says.bits != 0 && module.says.bits != bits)
    return module.misfit(trellis.suffix, fmt::format("{} bits a weight", bits),
                         fmt::format("{} bits a weight", module.says.bits));
  PACKSTONE_CHECK_OK(check_signs(module, ".suh", ".su", cols));
  PACKSTONE_CHECK_OK(check_signs(module, ".svh", ".sv", rows));
  PACKSTONE_TRY(const std::string codebook, codebook_of(module));
  return ModuleDescription{fmt::format("exl3 {} bit {}", bits, codebook), bits};
}

// In every rotation and group the numbers 0..group-1, each once.
Status check_pairs(const PackedModule& module, const ModuleTensor& pairs, std::int64_t group) {
  const std::int64_t rotations = pairs.view->shape[0], cols = pairs.view->shape[1];
  std::vector<bool> seen(static_cast<std::size_t>(group));
  for (std::int64_t r = 0; r < rotations; ++r)
    for (std::int64_t col = 0; col < cols; ++col) {
      if (col % group == 0) seen.assign(seen.size(), false);
      const auto at = load_le<std::int16_t>(pairs.view->bytes.data() + 2 * (r * cols + col));
      if (at < 0 || at >= group || seen[static_cast<std::size_t>(at)])
        return module.misfit(pairs.suffix,
                             fmt::format("channel {} at column {} of rotation {}, group {}", at,
                                         col, r, col / group),
                             fmt::format("each of 0 to {} once in every group", group - 1));
      seen[static_cast<std::size_t>(at)] = true;
    }
  return {};
}

Result<ModuleDescription> describe_paroquant(const PackedModule& module) {
  const auto [rows, cols] = module.shape;
  const std::int64_t group =
      module.says.group_cols == kWholeRowGroup ? cols : module.says.group_cols;
  constexpr std::array<std::int64_t, 4> kGroups = {16, 32, 64, 128};
  const bool listed = std::ranges::find(kGroups, group) != kGroups.end() || group == cols;
  if (rows % 32 != 0 || group < 2 || group % 2 != 0 || !listed || cols % group != 0 || cols == 0 ||
      group > 0x8000)
    return no_place(module, fmt::format("[{}, {}] in groups of {}", rows, cols, group),
                    "rows in multiples of 32, and whole groups of 16, 32, 64, 128 or the row,");
  const std::int64_t rotations = module.says.rotations, groups = cols / group;
  const std::array<std::pair<std::string_view, Dims>, 6> needs = {{
      {".qweight", {cols, rows / 8}},
      {".qzeros", {groups, rows / 8}},
      {".scales", {groups, rows}},
      {".theta", {rotations, cols / 2}},
      {".pairs", {rotations, cols}},
      {".channel_scales", {1, cols}},
  }};
  for (const auto& [suffix, need] : needs)
    PACKSTONE_CHECK_OK(check_shape(module, *exact(module, suffix), need));
  PACKSTONE_CHECK_OK(check_pairs(module, *exact(module, ".pairs"), group));
  return ModuleDescription{fmt::format("paroquant 4 bit g{} krot {}", group, rotations), 4};
}

}  // namespace

Result<ModuleDescription> describe_module(const PackedModule& module) {
  if (module.says.layout == "exl3") return describe_exl3(module);
  if (module.says.layout == "paroquant") return describe_paroquant(module);
  const ModuleQuantization& says = module.says;
  std::string text = says.layout;
  if (!says.code_type.empty()) text += fmt::format(" {}", says.code_type);
  if (says.bits > 0) text += fmt::format(" {} bit", says.bits);
  if (says.group_cols > 0) text += fmt::format(" g{}", says.group_cols);
  return ModuleDescription{std::move(text), says.bits};
}

}  // namespace packstone
