// The rule sets behind GGUF's tokenizer.ggml.pre names. Source: the tokenizer.json files of the
// models each name stands for, and the name table of llama.cpp b11434 (llama-vocab.cpp).
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "packstone/text/rules.h"

namespace packstone::text {

struct PreRules {
  std::string_view name;   // the name that is written
  std::string_view alias;  // other names of the same rules, separated by spaces
  bool nfc;                // normalizer NFC, else none
  bool ignore_merges;
  bool add_bos;  // when the file does not say
  Json (*pre_tokenizer)();
};

// Every rule set that this build knows.
std::span<const PreRules> pre_rules();
// By name or alias; none when unknown.
const PreRules* find_pre_rules(std::string_view name);
// The rule set of a tokenizer.json; none when it has no name here.
const PreRules* match_pre_rules(const Json& normalizer, const Json& pre_tokenizer,
                                bool ignore_merges);

}  // namespace packstone::text
