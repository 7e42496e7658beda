// Numbers of the GGUF format that reader and writer share. Source: ggml docs/gguf.md and gguf.cpp
// of ggml 0.26.
#pragma once

#include <cstdint>
#include <string_view>

#include "packstone/base/limits.h"
#include "packstone/base/result.h"
#include "packstone/container/gguf.h"

namespace packstone::internal {

inline constexpr std::string_view kGgufMagic = "GGUF";
inline constexpr std::uint32_t kGgufVersion = 3;
inline constexpr std::uint32_t kGgufAlignmentDefault = 32;
inline constexpr std::string_view kGgufAlignmentKey = "general.alignment";
inline constexpr std::size_t kGgufRankMax = 4;

// general.alignment of the keys, 32 when absent. Errors: `code` when it is not a u32 power of two
// of at most kGgufAlignmentMax.
Result<std::uint32_t> gguf_alignment(const std::vector<GgufKey>& keys, ErrorCode code,
                                     std::string_view where, std::string_view file);

}  // namespace packstone::internal
