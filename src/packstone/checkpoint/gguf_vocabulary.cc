#include "packstone/checkpoint/gguf_vocabulary.h"

#include "packstone/base/limits.h"

namespace packstone {
namespace {

constexpr std::string_view kWhere = "checkpoint.vocabulary";

std::string key_name(std::string_view key) {
  return fmt::format("tokenizer.ggml.{}", key);
}

template <class T>
Result<std::vector<T>> array_of(const GgufFile& gguf, std::string_view key) {
  const GgufValue* value = gguf.find(key_name(key));
  if (value == nullptr) return std::vector<T>();
  const GgufArray* array = std::get_if<GgufArray>(value);
  const auto* items = array ? std::get_if<std::vector<T>>(&array->items) : nullptr;
  if (items == nullptr)
    return fail(ErrorCode::kCorruptData, kWhere, fmt::format("'{}'", key_name(key)), "another type",
                "an array of the type that llama.cpp writes");
  return *items;
}

// The keys of single tokens, with llama.cpp's spelling of "separator".
constexpr std::pair<std::string_view, std::optional<std::int32_t> Vocabulary::*> kTokenKeys[] = {
    {"bos_token_id", &Vocabulary::bos},
    {"eos_token_id", &Vocabulary::eos},
    {"eot_token_id", &Vocabulary::eot},
    {"unknown_token_id", &Vocabulary::unknown},
    {"seperator_token_id", &Vocabulary::separator},
    {"padding_token_id", &Vocabulary::padding},
    {"mask_token_id", &Vocabulary::mask},
};
constexpr std::pair<std::string_view, std::optional<bool> Vocabulary::*> kFlagKeys[] = {
    {"add_bos_token", &Vocabulary::add_bos},
    {"add_eos_token", &Vocabulary::add_eos},
    {"add_space_prefix", &Vocabulary::add_space_prefix},
};

Status read_tokens(const GgufFile& gguf, Vocabulary& vocabulary) {
  for (const auto& [key, member] : kTokenKeys) {
    PACKSTONE_TRY(const std::optional<std::int64_t> id, gguf.integer(key_name(key)));
    // Writers store -1 for "none"; an id past the list means nothing either.
    if (id && *id >= 0 && *id < static_cast<std::int64_t>(vocabulary.tokens.size()))
      vocabulary.*member = static_cast<std::int32_t>(*id);
  }
  for (const auto& [key, member] : kFlagKeys) {
    PACKSTONE_TRY(vocabulary.*member, gguf.boolean(key_name(key)));
  }
  PACKSTONE_TRY(vocabulary.chat_template, gguf.text("tokenizer.chat_template"));
  return {};
}

Status check_counts(const Vocabulary& vocabulary) {
  const std::size_t count = vocabulary.tokens.size();
  const auto one_each = [&](std::string_view key, std::size_t size) -> Status {
    if (size == 0 || size == count) return {};
    return fail(ErrorCode::kCorruptData, kWhere, fmt::format("'{}'", key_name(key)),
                fmt::format("{} entries", size), fmt::format("one for each of {} tokens", count));
  };
  PACKSTONE_CHECK_OK(one_each("scores", vocabulary.scores.size()));
  return one_each("token_type", vocabulary.types.size());
}

}  // namespace

Result<Vocabulary> vocabulary_from_gguf(const GgufFile& gguf) {
  Vocabulary vocabulary;
  PACKSTONE_TRY(const auto model, gguf.text(key_name("model")));
  if (!model)
    return fail(ErrorCode::kNotFound, kWhere, "'tokenizer.ggml.model'", "no such key",
                "a tokenizer in the file");
  vocabulary.model = *model;
  PACKSTONE_TRY(const auto pre, gguf.text(key_name("pre")));
  vocabulary.pre = pre.value_or("default");
  PACKSTONE_TRY(vocabulary.tokens, array_of<std::string>(gguf, "tokens"));
  if (vocabulary.tokens.size() > static_cast<std::size_t>(limits::kVocabularyMax))
    return fail(ErrorCode::kCorruptData, kWhere, "'tokenizer.ggml.tokens'",
                fmt::format("{} tokens", vocabulary.tokens.size()),
                fmt::format("at most {}", limits::kVocabularyMax));
  PACKSTONE_TRY(vocabulary.scores, array_of<float>(gguf, "scores"));
  PACKSTONE_TRY(const auto types, array_of<std::int32_t>(gguf, "token_type"));
  for (const std::int32_t type : types)
    vocabulary.types.push_back(type >= 0 && type <= 6 ? static_cast<TokenType>(type)
                                                      : TokenType::kUndefined);
  PACKSTONE_TRY(vocabulary.merges, array_of<std::string>(gguf, "merges"));
  PACKSTONE_CHECK_OK(check_counts(vocabulary));
  PACKSTONE_CHECK_OK(read_tokens(gguf, vocabulary));
  return vocabulary;
}

std::vector<GgufKey> gguf_token_id_keys(const Vocabulary& vocabulary) {
  std::vector<GgufKey> keys;
  for (const auto& [key, member] : kTokenKeys)
    if (const auto& id = vocabulary.*member)
      keys.push_back({key_name(key), static_cast<std::uint32_t>(*id)});
  return keys;
}

std::vector<GgufKey> gguf_vocabulary_keys(const Vocabulary& vocabulary) {
  std::vector<GgufKey> keys;
  keys.push_back({key_name("model"), vocabulary.model});
  keys.push_back({key_name("pre"), vocabulary.pre});
  keys.push_back({key_name("tokens"), GgufArray{vocabulary.tokens}});
  if (!vocabulary.scores.empty())
    keys.push_back({key_name("scores"), GgufArray{vocabulary.scores}});
  if (!vocabulary.types.empty()) {
    std::vector<std::int32_t> types;
    for (const TokenType type : vocabulary.types) types.push_back(static_cast<std::int32_t>(type));
    keys.push_back({key_name("token_type"), GgufArray{std::move(types)}});
  }
  if (!vocabulary.merges.empty())
    keys.push_back({key_name("merges"), GgufArray{vocabulary.merges}});
  for (GgufKey& key : gguf_token_id_keys(vocabulary)) keys.push_back(std::move(key));
  for (const auto& [key, member] : kFlagKeys)
    if (const auto& flag = vocabulary.*member) keys.push_back({key_name(key), *flag});
  if (vocabulary.chat_template)
    keys.push_back({"tokenizer.chat_template", *vocabulary.chat_template});
  return keys;
}

}  // namespace packstone
