#include "packstone/cli/app.h"

#include <algorithm>
#include <array>
#include <new>
#include <nlohmann/json.hpp>

#include "packstone/cli/arguments.h"
#include "packstone/cli/command.h"
#include "packstone/cli/output.h"
#include "packstone/container/names.h"

namespace packstone::cli {
namespace {

constexpr Command kCommands[] = {
    {"inspect", "what a model is: architecture, tensors, layouts, sizes, problems", run_inspect},
    {"plan", "dry run of a convert or quantize, from the headers alone", run_plan},
    {"convert", "exact transcode to another layout: no value changes", run_convert},
    {"verify", "the certificate of a convert, recomputed from the files", run_verify},
    {"quantize", "fewer bits: values change, and the report says by how much", run_quantize},
    {"diff", "two models, tensor by tensor", run_diff},
    {"generate", "text from packed weights", run_generate},
    {"tokenize", "text to token ids", run_tokenize},
    {"detokenize", "token ids to text", run_detokenize},
    {"eval ppl", "perplexity of a text", run_eval_ppl},
    {"eval kld", "KL divergence and top-1 agreement against another model", run_eval_kld},
    {"eval logits", "logits of every position in a NumPy file", run_eval_logits},
    {"bench model", "prefill and decode speed of a model", run_bench_model},
    {"bench kernel", "matrix kernels, checked, then timed", run_bench_kernel},
    {"formats", "the table of layouts", run_formats},
};

void print_help(std::ostream& out) {
  out << "packstone COMMAND ...: quantized weights of language models, exactly.\n\nCommands:\n";
  for (const Command& command : kCommands)
    out << fmt::format("  {:<14}{}\n", command.name, command.summary);
  out << "\npackstone COMMAND --help tells the options of a command. Every command takes --json,\n"
         "--threads N and --device cpu|auto. A model is a GGUF file (any part of a split set) or "
         "a\n"
         "folder in Hugging Face or MLX layout.\n\n"
         "Exit codes: 0 done, 2 the call is wrong, 3 refused because a value would change, 4 the\n"
         "input is damaged, 5 not supported by this build or device, 6 out of a limit (memory,\n"
         "disk), 130 interrupted.\n";
}

struct Found {
  const Command* command = nullptr;
  std::size_t words = 0;
};

// The command named by the first one or two words.
Result<Found> find_command(std::span<const std::string> arguments) {
  std::vector<std::string_view> names, second;
  for (const Command& command : kCommands) {
    const std::string_view name = command.name;
    const std::size_t space = name.find(' ');
    if (space == std::string_view::npos) {
      if (name == arguments[0]) return Found{&command, 1};
      names.push_back(name);
      continue;
    }
    const std::string_view first = name.substr(0, space);
    if (std::ranges::find(names, first) == names.end()) names.push_back(first);
    if (first != arguments[0]) continue;
    if (arguments.size() > 1 && name.substr(space + 1) == arguments[1]) return Found{&command, 2};
    second.push_back(name.substr(space + 1));
  }
  const bool has_second = !second.empty();
  const std::string got = has_second
                              ? (arguments.size() > 1 ? "`" + arguments[1] + "`" : "no second word")
                              : "`" + arguments[0] + "`";
  const std::string_view asked =
      has_second ? (arguments.size() > 1 ? std::string_view(arguments[1]) : std::string_view())
                 : std::string_view(arguments[0]);
  const auto& choices = has_second ? second : names;
  std::string need = "one of";
  for (std::string_view name : choices) need += fmt::format(" {}", name);
  const std::string subject = has_second ? "command " + arguments[0] : "command";
  const std::string hint = asked.empty()
                               ? std::string()
                               : fmt::format("the nearest is `{}`", nearest_name(asked, choices));
  return fail(ErrorCode::kInvalidInput, "cli.run", subject, got, need, hint);
}

int report_error(Error error, const Streams& streams, bool json) {
  error.message = message_text(error.message);
  streams.err << error.message << '\n';
  if (json) {
    Json document;
    document["error"] = error_json(error);
    print_json(streams.out, document);
  }
  return exit_code(error.code);
}

int run_found(const Found& found, std::span<const std::string> arguments, const Streams& streams,
              const std::atomic<bool>& cancel, bool json) {
  Context context(streams.out, streams.err, streams.terminal, cancel);
  Result<int> code = found.command->run(arguments.subspan(found.words), context);
  if (!code) return report_error(code.error(), streams, json);
  streams.out.flush();
  if (!streams.out && context.committed)
    streams.err << "cli.run: standard output: got a failed write of the report; the output is "
                   "complete\n";
  else if (!streams.out)
    return report_error(
        {ErrorCode::kIo, "cli.run: standard output: got a failed write, need an open stream"},
        streams, false);
  return *code;
}

}  // namespace

std::span<const Command> commands() {
  return kCommands;
}

int exit_code(ErrorCode code) {
  switch (code) {
    case ErrorCode::kInvalidInput:
    case ErrorCode::kNotFound:
    case ErrorCode::kIo:
      return 2;
    case ErrorCode::kNotRepresentable:
      return 3;
    case ErrorCode::kCorruptData:
      return 4;
    case ErrorCode::kUnsupported:
    case ErrorCode::kDevice:
      return 5;
    case ErrorCode::kExhausted:
      return 6;
    case ErrorCode::kCancelled:
      return 130;
  }
  return 1;
}

std::string_view error_code_name(ErrorCode code) {
  switch (code) {
    case ErrorCode::kInvalidInput:
      return "invalid_input";
    case ErrorCode::kNotFound:
      return "not_found";
    case ErrorCode::kCorruptData:
      return "corrupt_data";
    case ErrorCode::kUnsupported:
      return "unsupported";
    case ErrorCode::kNotRepresentable:
      return "not_representable";
    case ErrorCode::kExhausted:
      return "exhausted";
    case ErrorCode::kIo:
      return "io";
    case ErrorCode::kDevice:
      return "device";
    case ErrorCode::kCancelled:
      return "cancelled";
  }
  return "defect";
}

int run_cli(std::span<const std::string> arguments, const Streams& streams,
            const std::atomic<bool>& cancel) {
  const bool json = std::ranges::find(arguments, "--json") != arguments.end();
  if (arguments.empty()) {
    print_help(streams.err);
    return report_error(
        {ErrorCode::kInvalidInput, "cli.run: command: got none, need one of the list above"},
        streams, json);
  }
  if (arguments[0] == "--help" || arguments[0] == "-h") {
    print_help(streams.out);
    return 0;
  }
  Result<Found> found = find_command(arguments);
  if (!found) return report_error(found.error(), streams, json);
  try {
    return run_found(*found, arguments, streams, cancel, json);
  } catch (const std::bad_alloc&) {
    return report_error(
        {ErrorCode::kExhausted, "cli.run: memory: got a failed allocation, need more memory"},
        streams, json);
  } catch (const std::exception& defect) {
    streams.err << "cli.run: defect of the program: got " << defect.what() << '\n';
    return 1;
  }
}

}  // namespace packstone::cli
