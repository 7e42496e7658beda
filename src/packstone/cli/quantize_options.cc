#include "packstone/cli/quantize_options.h"

#include "packstone/cli/arguments.h"

namespace packstone::cli {
namespace {

constexpr std::string_view kMethods[] = {"rtn"};
// Methods of the design that this build lacks.
constexpr std::string_view kAbsentMethods[] = {"gptq", "awq",    "dwq",      "hqq",
                                               "exl3", "qronos", "spinquant"};

std::unexpected<Error> bad_width(std::string_view command, std::string_view option, int got,
                                 std::string_view need) {
  return fail(ErrorCode::kInvalidInput, fmt::format("cli.{}", command), option,
              fmt::format("{}", got), need);
}

constexpr std::string_view kRtnLayouts =
    "a layout that rtn can write: mlx-affine, gguf:Q4_0, gguf:Q4_1, gguf:Q8_0";

Status check_method(std::string_view command, std::string_view method) {
  if (std::ranges::find(kMethods, method) != std::end(kMethods)) return {};
  if (std::ranges::find(kAbsentMethods, method) != std::end(kAbsentMethods))
    return fail(ErrorCode::kUnsupported, fmt::format("cli.{}", command), "--method",
                fmt::format("`{}`", method), "rtn", "this build has no other method");
  return no_choice(fmt::format("cli.{}", command), "--method", method, kMethods);
}

Result<QuantizeRequest> mlx_request(std::string_view command, const QuantizeOptions& options) {
  const std::optional<FormatId> id = mlx_format(options.bits);
  if (!id) return bad_width(command, "--bits", options.bits, "2, 3, 4, 5, 6 or 8");
  if (options.group_size != 32 && options.group_size != 64 && options.group_size != 128)
    return bad_width(command, "--group-size", options.group_size, "32, 64 or 128");
  return QuantizeRequest{*id, {.group_cols = options.group_size}};
}

// A gguf layout has one width and one group: the options may only repeat them.
Result<QuantizeRequest> gguf_request(std::string_view command, const QuantizeOptions& options,
                                     FormatId id) {
  const int bits = format_info(id).code_bits;
  const std::int64_t group = group_cols(id, {});
  if (options.has_bits && options.bits != bits)
    return bad_width(command, "--bits", options.bits,
                     fmt::format("{}, as {} has", bits, format_info(id).layout));
  if (options.has_group_size && options.group_size != group)
    return bad_width(command, "--group-size", options.group_size,
                     fmt::format("{}, as {} has", group, format_info(id).layout));
  return QuantizeRequest{id, {}};
}

}  // namespace

void QuantizeOptions::add(Options& app) {
  app.number("--bits", bits, 1, 16, "bits of a code; default 4, or the layout's own");
  app.number("--group-size", group_size, 1, 1 << 20,
             "columns with one scale; default 64, or the layout's own");
}

void QuantizeOptions::read(const Options& app) {
  has_bits = app.given("--bits");
  has_group_size = app.given("--group-size");
}

Result<QuantizeTarget> quantize_target(std::string_view command, const QuantizeOptions& options) {
  PACKSTONE_CHECK_OK(check_method(command, options.method));
  if (options.resume)
    return no_effect(fmt::format("cli.{}", command), "--resume", "rtn keeps no journal");
  if (!options.calibration.empty())
    return no_effect(fmt::format("cli.{}", command), "--calibration", "rtn reads no data");
  PACKSTONE_TRY(LayoutTarget layout, parse_layout(command, options.to));
  if (!layout.format && layout.name != "mlx-affine")
    return fail(ErrorCode::kUnsupported, fmt::format("cli.{}", command), "--to",
                fmt::format("`{}`", options.to), std::string(kRtnLayouts));
  Result<QuantizeRequest> request = layout.format ? gguf_request(command, options, *layout.format)
                                                  : mlx_request(command, options);
  if (!request) return std::unexpected(request.error());
  if (!rtn_supports(request->format))
    return fail(ErrorCode::kUnsupported, fmt::format("cli.{}", command), "--to",
                fmt::format("`{}`", options.to), std::string(kRtnLayouts),
                is_float_format(request->format) ? "`convert` decodes to floats" : "");
  return QuantizeTarget{std::move(layout), *request};
}

FloatType metadata_type(const Checkpoint& source) {
  if (source.container == ContainerKind::kGguf || !source.config_json.is_object())
    return FloatType::kF16;
  for (const char* key : {"torch_dtype", "dtype"}) {
    const auto found = source.config_json.find(key);
    if (found == source.config_json.end() || !found->is_string()) continue;
    const std::string& name = found->get_ref<const std::string&>();
    if (name == "bfloat16") return FloatType::kBF16;
    if (name == "float32") return FloatType::kF32;
    return FloatType::kF16;
  }
  return FloatType::kF16;
}

}  // namespace packstone::cli
