// packstone generate: text from packed weights.
#include "packstone/model/generate.h"

#include <chrono>

#include "packstone/cli/arguments.h"
#include "packstone/cli/load.h"
#include "packstone/cli/model_options.h"
#include "packstone/cli/output.h"
#include "packstone/cli/process.h"

namespace packstone::cli {
namespace {

struct GenerateCall {
  std::string model, prompt;
  GenerateOptions options;
  std::int64_t context = 0;  // 0: what prompt and answer need
  LoadOptions load;
};

struct Timing {
  double first_token_seconds = 0, prefill_per_s = 0, decode_per_s = 0;
};

Status fit_context(GenerateCall& call, std::int64_t prompt, std::int64_t model_context) {
  const std::int64_t context = call.context > 0 ? call.context : model_context;
  if (context > model_context)
    return fail(ErrorCode::kInvalidInput, "cli.generate", "--context", fmt::format("{}", context),
                fmt::format("at most the model's {}", model_context));
  if (prompt > context)
    return fail(ErrorCode::kInvalidInput, "cli.generate", "prompt",
                fmt::format("{} tokens", prompt), fmt::format("at most {}", context),
                call.context > 0 ? "--context makes room" : "the model reads no more");
  call.options.tokens_max = std::min(call.options.tokens_max, context - prompt + 1);
  return {};
}

// Prints whole UTF-8 characters as they come; the end token is no text.
class TextSink {
 public:
  TextSink(const Tokenizer& tokenizer, const std::vector<std::int32_t>& ends, std::ostream* out)
      : decoder_(tokenizer), ends_(ends), out_(out) {}
  void push(std::int32_t id) {
    if (std::ranges::find(ends_, id) != ends_.end()) return;
    append(decoder_.push(id));
  }
  std::string finish() {
    append(decoder_.finish());
    return std::move(text_);
  }

 private:
  void append(const std::string& piece) {
    text_ += piece;
    if (out_ != nullptr && !piece.empty()) *out_ << piece << std::flush;
  }
  StreamDecoder decoder_;
  const std::vector<std::int32_t>& ends_;
  std::ostream* out_;
  std::string text_;
};

void print_speed(Context& context, std::size_t prompt, const GenerateResult& result,
                 const Timing& timing) {
  context.err << fmt::format(
      "prompt {} tokens, {:.1f} tokens/s; answer {} tokens, {:.1f} tokens/s; first token "
      "after {:.3f} s; peak memory {}; {}\n",
      prompt, timing.prefill_per_s, result.tokens.size(), timing.decode_per_s,
      timing.first_token_seconds, bytes_text(peak_rss_bytes()), result.finish_reason);
}

Json result_json(const std::string& text, const std::vector<std::int32_t>& prompt,
                 const GenerateResult& result, const Timing& timing) {
  Json json;
  json["text"] = text;
  json["tokens"] = result.tokens;
  json["prompt_tokens"] = prompt;
  json["prefill_tokens_per_s"] = timing.prefill_per_s;
  json["decode_tokens_per_s"] = timing.decode_per_s;
  json["time_to_first_token_s"] = timing.first_token_seconds;
  json["peak_rss_bytes"] = peak_rss_bytes();
  json["numerics"] = kNumerics;
  json["finish_reason"] = result.finish_reason;
  return json;
}

Result<int> run_call(GenerateCall& call, Context& context) {
  PACKSTONE_TRY(LoadedModel loaded, load_model(call.model, call.load, context));
  const ModelConfig& config = loaded.model.config();
  const std::vector<std::int32_t> prompt = loaded.tokenizer.encode(call.prompt);
  PACKSTONE_CHECK_OK(fit_context(call, static_cast<std::int64_t>(prompt.size()), config.context));
  call.options.end_tokens = end_tokens(config.eos, loaded.tokenizer.end_tokens(), config.vocab);
  TextSink sink(loaded.tokenizer, call.options.end_tokens, context.json ? nullptr : &context.out);
  using Clock = std::chrono::steady_clock;
  const Clock::time_point start = Clock::now();
  Timing timing;
  const auto on_token = [&](std::int32_t id) {
    if (timing.first_token_seconds == 0)
      timing.first_token_seconds = std::chrono::duration<double>(Clock::now() - start).count();
    sink.push(id);
  };
  PACKSTONE_TRY(const GenerateResult result,
                generate(loaded.model, prompt, std::min(loaded.tokenizer.size(), config.vocab),
                         call.options, on_token, &context.cancel));
  const std::string text = sink.finish();
  timing.prefill_per_s = rate(static_cast<double>(prompt.size()), result.prefill_seconds);
  timing.decode_per_s = rate(static_cast<double>(result.tokens.size()) - 1, result.decode_seconds);
  if (context.json)
    print_json(context.out, result_json(text, prompt, result, timing));
  else
    context.out << '\n' << std::flush;
  print_speed(context, prompt.size(), result, timing);
  return result.finish_reason == "cancelled" ? 130 : 0;
}

}  // namespace

Result<int> run_generate(Arguments arguments, Context& context) {
  Options app(
      "generate",
      "Text from a model's packed weights. The prompt is read as the model's tokenizer does "
      "(special tokens "
      "written in it count). The same seed gives the same text, for any number of threads.");
  GenerateCall call;
  SamplerOptions& sampler = call.options.sampler;
  std::string kv_type = "f32";
  app.positional("MODEL", call.model, "GGUF file or folder");
  app.required("-p,--prompt", call.prompt, "the prompt");
  app.number("--max-tokens", call.options.tokens_max, 1, std::int64_t{1} << 30,
             "tokens of the answer at most; default 128");
  app.number("--temp", sampler.temperature, 0, 100, "temperature; default 0, greedy");
  app.number("--top-p", sampler.top_p, 0, 1, "nucleus; default 1, all");
  app.number("--top-k", sampler.top_k, -1, 1 << 30, "the K most likely; default 0, all");
  app.number("--min-p", sampler.min_p, 0, 1, "share of the most likely; default 0, all");
  app.number("--seed", sampler.seed, "of the sampler; default 0");
  app.text("--kv-type", kv_type, "f32, f16 or bf16: how keys and values are kept; default f32");
  app.number("--context", call.context, 1, std::int64_t{1} << 40,
             "tokens of prompt and answer at most; default the model's");
  PACKSTONE_TRY(const Parsed parsed, app.parse(arguments, context));
  if (parsed == Parsed::kHelpShown) return 0;
  for (const char* option : {"--top-p", "--top-k", "--min-p"})
    if (sampler.temperature == 0 && app.given(option))
      return no_effect("cli.generate", option, "--temp is 0, so nothing is drawn",
                       "--temp 0.8 draws");
  PACKSTONE_TRY(call.load.kv_type, parse_kv_type("generate", kv_type));
  return run_call(call, context);
}

}  // namespace packstone::cli
