// bitsandbytes LLM.int8() weights: signed bytes, one binary32 absolute maximum per row.
// Producer: bitsandbytes 0.50 (functional.py int8_vectorwise_quant, int8_vectorwise_dequant).
//
//   weight: [rows, cols] signed bytes;  SCB: [rows] binary32
//
// Decode: w = fl(fl(c * scb) * k), k = 0x3C010204, the binary32 number nearest to 1 / 127: the
// order and the two roundings of int8_vectorwise_dequant. Legal: any shape, one group a row.
#pragma once

#include <array>
#include <bit>

#include "packstone/format/format.h"

namespace packstone {

struct BnbInt8Scheme {
  static constexpr SchemeKind kKind = SchemeKind::kTable;
  static constexpr std::string_view kTableName = "bnb int8";
  static constexpr float kOver127 = std::bit_cast<float>(0x3C010204u);
  static constexpr float kUnit = 1.0f;
  static constexpr std::int32_t integer_level(std::uint32_t code) {
    return static_cast<std::int32_t>(code & 255u) - 128;
  }
  static constexpr float level(std::uint32_t code, std::int32_t) {
    return static_cast<float>(integer_level(code));
  }
  // `inner` is the row's maximum, `scale` the step fl(maximum * k) that a linear layout would have.
  static constexpr float value(const GroupValues& group, std::uint32_t code) {
    const float product = level(code, 0) * group.inner;
    return product * kOver127;
  }
};

struct BnbInt8 : TensorPlanes<BnbInt8> {
  static constexpr std::string_view kName = "bnb.int8";
  static constexpr std::string_view kLayout = "bnb-int8";
  static constexpr std::string_view kSource = "bitsandbytes 0.50, int8_vectorwise_dequant";
  using Scheme = BnbInt8Scheme;
  static constexpr int kCodeBits = 8;
  static constexpr std::uint32_t kCodeXor = 0x80;
  static constexpr TileSpec kTile{1, 1, 1};
  static constexpr std::array<std::int32_t, 1> kGroups{kWholeRow};
  static constexpr std::array<PlaneSpec, 2> kPlanes{{{".weight", "I8"}, {".SCB", "F32"}}};
  static constexpr std::array<ParamSpec, 1> kParams{{
      {ParamKind::kScale, ParamCoding::kF32, 32},
  }};

  static constexpr const char* legal(Shape shape, const FormatParams& params) {
    if (shape.cols == 0) return nullptr;
    return params.group_cols == shape.cols ? nullptr : "a group of the row's length";
  }
  static constexpr std::int64_t group_cols(const FormatParams& params) {
    return params.group_cols > 0 ? params.group_cols : 1;
  }
  static constexpr std::int64_t param_cols(int, const FormatParams& params) {
    return group_cols(params);
  }
  static constexpr std::uint64_t padding_bits(int plane, Shape shape, const FormatParams&) {
    return plane == 1 && shape.cols == 0 ? 32 * static_cast<std::uint64_t>(shape.rows) : 0;
  }
  static constexpr PlaneDims plane_dims(int plane, Shape shape, const FormatParams&) {
    return plane == 0 ? plane_dims_of(shape.rows, shape.cols) : plane_dims_of(shape.rows);
  }
  static constexpr std::uint64_t tile_start(Shape shape, const FormatParams&, std::int64_t row,
                                            std::int64_t col, int) {
    return static_cast<std::uint64_t>(row * shape.cols + col) * 8;
  }
  static constexpr PieceList tile_code(int, int) { return one_piece(0, 0, 8); }
  static constexpr PieceList param(Shape, const FormatParams&, int, std::int64_t row,
                                   std::int64_t) {
    return one_piece(1, static_cast<std::uint64_t>(row) * 32, 32);
  }
  static constexpr GroupValues values(const RawParams& raw, const FormatParams&) {
    const float maximum = std::bit_cast<float>(raw.pattern[0]);
    return {maximum * BnbInt8Scheme::kOver127, kNoOffset, 0, maximum};
  }
  static constexpr bool encode(const GroupValues& group, const FormatParams&, RawParams& raw) {
    raw.pattern[0] = std::bit_cast<std::uint32_t>(group.inner);
    const float step = group.inner * BnbInt8Scheme::kOver127;
    return group.center == 0 && group.offset == 0.0f &&
           std::bit_cast<std::uint32_t>(step) == std::bit_cast<std::uint32_t>(group.scale);
  }
};

static_assert(CodedFormat<BnbInt8>);
static_assert(proves_bijection<BnbInt8, 1024>({3, 7}, {7}));

}  // namespace packstone
