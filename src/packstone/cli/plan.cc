// packstone plan: what a convert or quantize would do, from headers only.
#include "packstone/cli/arguments.h"
#include "packstone/cli/described.h"
#include "packstone/cli/layer_scales.h"
#include "packstone/cli/process.h"
#include "packstone/cli/quantize_options.h"

namespace packstone::cli {
namespace {

// One core of the slowest machine measured moved this many packed bytes a second through the
// derived transcode, and rounded this many weights; the plan's time is an order of magnitude.
constexpr double kMoveBytesPerSecond = 50e6;
constexpr double kRoundWeightsPerSecond = 15e6;

double predicted_seconds(const ConversionPlan& plan, int threads) {
  double seconds = 0;
  for (const TensorPlan& tensor : plan.tensors) {
    const Shape shape = tensor.source->weight.shape();
    const double weights = static_cast<double>(shape.rows) * static_cast<double>(shape.cols);
    if (tensor.action == Action::kQuantize)
      seconds += weights / kRoundWeightsPerSecond / threads;
    else if (tensor.action == Action::kTranscode)
      seconds += static_cast<double>(tensor.bytes) / kMoveBytesPerSecond / threads;
  }
  return seconds + static_cast<double>(plan.bytes) / 1e9;
}

}  // namespace

Result<int> run_plan(Arguments arguments, Context& context) {
  Options app("plan",
              "Dry run from headers only: for every tensor the best verdict that a convert can "
              "give (its proof reads "
              "the values and may still refuse), or with --method what quantize would change; the "
              "size of the result, "
              "the predicted peak memory and time. With --to gguf:X a packed tensor becomes X if X "
              "is exact, "
              "else the exact gguf layout of fewest bytes. A plan with refusals is exit 3.");
  std::string path;
  QuantizeOptions options;
  app.positional("SRC", path, "GGUF file or folder");
  app.required("--to", options.to, "LAYOUT: mlx-affine, gguf:Q4_0, ..., float32");
  app.text("--method", options.method,
           "rtn, gptq, gptaq, foem, awq, fp8, bnb or qqq: plan a quantize");
  options.add(app);
  PACKSTONE_TRY(const Parsed parsed, app.parse(arguments, context));
  if (parsed == Parsed::kHelpShown) return 0;
  LayoutTarget layout;
  std::optional<QuantizeTarget> target;
  if (app.given("--method")) {
    PACKSTONE_CHECK_OK(options.read(app, "plan"));
    PACKSTONE_TRY(target, quantize_target("plan", options));
    layout = target->layout;
  } else {
    for (const char* option : {"--bits", "--group-size", "--mode", "--scales", "--override"})
      if (app.given(option))
        return no_effect("cli.plan", option, "a convert keeps the codes", "--method rtn uses it");
    PACKSTONE_TRY(layout, parse_layout("plan", options.to));
  }
  PACKSTONE_TRY(const Checkpoint source, open_checkpoint(path));
  PACKSTONE_CHECK_OK(target ? require_supported(source, "cli.plan")
                            : check_described_move(source, layout, "plan"));
  std::optional<QuantizeRequest> request;
  if (target) {
    complete_request(source, *target);
    request = target->request;
  }
  const std::optional<CalibratedMethod> calibrated = target ? target->calibrated : std::nullopt;
  const ContainerKind container = layout.gguf ? ContainerKind::kGguf : ContainerKind::kFolder;
  PACKSTONE_TRY(ConversionPlan plan, plan_conversion(source, layout, container, request,
                                                     Proof::kHeaders, context, "plan"));
  if (calibrated && calibrated->scaled) plan_scales(source, plan);
  if (calibrated)  // with the samples that quantize takes when it is not told
    plan.peak_memory_predicted += calibrated_memory(
        source, plan, *calibrated, options.calibration.samples, options.calibration.length);
  const double seconds = predicted_seconds(plan, context.pool().size());
  if (context.json) {
    Json document = conversion_json(plan);
    document["peak_memory_measured"] = nullptr;
    document["seconds"] = seconds;
    print_json(context.out, document);
  } else {
    print_conversion(context.out, plan, true);
    context.out << fmt::format("predicted peak memory {}, predicted time {:.0f} s\n",
                               bytes_text(plan.peak_memory_predicted), seconds);
  }
  return plan.refused() ? 3 : 0;
}

}  // namespace packstone::cli
