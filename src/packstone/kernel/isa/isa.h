// What one instruction set offers: a table of operations and its matrix kernels. Each table is
// built in its own .cc file from the same templates, inside a target region for that instruction
// set.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "packstone/format/gguf_iq_grids.h"
#include "packstone/format/packed_weight.h"
#include "packstone/kernel/ops.h"

// Unrolls the constant-length loop that follows, so that arrays of vectors live in registers.
#if defined(__clang__)
#  define PACKSTONE_UNROLL _Pragma("unroll")
#else
#  define PACKSTONE_UNROLL _Pragma("GCC unroll 16")
#endif

namespace packstone {

// A weight as the kernels see it: planes with their ends, so that no load passes an end.
struct WeightView {
  const unsigned char* plane[kPlanesMax] = {};
  const unsigned char* plane_end[kPlanesMax] = {};
  std::int64_t rows = 0;
  std::int64_t cols = 0;
  std::int32_t group_cols = 0;
  FloatType metadata = FloatType::kF16;
};

// Kernels of one format. Rows are stored rows.
struct FormatKernel {
  std::string_view format;  // "gguf.q4_0"
  // Formats with free metadata have one entry per type; nothing: any.
  int metadata = -1;  // FloatType, or -1
  // out[0, cols) = the values of a row. Exact: decode_row's bits, payloads of NaN aside.
  void (*decode)(const WeightView& weight, std::int64_t row, float* out);
  // y[i] = dot(row i, x) for four or one rows at once, decoded on the way, no scratch.
  void (*dot4)(const WeightView& weight, const std::int64_t* rows, const float* x, float* y);
  void (*dot1)(const WeightView& weight, std::int64_t row, const float* x, float* y);
};

// y[i * y_stride + r] = dot(panel row r, x row i) for `rows` panel rows and m activation rows.
struct PanelProblem {
  const float* panel;  // [rows, cols]
  std::int64_t rows;
  std::int64_t cols;
  const float* x;
  std::int64_t m;
  std::int64_t x_stride;
  float* y;
  std::int64_t y_stride;
};

struct Isa {
  std::string_view name;
  Ops ops;
  std::span<const FormatKernel> formats;
  void (*panel_dot)(const PanelProblem& problem);
};

// The tables of this build and CPU, best first; the last is the scalar reference.
std::span<const Isa* const> isas();

// Tables by instruction set; nothing where the build has none.
const Isa* scalar_isa();
const Isa* avx2_isa();
const Isa* avx512_isa();
const Isa* neon_isa();

// Byte shuffle and bit shift that bring code j of a low-bit-first stream to the low end of lane j.
template <int Bits>
struct StreamTable {
  alignas(64) std::uint8_t shuffle[64];
  alignas(64) std::uint32_t shift[16];
};

template <int Bits>
inline constexpr StreamTable<Bits> kStreamTable = [] {
  StreamTable<Bits> table{};
  for (int lane = 0; lane < 16; ++lane) {
    const int byte = lane * Bits / 8;
    table.shuffle[4 * lane] = static_cast<std::uint8_t>(byte);
    table.shuffle[4 * lane + 1] = static_cast<std::uint8_t>(byte + 1 < 16 ? byte + 1 : 0x80);
    table.shuffle[4 * lane + 2] = table.shuffle[4 * lane + 3] = 0x80;  // zero
    table.shift[lane] = static_cast<std::uint32_t>(lane * Bits % 8);
  }
  return table;
}();

}  // namespace packstone
