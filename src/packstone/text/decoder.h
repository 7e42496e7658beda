// The decoder part of a tokenizer: tokens to bytes, one token at a time.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "packstone/text/regex.h"
#include "packstone/text/rules.h"

namespace packstone::text {

// Where a decoding stands.
struct DecodeCursor {
  bool first = true;           // no token has been decoded yet
  std::int32_t to_strip = -1;  // leading characters that may still be dropped; -1 before the start
};

// Immutable; safe to share between threads. Source of the rules: decoders/ of `tokenizers` 0.23,
// but byte tokens give their bytes even where these are not UTF-8.
class Decoder {
 public:
  // Errors: kUnsupported by the rule's name, also for a rule that would need tokens to come;
  // kCorruptData.
  static Result<Decoder> create(const Json& rule);
  // Appends the bytes of the next token. `verbatim` tokens (added ones of a byte-level vocabulary)
  // are not mapped back to bytes.
  void append(std::string_view token, bool verbatim, DecodeCursor& cursor,
              std::string& bytes) const;
  bool byte_level() const { return byte_level_; }

 private:
  enum class Kind { kReplace, kByteFallback, kMetaspace, kStrip };
  struct Step {
    Kind kind;
    std::optional<Regex> regex;
    std::string text;          // Replace: content; Metaspace: mark; Strip: the character
    std::int64_t start = 0;    // Strip
    std::int64_t stop = 0;     // Strip
    bool drops_first = false;  // Metaspace
  };
  Status add(const Json& rule, bool& fused);
  Status add_strip(const Json& rule, bool fused);
  static void strip(const Step& step, std::string& text);

  std::vector<Step> steps_;
  bool byte_level_ = false;
  bool joins_with_space_ = false;
  std::string lead_;             // character dropped at the start of the whole text
  std::int32_t lead_count_ = 0;  // at most this often
};

}  // namespace packstone::text
