// Regular expressions with the meaning that Oniguruma (Ruby syntax, Unicode 16) gives them, run by
// PCRE2. Source of the meanings: Oniguruma doc/RE, and pcre2pattern of PCRE2 10.42.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "packstone/base/result.h"
#include "packstone/text/rules.h"

namespace packstone::text {

struct Pcre2Code;

// A half-open byte range of a text, and whether the pattern matched it.
struct Match {
  std::size_t begin;
  std::size_t end;
  bool matched;
};

// A compiled pattern. Immutable; safe to share between threads.
class Regex {
 public:
  // Errors: kUnsupported for a construct whose meaning differs between the two engines and is not
  // translated, kCorruptData for a pattern that is wrong; both name the pattern.
  static Result<Regex> compile(std::string_view pattern);
  // A pattern that matches exactly the bytes of `text`.
  static Regex literal(std::string_view text);

  // Covers `text` (valid UTF-8) from end to end with matches and the gaps between them.
  // Errors: kExhausted when the match limit is reached. Cost: linear in matches times the limit.
  Status find_all(std::string_view text, std::vector<Match>& matches) const;

  const std::string& pattern() const { return pattern_; }

 private:
  std::string pattern_;
  std::shared_ptr<const Pcre2Code> code_;  // none for a literal
};

// The PCRE2 pattern of an Oniguruma pattern (seen by tests).
Result<std::string> translate_pattern(std::string_view pattern);

// The "pattern" of a rule: {"String": text} taken literally, or {"Regex": pattern}.
Result<Regex> pattern_field(const Json& rule, std::string_view rule_name);

}  // namespace packstone::text
