#include "packstone/cli/calibration.h"

#include <algorithm>
#include <numeric>
#include <random>

#include "packstone/checkpoint/content_hash.h"
#include "packstone/cli/jsonl.h"
#include "packstone/cli/load.h"

namespace packstone::cli {
namespace {

std::string where(std::string_view command) {
  return fmt::format("cli.{}", command);
}

// The tokens of a text, BOS apart.
Result<std::vector<std::int32_t>> plain_tokens(const Tokenizer& tokenizer, std::string_view text) {
  return tokenizer.try_encode(text, {.parse_special = false, .add_special = false});
}

// BOS, where the model adds it.
std::optional<std::int32_t> default_bos(const Tokenizer& tokenizer) {
  const std::vector<std::int32_t> probe =
      tokenizer.encode("", {.parse_special = false, .add_special = true});
  if (!probe.empty() && tokenizer.bos() && probe.front() == *tokenizer.bos())
    return tokenizer.bos();
  return std::nullopt;
}

Result<std::string> line_of_text(std::string_view command, const std::string& file,
                                 std::size_t number, std::string_view line) {
  const std::optional<Json> json = parse_user_json(line);
  if (json && json->is_string()) return json->get<std::string>();
  if (json && json->is_object()) {
    const auto text = json->find("text");
    if (text != json->end() && text->is_string()) return text->get<std::string>();
  }
  return fail(ErrorCode::kInvalidInput, where(command), fmt::format("{}: line {}", file, number),
              json ? "no text" : "no JSON", "a JSON string or an object with a string \"text\"");
}

Result<std::vector<std::int32_t>> jsonl_tokens(std::string_view command, const std::string& file,
                                               std::string_view text, const Tokenizer& tokenizer) {
  const std::optional<std::int32_t> bos = default_bos(tokenizer);
  std::vector<std::int32_t> tokens;
  for (std::size_t number = 1; !text.empty(); ++number) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    const std::string_view line = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    if (line.find_first_not_of(" \t\r") == std::string_view::npos) continue;
    PACKSTONE_TRY(const std::string document, line_of_text(command, file, number, line));
    PACKSTONE_TRY(const std::vector<std::int32_t> ids, plain_tokens(tokenizer, document));
    if (bos) tokens.push_back(*bos);
    tokens.insert(tokens.end(), ids.begin(), ids.end());
  }
  return tokens;
}

Result<std::vector<std::int32_t>> file_tokens(std::string_view command, const std::string& file,
                                              std::string_view text, const Checkpoint& source,
                                              std::optional<std::int32_t>& bos) {
  if (file.ends_with(".json")) {
    const std::optional<Json> json = parse_user_json(text);
    if (!json)
      return fail(ErrorCode::kInvalidInput, where(command), file, "no JSON",
                  "a JSON array of token ids", "text may have any other name");
    return json_ids(command, *json, source.config.vocab);
  }
  PACKSTONE_TRY(const Tokenizer tokenizer, checkpoint_tokenizer(source));
  bos = default_bos(tokenizer);
  if (file.ends_with(".jsonl")) return jsonl_tokens(command, file, text, tokenizer);
  return plain_tokens(tokenizer, text);
}

// The first `count` of a permutation that the seed alone decides.
std::vector<std::int64_t> choose(std::int64_t chunks, std::int64_t count, std::uint64_t seed) {
  std::vector<std::int64_t> order(static_cast<std::size_t>(chunks));
  std::iota(order.begin(), order.end(), std::int64_t{0});
  std::mt19937_64 random(seed);
  for (std::size_t i = 0; i + 1 < order.size(); ++i)
    std::swap(order[i], order[i + random() % (order.size() - i)]);
  order.resize(static_cast<std::size_t>(std::min(chunks, count)));
  return order;
}

}  // namespace

Result<Calibration> read_calibration(std::string_view command, const CalibrationOptions& options,
                                     const Checkpoint& source) {
  PACKSTONE_TRY(const std::string text, read_user_text(options.file));
  std::optional<std::int32_t> bos;
  PACKSTONE_TRY(const std::vector<std::int32_t> tokens,
                file_tokens(command, options.file, text, source, bos));
  const std::int64_t length = options.length;
  if (length > source.config.context)
    return fail(ErrorCode::kInvalidInput, where(command), "--sequence-length",
                fmt::to_string(length),
                fmt::format("at most the model's {}", source.config.context));
  // With BOS in front a sample has one token of text less.
  const std::int64_t step = length - (bos ? 1 : 0);
  Calibration calibration;
  calibration.chunks = step > 0 ? static_cast<std::int64_t>(tokens.size()) / step : 0;
  if (calibration.chunks < 1)
    return fail(ErrorCode::kInvalidInput, where(command), options.file,
                fmt::format("{} tokens", tokens.size()),
                fmt::format("at least one sample of {} tokens", length),
                "give a longer text or a smaller --sequence-length");
  for (const std::int64_t chunk : choose(calibration.chunks, options.samples, options.seed)) {
    std::vector<std::int32_t>& sequence = calibration.sequences.emplace_back();
    if (bos) sequence.push_back(*bos);
    const auto first = tokens.begin() + chunk * step;
    sequence.insert(sequence.end(), first, first + step);
  }
  calibration.sha256 = sha256_text(text);
  std::string ids;
  for (const auto& sequence : calibration.sequences)
    ids += fmt::format("{}\n", fmt::join(sequence, " "));
  calibration.json = {{"sha256", calibration.sha256}, {"tokens_sha256", sha256_text(ids)},
                      {"chunks", calibration.chunks}, {"samples", calibration.sequences.size()},
                      {"sequence_length", length},    {"seed", options.seed}};
  return calibration;
}

}  // namespace packstone::cli
