// packstone tokenize: ids and pieces of a text, or of every line of a file of JSON strings.
#include "packstone/cli/arguments.h"
#include "packstone/cli/jsonl.h"
#include "packstone/cli/load.h"

namespace packstone::cli {
namespace {

Json token_json(const Tokenizer& tokenizer, std::string_view text, const EncodeOptions& options) {
  const std::vector<std::int32_t> ids = tokenizer.encode(text, options);
  Json pieces = Json::array();
  for (std::int32_t id : ids) pieces.push_back(tokenizer.piece(id));
  Json result;
  result["ids"] = ids;
  result["pieces"] = std::move(pieces);
  return result;
}

Status tokenize_lines(const Tokenizer& tokenizer, const std::string& path,
                      const EncodeOptions& options, Context& context) {
  return each_json_line("tokenize", path, context, [&](const Json& line) -> Result<Json> {
    if (!line.is_string())
      return fail(ErrorCode::kInvalidInput, "cli.tokenize", "line", line.type_name(),
                  "a JSON string");
    return token_json(tokenizer, line.get_ref<const std::string&>(), options);
  });
}

}  // namespace

Result<int> run_tokenize(Arguments arguments, Context& context) {
  Options app(
      "tokenize",
      "Token ids and pieces of a text. Special tokens written in the text are read as such, "
      "and what the model's tokenizer adds (BOS, EOS) is added.");
  std::string model, text, file, lines;
  bool no_special = false;
  app.positional("MODEL", model, "GGUF file, or folder with tokenizer.json");
  app.text("--text", text, "the text");
  app.text("--file", file, "a file with the text");
  app.text("--jsonl", lines, "a file with one JSON string a line; one result a line");
  app.flag("--no-special", no_special, "add nothing, and read special tokens as plain text");
  PACKSTONE_TRY(const Parsed parsed, app.parse(arguments, context));
  if (parsed == Parsed::kHelpShown) return 0;
  if (const int inputs = app.given("--text") + app.given("--file") + app.given("--jsonl");
      inputs != 1)
    return fail(ErrorCode::kInvalidInput, "cli.tokenize", "input",
                fmt::format("{} of --text, --file, --jsonl", inputs), "exactly one of them");
  const EncodeOptions options{.parse_special = !no_special, .add_special = !no_special};
  PACKSTONE_TRY(const Tokenizer tokenizer, load_tokenizer(model));
  if (app.given("--jsonl")) {
    PACKSTONE_CHECK_OK(tokenize_lines(tokenizer, lines, options, context));
    return 0;
  }
  if (app.given("--file")) {
    PACKSTONE_TRY(text, read_user_text(file));
  }
  const Json result = token_json(tokenizer, text, options);
  if (context.json) {
    print_json(context.out, result);
    return 0;
  }
  for (std::size_t i = 0; i < result["ids"].size(); ++i)
    context.out << fmt::format("{}\t{}\n", result["ids"][i].get<std::int32_t>(),
                               json_line(result["pieces"][i]));
  return 0;
}

}  // namespace packstone::cli
