// The options of quantize, shared with plan.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "packstone/cli/arguments.h"
#include "packstone/cli/calibrated.h"
#include "packstone/cli/conversion.h"
#include "packstone/cli/gguf_recipes.h"

namespace packstone::cli {

struct QuantizeOptions {
  std::string method, to;
  std::string mode = "best", scales = "row";
  int bits = 4;
  int group_size = 64;
  CalibrationOptions calibration;
  std::string damping = "0.01", beta = "0.2", alpha = "0.25";
  std::vector<std::string> overrides;  // REGEX=VALUE
  bool resume = false;
  bool has_bits = false, has_group_size = false;

  // Adds the options that quantize and plan share, and those that calibration has.
  void add(Options& app);
  void add_calibration(Options& app);
  // Notes which of them the call has; after parse. Errors: kInvalidInput for an option without
  // effect under the method.
  Status read(const Options& app, std::string_view command);
};

// Errors: kInvalidInput for an unknown method, a width or group that the layout does not have, or
// an option without effect; kUnsupported for methods that this build lacks.
struct QuantizeTarget {
  LayoutTarget layout;
  QuantizeRequest request;
  std::optional<CalibratedMethod> calibrated;  // of a method with calibration
  const GgufRecipe* recipe = nullptr;          // of a layout that is a mix
};
Result<QuantizeTarget> quantize_target(std::string_view command, const QuantizeOptions& options);

// complete_request(source, target): what only the source tells: scales that are stored in a float
// type of choice take the source's (its config's torch_dtype; float16 for GGUF and for configs
// without one), and a recipe gives each matrix its type. Errors: none.
void complete_request(const Checkpoint& source, QuantizeTarget& target);

}  // namespace packstone::cli
