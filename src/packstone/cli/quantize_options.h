// The options of quantize, shared with plan.
#pragma once

#include <optional>
#include <string>

#include "packstone/cli/arguments.h"
#include "packstone/cli/conversion.h"

namespace packstone::cli {

struct QuantizeOptions {
  std::string method, to, calibration;
  int bits = 4;
  int group_size = 64;
  bool resume = false;
  bool has_bits = false, has_group_size = false;

  // Adds --bits and --group-size.
  void add(Options& app);
  // Notes which of them the call has; after parse.
  void read(const Options& app);
};

struct QuantizeTarget {
  LayoutTarget layout;
  QuantizeRequest request;
};

// The checked target. Errors: kInvalidInput for an unknown method, a width or group that the layout
// does not have, or an option without effect; kUnsupported for methods that this build lacks.
Result<QuantizeTarget> quantize_target(std::string_view command, const QuantizeOptions& options);

// The type of scales that a source asks for: its config's torch_dtype; float16 for GGUF and for
// configs without one.
FloatType metadata_type(const Checkpoint& source);

}  // namespace packstone::cli
