// What formats with small float codes and byte scales apart share: MXFP4, MXFP8, NVFP4.
//   plane 0: [rows, cols * b / 8] bytes, each row one stream of codes, low bit first
//   plane 1: [rows, cols / GroupCols] bytes, one scale each
// Device-safe.
#pragma once

#include <array>

#include "packstone/format/format.h"

namespace packstone {

template <int CodeBits, int GroupCols>
struct SplitRows {
  static constexpr int kCodeBits = CodeBits;
  static constexpr std::uint32_t kCodeXor = 0;
  static constexpr TileSpec kTile{1, GroupCols, 1};
  static constexpr std::array<std::int32_t, 1> kGroups{GroupCols};

  static constexpr const char* legal(Shape shape, const FormatParams& params) {
    if (params.group_cols != 0 && params.group_cols != GroupCols)
      return GroupCols == 16 ? "groups of 16 columns" : "groups of 32 columns";
    if (shape.cols % GroupCols == 0) return nullptr;
    return GroupCols == 16 ? "cols a multiple of 16" : "cols a multiple of 32";
  }
  static constexpr std::int64_t group_cols(const FormatParams&) { return GroupCols; }
  static constexpr std::int64_t param_cols(int, const FormatParams&) { return GroupCols; }
  static constexpr std::uint64_t padding_bits(int, Shape, const FormatParams&) { return 0; }
  static constexpr std::uint64_t tile_start(Shape shape, const FormatParams&, std::int64_t row,
                                            std::int64_t col, int) {
    return static_cast<std::uint64_t>(row * shape.cols + col / GroupCols * GroupCols) * CodeBits;
  }
  static constexpr PieceList tile_code(int, int c) {
    return one_piece(0, static_cast<std::uint64_t>(c) * CodeBits, CodeBits);
  }
  static constexpr PieceList param(Shape shape, const FormatParams&, int, std::int64_t row,
                                   std::int64_t unit) {
    return one_piece(1, static_cast<std::uint64_t>(row * (shape.cols / GroupCols) + unit) * 8, 8);
  }
};

}  // namespace packstone
