// QQQ (W4A8), 4 bits, symmetric. Producer: GPTQModel 7.7 (format "qqq"), after the QQQ project.
// K = cols, N = rows.
//
//   B:         I32 [K / 16, 2 N]  tiles of 16 inputs x 64 outputs, 128 words each. Of input
//              kk = k % 16 and output n, with t = kk / 4, j = n % 64 / 16, half = n % 16 / 8,
//              lane = 4 half + kk % 4: word 4 (4 (n % 8) + t) + j; nibbles from low to high are
//              lanes 0 2 4 6 1 3 5 7 (groups of 128) or 4 0 5 1 6 2 7 3 (whole row)
//   s_channel: F32 [1, N]         in the single order of word_layout.h
//   s_group:   F16 [K / 128, N]   in its grouped order; empty where the group is the whole row
//
// qqq (whole row): nibbles are two's complement c, and the producer's weight is
// fl(16 c * s_channel). Here scale = 16 s_channel, an exact product: the same bits, but for
// s_channel of at least 2^124 whose scale is infinite (NaN then where c = 0).
// qqq-g128: nibbles are q with center 8; the producer rounds to a byte first, ties to even:
// w = fl(clamp(rne((q - 8) * s_group), -128, 127) * s_channel). An integer 0 has no sign.
// A NaN s_group gives NaN.
//
// Legal: cols and rows multiples of 64; qqq-g128 whole groups, more than one (a row of one group of
// 128 is the whole row).
#pragma once

#include "packstone/format/word_layout.h"

namespace packstone {

// The byte that a nibble stands for, times the row's scale.
struct QqqScheme {
  static constexpr SchemeKind kKind = SchemeKind::kTable;
  static constexpr std::string_view kTableName = "qqq";
  static constexpr float level(std::uint32_t code, std::int32_t) {
    return static_cast<float>(static_cast<std::int32_t>(code) - 8);
  }
  // The integer of -128..127; NaN where s_group is.
  static constexpr float byte_level(float s_group, std::uint32_t code) {
    const float product = level(code, 0) * s_group;  // 4 + 11 bits: exact
    const float clamped = product < -128.0f ? -128.0f : product > 127.0f ? 127.0f : product;
    constexpr float kToInteger = 0x1.8p23f;  // adding it rounds to a whole number, ties to even
    return (clamped + kToInteger) - kToInteger;
  }
  static constexpr float value(const GroupValues& group, std::uint32_t code) {
    return byte_level(group.inner, code) * group.scale;
  }
};

template <bool WholeRow>
struct QqqTiles {
  static constexpr int kCodeBits = 4;
  static constexpr std::uint32_t kCodeXor = WholeRow ? 8 : 0;
  static constexpr TileSpec kTile{64, 16, 1};
  static constexpr std::array<std::int32_t, 1> kGroups{WholeRow ? kWholeRow : 128};
  static constexpr std::array<PlaneSpec, 3> kPlanes{
      {{".B", "I32"}, {".s_channel", "F32"}, {".s_group", "F16"}}};

  static constexpr const char* legal(Shape shape, const FormatParams& params) {
    if (shape.cols % 64 != 0 || shape.rows % 64 != 0) return "rows and cols multiples of 64";
    if constexpr (WholeRow) {
      return group_listed(kGroups, shape.cols, params) ? nullptr : "the whole row as one group";
    } else {
      if (params.group_cols != 0 && params.group_cols != 128) return "groups of 128 columns";
      if (shape.cols < 256) return "more than one group";
      return shape.cols % 128 == 0 ? nullptr : "cols a multiple of 128";
    }
  }
  static constexpr std::int64_t group_cols(const FormatParams& params) {
    return WholeRow ? params.group_cols : 128;
  }
  static constexpr std::int64_t param_cols(int, const FormatParams& params) {
    return group_cols(params);
  }
  static constexpr PlaneDims plane_dims(int plane, Shape shape, const FormatParams&) {
    if (plane == 0) return plane_dims_of(shape.cols / 16, 2 * shape.rows);
    if (plane == 1) return plane_dims_of(1, shape.rows);
    return WholeRow ? plane_dims_of(0) : plane_dims_of(shape.cols / 128, shape.rows);
  }
  static constexpr std::uint64_t padding_bits(int, Shape, const FormatParams&) { return 0; }

  static constexpr std::uint64_t tile_start(Shape shape, const FormatParams&, std::int64_t row,
                                            std::int64_t col, int) {
    return unsigned64(col / 16 * shape.rows + row / 64 * 64) * 64;
  }
  static constexpr PieceList tile_code(int r, int c) {
    const int half = r % 16 / 8, lane = 4 * half + c % 4;
    const int nibble = WholeRow ? 2 * (c % 4) + 1 - half : awq_nibble(lane);
    const int word = 4 * (4 * (r % 8) + c / 4) + r / 16;
    return one_piece(0, static_cast<std::uint64_t>(32 * word + 4 * nibble), 4);
  }
  static constexpr PieceList param(Shape shape, const FormatParams&, int which, std::int64_t row,
                                   std::int64_t unit) {
    if (which == 0) return one_piece(1, unsigned64(marlin_single_position(row)) * 32, 32);
    return one_piece(2, unsigned64(unit * shape.rows + marlin_grouped_position(row)) * 16, 16);
  }
};

struct Qqq : QqqTiles<true>, TensorPlanes<Qqq> {
  static constexpr std::string_view kName = "qqq.w4";
  static constexpr std::string_view kLayout = "qqq";
  static constexpr std::string_view kSource = "GPTQModel 7.7.0, qlinear/qqq.py";
  using Scheme = LinearScheme;
  static constexpr std::array<ParamSpec, 1> kParams{{
      {ParamKind::kScale, ParamCoding::kF32, 32},
  }};

  static constexpr GroupValues values(const RawParams& raw, const FormatParams&) {
    return {16.0f * decode_float(FloatType::kF32, raw.pattern[0]), kNoOffset, 8};
  }
  static constexpr bool encode(const GroupValues& group, const FormatParams&, RawParams& raw) {
    const float channel = group.scale / 16.0f;
    raw.pattern[0] = std::bit_cast<std::uint32_t>(channel);
    return group.center == 8 && group.offset == 0.0f &&
           std::bit_cast<std::uint32_t>(16.0f * channel) ==
               std::bit_cast<std::uint32_t>(group.scale);
  }
};

struct QqqG128 : QqqTiles<false>, TensorPlanes<QqqG128>, SharedParams {
  static constexpr std::string_view kName = "qqq_g128.w4";
  static constexpr std::string_view kLayout = "qqq-g128";
  static constexpr std::string_view kSource = "GPTQModel 7.7.0, qlinear/qqq.py";
  using Scheme = QqqScheme;
  static constexpr std::array<ParamSpec, 2> kParams{{
      {ParamKind::kSuperScale, ParamCoding::kF32, 32},
      {ParamKind::kScale, ParamCoding::kF16, 16},
  }};

  // A row's groups share s_channel.
  static constexpr ParamUnit first_use(Shape, const FormatParams&, int which, std::int64_t row,
                                       std::int64_t unit) {
    return {row, which == 0 ? 0 : unit};
  }
  static constexpr GroupValues values(const RawParams& raw, const FormatParams&) {
    return {decode_float(FloatType::kF32, raw.pattern[0]), kNoOffset, 8,
            decode_float(FloatType::kF16, raw.pattern[1])};
  }
};

static_assert(CodedFormat<Qqq> && CodedFormat<QqqG128>);

}  // namespace packstone
