// packstone quantize: fewer bits a weight; the report says how far the values moved.
#include "packstone/cli/arguments.h"
#include "packstone/cli/layer_scales.h"
#include "packstone/cli/pins.h"
#include "packstone/cli/quantize_options.h"

namespace packstone::cli {
namespace {

// Of the journal: weights of another version of the quantizers do not go together with this one's.
constexpr std::string_view kProgramVersion = "packstone 0.1.0";

// All that decides what a calibrated quantize writes.
Result<Json> call_json(const QuantizeOptions& options, const QuantizeTarget& target,
                       const Calibration& calibration, const Checkpoint& source) {
  PACKSTONE_TRY(const std::string sum, model_sha256(source));
  Json call;
  call["program"] = kProgramVersion;
  call["source_sha256"] = sum;
  call["method"] = options.method;
  call["to"] = format_info(target.request.format).name;
  if (target.recipe != nullptr) call["recipe"] = target.recipe->name;
  call["group_size"] = group_cols(target.request.format, target.request.params);
  call["metadata"] = float_name(target.request.params.metadata);
  call["mode"] = options.mode;
  if (!options.overrides.empty()) call["override"] = options.overrides;
  call["damping"] = options.damping;
  if (target.calibrated->feedback.beta != 0) call["beta"] = options.beta;
  if (target.calibrated->against_original) call["alpha"] = options.alpha;
  call["calibration"] = calibration.json;
  return call;
}

}  // namespace

Result<int> run_quantize(Arguments arguments, Context& context) {
  Options app(
      "quantize",
      "Quantizes every matrix of linear layers and embeddings whose columns divide by the group; "
      "other tensors are kept, exactly, and listed with the reason. The source may be packed "
      "itself. "
      "rtn rounds to nearest, and so do fp8, bnb and qqq, each to layouts of its name. gptq "
      "quantizes layer by layer with the inputs that a calibration "
      "text "
      "gives it, and spreads every error over the columns that follow; foem also takes back a "
      "share of the drift of a column; gptaq makes good a share of what the layers before have "
      "lost. "
      "Scales are stored in the source's float type (config.json) or float16 (GGUF) "
      "where the layout leaves the choice.");
  std::string source_path, destination;
  bool force = false;
  QuantizeOptions options;
  app.positional("SRC", source_path, "GGUF file or folder");
  app.positional("DST", destination, "what to write");
  app.required("--method", options.method, "rtn, gptq, gptaq, foem, awq, fp8, bnb or qqq");
  app.required("--to", options.to,
               "mlx-affine, gguf:Q4_K, gptq, awq-gemm, ...: `packstone formats`");
  options.add(app);
  options.add_calibration(app);
  app.flag("--resume", options.resume,
           "goes on with the journal of a run that was stopped, DST.journal");
  app.flag("--force", force, "replace an existing DST");
  PACKSTONE_TRY(const Parsed parsed, app.parse(arguments, context));
  if (parsed == Parsed::kHelpShown) return 0;
  PACKSTONE_CHECK_OK(options.read(app, "quantize"));
  const auto start = std::chrono::steady_clock::now();
  PACKSTONE_TRY(QuantizeTarget target, quantize_target("quantize", options));
  PACKSTONE_TRY(const ContainerKind container,
                target_container("quantize", target.layout, destination));
  PACKSTONE_TRY(const Checkpoint source, open_checkpoint(source_path));
  PACKSTONE_CHECK_OK(require_supported(source, "cli.quantize"));
  PACKSTONE_CHECK_OK(check_destination("quantize", source, destination, container, force));
  complete_request(source, target);
  PACKSTONE_TRY(ConversionPlan plan,
                plan_conversion(source, target.layout, container, target.request, Proof::kFull,
                                context, "quantize"));
  std::optional<Journal> journal;
  if (target.calibrated && !plan.refused()) {
    PACKSTONE_TRY(const Calibration calibration,
                  read_calibration("quantize", options.calibration, source));
    plan.calibration = calibration.json;
    if (target.calibrated->scaled) plan_scales(source, plan);
    plan.peak_memory_predicted += calibrated_memory(
        source, plan, *target.calibrated, static_cast<std::int64_t>(calibration.sequences.size()),
        static_cast<std::int64_t>(calibration.sequences.front().size()));
    PACKSTONE_TRY(const Json call, call_json(options, target, calibration, source));
    PACKSTONE_TRY(journal, Journal::open(destination, call, options.resume, force, context));
    PACKSTONE_CHECK_OK(quantize_calibrated(source, calibration, *target.calibrated, *journal, plan,
                                           context, "quantize"));
  }
  const Result<int> code =
      finish_conversion(source, plan, destination, force, start, context, "quantize");
  if (code && *code == 0 && journal) journal->remove();
  return code;
}

}  // namespace packstone::cli
