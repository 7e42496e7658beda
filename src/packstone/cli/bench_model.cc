// packstone bench model: prefill and decode speed, from the packed bytes.
#include <algorithm>
#include <chrono>

#include "packstone/cli/arguments.h"
#include "packstone/cli/model_options.h"
#include "packstone/cli/output.h"
#include "packstone/cli/process.h"
#include "packstone/cli/statistics.h"

namespace packstone::cli {
namespace {

using Clock = std::chrono::steady_clock;

struct BenchCall {
  std::string model, kv_type = "f32";
  std::int64_t prefill = 512, decode = 128, repeats = 3;
};

struct Speeds {
  std::vector<double> prefill, decode;  // tokens a second, one per repeat
};

// Token i of every run; any ids do, since the work does not depend on them.
std::int32_t bench_token(std::int64_t i, std::int64_t vocab) {
  constexpr std::int64_t kStep = 7919;  // a prime: spreads the rows of the embedding
  return static_cast<std::int32_t>(i * kStep % vocab);
}

class Bench {
 public:
  Bench(Model& model, KvCache& cache)
      : model_(model), cache_(&cache), logits_(static_cast<std::size_t>(model.config().vocab)) {}

  // Appends tokens [first, last) in one call; the last one wants logits.
  Status append(std::int64_t first, std::int64_t last) {
    std::vector<BatchRow> rows;
    for (std::int64_t i = first; i < last; ++i)
      rows.push_back({.token = bench_token(i, model_.config().vocab),
                      .position = i,
                      .sequence = 0,
                      .wants_logits = i + 1 == last});
    return model_.forward(rows, {&cache_, 1}, logits_);
  }

 private:
  Model& model_;
  KvCache* cache_;
  std::vector<float> logits_;
};

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

Status run_once(const BenchCall& call, Model& model, KvCache& cache, Speeds& speeds,
                Context& context) {
  cache.truncate(0);
  Bench bench(model, cache);
  const Clock::time_point start = Clock::now();
  const std::int64_t piece = LoadOptions{}.rows_max;
  for (std::int64_t first = 0; first < call.prefill; first += piece) {
    PACKSTONE_CHECK_OK(context.check_cancel("bench_model"));
    PACKSTONE_CHECK_OK(bench.append(first, std::min(call.prefill, first + piece)));
  }
  speeds.prefill.push_back(rate(static_cast<double>(call.prefill), seconds_since(start)));
  const Clock::time_point middle = Clock::now();
  for (std::int64_t i = 0; i < call.decode; ++i) {
    PACKSTONE_CHECK_OK(context.check_cancel("bench_model"));
    PACKSTONE_CHECK_OK(bench.append(call.prefill + i, call.prefill + i + 1));
  }
  speeds.decode.push_back(rate(static_cast<double>(call.decode), seconds_since(middle)));
  return {};
}

Json speed_json(std::int64_t tokens, const std::vector<double>& speeds) {
  Json json;
  json["tokens"] = tokens;
  json["tokens_per_s_median"] = median(speeds);
  json["tokens_per_s"] = speeds;
  return json;
}

Result<int> run_call(const BenchCall& call, Context& context) {
  LoadOptions options;
  PACKSTONE_TRY(options.kv_type, parse_kv_type("bench_model", call.kv_type));
  PACKSTONE_TRY(Checkpoint checkpoint, open_checkpoint(call.model));
  PACKSTONE_TRY(Model model, Model::load(std::move(checkpoint), context.pool(), options));
  PACKSTONE_TRY(const std::unique_ptr<KvCache> cache, model.new_cache(call.prefill + call.decode));
  Speeds warm, speeds;
  BenchCall warm_call = call;
  warm_call.prefill = std::min<std::int64_t>(call.prefill, 32);
  warm_call.decode = std::min<std::int64_t>(call.decode, 4);
  PACKSTONE_CHECK_OK(run_once(warm_call, model, *cache, warm, context));
  for (std::int64_t i = 0; i < call.repeats; ++i) {
    PACKSTONE_CHECK_OK(run_once(call, model, *cache, speeds, context));
    context.err << fmt::format("run {} of {}: prefill {:.1f}, decode {:.1f} tokens/s\n", i + 1,
                               call.repeats, speeds.prefill.back(), speeds.decode.back())
                << std::flush;
  }
  Json json;
  json["prefill"] = speed_json(call.prefill, speeds.prefill);
  json["decode"] = speed_json(call.decode, speeds.decode);
  json["peak_rss_bytes"] = peak_rss_bytes();
  json["numerics"] = kNumerics;
  json["kernels"] = model.kernel_names();
  json["machine"] = machine_name();
  json["threads"] = context.pool().size();
  json["weight_bytes"] = model.weight_bytes();
  if (context.json) {
    print_json(context.out, json);
    return 0;
  }
  context.out << fmt::format(
      "prefill {} tokens: {:.1f} tokens/s (median of {})\ndecode  {} tokens: {:.1f} tokens/s\n"
      "peak memory {}, weights {}, numerics {}\n{}, {} used\n",
      call.prefill, median(speeds.prefill), call.repeats, call.decode, median(speeds.decode),
      bytes_text(peak_rss_bytes()), bytes_text(model.weight_bytes()), kNumerics, machine_name(),
      context.pool().size());
  return 0;
}

}  // namespace

Result<int> run_bench_model(Arguments arguments, Context& context) {
  constexpr std::int64_t kMax = std::int64_t{1} << 24;
  Options app(
      "bench model",
      "Speed of a model: tokens a second of a prompt, and of tokens that follow it one by one.");
  BenchCall call;
  app.positional("MODEL", call.model, "GGUF file or folder");
  app.number("--prefill", call.prefill, 1, kMax, "tokens of the prompt; default 512");
  app.number("--decode", call.decode, 1, kMax, "tokens after it; default 128");
  app.number("--repeats", call.repeats, 1, 1000, "runs; the median counts; default 3");
  app.text("--kv-type", call.kv_type, "f32, f16 or bf16; default f32");
  PACKSTONE_TRY(const Parsed parsed, app.parse(arguments, context));
  if (parsed == Parsed::kHelpShown) return 0;
  return run_call(call, context);
}

}  // namespace packstone::cli
