// The one internal description of a tokenizer: what a tokenizer.json says and what is made from a
// GGUF vocabulary. Pipelines are built from it, and tokenizer.json is printed from it.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "packstone/base/result.h"
#include "packstone/text/vocabulary.h"

namespace packstone::text {

using Json = nlohmann::ordered_json;

struct AddedToken {
  std::int32_t id = -1;
  std::string content;
  bool single_word = false;
  bool lstrip = false;
  bool rstrip = false;
  bool normalized = false;
  bool special = false;
};

// A merge rule by token ids; its place in the list is its rank.
struct MergeRule {
  std::int32_t left;
  std::int32_t right;
  std::int32_t result;
};

struct BpeRules {
  std::string unknown_token;
  std::string continuing_prefix;
  std::string word_suffix;
  bool fuse_unknown = false;
  bool byte_fallback = false;
  bool ignore_merges = false;
  std::vector<std::pair<std::string, std::int32_t>> vocabulary;  // ids unique, in range
  std::vector<MergeRule> merges;
};

struct TokenizerRules {
  Json normalizer;
  Json pre_tokenizer;
  Json post_processor;
  Json decoder;
  std::vector<AddedToken> added;
  BpeRules model;
  Json gguf;  // what a GGUF vocabulary holds beyond the rules; null when nothing
  std::optional<std::int32_t> bos;
  std::vector<std::int32_t> end_tokens;
  std::vector<std::int32_t> control;  // ids that text must not give when special tokens are off
  std::string chat_template;
};

// The parts of a tokenizer.json text: the rules as JSON without the two large lists, and these.
struct TokenizerFile {
  Json rules;
  std::vector<std::pair<std::string, std::int64_t>> vocabulary;
  std::vector<std::pair<std::string, std::string>> merges;
  bool has_vocabulary = false;  // the two lists were there and of the right kind
  bool has_merges = false;
};

// Reads a tokenizer.json. Errors: kCorruptData for broken JSON, nesting beyond
// limits::kJsonDepthMax, or lists of the wrong shape. Cost: linear.
Result<TokenizerFile> read_tokenizer_file(std::string_view text);
// The same from a parsed document.
Result<TokenizerFile> read_tokenizer_file(const Json& document);
// Small JSON with the depth limit.
Result<Json> parse_json(std::string_view text, std::string_view what);

// The rules of a tokenizer.json and a tokenizer_config.json (null when there is none).
Result<TokenizerRules> rules_from_file(TokenizerFile file, const Json& config);
// The rules that a GGUF vocabulary implies.
Result<TokenizerRules> rules_from_vocabulary(const Vocabulary& vocabulary);

// Typed reads of rule fields. Errors: kCorruptData naming rule and field.
Result<bool> bool_field(const Json& rule, std::string_view key, std::optional<bool> otherwise);
Result<std::string> text_field(const Json& rule, std::string_view key);
const Json* member(const Json& object, std::string_view key);  // none when absent or null
Result<std::string> rule_type(const Json& rule, std::string_view part);

// Whether a token's text is one that llama.cpp's converter takes for a control token.
bool looks_special(std::string_view text);

// The byte of a "<0xNN>" token (two hexadecimal digits, nothing else), or nothing.
std::optional<std::uint8_t> byte_token(std::string_view text);

}  // namespace packstone::text
