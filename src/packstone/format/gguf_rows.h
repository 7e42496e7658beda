// What all GGUF block formats share: one plane, row-major, each row a run of whole blocks.
// Device-safe.
#pragma once

#include <array>
#include <cstdint>

#include "packstone/format/format.h"

namespace packstone {

// Base of a GGUF block format: `BlockCols` weights in `BlockBytes` bytes along a row.
template <int BlockCols, int BlockBytes>
struct GgufRows {
  static constexpr int kBlockCols = BlockCols;
  static constexpr int kBlockBytes = BlockBytes;
  static constexpr std::array<PlaneSpec, 1> kPlanes{{{""}}};

  static constexpr const char* legal(Shape shape, const FormatParams&) {
    if (shape.cols % BlockCols == 0) return nullptr;
    return BlockCols == 256 ? "cols a multiple of 256" : "cols a multiple of 32";
  }
  static constexpr std::uint64_t plane_bytes(int, Shape shape, const FormatParams&) {
    return static_cast<std::uint64_t>(shape.rows) * static_cast<std::uint64_t>(shape.cols / BlockCols) *
           BlockBytes;
  }
  static constexpr std::uint64_t padding_bits(int, Shape, const FormatParams&) { return 0; }

  // First bit of the block that holds (row, col).
  static constexpr std::uint64_t block_bit(Shape shape, std::int64_t row, std::int64_t col) {
    return 8 * BlockBytes * static_cast<std::uint64_t>(row * (shape.cols / BlockCols) + col / BlockCols);
  }
};

}  // namespace packstone
