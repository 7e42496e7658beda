// A tokenizer's data as plain values: what GGUF's tokenizer.ggml.* keys hold, and the two-way map
// to Hugging Face's tokenizer.json.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "packstone/base/result.h"

namespace packstone {

// Token types of GGUF (llama.h, llama_token_type).
enum class TokenType : std::int32_t {
  kUndefined = 0,
  kNormal = 1,
  kUnknown = 2,
  kControl = 3,
  kUserDefined = 4,
  kUnused = 5,
  kByte = 6,
};

struct Vocabulary {
  std::string model;  // tokenizer.ggml.model: "gpt2" (byte-level BPE), "llama" (SentencePiece BPE)
  std::string pre;    // tokenizer.ggml.pre: "smollm", "qwen2", "default", ...
  std::vector<std::string> tokens;
  std::vector<float> scores;        // empty or one per token
  std::vector<TokenType> types;     // empty or one per token
  std::vector<std::string> merges;  // "left right", byte-level BPE only
  std::optional<std::int32_t> bos, eos, eot, unknown, separator, padding, mask;
  std::optional<bool> add_bos, add_eos, add_space_prefix;
  std::optional<std::string> chat_template;
};

// tokenizer_json(vocabulary) is a tokenizer.json that the `tokenizers` library reads and that gives
// the same ids. Errors: kUnsupported for a model or pre-tokenizer without a known rule set.
Result<nlohmann::ordered_json> tokenizer_json(const Vocabulary& vocabulary);

// parse_tokenizer_document(text) parses a tokenizer.json (or tokenizer_config.json) in linear time:
// ordered_json::parse itself looks every new key up among all earlier ones, which takes minutes for
// a large vocabulary. Errors: kCorruptData for broken JSON or deep nesting, kExhausted for size.
Result<nlohmann::ordered_json> parse_tokenizer_document(std::string_view text);

// tokenizer_config_json(vocabulary): tokenizer_config.json with special tokens and chat template.
nlohmann::ordered_json tokenizer_config_json(const Vocabulary& vocabulary);

// vocabulary_from_json(tokenizer, config, size): the reverse; `config` may be null. `vocab_size` is
// the number of embedding rows; missing ids become unused tokens as llama.cpp's converter names
// them. Errors: kUnsupported for rules with no GGUF name (the rule is named), kCorruptData.
Result<Vocabulary> vocabulary_from_json(const nlohmann::ordered_json& tokenizer,
                                        const nlohmann::ordered_json& config,
                                        std::int64_t vocab_size);

}  // namespace packstone
