// bitsandbytes NF4 and FP4, blocks of 32 to 4096 weights, statistics plain or nested.
// Producer: bitsandbytes 0.50 (functional.py quantize_4bit; codes of FP4 csrc/cpu_ops.cpp).
//
// The matrix is one row-major run of rows * cols codes; blocks cross the ends of rows.
//   weight:        code i is a nibble of byte i / 2, the high one for even i
//   absmax:        one binary32 number per block, or nested one byte per block
//   nested_absmax: one binary32 number per 256 blocks
//   quant_map, nested_quant_map, quant_state hold constants (readers compare them with ours) and,
//   as text, the offset of nested statistics: FormatParams::constant
//
// Parameters of a block of b weights: group_cols divides both cols and b, and group_rows
// = b / group_cols is the number of groups in a row after another, over row ends, that share a
// place. bnb_4bit_params chooses the largest such group.
//
// Decode: w = fl(map[code] * absmax), nested absmax = fl(fl(dynamic_map[c] * nested_absmax) +
// offset), all in binary32. FP4 code 8 is +0, as stored. Legal: cols even.
#pragma once

#include <array>
#include <bit>
#include <numeric>

#include "packstone/format/bnb_dynamic_map.h"
#include "packstone/format/format.h"

namespace packstone {

struct Nf4Scheme {
  static constexpr SchemeKind kKind = SchemeKind::kTable;
  static constexpr std::string_view kTableName = "nf4";
  static constexpr float level(std::uint32_t code, std::int32_t) {
    constexpr std::uint32_t kBits[16] = {0xBF800000, 0xBF3239B1, 0xBF066B30, 0xBECA32A0,
                                         0xBE91A24D, 0xBE3D353F, 0xBDBA7871, 0x00000000,
                                         0x3DA2FAFF, 0x3E24CAE3, 0x3E7C04DD, 0x3EAD033A,
                                         0x3EE1A4B8, 0x3F1007AB, 0x3F3913B3, 0x3F800000};
    return std::bit_cast<float>(kBits[code & 15u]);
  }
};

// Twelfths, rounded to binary32: 0, 1/192, 2/3, 1, 1/3, 1/2, 1/6, 1/4.
struct BnbFp4Scheme {
  static constexpr SchemeKind kKind = SchemeKind::kTable;
  static constexpr std::string_view kTableName = "bnb fp4";
  static constexpr float level(std::uint32_t code, std::int32_t) {
    constexpr std::uint32_t kBits[8] = {0x00000000, 0x3BAAAAAB, 0x3F2AAAAB, 0x3F800000,
                                        0x3EAAAAAB, 0x3F000000, 0x3E2AAAAB, 0x3E800000};
    const std::uint32_t bits = kBits[code & 7u];
    return std::bit_cast<float>(bits != 0 && (code & 8u) != 0 ? bits | 0x80000000u : bits);
  }
};

// bnb_4bit_params(shape, block, offset) is how a weight in blocks of `block` is described; `offset`
// is that of nested statistics. Legal only if `block` is.
constexpr FormatParams bnb_4bit_params(Shape shape, std::int32_t block, float offset = 0.0f) {
  FormatParams params;
  const std::int64_t group = std::gcd(shape.cols, static_cast<std::int64_t>(block));
  params.group_cols = static_cast<std::int32_t>(group);
  params.group_rows = group > 0 ? static_cast<std::int32_t>(block / group) : 1;
  params.constant = std::bit_cast<std::uint32_t>(offset);
  return params;
}

template <class Table, bool Nested>
struct Bnb4Bit : TensorPlanes<Bnb4Bit<Table, Nested>> {
  static constexpr bool kIsNf4 = std::is_same_v<Table, Nf4Scheme>;
  static constexpr std::string_view kName = kIsNf4   ? (Nested ? "bnb.nf4.nested" : "bnb.nf4")
                                            : Nested ? "bnb.fp4.nested"
                                                     : "bnb.fp4";
  static constexpr std::string_view kLayout = kIsNf4   ? (Nested ? "bnb-nf4-nested" : "bnb-nf4")
                                              : Nested ? "bnb-fp4-nested"
                                                       : "bnb-fp4";
  static constexpr std::string_view kSource = "bitsandbytes 0.50, functional.py quantize_4bit";
  using Scheme = Table;
  static constexpr int kCodeBits = 4;
  static constexpr std::uint32_t kCodeXor = 0;
  static constexpr TileSpec kTile{1, 2, 1};
  static constexpr std::int64_t kNestedBlocks = 256;
  static constexpr std::array<std::int32_t, 8> kGroups{32, 64, 128, 256, 512, 1024, 2048, 4096};
  static constexpr std::array<PlaneSpec, 2 + Nested> kPlanes = [] {
    std::array<PlaneSpec, 2 + Nested> planes;
    planes[0] = {".weight", "U8"};
    planes[1] = {".weight.absmax", Nested ? "U8" : "F32"};
    if (Nested) planes[1 + Nested] = {".weight.nested_absmax", "F32"};
    return planes;
  }();
  static constexpr std::array<ParamSpec, 1 + Nested> kParams = [] {
    std::array<ParamSpec, 1 + Nested> params;
    params[0] = Nested ? ParamSpec{ParamKind::kScale, ParamCoding::kUnsigned, 8}
                       : ParamSpec{ParamKind::kScale, ParamCoding::kF32, 32};
    if (Nested) params[Nested] = {ParamKind::kGlobalScale, ParamCoding::kF32, 32};
    return params;
  }();

  static constexpr const char* legal(Shape shape, const FormatParams& params) {
    if (params.group_cols < 1 || params.group_rows < 1 || params.group_cols > 4096 ||
        params.group_rows > 4096)
      return "blocks of 32, 64, 128, 256, 512, 1024, 2048 or 4096 weights";
    const std::int64_t block = block_size(params);
    if (block < 32 || block > 4096 || (block & (block - 1)) != 0)
      return "blocks of 32, 64, 128, 256, 512, 1024, 2048 or 4096 weights";
    if (shape.cols % 2 != 0 || params.group_cols % 2 != 0) return "even cols";
    return shape.cols % params.group_cols == 0 ? nullptr : "cols a multiple of the group";
  }
  static constexpr std::int64_t group_cols(const FormatParams& params) {
    return params.group_cols > 0 ? params.group_cols : 1;
  }
  static constexpr std::int64_t param_cols(int, const FormatParams& params) {
    return group_cols(params);
  }
  static constexpr std::uint64_t padding_bits(int, Shape, const FormatParams&) { return 0; }
  static constexpr PlaneDims plane_dims(int plane, Shape shape, const FormatParams& params) {
    if (plane == 0) return plane_dims_of(shape.rows * (shape.cols / 2), 1);
    return plane_dims_of(statistics(plane, shape, params));
  }
  static constexpr std::uint64_t tile_start(Shape shape, const FormatParams&, std::int64_t row,
                                            std::int64_t col, int) {
    return static_cast<std::uint64_t>(row * shape.cols + col / 2 * 2) * 4;
  }
  static constexpr PieceList tile_code(int, int c) { return one_piece(0, c == 0 ? 4 : 0, 4); }
  static constexpr PieceList param(Shape shape, const FormatParams& params, int which,
                                   std::int64_t row, std::int64_t unit) {
    const int bits = Nested && which == 0 ? 8 : 32;
    const std::int64_t place = flat(shape, params, row, unit) / span(which, params);
    return one_piece(1 + which,
                     static_cast<std::uint64_t>(place) * static_cast<std::uint64_t>(bits), bits);
  }
  static constexpr ParamUnit first_use(Shape shape, const FormatParams& params, int which,
                                       std::int64_t row, std::int64_t unit) {
    const std::int64_t length = span(which, params);
    const std::int64_t first = flat(shape, params, row, unit) / length * length;
    return {first / shape.cols, first % shape.cols / group_cols(params)};
  }
  static constexpr GroupValues values(const RawParams& raw, const FormatParams& params) {
    float absmax = std::bit_cast<float>(raw.pattern[0]);
    if constexpr (Nested) {
      const float product =
          kBnbDynamicMap[raw.pattern[0] & 255u] * std::bit_cast<float>(raw.pattern[1]);
      absmax = product + std::bit_cast<float>(params.constant);
    }
    return {absmax, kNoOffset, 0};
  }
  // Nested statistics of one group cannot be chosen alone.
  static constexpr bool encode(const GroupValues& group, const FormatParams&, RawParams& raw) {
    if (Nested || group.center != 0 || group.offset != 0.0f) return false;
    raw.pattern[0] = std::bit_cast<std::uint32_t>(group.scale);
    return true;
  }

  static constexpr std::int64_t block_size(const FormatParams& params) {
    return static_cast<std::int64_t>(params.group_cols) * params.group_rows;
  }

 private:
  // Weights that share parameter `which`.
  static constexpr std::int64_t span(int which, const FormatParams& params) {
    return which == 0 ? block_size(params) : block_size(params) * kNestedBlocks;
  }
  static constexpr std::int64_t flat(Shape shape, const FormatParams& params, std::int64_t row,
                                     std::int64_t unit) {
    return row * shape.cols + unit * group_cols(params);
  }
  static constexpr std::int64_t statistics(int plane, Shape shape, const FormatParams& params) {
    return ceil_div(shape.rows * shape.cols, span(plane - 1, params));
  }
};

using BnbNf4 = Bnb4Bit<Nf4Scheme, false>;
using BnbNf4Nested = Bnb4Bit<Nf4Scheme, true>;
using BnbFp4 = Bnb4Bit<BnbFp4Scheme, false>;
using BnbFp4Nested = Bnb4Bit<BnbFp4Scheme, true>;

static_assert(CodedFormat<BnbNf4>);
static_assert(CodedFormat<BnbNf4Nested>);
static_assert(proves_bijection<BnbNf4, 2048>({3, 96}, bnb_4bit_params({3, 96}, 64)));
static_assert(proves_bijection<BnbFp4Nested, 2048>({5, 6}, bnb_4bit_params({5, 6}, 32)));

}  // namespace packstone
