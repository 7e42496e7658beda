// float32, float16, bfloat16 matrices, row-major, little-endian: formats whose code is the value.
// Producer: any; GGUF type ids 0, 1, 30; safetensors F32, F16, BF16.
// Decode: exact in binary32. Legal: any shape.
#pragma once

#include <array>

#include "packstone/format/format.h"

namespace packstone {

template <FloatType Type>
struct Dense : TensorPlanes<Dense<Type>> {
  static constexpr std::string_view kName = Type == FloatType::kF32   ? "float32"
                                            : Type == FloatType::kF16 ? "float16"
                                                                      : "bfloat16";
  static constexpr std::string_view kLayout = kName;
  static constexpr std::string_view kSource = "IEEE 754-2019; bfloat16: upper half of binary32";
  using Scheme = FloatScheme<Type>;
  static constexpr FloatType kType = Type;
  static constexpr int kCodeBits = float_bits(Type);
  static constexpr std::uint32_t kCodeXor = 0;
  static constexpr TileSpec kTile{1, 1, 1};
  static constexpr std::array<std::int32_t, 0> kGroups{};
  static constexpr std::array<PlaneSpec, 1> kPlanes{{{"", Type == FloatType::kF32   ? "F32"
                                                          : Type == FloatType::kF16 ? "F16"
                                                                                    : "BF16"}}};
  static constexpr std::array<ParamSpec, 0> kParams{};

  static constexpr const char* legal(Shape, const FormatParams&) { return nullptr; }
  static constexpr std::int64_t group_cols(const FormatParams&) { return 1; }
  static constexpr std::int64_t param_cols(int, const FormatParams&) { return 1; }
  static constexpr std::uint64_t padding_bits(int, Shape, const FormatParams&) { return 0; }
  static constexpr PlaneDims plane_dims(int, Shape shape, const FormatParams&) {
    return plane_dims_of(shape.rows, shape.cols);
  }
  static constexpr std::uint64_t tile_start(Shape shape, const FormatParams&, std::int64_t row,
                                            std::int64_t col, int) {
    return static_cast<std::uint64_t>(row * shape.cols + col) * kCodeBits;
  }
  static constexpr PieceList tile_code(int, int) { return one_piece(0, 0, kCodeBits); }
  static constexpr PieceList param(Shape, const FormatParams&, int, std::int64_t, std::int64_t) {
    return {};
  }
  static constexpr GroupValues values(const RawParams&, const FormatParams&) { return {}; }
  static constexpr bool encode(const GroupValues&, const FormatParams&, RawParams&) { return true; }
};

using DenseF32 = Dense<FloatType::kF32>;
using DenseF16 = Dense<FloatType::kF16>;
using DenseBF16 = Dense<FloatType::kBF16>;

static_assert(CodedFormat<DenseBF16>);
static_assert(proves_bijection<DenseF32, 512>({2, 3}, {}));
static_assert(proves_bijection<DenseF16, 512>({2, 3}, {}));

}  // namespace packstone
