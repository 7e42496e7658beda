// What every command of the program is given and gives back.
#pragma once

#include <atomic>
#include <memory>
#include <ostream>
#include <span>
#include <string>
#include <string_view>

#include "packstone/base/result.h"
#include "packstone/base/thread_pool.h"

namespace packstone::cli {

// The world outside of a command, and the options that all commands share.
struct Context {
  Context(std::ostream& out_stream, std::ostream& err_stream, bool err_is_terminal,
          const std::atomic<bool>& cancel_flag)
      : out(out_stream), err(err_stream), terminal(err_is_terminal), cancel(cancel_flag) {}

  std::ostream& out;                // results only
  std::ostream& err;                // messages and progress
  bool terminal;                    // err is a terminal: progress is a bar
  const std::atomic<bool>& cancel;  // set by the first interrupt

  bool json = false;
  int threads = 0;  // 0: default_thread_count()

  // The command's output is complete on disk: what it still prints may fail without being a failure
  // of the command.
  bool committed = false;

  // The program's pool, made at the first call.
  ThreadPool& pool();
  // The error of an interrupt, if there was one.
  Status check_cancel(std::string_view command) const;

 private:
  std::unique_ptr<ThreadPool> pool_;
};

using Arguments = std::span<const std::string>;

// A command returns its exit code, or an error that run_cli prints and maps to one.
using CommandFunction = Result<int> (*)(Arguments arguments, Context& context);

// One line of the table of commands. `name` is one word, or two ("eval ppl").
struct Command {
  std::string_view name;
  std::string_view summary;
  CommandFunction run;
};

// The table of commands, in the order of --help.
std::span<const Command> commands();

// One function a command; `arguments` are those after its name.
// What a model is.
Result<int> run_inspect(Arguments arguments, Context& context);
// Dry run of convert or quantize.
Result<int> run_plan(Arguments arguments, Context& context);
// Exact transcode.
Result<int> run_convert(Arguments arguments, Context& context);
// The certificate of a convert, recomputed.
Result<int> run_verify(Arguments arguments, Context& context);
// Fewer bits; values change.
Result<int> run_quantize(Arguments arguments, Context& context);
// Two models, tensor by tensor.
Result<int> run_diff(Arguments arguments, Context& context);
// Text from a model.
Result<int> run_generate(Arguments arguments, Context& context);
// Text to ids.
Result<int> run_tokenize(Arguments arguments, Context& context);
// Ids to text.
Result<int> run_detokenize(Arguments arguments, Context& context);
// Perplexity.
Result<int> run_eval_ppl(Arguments arguments, Context& context);
// Divergence from another model.
Result<int> run_eval_kld(Arguments arguments, Context& context);
// Logits to a NumPy file.
Result<int> run_eval_logits(Arguments arguments, Context& context);
// Prefill and decode speed.
Result<int> run_bench_model(Arguments arguments, Context& context);
// Speed of one linear layer.
Result<int> run_bench_kernel(Arguments arguments, Context& context);
// The table of layouts.
Result<int> run_formats(Arguments arguments, Context& context);

}  // namespace packstone::cli
