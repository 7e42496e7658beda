#include "packstone/checkpoint/checkpoint.h"
#include "packstone/checkpoint/gguf_vocabulary.h"
#include "packstone/checkpoint/json_reader.h"
#include "packstone/container/folder_files.h"

namespace packstone {
namespace {
constexpr std::string_view kWhere = "checkpoint.vocabulary";
constexpr std::uint64_t kTemplateBytesMax = 16'000'000;
}  // namespace

Result<Vocabulary> checkpoint_vocabulary(const Checkpoint& checkpoint) {
  if (checkpoint.container == ContainerKind::kGguf) return vocabulary_from_gguf(checkpoint.gguf);
  const std::string file = (checkpoint.path / "tokenizer.json").string();
  if (checkpoint.tokenizer_json_text.empty())
    return fail(ErrorCode::kNotFound, kWhere, file, "no such file", "a tokenizer.json");
  PACKSTONE_TRY(const auto tokenizer,
                parse_large_json(checkpoint.tokenizer_json_text, kWhere, file));
  nlohmann::ordered_json config;
  if (!checkpoint.tokenizer_config_text.empty()) {
    PACKSTONE_TRY(config, parse_json(checkpoint.tokenizer_config_text, kWhere,
                                     (checkpoint.path / "tokenizer_config.json").string()));
  }
  PACKSTONE_TRY(Vocabulary vocabulary,
                vocabulary_from_json(tokenizer, config, checkpoint.config.vocab));
  // transformers prefers the file to the member of tokenizer_config.json.
  Result<std::string> text =
      internal::read_folder_text(kWhere, checkpoint.path, "chat_template.jinja", kTemplateBytesMax);
  if (text) {
    vocabulary.chat_template = std::move(*text);
  } else if (text.error().code != ErrorCode::kNotFound) {
    return std::unexpected(std::move(text).error());
  }
  return vocabulary;
}

}  // namespace packstone
