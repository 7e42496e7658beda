// AWQ "gemv", "gemv_fast" and "llm-awq", 4 bits: output-major codes, metadata padded with zeros.
// Producers: AutoAWQ 0.2.9, GPTQModel 7.7 (llm-awq after the llm-awq project).
// K = cols, N = rows, G = K / group. Z words of eight groups hold the metadata of a row:
//   m = 1, 2, 4, 8 for groups of at least 128, 64, 32, 16 columns; Z = ceil(ceil(G / 8) / m) m
//
// gemv:
//   qweight: I32 [N, K / 8]   nibble k % 8, from low to high, of word [n][k / 8]
//   qzeros:  I32 [N, Z]       zero of group g: nibble g % 8 of word [n][g / 8]
//   scales:  F16 [N, 8 Z]     entries from G on are padding
//   w = scale * (q - zero): exact in binary32
//
// gemv_fast, llm-awq:
//   qweight: I16 [N / 4, K]   64 columns of four rows in 64 words: code (n, k) is nibble
//                             (k / 8) % 4 of word
//                             64 (k / 64) + 16 (n % 4) + 8 ((k / 32) % 2) + k % 8
//   scales:  F16 [8 Z, N]     rows from G on are padding
//   qzeros (gemv_fast), scaled_zeros (llm-awq): F16 [8 Z, N]   the offset, as stored
//   w = fl(scale * q + offset): one rounding (the product has 11 + 4 bits)
//
// Legal: gemv rows and cols multiples of 8; gemv_fast and llm-awq cols a multiple of 64, rows of 4;
// whole groups. Padding is read as whatever it is and has no meaning.
#pragma once

#include "packstone/format/word_layout.h"

namespace packstone {

// Metadata words of a row; 0 where the producers define none.
constexpr std::int64_t awq_zero_words(Shape shape, const FormatParams& params) {
  const std::int64_t group = params.group_cols;
  const int m = group >= 128 ? 1 : group == 64 ? 2 : group == 32 ? 4 : group == 16 ? 8 : 0;
  return m == 0 ? 0 : ceil_div(ceil_div(shape.cols / group, 8), m) * m;
}

// Whether the producers define the padding of such groups.
constexpr bool awq_padding_defined(const FormatParams& params) {
  return params.group_cols >= 128 || params.group_cols == 64 || params.group_cols == 32 ||
         params.group_cols == 16;
}

struct AwqGemv : ChosenGroups, TensorPlanes<AwqGemv>, ScaleZeroParams<ParamCoding::kF16, 4> {
  static constexpr std::string_view kName = "awq_gemv.w4";
  static constexpr std::string_view kLayout = "awq-gemv";
  static constexpr std::string_view kSource = "AutoAWQ 0.2.9, awq/modules/linear/gemv.py";
  using Scheme = LinearScheme;
  static constexpr int kCodeBits = 4;
  static constexpr std::uint32_t kCodeXor = 0;
  static constexpr TileSpec kTile{1, 8, 1};
  static constexpr std::array<std::int32_t, 3> kGroups{64, 128, kWholeRow};
  static constexpr std::array<PlaneSpec, 3> kPlanes{
      {{".qweight", "I32"}, {".qzeros", "I32"}, {".scales", "F16"}}};

  static constexpr const char* legal(Shape shape, const FormatParams& params) {
    if (shape.cols % 8 != 0 || shape.rows % 8 != 0) return "rows and cols multiples of 8";
    if (!group_listed(kGroups, shape.cols, params) || !awq_padding_defined(params))
      return "a group of 64 or 128 columns or a whole row of 16, 32, 64 or at least 128";
    return shape.cols % params.group_cols == 0 ? nullptr : "cols a multiple of the group";
  }
  static constexpr PlaneDims plane_dims(int plane, Shape shape, const FormatParams& params) {
    const std::int64_t words = awq_zero_words(shape, params);
    return plane_dims_of(shape.rows, plane == 0 ? shape.cols / 8 : plane == 1 ? words : 8 * words);
  }
  static constexpr std::uint64_t padding_bits(int plane, Shape shape, const FormatParams& params) {
    const std::int64_t unused =
        shape.rows * (8 * awq_zero_words(shape, params) - group_count(shape, params));
    return plane == 0 ? 0 : unsigned64(unused) * (plane == 1 ? 4 : 16);
  }

  static constexpr std::uint64_t tile_start(Shape shape, const FormatParams&, std::int64_t row,
                                            std::int64_t col, int) {
    return unsigned64(row * shape.cols + col / 8 * 8) * 4;
  }
  static constexpr PieceList tile_code(int, int c) {
    return one_piece(0, static_cast<std::uint64_t>(c) * 4, 4);
  }
  static constexpr PieceList param(Shape shape, const FormatParams& params, int which,
                                   std::int64_t row, std::int64_t unit) {
    const std::uint64_t index = unsigned64(8 * row * awq_zero_words(shape, params) + unit);
    return which == 0 ? one_piece(2, index * 16, 16) : one_piece(1, index * 4, 4);
  }
};

// What gemv_fast and llm-awq share: all but a name.
struct AwqFastBase : ChosenGroups, ScaleOffsetParams<ParamCoding::kF16> {
  using Scheme = LinearScheme;
  static constexpr int kCodeBits = 4;
  static constexpr std::uint32_t kCodeXor = 0;
  static constexpr TileSpec kTile{4, 64, 1};
  static constexpr std::array<std::int32_t, 5> kGroups{16, 32, 64, 128, kWholeRow};

  static constexpr const char* legal(Shape shape, const FormatParams& params) {
    if (shape.cols % 64 != 0 || shape.rows % 4 != 0)
      return "cols a multiple of 64 and rows a multiple of 4";
    if (!group_listed(kGroups, shape.cols, params) || !awq_padding_defined(params))
      return "a group of 16, 32, 64 or 128 columns or the whole row";
    return shape.cols % params.group_cols == 0 ? nullptr : "cols a multiple of the group";
  }
  static constexpr PlaneDims plane_dims(int plane, Shape shape, const FormatParams& params) {
    if (plane == 0) return plane_dims_of(shape.rows / 4, shape.cols);
    return plane_dims_of(8 * awq_zero_words(shape, params), shape.rows);
  }
  static constexpr std::uint64_t padding_bits(int plane, Shape shape, const FormatParams& params) {
    const std::int64_t unused = 8 * awq_zero_words(shape, params) - group_count(shape, params);
    return plane == 0 ? 0 : unsigned64(unused * shape.rows) * 16;
  }

  static constexpr std::uint64_t tile_start(Shape shape, const FormatParams&, std::int64_t row,
                                            std::int64_t col, int) {
    return unsigned64(row / 4 * shape.cols + col / 64 * 64) * 16;
  }
  static constexpr PieceList tile_code(int r, int c) {
    const int word = 16 * r + 8 * (c / 32) + c % 8;
    return one_piece(0, static_cast<std::uint64_t>(16 * word + 4 * (c / 8 % 4)), 4);
  }
  static constexpr PieceList param(Shape shape, const FormatParams&, int which, std::int64_t row,
                                   std::int64_t unit) {
    return one_piece(1 + which, unsigned64(unit * shape.rows + row) * 16, 16);
  }
};

struct AwqGemvFast : AwqFastBase, TensorPlanes<AwqGemvFast> {
  static constexpr std::string_view kName = "awq_gemv_fast.w4";
  static constexpr std::string_view kLayout = "awq-gemv_fast";
  static constexpr std::string_view kSource = "AutoAWQ 0.2.9, awq/modules/linear/gemv_fast.py";
  static constexpr std::array<PlaneSpec, 3> kPlanes{
      {{".qweight", "I16"}, {".scales", "F16"}, {".qzeros", "F16"}}};
};

struct LlmAwq : AwqFastBase, TensorPlanes<LlmAwq> {
  static constexpr std::string_view kName = "llm_awq.w4";
  static constexpr std::string_view kLayout = "llm-awq";
  static constexpr std::string_view kSource = "GPTQModel 7.7.0, qlinear/gemv_fast_awq.py";
  static constexpr std::array<PlaneSpec, 3> kPlanes{
      {{".qweight", "I16"}, {".scales", "F16"}, {".scaled_zeros", "F16"}}};
};

static_assert(CodedFormat<AwqGemv> && CodedFormat<AwqGemvFast> && CodedFormat<LlmAwq>);
static_assert(proves_bijection<AwqGemv, 5120>({8, 64}, {64}));
static_assert(awq_zero_words({1, 11008}, {64}) == 22 && awq_zero_words({1, 896}, {128}) == 1);

}  // namespace packstone
