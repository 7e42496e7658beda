// Every bound on what a file may ask for, with its reason. A breach is an error, never a crash.
#pragma once

#include <cstdint>

namespace packstone::limits {

// safetensors' own limit (its reference reader refuses more).
inline constexpr std::uint64_t kSafetensorsHeaderBytesMax = 100'000'000;
// The largest published checkpoints have under 200,000 tensors.
inline constexpr std::uint64_t kTensorsMax = 4'000'000;
// GGUF readers in the field cut at 64; real names stay under 200. Above this, refuse.
inline constexpr std::uint64_t kNameBytesMax = 4096;
// GGUF has 4 dimensions; safetensors files use up to 5 (convolutions).
inline constexpr int kRankMax = 8;
// ggml's own limit on a key is 65535 bytes.
inline constexpr std::uint64_t kGgufKeyBytesMax = 65'535;
// No writer nests arrays; two levels leave room for one that does.
inline constexpr int kGgufArrayDepthMax = 3;
// Page size times 16: larger alignments only waste space and appear in attacks.
inline constexpr std::uint32_t kGgufAlignmentMax = 1u << 16;
// The largest split set seen has 300 parts.
inline constexpr std::uint32_t kSplitPartsMax = 10'000;
// config.json, tokenizer_config.json, index: nesting deeper than this is an attack on the parser.
inline constexpr int kJsonDepthMax = 64;
// tokenizer.json of the largest vocabularies is under 40 MB.
inline constexpr std::uint64_t kJsonBytesMax = 512'000'000;
inline constexpr std::int64_t kLayersMax = 1024;
inline constexpr std::int64_t kVocabularyMax = 4'000'000;
inline constexpr std::int64_t kContextMax = 64'000'000;
// rows * cols of one matrix must stay countable in signed 64 bits after widening to bits.
inline constexpr std::int64_t kMatrixElementsMax = std::int64_t{1} << 48;

}  // namespace packstone::limits
