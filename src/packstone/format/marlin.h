// Marlin tiles, 4 and 8 bits: the order in which the Marlin kernel loads weights.
// Producers: IST-DASLab marlin (checkpoints with B and s, 4 bits), GPTQModel 7.7 and vLLM (made at
// load). A config that says "marlin" but has qweight, qzeros and g_idx is the gptq or awq-gemm
// layout. K = cols, N = rows, G = K / group.
//
//   B:      I32 [K / 16, N b / 2]   tiles of 16 inputs x 64 outputs. Of input kk = k % 16, output
//           n, with hi = kk / 8, t = kk % 8 / 2, e = kk % 2, j = n % 64 / 16, half = n % 16 / 8,
//           i = 4 (n % 8) + t:
//           4 bits: word 4 i + j of the tile's 128; nibble of lane 4 half + 2 hi + e, where nibbles
//                   from low to high are lanes 0 2 4 6 1 3 5 7
//           8 bits: word 8 i + 2 j + half of the tile's 256; byte of lane 2 hi + e, where bytes are
//                   lanes 0 2 1 3
//   s:      F16 [G, N]              in the order of word_layout.h: grouped, or single where the
//                                   group is the whole row
//   zeros:  I32 [G, N b / 32]       only marlin-awq; in grouped order always, then nibbles (bytes)
//                                   of each word as in B
//
// Decode: w = scale * (q - 2^(b-1)), or scale * (q - zero): exact in binary32.
// Legal: cols a multiple of 16, rows of 64, whole groups.
#pragma once

#include "packstone/format/word_layout.h"

namespace packstone {

template <int Bits>
struct MarlinTiles : ChosenGroups {
  static_assert(Bits == 4 || Bits == 8);
  using Scheme = LinearScheme;
  static constexpr int kCodeBits = Bits;
  static constexpr std::uint32_t kCodeXor = 0;
  static constexpr TileSpec kTile{64, 16, 1};
  static constexpr std::array<std::int32_t, 4> kGroups{32, 64, 128, kWholeRow};

  static constexpr const char* legal(Shape shape, const FormatParams& params) {
    if (shape.cols % 16 != 0 || shape.rows % 64 != 0)
      return "cols a multiple of 16 and rows a multiple of 64";
    if (!group_listed(kGroups, shape.cols, params))
      return "a group of 32, 64 or 128 columns or the whole row";
    return shape.cols % params.group_cols == 0 ? nullptr : "cols a multiple of the group";
  }
  static constexpr PlaneDims plane_dims(int plane, Shape shape, const FormatParams& params) {
    if (plane == 0) return plane_dims_of(shape.cols / 16, shape.rows * Bits / 2);
    const std::int64_t groups = group_count(shape, params);
    return plane_dims_of(groups, plane == 1 ? shape.rows : shape.rows * Bits / 32);
  }
  static constexpr std::uint64_t padding_bits(int, Shape, const FormatParams&) { return 0; }

  static constexpr std::uint64_t tile_start(Shape shape, const FormatParams&, std::int64_t row,
                                            std::int64_t col, int) {
    return unsigned64(col / 16 * shape.rows + row / 64 * 64) * (16 * Bits);
  }
  static constexpr PieceList tile_code(int r, int c) {
    const int i = 4 * (r % 8) + c % 8 / 2, j = r / 16, half = r % 16 / 8;
    const int lane = 2 * (c / 8) + c % 2;
    const int bit = Bits == 4 ? 32 * (4 * i + j) + 4 * awq_nibble(4 * half + lane)
                              : 32 * (8 * i + 2 * j + half) + 8 * marlin_byte(lane);
    return one_piece(0, static_cast<std::uint64_t>(bit), Bits);
  }
  static constexpr PieceList param(Shape shape, const FormatParams& params, int which,
                                   std::int64_t row, std::int64_t unit) {
    const std::int64_t grouped = marlin_grouped_position(row);
    if (which == 0) {
      const bool single = params.group_cols == shape.cols;
      const std::int64_t place = single ? marlin_single_position(row) : grouped;
      return one_piece(1, unsigned64(unit * shape.rows + place) * 16, 16);
    }
    constexpr int kLanes = 32 / Bits;
    const int lane = static_cast<int>(grouped % kLanes);
    const std::int64_t place = grouped - lane + (Bits == 4 ? awq_nibble(lane) : marlin_byte(lane));
    return one_piece(2, unsigned64(unit * shape.rows + place) * Bits, Bits);
  }
};

// Symmetric: the center is 2^(b-1).
template <int Bits>
struct Marlin : MarlinTiles<Bits>,
                TensorPlanes<Marlin<Bits>>,
                ScaleParams<ParamCoding::kF16, 1 << (Bits - 1)> {
  static constexpr WidthName kText{"marlin", Bits};
  static constexpr std::string_view kName = kText.view();
  static constexpr std::string_view kLayout = "marlin";
  static constexpr std::string_view kSource =
      "IST-DASLab marlin 0.1.1, marlin/__init__.py; GPTQModel 7.7.0, utils/marlin.py";
  static constexpr std::array<PlaneSpec, 2> kPlanes{{{".B", "I32"}, {".s", "F16"}}};
};

// With stored zero points.
template <int Bits>
struct MarlinAwq : MarlinTiles<Bits>,
                   TensorPlanes<MarlinAwq<Bits>>,
                   ScaleZeroParams<ParamCoding::kF16, Bits> {
  static constexpr WidthName kText{"marlin_awq", Bits};
  static constexpr std::string_view kName = kText.view();
  static constexpr std::string_view kLayout = "marlin-awq";
  static constexpr std::string_view kSource = "GPTQModel 7.7.0, utils/marlin.py";
  static constexpr std::array<PlaneSpec, 3> kPlanes{
      {{".qweight", "I32"}, {".scales", "F16"}, {".qzeros", "I32"}}};
};

static_assert(CodedFormat<Marlin<4>> && CodedFormat<MarlinAwq<8>>);
static_assert(proves_bijection<Marlin<4>, 6144>({64, 16}, {16}));

}  // namespace packstone
