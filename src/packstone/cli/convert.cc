// packstone convert: codes and metadata move to another layout; no value changes.
#include <chrono>

#include "packstone/cli/arguments.h"
#include "packstone/cli/conversion.h"
#include "packstone/cli/described.h"
#include "packstone/cli/process.h"

namespace packstone::cli {

Result<int> run_convert(Arguments arguments, Context& context) {
  Options app(
      "convert",
      "Exact transcode. Float tensors (norms, biases, unpacked matrices) stay byte for byte, "
      "except "
      "vectors in GGUF, which become float32. A packed tensor moves only if every value stays: "
      "with --to gguf:X it becomes X if X is exact, else the exact gguf layout of fewest bytes; "
      "with "
      "--to mlx-affine the narrowest exact width. GPTQ act-order that a layout has no place for "
      "moves "
      "in down_proj only, together with the rows of gate_proj and up_proj: its columns sorted by "
      "group, as the conditions say. If one tensor cannot move, nothing is written "
      "and "
      "the exit code is 3. With --to exl3 or paroquant a folder of that layout is copied, tensor "
      "by "
      "tensor. DST is a GGUF file for a gguf: layout or a name ending in .gguf, else a "
      "folder. The output is read back, and packstone.certificate.json in the folder, or "
      "DST.certificate.json beside the file, says what it holds and what every tensor keeps; "
      "packstone verify recomputes it.");
  std::string source_path, destination, to;
  bool force = false;
  app.positional("SRC", source_path, "GGUF file or folder");
  app.positional("DST", destination, "what to write");
  app.required("--to", to, "LAYOUT: mlx-affine, gguf:Q4_0, ..., float32");
  app.flag("--force", force, "replace an existing DST");
  PACKSTONE_TRY(const Parsed parsed, app.parse(arguments, context));
  if (parsed == Parsed::kHelpShown) return 0;
  const auto start = std::chrono::steady_clock::now();
  PACKSTONE_TRY(const LayoutTarget layout, parse_layout("convert", to));
  PACKSTONE_TRY(const ContainerKind container, target_container("convert", layout, destination));
  PACKSTONE_TRY(const Checkpoint source, open_checkpoint(source_path));
  PACKSTONE_CHECK_OK(check_described_move(source, layout, "convert"));
  PACKSTONE_CHECK_OK(check_destination("convert", source, destination, container, force));
  PACKSTONE_TRY(ConversionPlan plan, plan_conversion(source, layout, container, std::nullopt,
                                                     Proof::kFull, context, "convert"));
  plan.certify = true;
  return finish_conversion(source, plan, destination, force, start, context, "convert");
}

}  // namespace packstone::cli
