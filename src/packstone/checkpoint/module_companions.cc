// The tensors beside the planes of a packed module: shapes, states and tables that must agree with
// the model, the config and the format.
// Source: formats.md 7.4 (weight_shape), 8.1 (quant_state, quant_map); bitsandbytes 0.50
// functional.py (QuantState.as_dict), nn/modules.py (weight_format).
#include <algorithm>
#include <bit>
#include <cmath>

#include "packstone/base/bytes.h"
#include "packstone/checkpoint/bind_module.h"
#include "packstone/checkpoint/binder.h"
#include "packstone/checkpoint/json_reader.h"
#include "packstone/format/registry.h"

namespace packstone {
namespace {

constexpr std::string_view kWhere = "checkpoint.bind_module";
constexpr std::size_t kStateBytesMax = 4'096;

Status check_weight_shape(const PackedModule& module) {
  const ModuleTensor* part = module.find_suffix(".weight_shape");
  if (part == nullptr) return {};
  const bool wide = part->view->type->name == "I64";
  const ByteSpan bytes = part->view->bytes;
  if (bytes.size() != (wide ? 16u : 8u))
    return module.misfit(part->suffix, shape_text(part->view->shape), "two numbers");
  const auto number = [&](std::size_t i) {
    return wide ? load_le<std::int64_t>(bytes.data() + 8 * i)
                : std::int64_t{load_le<std::int32_t>(bytes.data() + 4 * i)};
  };
  if (number(0) == module.shape.rows && number(1) == module.shape.cols) return {};
  return module.misfit(
      part->suffix, fmt::format("[{}, {}]", number(0), number(1)),
      fmt::format("[{}, {}], the shape by the config", module.shape.rows, module.shape.cols));
}

// The table of a 4-bit type must be the format's: codes mean nothing else.
Status check_quant_map(const PackedModule& module, std::string_view suffix,
                       std::string_view layout) {
  const ModuleTensor* part = module.find_suffix(suffix);
  if (part == nullptr) return {};
  const ByteSpan bytes = part->view->bytes;
  const std::optional<FormatId> format = find_layout(layout);
  if (!format) return {};
  if (bytes.size() != 64)
    return module.misfit(part->suffix, shape_text(part->view->shape), "16 levels");
  bool same = true;
  visit(*format, [&]<class F>() {
    for (std::uint32_t code = 0; code < 16; ++code)
      same = same && F::Scheme::level(code, 0) == load_le<float>(bytes.data() + 4 * code);
  });
  if (same) return {};
  return fail(ErrorCode::kUnsupported, kWhere, module.subject(part->suffix), "other levels",
              fmt::format("the table of {}", layout));
}

Result<Companions> read_state(const PackedModule& module, const ModuleTensor& part) {
  Companions companions;
  const std::string subject = module.subject(part.suffix);
  const ByteSpan bytes = part.view->bytes;
  if (bytes.size() > kStateBytesMax)
    return module.misfit(part.suffix, fmt::format("{} bytes", bytes.size()), "a short JSON text");
  const std::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  PACKSTONE_TRY(const nlohmann::ordered_json json, parse_json(text, kWhere, subject));
  const JsonReader state(json, kWhere, subject);
  if (!json.is_object()) return module.misfit(part.suffix, json_excerpt(json), "a JSON object");
  PACKSTONE_TRY(const auto type, state.text("quant_type"));
  if (type && *type != module.says.code_type)
    return module.misfit(part.suffix, fmt::format("quant_type {}", *type),
                         fmt::format("quant_type {}", module.says.code_type));
  PACKSTONE_TRY(companions.block_size, state.integer("blocksize", 32, 4096));
  PACKSTONE_TRY(const std::vector<std::int64_t> shape, state.integers("shape"));
  if (!shape.empty() && shape != std::vector{module.shape.rows, module.shape.cols})
    return module.misfit(
        part.suffix, fmt::format("shape {}", shape_text(shape)),
        fmt::format("[{}, {}], the shape by the config", module.shape.rows, module.shape.cols));
  PACKSTONE_TRY(const auto nested, state.integer("nested_blocksize", 1, 1 << 20));
  if (nested && *nested != 256)
    return fail(ErrorCode::kUnsupported, kWhere, subject,
                fmt::format("nested_blocksize {}", *nested), "256");
  PACKSTONE_TRY(const auto offset, state.number("nested_offset", -3.5e38, 3.5e38));
  if (offset) companions.offset_bits = std::bit_cast<std::uint32_t>(static_cast<float>(*offset));
  if (module.says.nested_scales && !offset)
    return module.misfit(part.suffix, "no 'nested_offset'", "the offset of nested statistics");
  return companions;
}

Status check_row_format(const PackedModule& module) {
  const ModuleTensor* part = module.find_suffix(".weight_format");
  if (part == nullptr) return {};
  for (const std::byte byte : part->view->bytes)
    if (byte != std::byte{0})
      return fail(ErrorCode::kUnsupported, kWhere, module.subject(part->suffix),
                  fmt::format("{}", std::to_integer<int>(byte)), "0, plain rows",
                  "tiles of a device are no portable layout");
  return {};
}

}  // namespace

Result<Companions> read_companions(const PackedModule& module) {
  PACKSTONE_CHECK_OK(check_weight_shape(module));
  PACKSTONE_CHECK_OK(check_row_format(module));
  Companions companions;
  if (module.says.layout != "bnb-nf4" && module.says.layout != "bnb-fp4") return companions;
  PACKSTONE_CHECK_OK(check_quant_map(module, ".weight.quant_map", module.says.layout));
  PACKSTONE_CHECK_OK(check_quant_map(module, ".weight_quant_map", module.says.layout));
  const ModuleTensor* state = module.find_suffix(".weight.quant_state.");
  if (state == nullptr) state = module.find_suffix(".weight_quant_state");
  if (state != nullptr) {
    PACKSTONE_TRY(companions, read_state(module, *state));
  } else if (module.says.nested_scales) {
    return module.misfit(".weight.quant_state", "no such tensor",
                         "the offset of nested statistics");
  }
  return companions;
}

}  // namespace packstone
