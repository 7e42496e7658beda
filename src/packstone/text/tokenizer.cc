#include "packstone/text/tokenizer.h"

#include <algorithm>
#include <unordered_map>

#include "packstone/base/limits.h"
#include "packstone/text/added_tokens.h"
#include "packstone/text/bpe.h"
#include "packstone/text/decoder.h"
#include "packstone/text/normalizer.h"
#include "packstone/text/pre_tokenizer.h"
#include "packstone/text/unicode.h"

namespace packstone {

using text::AddedToken;
using text::Json;

struct Tokenizer::State {
  text::BpeModel model;
  std::unique_ptr<text::Normalizer> normalizer;
  std::unique_ptr<text::PreTokenizer> pre_tokenizer;
  text::Decoder decoder;
  std::vector<AddedToken> added;
  std::vector<std::int32_t> added_by_id;  // index into `added` or -1
  std::unordered_map<std::string_view, std::int32_t> added_ids;
  text::TokenTrie raw;
  text::TokenTrie normalized;
  std::vector<bool> special;
  std::vector<bool> control;
  std::vector<std::int32_t> before;  // what the post-processor adds
  std::vector<std::int32_t> after;
  std::optional<std::int32_t> bos;
  std::vector<std::int32_t> end_tokens;
  std::string chat_template;

  explicit State(text::BpeModel bpe) : model(std::move(bpe)) {}

  std::string_view piece(std::int32_t id) const {
    if (id < 0 || id >= model.table().size()) return {};
    const std::int32_t index = added_by_id[id];
    return index >= 0 ? std::string_view(added[index].content) : model.table().text(id);
  }

  void append_token(std::int32_t id, bool skip_special, text::DecodeCursor& cursor,
                    std::string& bytes) const {
    if (id < 0 || id >= model.table().size()) return;
    if (skip_special && special[id]) return;
    if (added_by_id[id] < 0 && !model.table().has(id)) return;
    decoder.append(piece(id), added_by_id[id] >= 0, cursor, bytes);
  }

  Status normalize(text::Pieces& pieces) const;
  Status encode(std::string_view input, const EncodeOptions& options,
                std::vector<std::int32_t>& ids) const;
};

namespace {

std::unexpected<Error> corrupt(std::string_view subject, std::string_view got,
                               std::string_view need) {
  return fail(ErrorCode::kCorruptData, "text.post_processor", subject, got, need);
}

using Sides = std::pair<std::vector<std::int32_t>, std::vector<std::int32_t>>;

Status add_template_ids(const Json& rule, std::string_view name, std::int32_t size,
                        std::vector<std::int32_t>& ids) {
  const Json* tokens = text::member(rule, "special_tokens");
  const Json* token = tokens == nullptr ? nullptr : text::member(*tokens, name);
  const Json* list = token == nullptr ? nullptr : text::member(*token, "ids");
  if (list == nullptr || !list->is_array()) {
    return corrupt("TemplateProcessing", fmt::format("no ids of '{}'", name), "an entry");
  }
  for (const Json& id : *list) {
    if (!id.is_number_integer() || id < 0 || id >= size) {
      return corrupt("TemplateProcessing", fmt::format("id {} of '{}'", id.dump(), name),
                     "an id of the vocabulary");
    }
    ids.push_back(id.get<std::int32_t>());
  }
  return {};
}

Status add_template(const Json& rule, std::int32_t size, Sides& sides) {
  const Json* pieces = text::member(rule, "single");
  if (pieces == nullptr || !pieces->is_array()) {
    return corrupt("TemplateProcessing", "no list 'single'", "a list");
  }
  std::vector<std::int32_t> before;
  std::vector<std::int32_t> after;
  bool seen = false;
  for (const Json& piece : *pieces) {
    if (const Json* sequence = text::member(piece, "Sequence")) {
      const Json* id = text::member(*sequence, "id");
      if (seen || id == nullptr || *id != "A") {
        return fail(ErrorCode::kUnsupported, "text.post_processor", "TemplateProcessing",
                    "another sequence than one A", "one sequence A");
      }
      seen = true;
      continue;
    }
    const Json* token = text::member(piece, "SpecialToken");
    if (token == nullptr) return corrupt("TemplateProcessing", "an unknown piece", "a known one");
    PACKSTONE_TRY(const std::string name, text::text_field(*token, "id"));
    PACKSTONE_CHECK_OK(add_template_ids(rule, name, size, seen ? after : before));
  }
  if (!seen) return corrupt("TemplateProcessing", "no sequence", "one sequence A");
  sides.first.insert(sides.first.begin(), before.begin(), before.end());
  sides.second.insert(sides.second.end(), after.begin(), after.end());
  return {};
}

// [text, id] of BertProcessing and RobertaProcessing.
Result<std::int32_t> paired_id(const Json& rule, std::string_view key, std::int32_t size) {
  const Json* pair = text::member(rule, key);
  if (pair == nullptr || !pair->is_array() || pair->size() != 2 ||
      !(*pair)[1].is_number_integer() || (*pair)[1] < 0 || (*pair)[1] >= size) {
    return corrupt(key, "no [text, id]", "an id of the vocabulary");
  }
  return (*pair)[1].get<std::int32_t>();
}

Status add_post_processor(const Json& rule, std::int32_t size, Sides& sides) {
  if (rule.is_null()) return {};
  PACKSTONE_TRY(const std::string type, text::rule_type(rule, "post_processor"));
  if (type == "ByteLevel") return {};  // moves offsets only
  if (type == "TemplateProcessing") return add_template(rule, size, sides);
  if (type == "BertProcessing" || type == "RobertaProcessing") {
    PACKSTONE_TRY(const std::int32_t start, paired_id(rule, "cls", size));
    PACKSTONE_TRY(const std::int32_t end, paired_id(rule, "sep", size));
    sides.first.insert(sides.first.begin(), start);
    sides.second.push_back(end);
    return {};
  }
  if (type == "Sequence") {
    const Json* list = text::member(rule, "processors");
    if (list == nullptr || !list->is_array()) return corrupt("Sequence", "no list", "'processors'");
    for (const Json& item : *list) PACKSTONE_CHECK_OK(add_post_processor(item, size, sides));
    return {};
  }
  return fail(ErrorCode::kUnsupported, "text.post_processor", fmt::format("rule '{}'", type),
              "a rule this build lacks", "a known post-processor");
}

// Texts on which a pattern that backtracks without bound shows it.
std::vector<std::string> probes() {
  std::vector<std::string> texts;
  for (const std::string_view unit : {"a", " ", "1", ".", "\n", "\xC3\xA9", "a ", "aB1. \n"}) {
    std::string probe;
    while (probe.size() < 1000) probe += unit;
    texts.push_back(probe + "!");
  }
  return texts;
}

}  // namespace

Status Tokenizer::State::normalize(text::Pieces& pieces) const {
  if (normalizer == nullptr) return {};
  text::Pieces result;
  result.buffer.reserve(pieces.buffer.size());
  for (text::Piece piece : pieces.list) {
    if (piece.token < 0) {
      std::string word(pieces.text(piece));
      PACKSTONE_CHECK_OK(normalizer->apply(word, piece.at_start));
      piece.begin = result.buffer.size();
      result.buffer += word;
      piece.end = result.buffer.size();
      if (word.empty()) continue;
    }
    result.list.push_back(piece);
  }
  pieces = std::move(result);
  return {};
}

Status Tokenizer::State::encode(std::string_view input, const EncodeOptions& options,
                                std::vector<std::int32_t>& ids) const {
  const std::vector<bool>* barred = options.parse_special ? nullptr : &control;
  text::Pieces pieces;
  pieces.buffer = text::valid_utf8(input);
  if (options.add_special) ids.insert(ids.end(), before.begin(), before.end());
  if (!pieces.buffer.empty()) {
    pieces.list.push_back({0, pieces.buffer.size(), -1, true});
    text::cut_added_tokens(raw, added, barred, pieces);
    PACKSTONE_CHECK_OK(normalize(pieces));
    text::cut_added_tokens(normalized, added, barred, pieces);
    if (pre_tokenizer != nullptr) PACKSTONE_CHECK_OK(pre_tokenizer->apply(pieces));
    for (const text::Piece& piece : pieces.list) {
      if (piece.token >= 0) {
        ids.push_back(piece.token);
      } else {
        model.encode(pieces.text(piece), barred, ids);
      }
    }
  }
  if (options.add_special) ids.insert(ids.end(), after.begin(), after.end());
  return {};
}

Result<Tokenizer> Tokenizer::build(text::TokenizerRules rules) {
  std::int32_t size = 0;
  for (const auto& [token, id] : rules.model.vocabulary) size = std::max(size, id + 1);
  for (const AddedToken& token : rules.added) size = std::max(size, token.id + 1);
  PACKSTONE_TRY(text::BpeModel model,
                text::BpeModel::create(rules.model, static_cast<std::size_t>(size)));
  auto state = std::make_shared<State>(std::move(model));
  PACKSTONE_TRY(state->normalizer, text::make_normalizer(rules.normalizer));
  PACKSTONE_TRY(state->pre_tokenizer, text::make_pre_tokenizer(rules.pre_tokenizer));
  PACKSTONE_TRY(state->decoder, text::Decoder::create(rules.decoder));
  Sides sides;
  PACKSTONE_CHECK_OK(add_post_processor(rules.post_processor, size, sides));
  state->before = std::move(sides.first);
  state->after = std::move(sides.second);
  state->added = std::move(rules.added);
  state->added_by_id.assign(size, -1);
  state->special.assign(size, false);
  state->control.assign(size, false);
  for (std::size_t i = 0; i < state->added.size(); ++i) {
    const AddedToken& token = state->added[i];
    const auto index = static_cast<std::int32_t>(i);
    state->added_by_id[token.id] = index;
    state->added_ids.emplace(token.content, token.id);
    state->special[token.id] = token.special;
    state->control[token.id] = token.special || text::looks_special(token.content);
    if (!token.normalized) {
      state->raw.add(token.content, index);
      continue;
    }
    std::string content = token.content;
    bool at_start = true;
    if (state->normalizer != nullptr) {
      PACKSTONE_CHECK_OK(state->normalizer->apply(content, at_start));
    }
    if (!content.empty()) state->normalized.add(content, index);
  }
  for (const std::int32_t id : rules.control) state->control[id] = true;
  state->bos = rules.bos;
  state->end_tokens = std::move(rules.end_tokens);
  state->chat_template = std::move(rules.chat_template);
  std::vector<std::int32_t> ids;
  for (const std::string& probe : probes()) {
    ids.clear();
    if (const Status probed = state->encode(probe, {}, ids); !probed) {
      return std::unexpected(Error{ErrorCode::kUnsupported, probed.error().message});
    }
  }
  Tokenizer tokenizer;
  tokenizer.state_ = std::move(state);
  return tokenizer;
}

Result<Tokenizer> Tokenizer::from_json(std::string_view tokenizer_json,
                                       std::string_view config_json) {
  PACKSTONE_TRY(text::TokenizerFile file, text::read_tokenizer_file(tokenizer_json));
  Json config;
  if (!config_json.empty()) {
    PACKSTONE_TRY(config, text::parse_json(config_json, "tokenizer_config.json"));
  }
  PACKSTONE_TRY(text::TokenizerRules rules, text::rules_from_file(std::move(file), config));
  return build(std::move(rules));
}

Result<Tokenizer> Tokenizer::from_vocabulary(const Vocabulary& vocabulary) {
  PACKSTONE_TRY(text::TokenizerRules rules, text::rules_from_vocabulary(vocabulary));
  return build(std::move(rules));
}

Result<std::vector<std::int32_t>> Tokenizer::try_encode(std::string_view input,
                                                        const EncodeOptions& options) const {
  std::vector<std::int32_t> ids;
  PACKSTONE_CHECK_OK(state_->encode(input, options, ids));
  return ids;
}

std::vector<std::int32_t> Tokenizer::encode(std::string_view input,
                                            const EncodeOptions& options) const {
  return try_encode(input, options).value_or(std::vector<std::int32_t>());
}

std::string Tokenizer::decode(std::span<const std::int32_t> ids, bool skip_special) const {
  std::string bytes;
  text::DecodeCursor cursor;
  for (const std::int32_t id : ids) state_->append_token(id, skip_special, cursor, bytes);
  return bytes;
}

std::string_view Tokenizer::piece(std::int32_t id) const {
  return state_->piece(id);
}

bool Tokenizer::is_special(std::int32_t id) const {
  return id >= 0 && id < size() && state_->special[id];
}

std::optional<std::int32_t> Tokenizer::id_of(std::string_view piece) const {
  const auto found = state_->added_ids.find(piece);
  if (found != state_->added_ids.end()) return found->second;
  const std::int32_t id = state_->model.table().find(piece);
  return id < 0 ? std::nullopt : std::optional(id);
}

std::int64_t Tokenizer::size() const {
  return state_->model.table().size();
}

std::optional<std::int32_t> Tokenizer::bos() const {
  return state_->bos;
}

const std::vector<std::int32_t>& Tokenizer::end_tokens() const {
  return state_->end_tokens;
}

const std::string& Tokenizer::chat_template() const {
  return state_->chat_template;
}

StreamDecoder::StreamDecoder(Tokenizer tokenizer, bool skip_special)
    : tokenizer_(std::move(tokenizer)), skip_special_(skip_special) {}

std::string StreamDecoder::push(std::int32_t id) {
  text::DecodeCursor cursor{first_, to_strip_};
  tokenizer_.state_->append_token(id, skip_special_, cursor, held_);
  first_ = cursor.first;
  to_strip_ = cursor.to_strip;
  // Hold back only what more bytes could still complete: at most three bytes.
  std::size_t ready = held_.size();
  for (std::size_t back = 1; back <= 3 && back <= held_.size(); ++back) {
    const std::size_t at = held_.size() - back;
    if ((static_cast<unsigned char>(held_[at]) & 0xC0) == 0x80) continue;
    const text::SequenceInfo info = text::inspect_utf8(std::string_view(held_).substr(at));
    if (info.cut_short) ready = at;
    break;
  }
  std::string out = held_.substr(0, ready);
  held_.erase(0, ready);
  return out;
}

std::string StreamDecoder::finish() {
  std::string out = std::move(held_);
  held_.clear();
  return out;
}

}  // namespace packstone
