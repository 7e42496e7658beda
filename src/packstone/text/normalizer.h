// The normalizer part of a tokenizer.
#pragma once

#include <memory>
#include <string>

#include "packstone/text/rules.h"

namespace packstone::text {

class Normalizer {
 public:
  Normalizer() = default;
  Normalizer(const Normalizer&) = delete;
  Normalizer& operator=(const Normalizer&) = delete;
  virtual ~Normalizer() = default;
  // Rewrites `text` (valid UTF-8). `at_start` turns false when its first character no longer stands
  // for the first of the input.
  virtual Status apply(std::string& text, bool& at_start) const = 0;
};

// The normalizer of a rule (null JSON gives none). Errors: kUnsupported by the rule's name,
// kCorruptData.
Result<std::unique_ptr<Normalizer>> make_normalizer(const Json& rule);

}  // namespace packstone::text
