// Loading a model to run it, and the options for that.
#pragma once

#include <string_view>

#include "packstone/cli/command.h"
#include "packstone/model/model.h"
#include "packstone/text/tokenizer.h"

namespace packstone::cli {

// The numerics tier of this build: float32 activations, exact weights (kernel/matmul/linear.h).
inline constexpr std::string_view kNumerics = "exact";

struct LoadedModel {
  Model model;
  Tokenizer tokenizer;
};

// Opens a checkpoint, its tokenizer, and binds the weights to kernels.
Result<LoadedModel> load_model(const std::string& path, const LoadOptions& options,
                               Context& context);

// "f32", "f16", "bf16". Errors: kUnsupported for q8_0 and q4_0, kInvalidInput for others.
Result<KvType> parse_kv_type(std::string_view command, std::string_view name);

// amount / seconds, 0 where that is no number.
double rate(double amount, double seconds);

}  // namespace packstone::cli
