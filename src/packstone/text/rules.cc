// Reading tokenizer.json and tokenizer_config.json into rules.
#include "packstone/text/rules.h"

#include <algorithm>
#include <array>

#include "packstone/base/limits.h"
#include "packstone/text/token_table.h"

namespace packstone::text {
namespace {

constexpr std::size_t kNodesMax = 4'000'000;
// Added tokens are matched at every position, so their length bounds the cost of a text.
constexpr std::size_t kAddedBytesMax = 1024;
constexpr std::size_t kTokenBytesMax = 65'536;

// Builds a document with bounded depth. Objects keep the order of their keys. In a tokenizer file
// the members model.vocab and model.merges go to lists instead.
class DocumentReader {
 public:
  DocumentReader(Json& root, TokenizerFile* file) : root_(root), file_(file) {}

  bool null() { return scalar(nullptr); }
  bool boolean(bool value) { return scalar(value); }
  bool number_integer(std::int64_t value) {
    if (mode_ == Mode::kVocabulary) return entry(value);
    return scalar(value);
  }
  bool number_unsigned(std::uint64_t value) {
    if (mode_ == Mode::kVocabulary) {
      return entry(value > INT64_MAX ? INT64_MAX : static_cast<std::int64_t>(value));
    }
    return scalar(value);
  }
  bool number_float(double value, const std::string&) { return scalar(value); }
  bool string(std::string& value) {
    if (mode_ == Mode::kMerges) return legacy_merge(value);
    if (mode_ == Mode::kPair) return pair_part(value);
    return scalar(std::move(value));
  }
  bool binary(Json::binary_t&) { return stop("binary data"); }
  bool start_object(std::size_t) {
    if (mode_ != Mode::kDocument) return stop("an object among tokens or merges");
    if (at_list("vocab")) {
      mode_ = Mode::kVocabulary;
      file_->has_vocabulary = true;
      return true;
    }
    return open(Json::object());
  }
  bool start_array(std::size_t) {
    if (mode_ == Mode::kMerges) {
      mode_ = Mode::kPair;
      parts_ = 0;
      return true;
    }
    if (mode_ != Mode::kDocument) return stop("an array among tokens");
    if (at_list("merges")) {
      mode_ = Mode::kMerges;
      file_->has_merges = true;
      return true;
    }
    return open(Json::array());
  }
  bool key(std::string& name) {
    if (mode_ == Mode::kVocabulary) {
      key_ = std::move(name);
      return true;
    }
    const Json& object = *stack_.back();
    if (object.size() < 256 && object.contains(name)) return stop("a key twice: " + name);
    if (stack_.size() == 1) section_ = name;
    key_ = std::move(name);
    return true;
  }
  bool end_object() {
    if (mode_ == Mode::kVocabulary) {
      mode_ = Mode::kDocument;
      return true;
    }
    stack_.pop_back();
    return true;
  }
  bool end_array() {
    if (mode_ == Mode::kPair) {
      if (parts_ != 2) return stop("a merge that is not a pair");
      mode_ = Mode::kMerges;
      return true;
    }
    if (mode_ == Mode::kMerges) {
      mode_ = Mode::kDocument;
      return true;
    }
    stack_.pop_back();
    return true;
  }
  bool parse_error(std::size_t position, const std::string&, const Json::exception& error) {
    problem_ = fmt::format("{} (byte {})", error.what(), position);
    return false;
  }
  const std::string& problem() const { return problem_; }

 private:
  enum class Mode { kDocument, kVocabulary, kMerges, kPair };

  bool stop(std::string problem) {
    problem_ = std::move(problem);
    return false;
  }
  bool at_list(std::string_view name) const {
    return file_ != nullptr && stack_.size() == 2 && section_ == "model" && key_ == name &&
           stack_.back()->is_object();
  }
  Json* place(Json value) {
    if (stack_.empty()) {
      root_ = std::move(value);
      return &root_;
    }
    Json& parent = *stack_.back();
    if (parent.is_array()) {
      parent.push_back(std::move(value));
      return &parent.back();
    }
    auto& object = parent.get_ref<Json::object_t&>();
    object.std::vector<std::pair<const std::string, Json>>::emplace_back(std::move(key_),
                                                                         std::move(value));
    return &object.back().second;
  }
  template <class T>
  bool scalar(T value) {
    if (mode_ != Mode::kDocument) return stop("a wrong kind of value among tokens or merges");
    if (++nodes_ > kNodesMax) return stop("too many values");
    place(Json(std::move(value)));
    return true;
  }
  bool open(Json value) {
    if (stack_.size() >= static_cast<std::size_t>(limits::kJsonDepthMax)) {
      return stop("nesting too deep");
    }
    if (++nodes_ > kNodesMax) return stop("too many values");
    stack_.push_back(place(std::move(value)));
    return true;
  }
  bool entry(std::int64_t id) {
    file_->vocabulary.emplace_back(std::move(key_), id);
    return true;
  }
  bool legacy_merge(const std::string& text) {
    if (text.starts_with("#version")) return true;
    const std::size_t space = text.find(' ');
    if (space == std::string::npos || text.find(' ', space + 1) != std::string::npos) {
      return stop(fmt::format("the merge '{}', need two parts", text));
    }
    file_->merges.emplace_back(text.substr(0, space), text.substr(space + 1));
    return true;
  }
  bool pair_part(std::string& text) {
    if (parts_ == 0) file_->merges.emplace_back(std::move(text), std::string());
    if (parts_ == 1) file_->merges.back().second = std::move(text);
    if (++parts_ > 2) return stop("a merge that is not a pair");
    return true;
  }

  Json& root_;
  TokenizerFile* file_;
  std::vector<Json*> stack_;
  std::string key_;
  std::string section_;
  Mode mode_ = Mode::kDocument;
  int parts_ = 0;
  std::size_t nodes_ = 0;
  std::string problem_;
};

Result<Json> read_document(std::string_view text, std::string_view what, TokenizerFile* file) {
  if (text.size() > limits::kJsonBytesMax) {
    return fail(ErrorCode::kExhausted, "text.json", what, fmt::format("{} bytes", text.size()),
                fmt::format("at most {}", limits::kJsonBytesMax));
  }
  Json root;
  DocumentReader reader(root, file);
  bool good = false;
  std::string problem;
  try {
    good = Json::sax_parse(text.begin(), text.end(), &reader);
    problem = reader.problem();
  } catch (const Json::exception& error) {  // numbers beyond the range of double
    problem = error.what();
  }
  if (!good) return fail(ErrorCode::kCorruptData, "text.json", what, problem, "valid JSON");
  return root;
}

std::unexpected<Error> corrupt(std::string_view subject, std::string_view got,
                               std::string_view need, std::string_view hint = {}) {
  return fail(ErrorCode::kCorruptData, "text.tokenizer_json", subject, got, need, hint);
}

Result<std::string> optional_text(const Json& rule, std::string_view key) {
  const Json* value = member(rule, key);
  if (value == nullptr) return std::string();
  return text_field(rule, key);
}

Status read_model_options(const Json& model, BpeRules& rules) {
  if (const Json* type = member(model, "type")) {
    if (*type != "BPE") {
      return fail(ErrorCode::kUnsupported, "text.tokenizer_json", "model",
                  type->is_string() ? type->get_ref<const std::string&>() : "no name", "BPE");
    }
  }
  if (const Json* dropout = member(model, "dropout")) {
    if (!dropout->is_number()) return corrupt("dropout", "no number", "a number");
    if (dropout->get<double>() != 0) {
      return fail(ErrorCode::kUnsupported, "text.tokenizer_json", "dropout", dropout->dump(),
                  "none: ids must not be random");
    }
  }
  PACKSTONE_TRY(rules.unknown_token, optional_text(model, "unk_token"));
  PACKSTONE_TRY(rules.continuing_prefix, optional_text(model, "continuing_subword_prefix"));
  PACKSTONE_TRY(rules.word_suffix, optional_text(model, "end_of_word_suffix"));
  PACKSTONE_TRY(rules.fuse_unknown, bool_field(model, "fuse_unk", false));
  PACKSTONE_TRY(rules.byte_fallback, bool_field(model, "byte_fallback", false));
  PACKSTONE_TRY(rules.ignore_merges, bool_field(model, "ignore_merges", false));
  return {};
}

// Fills the table and the rules' vocabulary.
Status read_vocabulary(TokenizerFile& file, BpeRules& rules, TokenTable& table) {
  const auto count = static_cast<std::int64_t>(file.vocabulary.size());
  std::int64_t largest = -1;
  std::size_t bytes = 0;
  for (const auto& [text, id] : file.vocabulary) {
    // Ids are dense but for a few holes; a far id would only make the tables large.
    if (id < 0 || id >= limits::kVocabularyMax || id > count * 8 + 65'536) {
      return corrupt(fmt::format("token '{}'", text), fmt::format("id {}", id),
                     fmt::format("an id in range for {} tokens", count));
    }
    if (text.size() > kTokenBytesMax) {
      return corrupt("token", fmt::format("{} bytes", text.size()), "at most 65536");
    }
    largest = std::max(largest, id);
    bytes += text.size();
  }
  if (bytes > UINT32_MAX) return corrupt("vocabulary", "over 4 GiB of text", "less");
  table.reserve(static_cast<std::size_t>(largest + 1), file.vocabulary.size(), bytes);
  rules.vocabulary.reserve(file.vocabulary.size());
  for (auto& [text, id] : file.vocabulary) {
    if (!table.add(text, static_cast<std::int32_t>(id))) {
      return corrupt(fmt::format("token '{}'", text), fmt::format("id {}", id),
                     "every text and every id once");
    }
    rules.vocabulary.emplace_back(std::move(text), static_cast<std::int32_t>(id));
  }
  return {};
}

Status read_merges(const TokenizerFile& file, const TokenTable& table, BpeRules& rules) {
  rules.merges.reserve(file.merges.size());
  std::string joined;
  for (const auto& [left, right] : file.merges) {
    if (!right.starts_with(rules.continuing_prefix)) {
      return corrupt(fmt::format("merge '{} {}'", left, right), "a right part without the prefix",
                     fmt::format("'{}'", rules.continuing_prefix));
    }
    joined = left;
    joined += std::string_view(right).substr(rules.continuing_prefix.size());
    const MergeRule merge = {table.find(left), table.find(right), table.find(joined)};
    if (merge.left < 0 || merge.right < 0 || merge.result < 0) {
      return corrupt(fmt::format("merge '{} {}'", left, right), "a part or result without an id",
                     "tokens of the vocabulary");
    }
    rules.merges.push_back(merge);
  }
  return {};
}

Result<AddedToken> read_added(const Json& item) {
  if (!item.is_object()) return corrupt("added_tokens", "an entry of another kind", "objects");
  AddedToken token;
  PACKSTONE_TRY(token.content, text_field(item, "content"));
  PACKSTONE_TRY(token.single_word, bool_field(item, "single_word", std::nullopt));
  PACKSTONE_TRY(token.lstrip, bool_field(item, "lstrip", std::nullopt));
  PACKSTONE_TRY(token.rstrip, bool_field(item, "rstrip", std::nullopt));
  PACKSTONE_TRY(token.normalized, bool_field(item, "normalized", std::nullopt));
  PACKSTONE_TRY(token.special, bool_field(item, "special", std::nullopt));
  const Json* id = member(item, "id");
  if (id == nullptr || !id->is_number_integer() || *id < 0 || *id >= limits::kVocabularyMax) {
    return corrupt(fmt::format("added token '{}'", token.content), "no id in range",
                   fmt::format("0 to {}", limits::kVocabularyMax - 1));
  }
  if (token.content.size() > kAddedBytesMax) {
    return corrupt("added token", fmt::format("{} bytes", token.content.size()), "at most 1024");
  }
  token.id = id->get<std::int32_t>();
  return token;
}

// Ids are given as the library gives them; the file must agree.
Status read_added_tokens(const Json& document, const TokenTable& table, TokenizerRules& rules) {
  const Json* list = member(document, "added_tokens");
  if (list == nullptr) return {};
  if (!list->is_array()) return corrupt("added_tokens", "no list", "a list");
  const auto count = static_cast<std::int32_t>(rules.model.vocabulary.size());
  std::int32_t next = count;
  std::vector<std::pair<std::string_view, std::size_t>> seen;
  rules.added.reserve(list->size());
  for (const Json& item : *list) {
    PACKSTONE_TRY(AddedToken token, read_added(item));
    if (token.content.empty()) continue;  // the library ignores it
    std::int32_t id = table.find(token.content);
    if (id < 0) {
      id = next++;
      if (table.has(id)) {
        return corrupt(fmt::format("added token '{}'", token.content), fmt::format("id {}", id),
                       "an id that no token has");
      }
    }
    if (id != token.id) {
      return corrupt(fmt::format("added token '{}'", token.content), fmt::format("id {}", token.id),
                     fmt::format("{}", id), "its place after the vocabulary, or its id there");
    }
    rules.added.push_back(std::move(token));
  }
  for (std::size_t i = 0; i < rules.added.size(); ++i) seen.emplace_back(rules.added[i].content, i);
  std::sort(seen.begin(), seen.end());
  for (std::size_t i = 1; i < seen.size(); ++i) {
    if (seen[i].first == seen[i - 1].first) {
      return corrupt(fmt::format("added token '{}'", seen[i].first), "two entries", "one");
    }
  }
  return {};
}

// The token that a config names: a string or an object with its content.
std::string_view config_token(const Json& config, std::string_view key) {
  const Json* value = member(config, key);
  if (value != nullptr && value->is_object()) value = member(*value, "content");
  if (value == nullptr || !value->is_string()) return {};
  return value->get_ref<const std::string&>();
}

std::int32_t id_of_text(const TokenizerRules& rules, std::string_view text) {
  if (text.empty()) return -1;
  for (const AddedToken& token : rules.added) {
    if (token.content == text) return token.id;
  }
  for (const auto& [token, id] : rules.model.vocabulary) {
    if (token == text) return id;
  }
  return -1;
}

void read_config(const Json& config, TokenizerRules& rules) {
  if (!config.is_object()) return;
  const std::int32_t bos = id_of_text(rules, config_token(config, "bos_token"));
  if (bos >= 0) rules.bos = bos;
  for (const std::string_view key : {"eos_token", "eot_token"}) {
    const std::int32_t id = id_of_text(rules, config_token(config, key));
    if (id >= 0) rules.end_tokens.push_back(id);
  }
  for (const std::string_view key : {"bos_token", "eos_token", "eot_token", "pad_token",
                                     "sep_token", "mask_token", "cls_token", "unk_token"}) {
    const std::int32_t id = id_of_text(rules, config_token(config, key));
    if (id >= 0) rules.control.push_back(id);
  }
  if (const Json* text = member(config, "chat_template"); text != nullptr && text->is_string()) {
    rules.chat_template = text->get<std::string>();
  }
}

Status copy_vocabulary(const Json& vocabulary, TokenizerFile& file) {
  if (!vocabulary.is_object()) return corrupt("vocab", "another kind", "an object");
  file.has_vocabulary = true;
  for (const auto& [token, id] : vocabulary.items()) {
    if (!id.is_number_integer()) return corrupt(token, "no id", "a whole number");
    const bool large = id.is_number_unsigned() && id.get<std::uint64_t>() > INT64_MAX;
    file.vocabulary.emplace_back(token, large ? INT64_MAX : id.get<std::int64_t>());
  }
  return {};
}

bool split_merge(std::string_view text, TokenizerFile& file) {
  const std::size_t space = text.find(' ');
  if (space == std::string_view::npos || text.find(' ', space + 1) != std::string_view::npos) {
    return false;
  }
  file.merges.emplace_back(text.substr(0, space), text.substr(space + 1));
  return true;
}

Status copy_merges(const Json& merges, TokenizerFile& file) {
  if (!merges.is_array()) return corrupt("merges", "another kind", "a list");
  file.has_merges = true;
  for (const Json& merge : merges) {
    if (merge.is_string()) {
      const auto& text = merge.get_ref<const std::string&>();
      if (!text.starts_with("#version") && !split_merge(text, file)) {
        return corrupt("merges", fmt::format("'{}'", text), "two parts");
      }
    } else if (merge.is_array() && merge.size() == 2 && merge[0].is_string() &&
               merge[1].is_string()) {
      file.merges.emplace_back(merge[0].get<std::string>(), merge[1].get<std::string>());
    } else {
      return corrupt("merges", "an entry of another kind", "pairs");
    }
  }
  return {};
}

}  // namespace

Result<TokenizerFile> read_tokenizer_file(std::string_view text) {
  TokenizerFile file;
  PACKSTONE_TRY(file.rules, read_document(text, "tokenizer.json", &file));
  return file;
}

Result<TokenizerFile> read_tokenizer_file(const Json& document) {
  TokenizerFile file;
  if (!document.is_object()) return corrupt("document", "no object", "an object");
  for (const auto& [key, value] : document.items()) {
    if (key != "model" || !value.is_object()) {
      file.rules[key] = value;
      continue;
    }
    Json model = Json::object();
    for (const auto& [name, part] : value.items()) {
      if (name != "vocab" && name != "merges") model[name] = part;
    }
    file.rules["model"] = std::move(model);
    if (const Json* vocabulary = member(value, "vocab")) {
      PACKSTONE_CHECK_OK(copy_vocabulary(*vocabulary, file));
    }
    if (const Json* merges = member(value, "merges"))
      PACKSTONE_CHECK_OK(copy_merges(*merges, file));
  }
  return file;
}

Result<Json> parse_json(std::string_view text, std::string_view what) {
  return read_document(text, what, nullptr);
}

Result<TokenizerRules> rules_from_file(TokenizerFile file, const Json& config) {
  const Json& document = file.rules;
  if (!document.is_object()) return corrupt("document", "no object", "an object");
  if (const Json* version = member(document, "version"); version && *version != "1.0") {
    return fail(ErrorCode::kUnsupported, "text.tokenizer_json", "version", version->dump(), "1.0");
  }
  const Json* model = member(document, "model");
  if (model == nullptr || !model->is_object()) return corrupt("model", "none", "an object");
  TokenizerRules rules;
  PACKSTONE_CHECK_OK(read_model_options(*model, rules.model));
  if (!file.has_vocabulary) return corrupt("model.vocab", "none", "an object of ids");
  if (!file.has_merges) return corrupt("model.merges", "none", "a list");
  TokenTable table;
  PACKSTONE_CHECK_OK(read_vocabulary(file, rules.model, table));
  PACKSTONE_CHECK_OK(read_merges(file, table, rules.model));
  PACKSTONE_CHECK_OK(read_added_tokens(document, table, rules));
  const auto part = [&](std::string_view key) {
    const Json* value = member(document, key);
    return value == nullptr ? Json() : *value;
  };
  rules.normalizer = part("normalizer");
  rules.pre_tokenizer = part("pre_tokenizer");
  rules.post_processor = part("post_processor");
  rules.decoder = part("decoder");
  if (const Json* gguf = member(*model, "gguf")) rules.gguf = *gguf;
  read_config(config, rules);
  return rules;
}

const Json* member(const Json& object, std::string_view key) {
  if (!object.is_object()) return nullptr;
  const auto found = object.find(key);
  return found == object.end() || found->is_null() ? nullptr : &*found;
}

Result<bool> bool_field(const Json& rule, std::string_view key, std::optional<bool> otherwise) {
  const Json* value = member(rule, key);
  if (value == nullptr && otherwise) return *otherwise;
  if (value == nullptr || !value->is_boolean()) {
    return corrupt(key, value == nullptr ? "nothing" : "another kind", "true or false");
  }
  return value->get<bool>();
}

Result<std::string> text_field(const Json& rule, std::string_view key) {
  const Json* value = member(rule, key);
  if (value == nullptr || !value->is_string()) {
    return corrupt(key, value == nullptr ? "nothing" : "another kind", "a text");
  }
  return value->get<std::string>();
}

Result<std::string> rule_type(const Json& rule, std::string_view part) {
  const Json* type = member(rule, "type");
  if (type == nullptr || !type->is_string()) return corrupt(part, "no type", "a rule's name");
  return type->get<std::string>();
}

bool looks_special(std::string_view text) {
  static constexpr std::array<std::string_view, 4> kNames = {"<pad>", "<mask>", "<2mass>",
                                                             "[@BOS@]"};
  if (std::find(kNames.begin(), kNames.end(), text) != kNames.end()) return true;
  const auto framed = [&](std::string_view open, std::string_view close) {
    return text.size() >= open.size() + close.size() && text.starts_with(open) &&
           text.ends_with(close);
  };
  return framed("<|", "|>") || framed("<\xEF\xBD\x9C", "\xEF\xBD\x9C>") || framed("<unused", ">");
}

std::optional<std::uint8_t> byte_token(std::string_view text) {
  if (text.size() != 6 || !text.starts_with("<0x") || text[5] != '>') return std::nullopt;
  int value = 0;
  for (const char c : text.substr(3, 2)) {
    int digit = 0;
    if (c >= '0' && c <= '9') {
      digit = c - '0';
    } else if (c >= 'A' && c <= 'F') {
      digit = c - 'A' + 10;
    } else if (c >= 'a' && c <= 'f') {
      digit = c - 'a' + 10;
    } else {
      return std::nullopt;
    }
    value = value * 16 + digit;
  }
  return static_cast<std::uint8_t>(value);
}

}  // namespace packstone::text
