// Text to token ids and back, for byte-level BPE and SentencePiece-style BPE.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "packstone/base/result.h"
#include "packstone/text/vocabulary.h"

namespace packstone {

namespace text {
struct TokenizerRules;
}

struct EncodeOptions {
  bool parse_special = true;  // special tokens written in the text become their ids
  bool add_special = true;    // BOS and EOS as the tokenizer's post-processor says
};

// A loaded tokenizer. Immutable; safe to share between threads.
class Tokenizer {
 public:
  // from_json(text, config_text): a tokenizer.json and, if not empty, a tokenizer_config.json.
  // Errors: kCorruptData for hostile or broken files; kUnsupported for a rule this build lacks, by
  //         name: never skipped.
  static Result<Tokenizer> from_json(std::string_view tokenizer_json, std::string_view config_json);
  static Result<Tokenizer> from_vocabulary(const Vocabulary& vocabulary);

  // Ids of `text`, equal to the `tokenizers` library's. Invalid UTF-8 is replaced by U+FFFD first
  // (one per maximal subpart), as Python's errors="replace" does.
  // Gives nothing where try_encode fails.
  std::vector<std::int32_t> encode(std::string_view text, const EncodeOptions& options = {}) const;
  // The same with the reason of a failure. Errors: kExhausted when a pattern of the tokenizer
  // reaches its step limit on this text (a hostile or broken tokenizer).
  Result<std::vector<std::int32_t>> try_encode(std::string_view text,
                                               const EncodeOptions& options = {}) const;
  // The exact bytes of the tokens, special ones included (unless skip_special).
  std::string decode(std::span<const std::int32_t> ids, bool skip_special = false) const;
  // The token as the vocabulary spells it ("<U+0120>the", "<U+2581>the", "<0x0A>").
  std::string_view piece(std::int32_t id) const;
  bool is_special(std::int32_t id) const;
  std::optional<std::int32_t> id_of(std::string_view piece) const;
  std::int64_t size() const;  // one more than the largest id
  std::optional<std::int32_t> bos() const;
  const std::vector<std::int32_t>& end_tokens() const;  // those that the tokenizer's files name
  const std::string& chat_template() const;             // empty when there is none

 private:
  friend class StreamDecoder;
  struct State;
  static Result<Tokenizer> build(text::TokenizerRules rules);
  std::shared_ptr<const State> state_;
};

// Decodes token by token; holds bytes back until they make whole UTF-8 characters.
// Joined outputs of push and finish equal decode of all ids.
class StreamDecoder {
 public:
  explicit StreamDecoder(Tokenizer tokenizer, bool skip_special = false);
  std::string push(std::int32_t id);
  // What is held back, as is.
  std::string finish();

 private:
  Tokenizer tokenizer_;
  bool skip_special_;
  bool first_ = true;
  std::int32_t to_strip_ = -1;
  std::string held_;
};

}  // namespace packstone
