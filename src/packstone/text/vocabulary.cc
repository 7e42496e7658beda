// tokenizer.json and tokenizer_config.json from a vocabulary, and the way back.
#include "packstone/text/vocabulary.h"

#include <algorithm>
#include <array>
#include <bit>
#include <charconv>
#include <unordered_map>

#include "packstone/base/limits.h"
#include "packstone/text/pre_rules.h"
#include "packstone/text/rules.h"

namespace packstone {
namespace {

using text::AddedToken;
using text::Json;
using text::member;
using text::TokenizerRules;

constexpr std::string_view kMark = "\xE2\x96\x81";  // U+2581
constexpr float kUnscored = -1000.0f;  // what llama.cpp's converter gives tokens without a score

struct SpecialKey {
  std::string_view config;
  std::optional<std::int32_t> Vocabulary::* id;
};
constexpr std::array<SpecialKey, 7> kSpecialKeys = {{{"bos_token", &Vocabulary::bos},
                                                     {"eos_token", &Vocabulary::eos},
                                                     {"eot_token", &Vocabulary::eot},
                                                     {"unk_token", &Vocabulary::unknown},
                                                     {"sep_token", &Vocabulary::separator},
                                                     {"pad_token", &Vocabulary::padding},
                                                     {"mask_token", &Vocabulary::mask}}};

// Appends without looking for the key: the caller knows that it is new.
void append_member(Json& object, std::string key, Json value) {
  object.get_ref<Json::object_t&>().std::vector<std::pair<const std::string, Json>>::emplace_back(
      std::move(key), std::move(value));
}

std::string with_spaces(std::string_view text) {
  std::string result;
  while (!text.empty()) {
    const bool mark = text.starts_with(kMark);
    if (mark) {
      result += ' ';
    } else {
      result += text.front();
    }
    text.remove_prefix(mark ? kMark.size() : 1);
  }
  return result;
}

Json added_json(const AddedToken& token) {
  return {{"id", token.id},          {"content", token.content}, {"single_word", token.single_word},
          {"lstrip", token.lstrip},  {"rstrip", token.rstrip},   {"normalized", token.normalized},
          {"special", token.special}};
}

// The texts of all tokens by id; the views live as long as the rules.
std::vector<std::string_view> texts_by_id(const TokenizerRules& rules) {
  std::vector<std::string_view> texts;
  const auto place = [&](std::int32_t id, std::string_view value) {
    if (static_cast<std::size_t>(id) >= texts.size()) texts.resize(id + 1);
    texts[id] = value;
  };
  for (const auto& [token, id] : rules.model.vocabulary) place(id, token);
  for (const AddedToken& token : rules.added) place(token.id, token.content);
  return texts;
}

Json model_json(const TokenizerRules& rules) {
  const text::BpeRules& bpe = rules.model;
  const auto optional = [](const std::string& value) {
    return value.empty() ? Json() : Json(value);
  };
  const std::vector<std::string_view> texts = texts_by_id(rules);
  Json vocabulary = Json::object();
  vocabulary.get_ref<Json::object_t&>().reserve(bpe.vocabulary.size());
  for (const auto& [token, id] : bpe.vocabulary) append_member(vocabulary, token, id);
  Json merges = Json::array();
  merges.get_ref<Json::array_t&>().reserve(bpe.merges.size());
  for (const text::MergeRule& merge : bpe.merges) {
    Json pair = Json::array();
    pair.push_back(std::string(texts[merge.left]));
    pair.push_back(std::string(texts[merge.right]));
    merges.push_back(std::move(pair));
  }
  Json model = {{"type", "BPE"},
                {"dropout", nullptr},
                {"unk_token", optional(bpe.unknown_token)},
                {"continuing_subword_prefix", optional(bpe.continuing_prefix)},
                {"end_of_word_suffix", optional(bpe.word_suffix)},
                {"fuse_unk", bpe.fuse_unknown},
                {"byte_fallback", bpe.byte_fallback},
                {"ignore_merges", bpe.ignore_merges}};
  if (!rules.gguf.is_null()) append_member(model, "gguf", rules.gguf);
  append_member(model, "vocab", std::move(vocabulary));
  append_member(model, "merges", std::move(merges));
  return model;
}

Json document_of(const TokenizerRules& rules) {
  Json added = Json::array();
  for (const AddedToken& token : rules.added) added.push_back(added_json(token));
  Json document = {{"version", "1.0"}, {"truncation", nullptr}, {"padding", nullptr}};
  append_member(document, "added_tokens", std::move(added));
  append_member(document, "normalizer", rules.normalizer);
  append_member(document, "pre_tokenizer", rules.pre_tokenizer);
  append_member(document, "post_processor", rules.post_processor);
  append_member(document, "decoder", rules.decoder);
  append_member(document, "model", model_json(rules));
  return document;
}

// Rules are equal whatever the order of their members.
bool same_rule(const Json& a, const Json& b) {
  return nlohmann::json(a) == nlohmann::json(b);
}

// Whether the rules are those of a SentencePiece vocabulary with the space prefix on or off.
bool is_sentencepiece(const TokenizerRules& rules, bool& space_prefix) {
  if (!rules.model.byte_fallback) return false;
  const Json replace = {
      {"type", "Replace"}, {"pattern", {{"String", " "}}}, {"content", std::string(kMark)}};
  const Json prepend = {{"type", "Prepend"}, {"prepend", std::string(kMark)}};
  const auto steps = [](std::initializer_list<Json> list) {
    Json array = Json::array();
    for (const Json& item : list) array.push_back(item);
    return Json{{"type", "Sequence"}, {"normalizers", std::move(array)}};
  };
  const Json* pre_type = member(rules.pre_tokenizer, "type");
  if (same_rule(rules.normalizer, steps({prepend, replace})) && pre_type == nullptr) {
    space_prefix = true;
    return true;
  }
  if (same_rule(rules.normalizer, replace) || same_rule(rules.normalizer, steps({replace}))) {
    const Json* pattern = member(rules.pre_tokenizer, "pattern");
    space_prefix = false;
    return pre_type == nullptr ||
           (*pre_type == "Split" && pattern != nullptr && *pattern == Json{{"String", " "}});
  }
  if (rules.normalizer.is_null() && pre_type != nullptr && *pre_type == "Metaspace") {
    const Json* scheme = member(rules.pre_tokenizer, "prepend_scheme");
    const Json* mark = member(rules.pre_tokenizer, "replacement");
    const Json* split = member(rules.pre_tokenizer, "split");
    // With "first" the space is put before the text only, which GGUF cannot say; the texts between
    // special tokens would differ.
    space_prefix = scheme == nullptr || *scheme == "always";
    return mark != nullptr && *mark == std::string(kMark) && split != nullptr && *split == false &&
           (space_prefix || *scheme == "never");
  }
  return false;
}

// The scores of a SentencePiece vocabulary from the order of its merges. Pieces are numbered in the
// order in which merges first make them; where that is the order of ids, as trainers write them,
// numbers follow the ids of all normal pieces, so that the trained scores come back.
std::vector<float> scores_of(const TokenizerRules& rules, const Vocabulary& vocabulary) {
  const auto count = static_cast<std::int32_t>(vocabulary.tokens.size());
  std::vector<float> scores(count, kUnscored);
  const auto normal = [&](std::int32_t id) { return vocabulary.types[id] == TokenType::kNormal; };
  std::vector<std::int32_t> order;
  std::vector<bool> seen(count, false);
  const auto take = [&](std::int32_t id) {
    if (id < 0 || id >= count || seen[id] || !normal(id)) return;
    seen[id] = true;
    order.push_back(id);
  };
  for (const text::MergeRule& merge : rules.model.merges) take(merge.result);
  const bool by_id = std::is_sorted(order.begin(), order.end());
  if (by_id) order.clear();
  if (by_id) seen.assign(count, false);
  for (std::int32_t id = 0; id < count; ++id) take(id);
  for (std::size_t i = 0; i < order.size(); ++i) scores[order[i]] = -static_cast<float>(i);
  for (std::int32_t id = 0; id < count; ++id) {
    if (vocabulary.types[id] == TokenType::kByte) scores[id] = 0;
  }
  return scores;
}

bool same_bits(float a, float b) {
  return std::bit_cast<std::uint32_t>(a) == std::bit_cast<std::uint32_t>(b);
}

// Scores as runs [count, first, step] with step 0 or -1: trained vocabularies have few.
Json score_runs(const std::vector<float>& scores) {
  Json runs = Json::array();
  for (std::size_t begin = 0; begin < scores.size();) {
    std::size_t best = 1;
    int best_step = 0;
    for (const int step : {0, -1}) {
      std::size_t count = 1;
      while (begin + count < scores.size() &&
             same_bits(scores[begin + count],
                       scores[begin] + static_cast<float>(step) * static_cast<float>(count))) {
        ++count;
      }
      if (count > best) best_step = step;
      best = std::max(best, count);
    }
    runs.push_back(Json::array({best, scores[begin], best_step}));
    begin += best;
  }
  return runs;
}

std::string_view config_token(const Json& config, std::string_view key) {
  const Json* value = member(config, key);
  if (value != nullptr && value->is_object()) value = member(*value, "content");
  if (value == nullptr || !value->is_string()) return {};
  return value->get_ref<const std::string&>();
}

void read_specials(const TokenizerRules& rules, const Json& config, Vocabulary& vocabulary) {
  std::unordered_map<std::string_view, std::int32_t> ids;
  for (const auto& [token, id] : rules.model.vocabulary) ids.emplace(token, id);
  for (const AddedToken& token : rules.added) ids.emplace(token.content, token.id);
  for (const SpecialKey& key : kSpecialKeys) {
    const auto found = ids.find(config_token(config, key.config));
    if (found != ids.end()) vocabulary.*key.id = found->second;
  }
  if (!vocabulary.unknown && !rules.model.unknown_token.empty()) {
    const auto found = ids.find(rules.model.unknown_token);
    if (found != ids.end()) vocabulary.unknown = found->second;
  }
  const auto flag = [&](std::string_view key) -> std::optional<bool> {
    const Json* value = member(config, key);
    return value != nullptr && value->is_boolean() ? std::optional(value->get<bool>())
                                                   : std::nullopt;
  };
  vocabulary.add_bos = flag("add_bos_token");
  vocabulary.add_eos = flag("add_eos_token");
  if (const Json* text = member(config, "chat_template"); text != nullptr && text->is_string()) {
    vocabulary.chat_template = text->get<std::string>();
  }
}

// A post-processor, if it says anything, overrides the config's flags: it is what encodes.
void read_template(const Json& rule, Vocabulary& vocabulary) {
  if (const Json* list = member(rule, "processors"); list != nullptr && list->is_array()) {
    for (const Json& item : *list) read_template(item, vocabulary);
    return;
  }
  const Json* type = member(rule, "type");
  const Json* single = member(rule, "single");
  if (type == nullptr || *type != "TemplateProcessing" || single == nullptr) return;
  bool seen = false;
  bool before = false;
  bool after = false;
  for (const Json& piece : *single) {
    if (member(piece, "Sequence") != nullptr) seen = true;
    if (member(piece, "SpecialToken") != nullptr) (seen ? after : before) = true;
  }
  if (before || vocabulary.add_bos) vocabulary.add_bos = before;
  if (after || vocabulary.add_eos) vocabulary.add_eos = after;
}

void set_types(const TokenizerRules& rules, bool sentencepiece, Vocabulary& vocabulary) {
  for (const auto& [token, id] : rules.model.vocabulary) {
    vocabulary.tokens[id] = token;
    vocabulary.types[id] =
        sentencepiece && text::byte_token(token) ? TokenType::kByte : TokenType::kNormal;
  }
  for (const AddedToken& token : rules.added) {
    const bool control = token.special || text::looks_special(token.content);
    vocabulary.types[token.id] = control ? TokenType::kControl : TokenType::kUserDefined;
    vocabulary.tokens[token.id] =
        sentencepiece && !control ? with_spaces(token.content) : token.content;
  }
}

Result<Vocabulary> vocabulary_from_rules(const TokenizerRules& rules, const Json& config,
                                         std::int64_t vocab_size) {
  Vocabulary vocabulary;
  bool space_prefix = false;
  const bool sentencepiece = is_sentencepiece(rules, space_prefix);
  if (sentencepiece) {
    vocabulary.model = "llama";
    vocabulary.pre = "default";
    vocabulary.add_space_prefix = space_prefix;
  } else {
    const text::PreRules* pre =
        text::match_pre_rules(rules.normalizer, rules.pre_tokenizer, rules.model.ignore_merges);
    if (pre == nullptr || rules.model.byte_fallback || !rules.model.continuing_prefix.empty() ||
        !rules.model.word_suffix.empty()) {
      return fail(ErrorCode::kUnsupported, "text.vocabulary", "pre-tokenizer rules",
                  fmt::format("normalizer {}, pre_tokenizer {}", rules.normalizer.dump(),
                              rules.pre_tokenizer.dump()),
                  "rules with a name in GGUF");
    }
    vocabulary.model = "gpt2";
    vocabulary.pre = pre->name;
  }
  const std::vector<std::string_view> texts = texts_by_id(rules);
  if (vocab_size < static_cast<std::int64_t>(texts.size()) || vocab_size > limits::kVocabularyMax) {
    return fail(ErrorCode::kCorruptData, "text.vocabulary", "vocabulary",
                fmt::format("{} embedding rows", vocab_size),
                fmt::format("at least {} (the tokens)", texts.size()));
  }
  vocabulary.tokens.reserve(vocab_size);
  for (std::int64_t id = 0; id < vocab_size; ++id) {
    vocabulary.tokens.push_back(fmt::format("[PAD{}]", id));
  }
  vocabulary.types.assign(vocab_size, TokenType::kUnused);
  set_types(rules, sentencepiece, vocabulary);
  if (sentencepiece) {
    vocabulary.scores = scores_of(rules, vocabulary);
  } else {
    vocabulary.merges.reserve(rules.model.merges.size());
    for (const text::MergeRule& merge : rules.model.merges) {
      vocabulary.merges.push_back(fmt::format("{} {}", texts[merge.left], texts[merge.right]));
    }
  }
  read_specials(rules, config, vocabulary);
  read_template(rules.post_processor, vocabulary);
  // Without the flag, readers of GGUF do what is usual for the rules; these rules add nothing.
  const text::PreRules* usual = sentencepiece ? nullptr : text::find_pre_rules(vocabulary.pre);
  if (!vocabulary.add_bos && (sentencepiece || usual->add_bos)) vocabulary.add_bos = false;
  return vocabulary;
}

Json optional_flag(const std::optional<bool>& value) {
  return value ? Json(*value) : Json();
}

// What `target` holds and `derived` (the way back from its rules) does not: kept in the model of
// tokenizer.json under "gguf", a member that the `tokenizers` library passes over.
Json differences(const Vocabulary& target, const Vocabulary& derived) {
  Json extra = Json::object();
  if (target.pre != derived.pre) extra["pre"] = target.pre;
  if (target.types.empty()) extra["types"] = nullptr;
  Json types = Json::object();
  Json tokens = Json::object();
  for (std::size_t id = 0; id < target.tokens.size(); ++id) {
    if (!target.types.empty() && target.types[id] != derived.types[id]) {
      append_member(types, std::to_string(id), static_cast<std::int32_t>(target.types[id]));
    }
    if (target.tokens[id] != derived.tokens[id]) {
      append_member(tokens, std::to_string(id), target.tokens[id]);
    }
  }
  if (!types.empty()) extra["types"] = std::move(types);
  if (!tokens.empty()) extra["tokens"] = std::move(tokens);
  if (!std::ranges::equal(target.scores, derived.scores, same_bits))
    extra["scores"] = score_runs(target.scores);
  if (target.add_bos != derived.add_bos) extra["add_bos"] = optional_flag(target.add_bos);
  if (target.add_eos != derived.add_eos) extra["add_eos"] = optional_flag(target.add_eos);
  if (target.add_space_prefix != derived.add_space_prefix) {
    extra["add_space_prefix"] = optional_flag(target.add_space_prefix);
  }
  for (const SpecialKey& key : kSpecialKeys) {
    const auto& id = target.*key.id;
    if (id != derived.*key.id) extra[std::string(key.config)] = id ? Json(*id) : Json();
  }
  return extra.empty() ? Json() : extra;
}

std::unexpected<Error> corrupt(std::string_view got) {
  return fail(ErrorCode::kCorruptData, "text.vocabulary", "model.gguf", got,
              "what tokenizer_json writes");
}

// Calls set(id, value) for the members {"id": value} of an object.
template <class Set>
Status each_id(const Json& object, std::size_t count, Set set) {
  for (const auto& [key, value] : object.items()) {
    if (key.empty() || key.size() > 8 || key.find_first_not_of("0123456789") != std::string::npos) {
      return corrupt(fmt::format("the key '{}'", key));
    }
    std::size_t id = 0;  // at most eight digits, so it fits
    std::from_chars(key.data(), key.data() + key.size(), id);
    if (id >= count) return corrupt(fmt::format("the key '{}'", key));
    if (!set(id, value)) return corrupt(fmt::format("the value of '{}'", key));
  }
  return {};
}

Status apply_scores(const Json& runs, Vocabulary& vocabulary) {
  const std::size_t count = vocabulary.tokens.size();
  if (!runs.is_array()) return corrupt("scores of another kind");
  vocabulary.scores.clear();
  for (const Json& run : runs) {
    if (!run.is_array() || run.size() != 3 || !run[0].is_number_unsigned() || !run[1].is_number() ||
        !run[2].is_number_integer() || (run[2] != 0 && run[2] != -1)) {
      return corrupt("a run of scores of another kind");
    }
    const auto size = run[0].get<std::uint64_t>();
    if (size > count - vocabulary.scores.size()) return corrupt("more scores than tokens");
    const auto first = run[1].get<float>();
    const auto step = run[2].get<float>();
    for (std::uint64_t i = 0; i < size; ++i) {
      vocabulary.scores.push_back(i == 0 ? first : first + step * static_cast<float>(i));
    }
  }
  if (!vocabulary.scores.empty() && vocabulary.scores.size() != count) {
    return corrupt("fewer scores than tokens");
  }
  return {};
}

Status apply_lists(const Json& extra, Vocabulary& vocabulary) {
  const std::size_t count = vocabulary.tokens.size();
  if (const auto types = extra.find("types"); types != extra.end()) {
    if (types->is_null()) {
      vocabulary.types.clear();
    } else if (!types->is_object()) {
      return corrupt("types of another kind");
    } else {
      PACKSTONE_CHECK_OK(each_id(*types, count, [&](std::size_t id, const Json& value) {
        if (!value.is_number_integer() || value < 0 || value > 6) return false;
        vocabulary.types[id] = static_cast<TokenType>(value.get<std::int32_t>());
        return true;
      }));
    }
  }
  if (const Json* tokens = member(extra, "tokens")) {
    if (!tokens->is_object()) return corrupt("tokens of another kind");
    PACKSTONE_CHECK_OK(each_id(*tokens, count, [&](std::size_t id, const Json& value) {
      if (!value.is_string()) return false;
      vocabulary.tokens[id] = value.get<std::string>();
      return true;
    }));
  }
  if (const Json* runs = member(extra, "scores"))
    PACKSTONE_CHECK_OK(apply_scores(*runs, vocabulary));
  return {};
}

Status apply_differences(const Json& extra, Vocabulary& vocabulary) {
  if (extra.is_null()) return {};
  if (!extra.is_object()) return corrupt("another kind");
  PACKSTONE_CHECK_OK(apply_lists(extra, vocabulary));
  if (const Json* pre = member(extra, "pre")) {
    // Only another name of the same rules, never other rules.
    if (!pre->is_string()) return corrupt("a pre name of another kind");
    const auto& name = pre->get_ref<const std::string&>();
    const text::PreRules* named = text::find_pre_rules(name);
    const bool same = vocabulary.model == "gpt2"
                          ? named != nullptr && named == text::find_pre_rules(vocabulary.pre)
                          : name.size() < 64;
    if (!same) return corrupt(fmt::format("the pre name '{}'", name));
    vocabulary.pre = name;
  }
  const auto flag = [&](const char* key, std::optional<bool>& target) {
    const auto found = extra.find(key);
    if (found == extra.end()) return true;
    if (!found->is_null() && !found->is_boolean()) return false;
    target = found->is_null() ? std::nullopt : std::optional(found->get<bool>());
    return true;
  };
  if (!flag("add_bos", vocabulary.add_bos) || !flag("add_eos", vocabulary.add_eos) ||
      !flag("add_space_prefix", vocabulary.add_space_prefix)) {
    return corrupt("a flag of another kind");
  }
  for (const SpecialKey& key : kSpecialKeys) {
    const auto found = extra.find(std::string(key.config));
    if (found == extra.end()) continue;
    if (found->is_null()) {
      vocabulary.*key.id = std::nullopt;
    } else if (found->is_number_integer() && *found >= 0 && *found < vocabulary.tokens.size()) {
      vocabulary.*key.id = found->get<std::int32_t>();
    } else {
      return corrupt(fmt::format("an id of {}", key.config));
    }
  }
  return {};
}

}  // namespace

Result<nlohmann::ordered_json> tokenizer_json(const Vocabulary& vocabulary) {
  PACKSTONE_TRY(TokenizerRules rules, text::rules_from_vocabulary(vocabulary));
  PACKSTONE_TRY(const Vocabulary derived,
                vocabulary_from_rules(rules, tokenizer_config_json(vocabulary),
                                      static_cast<std::int64_t>(vocabulary.tokens.size())));
  rules.gguf = differences(vocabulary, derived);
  return document_of(rules);
}

nlohmann::ordered_json tokenizer_config_json(const Vocabulary& vocabulary) {
  Json config = Json::object();
  if (vocabulary.add_bos) config["add_bos_token"] = *vocabulary.add_bos;
  if (vocabulary.add_eos) config["add_eos_token"] = *vocabulary.add_eos;
  const auto count = static_cast<std::int64_t>(vocabulary.tokens.size());
  for (const SpecialKey& key : kSpecialKeys) {
    const auto& id = vocabulary.*key.id;
    if (id && *id >= 0 && *id < count) config[std::string(key.config)] = vocabulary.tokens[*id];
  }
  config["clean_up_tokenization_spaces"] = false;
  if (vocabulary.chat_template) config["chat_template"] = *vocabulary.chat_template;
  config["tokenizer_class"] = "PreTrainedTokenizerFast";
  return config;
}

Result<Vocabulary> vocabulary_from_json(const nlohmann::ordered_json& tokenizer,
                                        const nlohmann::ordered_json& config,
                                        std::int64_t vocab_size) {
  PACKSTONE_TRY(text::TokenizerFile file, text::read_tokenizer_file(tokenizer));
  PACKSTONE_TRY(const TokenizerRules rules, text::rules_from_file(std::move(file), config));
  PACKSTONE_TRY(Vocabulary vocabulary, vocabulary_from_rules(rules, config, vocab_size));
  PACKSTONE_CHECK_OK(apply_differences(rules.gguf, vocabulary));
  return vocabulary;
}

Result<nlohmann::ordered_json> parse_tokenizer_document(std::string_view json_text) {
  return text::parse_json(json_text, "tokenizer.json");
}

}  // namespace packstone
