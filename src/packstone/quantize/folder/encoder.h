// What the encoders of one family are given and fill.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>
#include <span>

#include "packstone/base/matrix_view.h"
#include "packstone/base/thread_pool.h"
#include "packstone/format/packed_weight.h"

namespace packstone::folder {

// A weight under construction. Codes are counted from 0; stored parameters in the order of the
// format's kParams, those that groups share set in each of them.
struct Work {
  MatrixView weight;
  FormatId id{};
  FormatParams params;
  bool best = true;
  ThreadPool* pool = nullptr;
  std::int64_t group = 0, groups = 0;  // columns of a group, groups of a row
  std::uint8_t* codes = nullptr;       // [rows, cols]
  RawParams* raw = nullptr;            // [rows, groups]
};

// The E8M0 code of the least power of two, from 2^-127 on, that is at least `number`.
constexpr std::uint32_t power_code(float number) {
  const std::uint32_t bits = std::bit_cast<std::uint32_t>(number);
  if (bits <= 0x00400000u) return 0;
  return std::min((bits + 0x7FFFFFu) >> 23, 254u);
}

// Each fills codes and raw of finite weights. No exception but std::bad_alloc, and that only from
// the calling thread.
void encode_fp8(const Work& work);
void encode_bnb_4bit(const Work& work);
void encode_bnb_int8(const Work& work);
void encode_qqq(const Work& work);
void encode_qqq_g128(const Work& work);
void encode_mx(const Work& work);     // mxfp4, mlx-mxfp8
void encode_nvfp4(const Work& work);  // with and without a scale of the tensor

// fit_qqq_row(x, weight, group, raw), fit_mxfp8_group(x, weight, raw), fit_nvfp4_group(id, largest,
// x, weight, raw) with the largest magnitude of the tensor: stored parameters alone, for the least
// sum of weight * (decoded - x)^2 that the search finds; all weights zero count as one.
// Shapes: x, weight [columns]; raw [groups of the row]. Threads: safe.
void fit_qqq_row(std::span<const float> x, std::span<const float> weight, std::int64_t group,
                 std::span<RawParams> raw);
void fit_mxfp8_group(std::span<const float> x, std::span<const float> weight, RawParams& raw);
void fit_nvfp4_group(FormatId id, float largest, std::span<const float> x,
                     std::span<const float> weight, RawParams& raw);

}  // namespace packstone::folder
