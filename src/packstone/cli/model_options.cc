#include "packstone/cli/model_options.h"

#include "packstone/cli/arguments.h"
#include "packstone/cli/load.h"

namespace packstone::cli {

Result<LoadedModel> load_model(const std::string& path, const LoadOptions& options,
                               Context& context) {
  PACKSTONE_TRY(Checkpoint checkpoint, open_checkpoint(path));
  PACKSTONE_CHECK_OK(require_supported(checkpoint, "cli.load_model"));
  PACKSTONE_TRY(Tokenizer tokenizer, checkpoint_tokenizer(checkpoint));
  PACKSTONE_TRY(Model model, Model::load(std::move(checkpoint), context.pool(), options));
  return LoadedModel{std::move(model), std::move(tokenizer)};
}

Result<KvType> parse_kv_type(std::string_view command, std::string_view name) {
  if (name == "f32") return KvType::kF32;
  if (name == "f16") return KvType::kF16;
  if (name == "bf16") return KvType::kBF16;
  if (name == "q8_0" || name == "q4_0")
    return fail(ErrorCode::kUnsupported, fmt::format("cli.{}", command), "--kv-type",
                fmt::format("`{}`", name), "f32, f16 or bf16",
                "this build keeps no packed keys and values");
  constexpr std::string_view kTypes[] = {"f32", "f16", "bf16"};
  return no_choice(fmt::format("cli.{}", command), "--kv-type", name, kTypes);
}

double rate(double amount, double seconds) {
  return amount > 0 && seconds > 0 ? amount / seconds : 0;
}

}  // namespace packstone::cli
