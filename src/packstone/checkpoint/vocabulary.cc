#include "packstone/checkpoint/checkpoint.h"
#include "packstone/checkpoint/gguf_vocabulary.h"
#include "packstone/checkpoint/json_reader.h"

namespace packstone {
namespace {
constexpr std::string_view kWhere = "checkpoint.vocabulary";
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
  return vocabulary_from_json(tokenizer, config, checkpoint.config.vocab);
}

}  // namespace packstone
