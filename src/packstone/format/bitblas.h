// BitBLAS, the portable state: plain byte rows, output-major. Producer: GPTQModel 7.7 (format
// "bitblas" of methods gptq and awq). K = cols, N = rows, G = K / group.
//
//   qweight: I8 [N, K b / 8]   one stream a row, low bit first: code k is bits [b k, + b)
//   qzeros:  I8                bitblas: empty; bitblas-asym: [G, N b / 8], one stream a group
//   scales:  F16 [N, G]
//
// bitblas (gptq, symmetric): the stored bits are two's complement c = q - 2^(b-1), so that
// w = scale * c. bitblas-asym (gptq with zero points, and awq): w = scale * (q - zero). Both exact
// in binary32. Legal: rows and cols multiples of 8, whole groups. Weights rearranged for the device
// kernels have other shapes and are no weight of these formats; files of a kernel that stores
// q itself under the symmetric name cannot be told apart.
#pragma once

#include "packstone/format/word_layout.h"

namespace packstone {

template <int Bits>
struct BitblasRows : ChosenGroups {
  using Scheme = LinearScheme;
  static constexpr int kCodeBits = Bits;
  static constexpr TileSpec kTile{1, 8, 1};
  static constexpr std::array<std::int32_t, 4> kGroups{32, 64, 128, kWholeRow};
  static constexpr std::array<PlaneSpec, 3> kPlanes{
      {{".qweight", "I8"}, {".qzeros", "I8"}, {".scales", "F16"}}};

  static constexpr const char* legal(Shape shape, const FormatParams& params) {
    if (shape.cols % 8 != 0 || shape.rows % 8 != 0) return "rows and cols multiples of 8";
    if (!group_listed(kGroups, shape.cols, params))
      return "a group of 32, 64 or 128 columns or the whole row";
    return shape.cols % params.group_cols == 0 ? nullptr : "cols a multiple of the group";
  }
  static constexpr std::uint64_t padding_bits(int, Shape, const FormatParams&) { return 0; }
  static constexpr std::uint64_t tile_start(Shape shape, const FormatParams&, std::int64_t row,
                                            std::int64_t col, int) {
    return unsigned64(row * shape.cols + col / 8 * 8) * Bits;
  }
  static constexpr PieceList tile_code(int, int c) {
    return one_piece(0, static_cast<std::uint64_t>(c) * Bits, Bits);
  }
  static constexpr PieceList param(Shape shape, const FormatParams& params, int which,
                                   std::int64_t row, std::int64_t unit) {
    if (which == 0)
      return one_piece(2, unsigned64(row * group_count(shape, params) + unit) * 16, 16);
    return one_piece(1, unsigned64(unit * shape.rows + row) * Bits, Bits);
  }
};

template <int Bits>
struct Bitblas : BitblasRows<Bits>,
                 TensorPlanes<Bitblas<Bits>>,
                 ScaleParams<ParamCoding::kF16, 1 << (Bits - 1)> {
  static_assert(Bits == 2 || Bits == 4 || Bits == 8);
  static constexpr WidthName kText{"bitblas", Bits};
  static constexpr std::string_view kName = kText.view();
  static constexpr std::string_view kLayout = "bitblas";
  static constexpr std::string_view kSource = "GPTQModel 7.7.0, qlinear/bitblas.py";
  static constexpr std::uint32_t kCodeXor = 1u << (Bits - 1);

  static constexpr PlaneDims plane_dims(int plane, Shape shape, const FormatParams& params) {
    if (plane == 1) return plane_dims_of(0);
    return plane_dims_of(shape.rows,
                         plane == 0 ? shape.cols * Bits / 8 : group_count(shape, params));
  }
};

template <int Bits>
struct BitblasAsym : BitblasRows<Bits>,
                     TensorPlanes<BitblasAsym<Bits>>,
                     ScaleZeroParams<ParamCoding::kF16, Bits> {
  static_assert(Bits >= 2 && Bits <= 8);
  static constexpr WidthName kText{"bitblas_asym", Bits};
  static constexpr std::string_view kName = kText.view();
  static constexpr std::string_view kLayout = "bitblas-asym";
  static constexpr std::string_view kSource =
      "GPTQModel 7.7.0, qlinear/bitblas.py and bitblas_awq.py";
  static constexpr std::uint32_t kCodeXor = 0;

  static constexpr PlaneDims plane_dims(int plane, Shape shape, const FormatParams& params) {
    const std::int64_t groups = group_count(shape, params);
    if (plane == 0) return plane_dims_of(shape.rows, shape.cols * Bits / 8);
    return plane == 1 ? plane_dims_of(groups, shape.rows * Bits / 8)
                      : plane_dims_of(shape.rows, groups);
  }
};

static_assert(CodedFormat<Bitblas<4>> && CodedFormat<BitblasAsym<5>>);
static_assert(proves_bijection<BitblasAsym<5>, 2048>({8, 32}, {32}));

}  // namespace packstone
