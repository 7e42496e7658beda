// The tokenizer's data as GGUF keys, both ways. Source: llama.cpp b11434, llama-vocab.cpp.
#pragma once

#include <vector>

#include "packstone/container/gguf.h"
#include "packstone/text/vocabulary.h"

namespace packstone {

// vocabulary_from_gguf(gguf): the tokenizer.ggml.* keys. Errors: kNotFound without a tokenizer,
// kCorruptData for another type or count, naming the key.
Result<Vocabulary> vocabulary_from_gguf(const GgufFile& gguf);

// gguf_vocabulary_keys(vocabulary): the reverse, in llama.cpp's order and types.
std::vector<GgufKey> gguf_vocabulary_keys(const Vocabulary& vocabulary);

// gguf_token_id_keys(vocabulary): only the keys that hold token ids.
std::vector<GgufKey> gguf_token_id_keys(const Vocabulary& vocabulary);

}  // namespace packstone
