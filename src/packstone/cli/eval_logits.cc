// packstone eval logits: the logits of every position, as one NumPy file.
#include "packstone/base/limits.h"
#include "packstone/cli/arguments.h"
#include "packstone/cli/jsonl.h"
#include "packstone/cli/load.h"
#include "packstone/cli/model_options.h"
#include "packstone/cli/npy.h"
#include "packstone/cli/progress.h"
#include "packstone/container/output_file.h"
#include "packstone/model/evaluate.h"

namespace packstone::cli {
namespace {

constexpr std::int64_t kRowsAtOnce = 32;

struct LogitsCall {
  std::string model, tokens_path, text_path, out;
  bool force = false;
};

Result<std::vector<std::int32_t>> input_tokens(const LogitsCall& call,
                                               const Checkpoint& checkpoint) {
  if (call.tokens_path.empty()) {
    PACKSTONE_TRY(const std::string text, read_user_text(call.text_path));
    PACKSTONE_TRY(const Tokenizer tokenizer, checkpoint_tokenizer(checkpoint));
    return tokenizer.encode(text);
  }
  PACKSTONE_TRY(const std::string text, read_user_text(call.tokens_path));
  const std::optional<Json> json = parse_user_json(text);
  if (!json)
    return fail(ErrorCode::kInvalidInput, "cli.eval_logits", call.tokens_path, "no JSON",
                "a JSON array of ids");
  return json_ids("eval_logits", *json, checkpoint.config.vocab);
}

Status check_out(const LogitsCall& call) {
  std::error_code error;
  if (!std::filesystem::exists(call.out, error) || call.force) return {};
  return fail(ErrorCode::kInvalidInput, "cli.eval_logits", "--out",
              fmt::format("`{}`, which exists", call.out), "a new name", "--force replaces it");
}

Result<int> run_call(const LogitsCall& call, Context& context) {
  PACKSTONE_CHECK_OK(check_out(call));
  PACKSTONE_TRY(Checkpoint checkpoint, open_checkpoint(call.model));
  PACKSTONE_CHECK_OK(require_supported(checkpoint, "cli.eval_logits"));
  PACKSTONE_TRY(const std::vector<std::int32_t> tokens, input_tokens(call, checkpoint));
  PACKSTONE_TRY(Model model, Model::load(std::move(checkpoint), context.pool()));
  const std::int64_t vocab = model.config().vocab;
  const auto count = static_cast<std::int64_t>(tokens.size());
  PACKSTONE_TRY(OutputFile file, OutputFile::create(call.out));
  const std::string header = npy_header(count, vocab);
  PACKSTONE_CHECK_OK(file.write(std::as_bytes(std::span(header))));
  Progress progress(context, "logits", tokens.size());
  const auto sink = [&](std::int64_t, std::span<const float> logits) -> Status {
    progress.add(logits.size() / static_cast<std::size_t>(vocab));
    return file.write(std::as_bytes(logits));
  };
  PACKSTONE_CHECK_OK(each_logits(model, tokens, kRowsAtOnce, sink, &context.cancel));
  PACKSTONE_CHECK_OK(context.check_cancel("eval_logits"));
  PACKSTONE_CHECK_OK(file.commit());
  context.committed = true;
  progress.finish();
  if (context.json)
    print_json(
        context.out,
        Json{{"out", call.out}, {"tokens", count}, {"vocab", vocab}, {"numerics", kNumerics}});
  else
    context.out << fmt::format("{}: float32 [{}, {}]\n", call.out, count, vocab);
  return 0;
}

}  // namespace

Result<int> run_eval_logits(Arguments arguments, Context& context) {
  Options app("eval logits",
              "Writes the float32 logits [tokens, vocab] of one sequence as a NumPy file. --tokens "
              "are taken as they "
              "are; --text is read as the model's tokenizer does.");
  LogitsCall call;
  app.positional("MODEL", call.model, "GGUF file or folder");
  app.text("--tokens", call.tokens_path, "a file with a JSON array of ids");
  app.text("--text", call.text_path, "a file with the text");
  app.required("--out", call.out, "the .npy file to write");
  app.flag("--force", call.force, "replace an existing file");
  PACKSTONE_TRY(const Parsed parsed, app.parse(arguments, context));
  if (parsed == Parsed::kHelpShown) return 0;
  if (const int inputs = app.given("--tokens") + app.given("--text"); inputs != 1)
    return fail(ErrorCode::kInvalidInput, "cli.eval_logits", "input",
                fmt::format("{} of --tokens, --text", inputs), "exactly one of them");
  return run_call(call, context);
}

}  // namespace packstone::cli
