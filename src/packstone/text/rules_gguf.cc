// The rules that a GGUF vocabulary implies: the pipeline behind its `pre` name, added tokens from
// the token types, and for SentencePiece vocabularies the merges that its scores stand for.
#include <algorithm>
#include <cmath>
#include <numeric>

#include "packstone/base/limits.h"
#include "packstone/text/pre_rules.h"
#include "packstone/text/rules.h"
#include "packstone/text/token_table.h"
#include "packstone/text/unicode.h"

namespace packstone::text {
namespace {

constexpr std::string_view kMark = "\xE2\x96\x81";  // U+2581

std::unexpected<Error> corrupt(std::string_view subject, std::string_view got,
                               std::string_view need) {
  return fail(ErrorCode::kCorruptData, "text.vocabulary", subject, got, need);
}

Status check_shape(const Vocabulary& vocabulary) {
  const std::size_t count = vocabulary.tokens.size();
  if (count == 0 || count > static_cast<std::size_t>(limits::kVocabularyMax)) {
    return corrupt("tokens", fmt::format("{} entries", count), "1 to 4000000");
  }
  if (!vocabulary.scores.empty() && vocabulary.scores.size() != count) {
    return corrupt("scores", fmt::format("{} entries", vocabulary.scores.size()),
                   fmt::format("{}", count));
  }
  if (!vocabulary.types.empty() && vocabulary.types.size() != count) {
    return corrupt("token_type", fmt::format("{} entries", vocabulary.types.size()),
                   fmt::format("{}", count));
  }
  for (const float score : vocabulary.scores) {
    if (std::isnan(score)) return corrupt("scores", "NaN", "numbers");
  }
  for (const auto& id : {vocabulary.bos, vocabulary.eos, vocabulary.eot, vocabulary.unknown,
                         vocabulary.separator, vocabulary.padding, vocabulary.mask}) {
    if (id && (*id < 0 || static_cast<std::size_t>(*id) >= count)) {
      return corrupt("special token", fmt::format("id {}", *id),
                     fmt::format("an id below {}", count));
    }
  }
  return {};
}

TokenType type_of(const Vocabulary& vocabulary, std::size_t id) {
  return vocabulary.types.empty() ? TokenType::kNormal : vocabulary.types[id];
}

bool is_added(TokenType type) {
  return type == TokenType::kControl || type == TokenType::kUserDefined ||
         type == TokenType::kUnknown;
}

std::string with_marks(std::string_view text) {
  std::string result;
  for (const char c : text) {
    if (c == ' ') {
      result += kMark;
    } else {
      result += c;
    }
  }
  return result;
}

Json template_of(const Vocabulary& vocabulary, bool add_bos, bool add_eos) {
  if (!add_bos && !add_eos) return nullptr;
  Json single = Json::array();
  Json special = Json::object();
  const auto add = [&](std::int32_t id) {
    const std::string& name = vocabulary.tokens[id];
    single.push_back({{"SpecialToken", {{"id", name}, {"type_id", 0}}}});
    special[name] = {{"id", name}, {"ids", Json::array({id})}, {"tokens", Json::array({name})}};
  };
  if (add_bos) add(*vocabulary.bos);
  single.push_back({{"Sequence", {{"id", "A"}, {"type_id", 0}}}});
  if (add_eos) add(*vocabulary.eos);
  Json pair = single;
  pair.push_back({{"Sequence", {{"id", "B"}, {"type_id", 1}}}});
  return {{"type", "TemplateProcessing"},
          {"single", std::move(single)},
          {"pair", std::move(pair)},
          {"special_tokens", std::move(special)}};
}

Status set_post_processor(const Vocabulary& vocabulary, bool add_bos_default,
                          TokenizerRules& rules) {
  const bool add_bos = vocabulary.add_bos.value_or(add_bos_default && vocabulary.bos.has_value());
  const bool add_eos = vocabulary.add_eos.value_or(false);
  if ((add_bos && !vocabulary.bos) || (add_eos && !vocabulary.eos)) {
    return corrupt(add_bos && !vocabulary.bos ? "add_bos_token" : "add_eos_token",
                   "true without an id", "bos_token_id or eos_token_id");
  }
  rules.post_processor = template_of(vocabulary, add_bos, add_eos);
  return {};
}

// Every split of every piece in two pieces is a merge. Order: score, longer left part, longer right
// part, id (generate_merges of transformers 5.24, given scores). User-defined pieces come first:
// SentencePiece takes them whole before anything else, and their score in its model is 0.
class MergeMaker {
 public:
  MergeMaker(const Vocabulary& vocabulary, const TokenTable& table)
      : vocabulary_(vocabulary), table_(table) {}

  std::vector<MergeRule> run() {
    std::vector<std::int32_t> order;
    for (std::int32_t id = 0; id < table_.size(); ++id) {
      if (merges(id)) order.push_back(id);
    }
    std::stable_sort(order.begin(), order.end(),
                     [&](std::int32_t a, std::int32_t b) { return score(a) > score(b); });
    std::vector<MergeRule> list;
    list.reserve(order.size() * 3);
    for (std::size_t begin = 0; begin < order.size();) {
      std::size_t end = begin + 1;
      while (end < order.size() && score(order[end]) == score(order[begin])) ++end;
      group_.clear();
      for (std::size_t i = begin; i < end; ++i) add_splits(order[i]);
      if (end - begin > 1) {
        std::stable_sort(group_.begin(), group_.end(), [](const Split& a, const Split& b) {
          return a.left_size != b.left_size ? a.left_size > b.left_size
                                            : a.right_size > b.right_size;
        });
      }
      for (const Split& split : group_) list.push_back(split.merge);
      begin = end;
    }
    return list;
  }

 private:
  struct Split {
    MergeRule merge;
    std::int32_t left_size;
    std::int32_t right_size;
  };

  bool merges(std::int32_t id) const {
    const TokenType type = type_of(vocabulary_, id);
    return table_.has(id) && (type == TokenType::kNormal || type == TokenType::kUserDefined);
  }
  float score(std::int32_t id) const {
    if (type_of(vocabulary_, id) == TokenType::kUserDefined) return 0;
    return vocabulary_.scores.empty() ? -static_cast<float>(id) : vocabulary_.scores[id];
  }
  void add_splits(std::int32_t id) {
    const std::string_view text = table_.text(id);
    const auto size = static_cast<std::int32_t>(std::count_if(text.begin(), text.end(), [](char c) {
      return (static_cast<unsigned char>(c) & 0xC0) != 0x80;
    }));
    std::size_t at = text.size();
    for (std::int32_t left_size = size - 1; left_size > 0; --left_size) {
      do {
        --at;
      } while ((static_cast<unsigned char>(text[at]) & 0xC0) == 0x80);
      const std::int32_t left = table_.find(text.substr(0, at));
      if (left < 0 || !merges(left)) continue;
      const std::int32_t right = table_.find(text.substr(at));
      if (right < 0 || !merges(right)) continue;
      group_.push_back({{left, right, id}, left_size, size - left_size});
    }
  }

  const Vocabulary& vocabulary_;
  const TokenTable& table_;
  std::vector<Split> group_;
};

Status set_sentencepiece(const Vocabulary& vocabulary, const TokenTable& table,
                         TokenizerRules& rules) {
  BpeRules& model = rules.model;
  model.byte_fallback = true;
  model.fuse_unknown = true;
  if (vocabulary.unknown) model.unknown_token = table.text(*vocabulary.unknown);
  model.merges = MergeMaker(vocabulary, table).run();
  const Json replace = {
      {"type", "Replace"}, {"pattern", {{"String", " "}}}, {"content", std::string(kMark)}};
  Json decoders = Json::array(
      {{{"type", "Replace"}, {"pattern", {{"String", std::string(kMark)}}}, {"content", " "}},
       {{"type", "ByteFallback"}},
       {{"type", "Fuse"}}});
  if (vocabulary.add_space_prefix.value_or(true)) {
    rules.normalizer = {
        {"type", "Sequence"},
        {"normalizers",
         Json::array({{{"type", "Prepend"}, {"prepend", std::string(kMark)}}, replace})}};
    decoders.push_back({{"type", "Strip"}, {"content", " "}, {"start", 1}, {"stop", 0}});
  } else {
    rules.normalizer = replace;
    rules.pre_tokenizer = {{"type", "Split"},
                           {"pattern", {{"String", " "}}},
                           {"behavior", "MergedWithPrevious"},
                           {"invert", false}};
  }
  rules.decoder = {{"type", "Sequence"}, {"decoders", std::move(decoders)}};
  return set_post_processor(vocabulary, true, rules);
}

Status set_byte_level(const Vocabulary& vocabulary, const TokenTable& table,
                      TokenizerRules& rules) {
  const PreRules* pre = find_pre_rules(vocabulary.pre);
  if (pre == nullptr) {
    return fail(ErrorCode::kUnsupported, "text.vocabulary", "tokenizer.ggml.pre",
                fmt::format("'{}'", vocabulary.pre), "a pre-tokenizer with known rules",
                "a tokenizer.json beside the weights would say them");
  }
  if (pre->nfc) rules.normalizer = {{"type", "NFC"}};
  rules.pre_tokenizer = pre->pre_tokenizer();
  rules.decoder = {{"type", "ByteLevel"},
                   {"add_prefix_space", false},
                   {"trim_offsets", true},
                   {"use_regex", true}};
  rules.model.ignore_merges = pre->ignore_merges;
  rules.model.merges.reserve(vocabulary.merges.size());
  std::string joined;
  for (const std::string& merge : vocabulary.merges) {
    const std::size_t space = merge.find(' ');
    if (space == std::string::npos || merge.find(' ', space + 1) != std::string::npos) {
      return corrupt("merges", fmt::format("'{}'", merge), "two parts with a space between");
    }
    const std::string_view left = std::string_view(merge).substr(0, space);
    const std::string_view right = std::string_view(merge).substr(space + 1);
    joined.assign(left).append(right);
    const MergeRule rule = {table.find(left), table.find(right), table.find(joined)};
    if (rule.left < 0 || rule.right < 0 || rule.result < 0) {
      return corrupt("merges", fmt::format("'{}'", merge), "tokens of the vocabulary");
    }
    rules.model.merges.push_back(rule);
  }
  return set_post_processor(vocabulary, pre->add_bos, rules);
}

// Padding rows that llama.cpp's converter adds have no place in a tokenizer.json.
bool is_padding(const Vocabulary& vocabulary, std::size_t id) {
  return type_of(vocabulary, id) == TokenType::kUnused &&
         vocabulary.tokens[id] == fmt::format("[PAD{}]", id);
}

Status set_tokens(const Vocabulary& vocabulary, bool sentencepiece, TokenTable& table,
                  TokenizerRules& rules) {
  const std::size_t count = vocabulary.tokens.size();
  std::size_t bytes = 0;
  for (const std::string& token : vocabulary.tokens) bytes += token.size();
  if (bytes > UINT32_MAX / 4) return corrupt("tokens", "over 1 GiB of text", "less");
  table.reserve(count, count, bytes * (sentencepiece ? 3 : 1));
  // Added tokens behind the last other one stay out of the model, when no id is left out.
  std::size_t model_end = 0;
  bool holes = false;
  bool behind_hole = false;
  for (std::size_t id = 0; id < count; ++id) {
    if (is_padding(vocabulary, id)) {
      behind_hole = true;
      continue;
    }
    holes = holes || behind_hole;
    if (!is_added(type_of(vocabulary, id))) model_end = id + 1;
  }
  if (sentencepiece || holes) model_end = count;
  rules.model.vocabulary.reserve(count);
  for (std::size_t id = 0; id < count; ++id) {
    if (is_padding(vocabulary, id)) continue;
    const TokenType type = type_of(vocabulary, id);
    const auto number = static_cast<std::int32_t>(id);
    std::string text = vocabulary.tokens[id];
    if (sentencepiece && type == TokenType::kUserDefined) text = with_marks(text);
    if (text.empty()) text = fmt::format("[EMPTY_{}]", id);
    if (valid_utf8(text) != text) {
      return corrupt(fmt::format("token {}", id), "bytes that are not UTF-8", "UTF-8");
    }
    if (is_added(type)) {
      if (text.size() > 1024)
        return corrupt(fmt::format("token {}", id), "a long text", "1024 bytes");
      AddedToken token;
      token.id = number;
      token.content = text;
      token.special = type != TokenType::kUserDefined;
      rules.added.push_back(std::move(token));
    }
    if (!table.add(text, number)) {
      return corrupt(fmt::format("token {}", id), fmt::format("'{}' again", text),
                     "every text once");
    }
    if (id < model_end) rules.model.vocabulary.emplace_back(std::move(text), number);
  }
  return {};
}

}  // namespace

Result<TokenizerRules> rules_from_vocabulary(const Vocabulary& vocabulary) {
  const bool sentencepiece = vocabulary.model == "llama";
  if (!sentencepiece && vocabulary.model != "gpt2") {
    return fail(ErrorCode::kUnsupported, "text.vocabulary", "tokenizer.ggml.model",
                fmt::format("'{}'", vocabulary.model), "gpt2 or llama");
  }
  PACKSTONE_CHECK_OK(check_shape(vocabulary));
  TokenizerRules rules;
  TokenTable table;
  PACKSTONE_CHECK_OK(set_tokens(vocabulary, sentencepiece, table, rules));
  if (sentencepiece) {
    PACKSTONE_CHECK_OK(set_sentencepiece(vocabulary, table, rules));
  } else {
    PACKSTONE_CHECK_OK(set_byte_level(vocabulary, table, rules));
  }
  rules.bos = vocabulary.bos;
  for (const auto& id : {vocabulary.eos, vocabulary.eot}) {
    if (id) rules.end_tokens.push_back(*id);
  }
  for (const auto& id : {vocabulary.bos, vocabulary.eos, vocabulary.eot, vocabulary.unknown,
                         vocabulary.separator, vocabulary.padding, vocabulary.mask}) {
    if (id) rules.control.push_back(*id);
  }
  rules.chat_template = vocabulary.chat_template.value_or("");
  return rules;
}

}  // namespace packstone::text
