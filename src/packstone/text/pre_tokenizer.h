// The pre-tokenizer part of a tokenizer: cuts text into words.
#pragma once

#include <array>
#include <memory>
#include <string>

#include "packstone/text/pieces.h"
#include "packstone/text/rules.h"

namespace packstone::text {

class PreTokenizer {
 public:
  PreTokenizer() = default;
  PreTokenizer(const PreTokenizer&) = delete;
  PreTokenizer& operator=(const PreTokenizer&) = delete;
  virtual ~PreTokenizer() = default;
  // Cuts and rewrites all pieces that are not tokens yet. Errors: kExhausted (match limit).
  virtual Status apply(Pieces& pieces) const = 0;
};

// The pre-tokenizer of a rule (null JSON gives none). Errors: kUnsupported by the rule's name,
// kCorruptData.
Result<std::unique_ptr<PreTokenizer>> make_pre_tokenizer(const Json& rule);

// The characters that stand for bytes in byte-level vocabularies (GPT-2's bytes_to_unicode), UTF-8.
const std::array<std::string, 256>& byte_characters();
// The byte that a character stands for, or -1.
int byte_of_character(char32_t point);

// The pattern of ByteLevel with use_regex (GPT-2's encoder.py).
inline constexpr std::string_view kGpt2Pattern =
    "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+";

}  // namespace packstone::text
