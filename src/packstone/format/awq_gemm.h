// AWQ "gemm", 2 to 8 bits: codes and zero points packed along the outputs, input-major.
// Producers: AutoAWQ 0.2.9 (4 bits), GPTQModel 7.7 (2 to 8 bits). K = cols, N = rows, G = groups.
//
//   qweight: I32 [K, ceil(N b / 32)]   each input's codes of all outputs
//   qzeros:  I32 [G, ceil(N b / 32)]   each group's zero points of all outputs, as they are
//   scales:  F16 or BF16 [G, N]
//
//   4 bits: eight outputs a word; its nibbles, low to high, are outputs 0 2 4 6 1 3 5 7 of them
//   others: one stream along the outputs, low bit first: output n is bits [b n, + b) of the line
//           (8 bits too: the order 0 2 1 3 is that of a kernel, not of files)
//
// Decode: w = scale * (q - zero): 11 + 9 bits, exact in binary32.
// Legal: rows a multiple of 8. The last group may be short.
#pragma once

#include "packstone/format/word_layout.h"

namespace packstone {

template <int Bits>
struct AwqGemm : ChosenGroups,
                 TensorPlanes<AwqGemm<Bits>>,
                 ScaleZeroParams<ParamCoding::kMetadata, Bits> {
  static_assert(Bits >= 2 && Bits <= 8);
  static constexpr WidthName kText{"awq_gemm", Bits};
  static constexpr std::string_view kName = kText.view();
  static constexpr std::string_view kLayout = "awq-gemm";
  static constexpr std::string_view kSource =
      "AutoAWQ 0.2.9, awq/modules/linear/gemm.py; GPTQModel 7.7.0, qlinear/torch_awq.py";
  using Scheme = LinearScheme;
  static constexpr int kCodeBits = Bits;
  static constexpr std::uint32_t kCodeXor = 0;
  static constexpr TileSpec kTile{8, 1, 1};
  static constexpr std::array<std::int32_t, 5> kGroups{16, 32, 64, 128, kWholeRow};
  static constexpr std::array<PlaneSpec, 3> kPlanes{
      {{".qweight", "I32"}, {".qzeros", "I32"}, {".scales", kMetadataType}}};

  static constexpr const char* legal(Shape shape, const FormatParams& params) {
    if (shape.rows % 8 != 0) return "rows a multiple of 8";
    if (params.metadata == FloatType::kF32) return "float16 or bfloat16 scales";
    return group_listed(kGroups, shape.cols, params)
               ? nullptr
               : "a group of 16, 32, 64 or 128 columns or the whole row";
  }
  static constexpr PlaneDims plane_dims(int plane, Shape shape, const FormatParams& params) {
    const std::int64_t lines = plane == 0 ? shape.cols : group_count(shape, params);
    return plane_dims_of(lines, plane == 2 ? shape.rows : line_words(shape));
  }
  static constexpr std::uint64_t padding_bits(int plane, Shape shape, const FormatParams& params) {
    if (plane == 2) return 0;
    const std::int64_t lines = plane == 0 ? shape.cols : group_count(shape, params);
    return unsigned64(lines * (32 * line_words(shape) - Bits * shape.rows));
  }

  static constexpr std::uint64_t tile_start(Shape shape, const FormatParams&, std::int64_t row,
                                            std::int64_t col, int) {
    return unsigned64(32 * col * line_words(shape) + Bits * (row / 8 * 8));
  }
  static constexpr PieceList tile_code(int r, int) {
    return one_piece(0, static_cast<std::uint64_t>(Bits * lane(r)), Bits);
  }
  static constexpr PieceList param(Shape shape, const FormatParams&, int which, std::int64_t row,
                                   std::int64_t unit) {
    if (which == 0) return one_piece(2, unsigned64(unit * shape.rows + row) * 16, 16);
    const std::int64_t place = row / 8 * 8 + lane(static_cast<int>(row % 8));
    return one_piece(1, unsigned64(32 * unit * line_words(shape) + Bits * place), Bits);
  }

 private:
  static constexpr std::int64_t line_words(Shape shape) { return ceil_div(shape.rows * Bits, 32); }
  static constexpr int lane(int r) { return Bits == 4 ? awq_nibble(r) : r; }
};

static_assert(CodedFormat<AwqGemm<4>>);
static_assert(proves_bijection<AwqGemm<4>, 1024>({8, 16}, {16}));
static_assert(proves_bijection<AwqGemm<3>, 1024>({8, 16}, {16}));

}  // namespace packstone
