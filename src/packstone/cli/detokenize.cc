// packstone detokenize: the exact bytes of token ids.
#include <charconv>

#include "packstone/cli/arguments.h"
#include "packstone/cli/jsonl.h"
#include "packstone/cli/load.h"

namespace packstone::cli {
namespace {

Status check_id(std::int64_t id, const Tokenizer& tokenizer) {
  if (id >= 0 && id < tokenizer.size()) return {};
  return fail(ErrorCode::kInvalidInput, "cli.detokenize", "id", fmt::format("{}", id),
              fmt::format("an id in [0, {})", tokenizer.size()));
}

// "1,2,3", spaces allowed around the numbers.
Result<std::vector<std::int32_t>> parse_ids(std::string_view text, const Tokenizer& tokenizer) {
  std::vector<std::int32_t> ids;
  while (!text.empty()) {
    const std::size_t comma = text.find(',');
    std::string_view word = text.substr(0, comma);
    text = comma == std::string_view::npos ? std::string_view() : text.substr(comma + 1);
    while (word.starts_with(' ')) word.remove_prefix(1);
    while (word.ends_with(' ')) word.remove_suffix(1);
    std::int64_t id = 0;
    const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), id);
    if (error != std::errc() || end != word.data() + word.size() || word.empty())
      return fail(ErrorCode::kInvalidInput, "cli.detokenize", "--ids", fmt::format("`{}`", word),
                  "whole numbers with commas between");
    PACKSTONE_CHECK_OK(check_id(id, tokenizer));
    ids.push_back(static_cast<std::int32_t>(id));
  }
  return ids;
}

}  // namespace

Result<int> run_detokenize(Arguments arguments, Context& context) {
  Options app("detokenize",
              "The exact bytes of tokens, special ones included, without a newline at the end.");
  std::string model, ids_text, lines;
  app.positional("MODEL", model, "GGUF file, or folder with tokenizer.json");
  app.text("--ids", ids_text, "1,2,3");
  app.text("--jsonl", lines, "a file with one list of ids a line; one result a line");
  PACKSTONE_TRY(const Parsed parsed, app.parse(arguments, context));
  if (parsed == Parsed::kHelpShown) return 0;
  if (const int inputs = app.given("--ids") + app.given("--jsonl"); inputs != 1)
    return fail(ErrorCode::kInvalidInput, "cli.detokenize", "input",
                fmt::format("{} of --ids, --jsonl", inputs), "exactly one of them");
  PACKSTONE_TRY(const Tokenizer tokenizer, load_tokenizer(model));
  if (app.given("--jsonl")) {
    PACKSTONE_CHECK_OK(
        each_json_line("detokenize", lines, context, [&](const Json& line) -> Result<Json> {
          PACKSTONE_TRY(const std::vector<std::int32_t> ids,
                        json_ids("detokenize", line, tokenizer.size()));
          return Json{{"text", tokenizer.decode(ids)}};
        }));
    return 0;
  }
  PACKSTONE_TRY(const std::vector<std::int32_t> ids, parse_ids(ids_text, tokenizer));
  const std::string text = tokenizer.decode(ids);
  if (context.json)
    print_json(context.out, Json{{"text", text}});
  else
    context.out << text;
  return 0;
}

}  // namespace packstone::cli
