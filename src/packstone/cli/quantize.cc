// packstone quantize: fewer bits a weight; the report says how far the values moved.
#include "packstone/cli/arguments.h"
#include "packstone/cli/quantize_options.h"

namespace packstone::cli {

Result<int> run_quantize(Arguments arguments, Context& context) {
  Options app(
      "quantize",
      "Quantizes every matrix of linear layers and embeddings whose columns divide by the group; "
      "other "
      "tensors are kept, exactly, and listed with the reason. The source may be packed itself. "
      "mlx-affine takes 2, 3, 4, 5, 6 or 8 bits in groups of 32, 64 or 128, with scales in the "
      "source's "
      "float type (config.json) or float16 (GGUF). gguf:Q4_0, gguf:Q4_1 and gguf:Q8_0 follow "
      "ggml's "
      "reference rules.");
  std::string source_path, destination;
  bool force = false;
  QuantizeOptions options;
  app.positional("SRC", source_path, "GGUF file or folder");
  app.positional("DST", destination, "what to write");
  app.required("--method", options.method, "rtn: round to nearest");
  app.required("--to", options.to, "mlx-affine, gguf:Q4_0, gguf:Q4_1 or gguf:Q8_0");
  options.add(app);
  app.text("--calibration", options.calibration, "has no effect with rtn");
  app.hide("--calibration");
  app.flag("--resume", options.resume, "has no effect with rtn");
  app.hide("--resume");
  app.flag("--force", force, "replace an existing DST");
  PACKSTONE_TRY(const Parsed parsed, app.parse(arguments, context));
  if (parsed == Parsed::kHelpShown) return 0;
  options.read(app);
  const auto start = std::chrono::steady_clock::now();
  PACKSTONE_TRY(QuantizeTarget target, quantize_target("quantize", options));
  PACKSTONE_TRY(const ContainerKind container,
                target_container("quantize", target.layout, destination));
  PACKSTONE_TRY(const Checkpoint source, open_checkpoint(source_path));
  PACKSTONE_CHECK_OK(require_supported(source, "cli.quantize"));
  PACKSTONE_CHECK_OK(check_destination("quantize", source, destination, container, force));
  if (is_mlx_format(target.request.format)) target.request.params.metadata = metadata_type(source);
  PACKSTONE_TRY(ConversionPlan plan,
                plan_conversion(source, target.layout, container, target.request, Proof::kFull,
                                context, "quantize"));
  return finish_conversion(source, plan, destination, force, start, context, "quantize");
}

}  // namespace packstone::cli
