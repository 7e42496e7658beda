// What all GGUF block formats share: one plane, row-major, each row a run of whole blocks, and
// every parameter inside the block. A format header gives the places inside one block, and names
// its parameters (group_params.h). Device-safe.
#pragma once

#include <array>
#include <cstdint>

#include "packstone/format/group_params.h"

namespace packstone {

// Base of the GGUF block format `Format`: `BlockCols` weights in `BlockBytes` bytes along a row,
// `GroupCols` columns share their parameters. The format gives, with bits counted from the block:
//   kParams, values, encode    super parameters belong to the block, all others to a group
//   block_code(i)              place of the code of weight i; or read_block(block, codes) and,
//                              where blocks can be made, write_block(codes, block)
//   block_param(which, unit)   place of parameter `which` of group `unit` (0 for the block's own)
template <class Format, int BlockCols, int BlockBytes, int GroupCols>
struct GgufRows : TensorPlanes<Format> {
  static constexpr int kBlockCols = BlockCols;
  static constexpr int kBlockBytes = BlockBytes;
  static constexpr TileSpec kTile{1, BlockCols, 1};
  static constexpr std::uint32_t kCodeXor = 0;
  static constexpr std::array<PlaneSpec, 1> kPlanes{{{"", "U8"}}};
  static constexpr std::array<std::int32_t, 1> kGroups{GroupCols};

  static constexpr const char* legal(Shape shape, const FormatParams& params) {
    if (params.group_cols != 0 && params.group_cols != GroupCols)
      return "the block's own group (0 or its size)";
    if (shape.cols % BlockCols == 0) return nullptr;
    return BlockCols == 256   ? "cols a multiple of 256"
           : BlockCols == 128 ? "cols a multiple of 128"
           : BlockCols == 64  ? "cols a multiple of 64"
                              : "cols a multiple of 32";
  }
  static constexpr std::int64_t group_cols(const FormatParams&) { return GroupCols; }
  static constexpr std::int64_t param_cols(int which, const FormatParams&) {
    return is_super(which) ? BlockCols : GroupCols;
  }
  static constexpr PlaneDims plane_dims(int, Shape shape, const FormatParams&) {
    return plane_dims_of(shape.rows, shape.cols / BlockCols * BlockBytes);
  }
  static constexpr std::uint64_t padding_bits(int, Shape, const FormatParams&) { return 0; }

  static constexpr std::uint64_t tile_start(Shape shape, const FormatParams&, std::int64_t row,
                                            std::int64_t col, int) {
    return block_bit(shape, row, col);
  }
  static constexpr PieceList tile_code(int, int c)
    requires requires { Format::block_code(0); }
  {
    return Format::block_code(c);
  }
  static constexpr PieceList param(Shape shape, const FormatParams&, int which, std::int64_t row,
                                   std::int64_t unit) {
    constexpr int kUnits = BlockCols / GroupCols;
    if (is_super(which))
      return moved(Format::block_param(which, 0), block_bit(shape, row, unit * BlockCols));
    return moved(Format::block_param(which, static_cast<int>(unit % kUnits)),
                 block_bit(shape, row, unit * GroupCols));
  }

  // First bit of the block that holds (row, col).
  static constexpr std::uint64_t block_bit(Shape shape, std::int64_t row, std::int64_t col) {
    return 8 * BlockBytes *
           static_cast<std::uint64_t>(row * (shape.cols / BlockCols) + col / BlockCols);
  }

 private:
  static constexpr bool is_super(int which) {
    const ParamKind kind = Format::kParams[static_cast<std::size_t>(which)].kind;
    return kind == ParamKind::kSuperScale || kind == ParamKind::kSuperOffset;
  }
};

// Place of the nibble of weight i in a run of 16 bytes at `byte`: low nibbles are weights 0..15,
// high nibbles weights 16..31. Shared by Q4_0, Q4_1, Q5_0, Q5_1.
constexpr Piece split_nibble(int byte, int i) {
  return {static_cast<std::uint64_t>(8 * (byte + i % 16) + 4 * (i / 16)), 0, 4};
}

}  // namespace packstone
