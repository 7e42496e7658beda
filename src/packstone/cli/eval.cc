// packstone eval ppl and eval kld: perplexity of a text, and divergence from another model.
#include <algorithm>
#include <cmath>

#include "packstone/cli/arguments.h"
#include "packstone/cli/load.h"
#include "packstone/cli/model_options.h"
#include "packstone/cli/output.h"
#include "packstone/checkpoint/content_hash.h"
#include "packstone/cli/pins.h"
#include "packstone/cli/process.h"
#include "packstone/cli/progress.h"
#include "packstone/model/evaluate.h"

namespace packstone::cli {
namespace {

struct EvalCall {
  std::string model, against, text_path;
  EvalOptions options;

  void add(Options& app) {
    constexpr std::int64_t kMax = std::int64_t{1} << 30;
    app.positional("MODEL", model, "GGUF file or folder");
    app.required("--text", text_path, "the text to score, UTF-8");
    app.number("--context", options.context, 2, kMax, "tokens of a window; default 512");
    app.number("--stride", options.stride, 1, kMax,
               "tokens between windows' starts; default the window");
    app.number("--from", options.from, 0, kMax,
               "first scored position of a window; default half of it");
  }
};

// The text as one list of tokens, without special tokens unless the model adds BOS by default: then
// BOS stands before the text and in place of the first token of every window, as in llama.cpp's
// perplexity.
struct EvalText {
  std::vector<std::int32_t> tokens;
  std::string sha256;
};

Result<EvalText> read_eval_text(const std::string& path, const Tokenizer& tokenizer,
                                EvalOptions& options) {
  PACKSTONE_TRY(const std::string text, read_user_text(path));
  const std::vector<std::int32_t> probe =
      tokenizer.encode("", {.parse_special = false, .add_special = true});
  if (!probe.empty() && tokenizer.bos() && probe.front() == *tokenizer.bos())
    options.bos = tokenizer.bos();
  EvalText result;
  result.tokens =
      tokenizer.encode(text, {.parse_special = false, .add_special = options.bos.has_value()});
  result.sha256 = sha256_text(text);
  return result;
}

// Progress by windows: the number of windows is known at the first call.
class WindowProgress {
 public:
  explicit WindowProgress(Context& context) : context_(context) {}
  EvalProgress function() {
    return [this](std::int64_t done, std::int64_t total, double) {
      if (!progress_) progress_.emplace(context_, "scoring", static_cast<std::uint64_t>(total));
      progress_->add(1);
      if (done == total) progress_->finish();
    };
  }

 private:
  Context& context_;
  std::optional<Progress> progress_;
};

Status check_window(const EvalCall& call, std::int64_t model_context, std::string_view command) {
  if (call.options.context <= model_context) return {};
  return fail(ErrorCode::kInvalidInput, fmt::format("cli.{}", command), "--context",
              fmt::format("{}", call.options.context),
              fmt::format("at most the model's {}", model_context));
}

// A mean that is not finite says that the model is damaged, and is no result.
Status check_finite(std::string_view command, const std::string& model, double mean) {
  if (std::isfinite(mean)) return {};
  return fail(ErrorCode::kCorruptData, fmt::format("cli.{}", command), model,
              fmt::format("a mean log-likelihood or divergence of {}", mean), "finite logits",
              "the weights hold NaN or infinity, or values that overflow");
}

Json ppl_json(const PerplexityResult& result, const EvalCall& call, const EvalText& text,
              const std::string& model_sha) {
  Json json;
  json["ppl"] = result.ppl;
  json["nll_mean"] = result.nll_mean;
  json["tokens"] = result.scored;
  json["context"] = call.options.context;
  json["text_sha256"] = text.sha256;
  json["model_sha256"] = model_sha;
  json["numerics"] = kNumerics;
  json["nll_error"] = result.nll_error;
  json["windows"] = result.windows;
  json["peak_rss_bytes"] = peak_rss_bytes();
  return json;
}

Result<int> run_ppl(EvalCall& call, Context& context) {
  PACKSTONE_TRY(LoadedModel loaded, load_model(call.model, {}, context));
  PACKSTONE_CHECK_OK(check_window(call, loaded.model.config().context, "eval_ppl"));
  PACKSTONE_TRY(const EvalText text,
                read_eval_text(call.text_path, loaded.tokenizer, call.options));
  WindowProgress progress(context);
  PACKSTONE_TRY(const PerplexityResult result, perplexity(loaded.model, text.tokens, call.options,
                                                          progress.function(), &context.cancel));
  PACKSTONE_CHECK_OK(check_finite("eval_ppl", call.model, result.nll_mean));
  PACKSTONE_TRY(const std::string sha, model_sha256(loaded.model.checkpoint()));
  const Json json = ppl_json(result, call, text, sha);
  if (context.json) {
    print_json(context.out, json);
    return 0;
  }
  context.out << fmt::format(
      "perplexity {:.4f} ({} tokens in {} windows of {}; nll {:.6f} +- {:.6f}; {})\n", result.ppl,
      result.scored, result.windows, call.options.context, result.nll_mean, result.nll_error,
      kNumerics);
  context.out << fmt::format("text sha256  {}\nmodel sha256 {}\n", text.sha256, sha);
  return 0;
}

Result<int> run_kld(EvalCall& call, Context& context) {
  PACKSTONE_TRY(LoadedModel loaded, load_model(call.model, {}, context));
  PACKSTONE_TRY(LoadedModel against, load_model(call.against, {}, context));
  PACKSTONE_CHECK_OK(check_window(call, loaded.model.config().context, "eval_kld"));
  PACKSTONE_CHECK_OK(check_window(call, against.model.config().context, "eval_kld"));
  PACKSTONE_TRY(const EvalText text,
                read_eval_text(call.text_path, loaded.tokenizer, call.options));
  EvalOptions other_options = call.options;
  PACKSTONE_TRY(const EvalText other,
                read_eval_text(call.text_path, against.tokenizer, other_options));
  if (text.tokens != other.tokens || call.options.bos != other_options.bos)
    return fail(ErrorCode::kInvalidInput, "cli.eval_kld", "--against",
                "a model that reads the text as other tokens", "the same tokenizer in both");
  WindowProgress progress(context);
  PACKSTONE_TRY(const DivergenceResult result,
                divergence(loaded.model, against.model, text.tokens, call.options,
                           progress.function(), &context.cancel));
  PACKSTONE_CHECK_OK(check_finite("eval_kld", call.against, result.perplexity_against.nll_mean));
  PACKSTONE_CHECK_OK(check_finite("eval_kld", call.model, result.perplexity.nll_mean));
  PACKSTONE_CHECK_OK(check_finite("eval_kld", call.model, result.kld_mean));
  PACKSTONE_TRY(const std::string sha, model_sha256(loaded.model.checkpoint()));
  PACKSTONE_TRY(const std::string against_sha, model_sha256(against.model.checkpoint()));
  Json json;
  json["kld_mean"] = result.kld_mean;
  json["kld_p99"] = result.kld_p99;
  json["kld_max"] = result.kld_max;
  json["top1_agreement"] = result.top1_agreement;
  const Json ppl = ppl_json(result.perplexity, call, text, sha);
  json["ppl"] = result.perplexity.ppl;
  json["ppl_against"] = result.perplexity_against.ppl;
  for (const auto& [key, value] : ppl.items())
    if (!json.contains(key)) json[key] = value;
  json["model_sha256_against"] = against_sha;
  if (context.json) {
    print_json(context.out, json);
    return 0;
  }
  context.out << fmt::format(
      "KL divergence mean {:.6f}, 99 % {:.6f}, largest {:.6f} nats; top-1 agreement {:.2f} %\n"
      "perplexity {:.4f}, of the other model {:.4f} ({} tokens)\n"
      "text sha256          {}\nmodel sha256         {}\nother model's sha256 {}\n",
      result.kld_mean, result.kld_p99, result.kld_max, 100 * result.top1_agreement,
      result.perplexity.ppl, result.perplexity_against.ppl, result.perplexity.scored, text.sha256,
      sha, against_sha);
  return 0;
}

}  // namespace

Result<int> run_eval_ppl(Arguments arguments, Context& context) {
  Options app("eval ppl",
              "Perplexity of a text. The text is tokenized once and cut into windows; each is "
              "scored from its second "
              "half on, as llama.cpp's perplexity does (--stride and --from change that).");
  EvalCall call;
  call.add(app);
  PACKSTONE_TRY(const Parsed parsed, app.parse(arguments, context));
  if (parsed == Parsed::kHelpShown) return 0;
  return run_ppl(call, context);
}

Result<int> run_eval_kld(Arguments arguments, Context& context) {
  Options app("eval kld",
              "Kullback-Leibler divergence of MODEL from --against (the original) in nats per "
              "scored token, top-1 "
              "agreement, and both perplexities, on the windows of eval ppl.");
  EvalCall call;
  call.add(app);
  app.required("--against", call.against, "the original model");
  PACKSTONE_TRY(const Parsed parsed, app.parse(arguments, context));
  if (parsed == Parsed::kHelpShown) return 0;
  return run_kld(call, context);
}

}  // namespace packstone::cli
