#include "packstone/cli/quantize_options.h"

#include <charconv>

#include "packstone/cli/arguments.h"
#include "packstone/cli/gguf_recipes.h"
#include "packstone/quantize/folder_encode.h"
#include "packstone/quantize/gguf/gguf_encode.h"
#include "packstone/quantize/grid.h"

namespace packstone::cli {
namespace {

struct Method {
  std::string_view name;
  bool calibrated;
  std::string_view share;    // an option of its own: a share from 0 to 1
  std::string_view layouts;  // how the layouts begin that the method is for; empty: any
};
constexpr Method kMethods[] = {{"rtn", false, "", ""},         {"gptq", true, "", ""},
                               {"gptaq", true, "--alpha", ""}, {"foem", true, "--beta", ""},
                               {"fp8", false, "", "fp8"},      {"bnb", false, "", "bnb-"},
                               {"qqq", false, "", "qqq"},      {"awq", true, "", ""}};
// Methods of the design that this build lacks.
constexpr std::string_view kAbsentMethods[] = {"gguf", "exl3", "paroquant"};
constexpr std::string_view kModes[] = {"best", "parity"};
constexpr std::string_view kScales[] = {"row", "tensor", "block"};

std::string where(std::string_view command) {
  return fmt::format("cli.{}", command);
}

std::unexpected<Error> bad_width(std::string_view command, std::string_view option, int got,
                                 std::string_view need) {
  return fail(ErrorCode::kInvalidInput, where(command), option, fmt::format("{}", got), need);
}

Result<Method> find_method(std::string_view command, std::string_view name) {
  std::vector<std::string_view> names;
  for (const Method& method : kMethods) {
    if (method.name == name) return method;
    names.push_back(method.name);
  }
  if (std::ranges::find(kAbsentMethods, name) != std::end(kAbsentMethods))
    return fail(ErrorCode::kUnsupported, where(command), "--method", fmt::format("`{}`", name),
                fmt::format("{}", fmt::join(names, ", ")), "this build has no other method");
  return no_choice(where(command), "--method", name, names);
}

Result<double> parse_number(std::string_view command, std::string_view option,
                            const std::string& text, double low, double high) {
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{} || end != text.data() + text.size() || !(value >= low && value <= high))
    return fail(ErrorCode::kInvalidInput, where(command), option, fmt::format("`{}`", text),
                fmt::format("a number from {} to {}", low, high));
  return value;
}

// The member of a family with the width that the call asks for.
Result<FormatId> member_of(std::string_view command, const LayoutTarget& layout,
                           const QuantizeOptions& options) {
  if (layout.format) {
    const int bits = format_info(*layout.format).code_bits;
    if (options.has_bits && options.bits != bits)
      return bad_width(command, "--bits", options.bits,
                       fmt::format("{}, as {} has", bits, layout.name));
    return *layout.format;
  }
  const auto width = [](FormatId id) { return format_info(id).code_bits; };
  if (layout.name == "qqq" && options.has_group_size && !options.has_bits)
    for (const FormatId id : layout.family)
      if (format_info(id).group_sizes[0] == options.group_size) return id;
  if (!options.has_bits && !layout.family.empty() &&
      width(layout.family.front()) == width(layout.family.back()))
    return layout.family.front();
  std::string widths;
  for (const FormatId id : layout.family) {
    const int bits = format_info(id).code_bits;
    if (bits == options.bits) return id;
    const std::string text = fmt::to_string(bits);
    if (!widths.ends_with(text)) widths += fmt::format("{}{}", widths.empty() ? "" : ", ", text);
  }
  return bad_width(command, "--bits", options.bits, widths);
}

// What fp8 scales belong to: one for each row, one for the tensor, or one for each square block.
Result<FormatParams> fp8_params(std::string_view command, const QuantizeOptions& options) {
  FormatParams params{.group_cols = kWholeRow, .metadata = FloatType::kF32};
  if (options.scales == "block") {
    params.group_cols = params.group_rows = options.has_group_size ? options.group_size : 128;
    return params;
  }
  if (options.has_group_size)
    return no_effect(where(command), "--group-size", "there are no blocks",
                     "--scales block has them");
  if (options.scales == "tensor") params.group_rows = kWholeRow;
  return params;
}

Result<FormatParams> bnb_params(std::string_view command, const QuantizeOptions& options) {
  const int block = options.group_size;
  if (block < 32 || block > 4096 || (block & (block - 1)) != 0)
    return bad_width(command, "--group-size", block, "32, 64, 128, 256, 512, 1024, 2048 or 4096");
  return FormatParams{.group_cols = block};
}

Result<FormatParams> group_of(std::string_view command, const QuantizeOptions& options,
                              FormatId id) {
  const FormatInfo& info = format_info(id);
  const auto sizes = info.group_sizes;
  if (info.layout.starts_with("fp8")) return fp8_params(command, options);
  if (info.layout.starts_with("bnb-") && info.code_bits == 4) return bnb_params(command, options);
  if (sizes.size() == 1 && sizes[0] == kWholeRow && folder_encode_supports(id)) {
    if (options.has_group_size)
      return no_effect(where(command), "--group-size", "this layout has one scale a row");
    return FormatParams{.group_cols = kWholeRow};
  }
  if (sizes.size() == 1 && sizes[0] != kWholeRow) {
    if (options.has_group_size && options.group_size != sizes[0])
      return bad_width(command, "--group-size", options.group_size,
                       fmt::format("{}, as {} has", sizes[0], info.layout));
    return FormatParams{.group_cols = group_cols(id, {}) == sizes[0] ? 0 : sizes[0]};
  }
  if (std::ranges::find(sizes, options.group_size) != sizes.end())
    return FormatParams{.group_cols = options.group_size};
  std::string legal;
  for (const std::int32_t size : sizes)
    if (size != kWholeRow) legal += fmt::format("{}{}", legal.empty() ? "" : ", ", size);
  if (legal.empty())
    return fail(ErrorCode::kUnsupported, where(command), "--to", fmt::format("`{}`", options.to),
                "a layout with scales for groups of columns", "this one has one scale a row");
  return bad_width(command, "--group-size", options.group_size, legal);
}

Status check_layout(std::string_view command, const QuantizeOptions& options, const Method& method,
                    FormatId id) {
  const std::string name = fmt::format("`{}`", options.to);
  if (is_float_format(id))
    return fail(ErrorCode::kUnsupported, where(command), "--to", name, "a packed layout",
                "`convert` decodes to floats");
  if (!format_info(id).layout.starts_with(method.layouts))
    return fail(ErrorCode::kInvalidInput, where(command), "--to", name,
                fmt::format("a layout of {}: {}...", method.name, method.layouts),
                "--method rtn writes the others");
  const bool nearest = options.mode == "parity" && method.calibrated;
  const bool encoder =
      !method.calibrated && (gguf_encode_supports(id) || folder_encode_supports(id));
  if (options.mode == "parity" && !nearest && !encoder && !rtn_supports(id))
    return fail(ErrorCode::kUnsupported, where(command), "--to", name,
                "mlx-affine, fp8, bnb, qqq, mxfp4, mxfp8, nvfp4, or a gguf layout that ggml writes",
                "--mode parity follows the reference programs of these layouts");
  if ((options.mode == "best" || nearest) && !encoder && !Grid::supports(id))
    return fail(ErrorCode::kUnsupported, where(command), "--to", name,
                fmt::format("a layout that {} can write: one with scales for groups of columns",
                            method.name));
  return {};
}

// Of an override: BITS, BITS:GROUP.
bool read_width(std::string_view value, QuantizeOptions& options) {
  const std::size_t colon = value.find(':');
  const auto number = [](std::string_view text, int& out) {
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), out);
    return error == std::errc{} && end == text.data() + text.size() && out > 0;
  };
  options.has_bits = number(value.substr(0, colon), options.bits);
  if (colon == std::string_view::npos) return options.has_bits;
  options.has_group_size = number(value.substr(colon + 1), options.group_size);
  return options.has_bits && options.has_group_size;
}

// REGEX=keep, REGEX=BITS[:GROUP], or REGEX=gguf:TYPE where the target is GGUF.
Result<QuantizeOverride> parse_override(std::string_view command, const std::string& text,
                                        const QuantizeOptions& options, const Method& method,
                                        const LayoutTarget& layout) {
  const std::size_t equals = text.rfind('=');
  const auto bad = [&] {
    return fail(ErrorCode::kInvalidInput, where(command), "--override", fmt::format("`{}`", text),
                layout.gguf ? "REGEX=keep or REGEX=gguf:TYPE"
                            : "REGEX=keep, REGEX=BITS or REGEX=BITS:GROUP");
  };
  if (equals == std::string::npos || equals == 0) return bad();
  const std::string value = text.substr(equals + 1);
  Result<ModulePattern> pattern =
      ModulePattern::start_regex(text.substr(0, equals), true, "--override");
  if (!pattern) {
    pattern.error().code = ErrorCode::kInvalidInput;
    return std::unexpected(pattern.error());
  }
  QuantizeOverride made{"--override " + text, *std::move(pattern), value == "keep", {}, {}};
  if (made.keep) return made;
  QuantizeOptions own = options;
  LayoutTarget target = layout;
  if (layout.gguf) {
    if (!value.starts_with("gguf:")) return bad();
    own.to = value;
    own.has_bits = own.has_group_size = false;
    PACKSTONE_TRY(target, parse_layout(command, value));
  } else if (!read_width(value, own)) {
    return bad();
  }
  PACKSTONE_TRY(made.format, member_of(command, target, own));
  PACKSTONE_CHECK_OK(check_layout(command, own, method, made.format));
  PACKSTONE_TRY(made.params, group_of(command, own, made.format));
  return made;
}

}  // namespace

void QuantizeOptions::add(Options& app) {
  app.texts("--override", overrides,
            "REGEX=VALUE, several times: modules whose name begins with REGEX (the first that "
            "matches counts) get other BITS or BITS:GROUP, another gguf:TYPE, or are `keep`t");
  app.number("--bits", bits, 1, 16, "bits of a code; default 4, or the layout's own");
  app.number("--group-size", group_size, 1, 1 << 20,
             "columns with one scale; default 64, or the layout's own");
  app.text("--mode", mode,
           "best: scales by a search (default); parity: without calibration, the bytes of the "
           "producer: mlx.quantize, ggml, bitsandbytes, GPTQModel; awq: no feedback after the "
           "scales");
  app.text("--scales", scales,
           "fp8: one scale for each row (default), tensor, or block of --group-size (128)");
}

void QuantizeOptions::add_calibration(Options& app) {
  app.text("--calibration", calibration.file,
           "text, .jsonl with a \"text\" a line, or .json with token ids");
  app.number("--samples", calibration.samples, 1, 1 << 20, "pieces of the text; default 128");
  app.number("--sequence-length", calibration.length, 2, 1 << 20, "tokens of a piece; default 512");
  app.number("--seed", calibration.seed, "picks the pieces; default 123");
  app.text("--damping", damping, "share of the mean diagonal added to the Hessian; default 0.01");
  app.text("--alpha", alpha, "gptaq: share of the inputs' drift that is made good; default 0.25");
  app.text("--beta", beta, "foem: share of the drift that is taken back; default 0.2");
}

Status QuantizeOptions::read(const Options& app, std::string_view command) {
  has_bits = app.given("--bits");
  has_group_size = app.given("--group-size");
  PACKSTONE_TRY(const Method chosen, find_method(command, method));
  if (std::ranges::find(kModes, mode) == std::end(kModes))
    return no_choice(where(command), "--mode", mode, kModes);
  if (std::ranges::find(kScales, scales) == std::end(kScales))
    return no_choice(where(command), "--scales", scales, kScales);
  if (app.given("--scales") && !to.starts_with("fp8"))
    return no_effect(where(command), "--scales", fmt::format("{} has its own", to));
  if (command != "quantize") return {};
  if (!chosen.calibrated)
    for (const char* option :
         {"--calibration", "--samples", "--sequence-length", "--seed", "--damping"})
      if (app.given(option))
        return no_effect(where(command), option, fmt::format("{} reads no data", method));
  for (const char* option : {"--alpha", "--beta"})
    if (chosen.share != option && app.given(option))
      return no_effect(where(command), option, fmt::format("{} has no such share", method));
  if (chosen.calibrated && calibration.file.empty())
    return fail(ErrorCode::kInvalidInput, where(command), "--calibration", "no file",
                fmt::format("a text that {} looks at the model with", method));
  return {};
}

Result<QuantizeTarget> quantize_target(std::string_view command, const QuantizeOptions& options) {
  PACKSTONE_TRY(const Method method, find_method(command, options.method));
  if (options.resume && !method.calibrated)
    return no_effect(where(command), "--resume",
                     fmt::format("{} keeps no journal", options.method));
  if (options.mode == "parity" && method.calibrated && method.name != "awq")
    return no_effect(where(command), "--mode",
                     fmt::format("{} has no mode parity", options.method));
  const GgufRecipe* recipe = find_recipe(options.to);
  PACKSTONE_TRY(LayoutTarget layout,
                parse_layout(command, recipe == nullptr
                                          ? options.to
                                          : format_info(*find_format(recipe->type)).layout));
  if (layout.described)
    return fail(ErrorCode::kUnsupported, fmt::format("cli.{}", command), "--to",
                fmt::format("`{}`", layout.name), "a layout that this build makes",
                "a folder of this layout is copied by `convert`");
  PACKSTONE_TRY(const FormatId id, member_of(command, layout, options));
  PACKSTONE_CHECK_OK(check_layout(command, options, method, id));
  PACKSTONE_TRY(const FormatParams params, group_of(command, options, id));
  const bool reference = options.mode == "parity" && !method.calibrated;
  std::vector<QuantizeOverride> overrides;
  for (const std::string& text : options.overrides) {
    PACKSTONE_TRY(QuantizeOverride one, parse_override(command, text, options, method, layout));
    overrides.push_back(std::move(one));
  }
  QuantizeTarget target{
      std::move(layout), {id, params, reference, std::move(overrides)}, std::nullopt, recipe};
  if (!method.calibrated) return target;
  CalibratedMethod& calibrated = target.calibrated.emplace();
  constexpr double kLeast = 1e-9, kMost = 0.999999999;  // the ends of (0, 1) raise
  PACKSTONE_TRY(calibrated.damping,
                parse_number(command, "--damping", options.damping, kLeast, kMost));
  calibrated.scaled = method.name == "awq";
  calibrated.nearest = calibrated.scaled && options.mode == "parity";
  const auto share = [&](const std::string& text) {
    return parse_number(command, method.share, text, 0, 1);
  };
  if (method.share == "--beta") {
    PACKSTONE_TRY(const double beta, share(options.beta));
    calibrated.feedback.beta = static_cast<float>(beta);
  }
  if (method.share == "--alpha") {
    PACKSTONE_TRY(const double alpha, share(options.alpha));
    calibrated.feedback.alpha = static_cast<float>(alpha);
    calibrated.against_original = alpha != 0;
  }
  return target;
}

namespace {

bool chooses_metadata(FormatId id) {
  if (format_info(id).layout.starts_with("fp8")) return false;  // float32, as producers do
  return std::ranges::any_of(format_info(id).params, [](const auto& spec) {
    return spec.coding == ParamCoding::kMetadata;
  });
}

}  // namespace

void complete_request(const Checkpoint& source, QuantizeTarget& target) {
  QuantizeRequest& request = target.request;
  if (target.recipe != nullptr) apply_recipe(*target.recipe, source, request);
  if (source.container == ContainerKind::kGguf || !source.config_json.is_object()) return;
  for (const char* key : {"torch_dtype", "dtype"}) {
    const auto found = source.config_json.find(key);
    if (found == source.config_json.end() || !found->is_string()) continue;
    const std::string& name = found->get_ref<const std::string&>();
    if (name != "bfloat16" && name != "float32") return;
    const FloatType type = name == "float32" ? FloatType::kF32 : FloatType::kBF16;
    if (chooses_metadata(request.format)) request.params.metadata = type;
    for (QuantizeOverride& own : request.overrides)
      if (chooses_metadata(own.format)) own.params.metadata = type;
    return;
  }
}

}  // namespace packstone::cli
