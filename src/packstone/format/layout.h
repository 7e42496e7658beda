// Where the bits of a packed weight live. Device-safe: C++20, no allocation, no exceptions.
//
// A weight owns a few byte planes (GGUF: one plane of blocks; MLX affine: weight, scales, biases).
// A layout is two functions: the place of the code of (row, col) and the place of each parameter
// of (row, unit). A place is a list of pieces, low bits first: Q6_K keeps 4 low bits of a code in
// one part of the block and 2 high bits in another.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "packstone/base/bits.h"
#include "packstone/format/scheme.h"

namespace packstone {

inline constexpr int kPlanesMax = 6;
inline constexpr int kPiecesMax = 4;
inline constexpr std::int32_t kWholeRow = -1;  // in a list of legal groups: the row's length
inline constexpr int kParamsMax = 6;

// Logical size of a weight: rows = outputs, cols = inputs. y = W x.
struct Shape {
  std::int64_t rows = 0;
  std::int64_t cols = 0;
  friend constexpr bool operator==(const Shape&, const Shape&) = default;
};

// What is known of a weight only at run time. Unused members keep their defaults.
struct FormatParams {
  // Columns that share parameters, where a format lets it vary; the row's length for a whole row.
  std::int32_t group_cols = 0;
  FloatType metadata = FloatType::kF16;  // type of scales and offsets, where a format lets it vary
  std::int32_t group_rows = 1;           // rows that share parameters (FP8 blocks)
  bool act_order = false;      // the group of a column is stored (GPTQ g_idx), not col / group_cols
  std::uint32_t constant = 0;  // bits of a binary32 number that the file keeps beside the planes
  friend constexpr bool operator==(const FormatParams&, const FormatParams&) = default;
};

// Codes repeat tile by tile: tiles of `rows` x `cols` codes, each in `segments` runs of bytes of
// plane 0. Inside its segments every tile looks like the first one.
struct TileSpec {
  int rows = 1;
  int cols = 1;
  int segments = 1;
};

// How a checkpoint folder spells a plane: what follows the module's name, and the type of the
// elements there. kMetadataType: the type that FormatParams::metadata names.
inline constexpr std::string_view kMetadataType = "META";
struct PlaneSpec {
  std::string_view suffix;  // MLX: ".weight", ".scales", ".biases"; GGUF: ""
  std::string_view type;    // "U32", "I32", "F16", "F8_E4M3", ...
};

// Shape of a plane as a tensor of a checkpoint folder.
struct PlaneDims {
  int rank = 0;
  std::int64_t dim[4] = {};
};

// plane_dims_of(d0, d1, ...): the dims of a tensor; of none: a scalar.
template <class... Dims>
constexpr PlaneDims plane_dims_of(Dims... dims) {
  static_assert(sizeof...(Dims) <= 4);
  return {sizeof...(Dims), {static_cast<std::int64_t>(dims)...}};
}

// Bytes of an element of a plane: the number in the name of its type is its bits.
constexpr std::uint64_t element_bytes(std::string_view type, const FormatParams& params) {
  if (type == kMetadataType) return params.metadata == FloatType::kF32 ? 4 : 2;
  std::uint64_t bits = 0;
  for (const char c : type) {
    if (c >= '0' && c <= '9')
      bits = 10 * bits + static_cast<std::uint64_t>(c - '0');
    else if (bits != 0)
      break;  // F8_E4M3
  }
  return bits / 8;
}

static_assert(element_bytes("F8_E4M3", {}) == 1 && element_bytes("BF16", {}) == 2 &&
              element_bytes("I32", {}) == 4);

// The plane_bytes of `Format` where every plane is the elements of its tensor and nothing else:
// plane_dims says the rest.
template <class Format>
struct TensorPlanes {
  static constexpr std::uint64_t plane_bytes(int plane, Shape shape, const FormatParams& params) {
    const PlaneDims dims = Format::plane_dims(plane, shape, params);
    std::uint64_t bytes =
        element_bytes(Format::kPlanes[static_cast<std::size_t>(plane)].type, params);
    for (int i = 0; i < dims.rank; ++i) bytes *= static_cast<std::uint64_t>(dims.dim[i]);
    return bytes;
  }
};

// Groups of params.group_cols columns, in which every parameter is of one group.
struct ChosenGroups {
  static constexpr std::int64_t group_cols(const FormatParams& params) { return params.group_cols; }
  static constexpr std::int64_t param_cols(int, const FormatParams& params) {
    return params.group_cols;
  }
};

// A run of bits in one plane (of a tile: in one segment): bits [bit, bit + width), low bit first.
struct Piece {
  std::uint64_t bit = 0;
  std::uint8_t plane = 0;
  std::uint8_t width = 0;
};

struct PieceList {
  Piece piece[kPiecesMax];
  int count = 0;
};

// The place that is one run of bits.
constexpr PieceList one_piece(int plane, std::uint64_t bit, int width) {
  PieceList list;
  list.piece[0] = {bit, static_cast<std::uint8_t>(plane), static_cast<std::uint8_t>(width)};
  list.count = 1;
  return list;
}

// A place of up to kPiecesMax pieces, low bits first.
template <class... Pieces>
constexpr PieceList pieces(Pieces... piece) {
  static_assert(sizeof...(Pieces) <= kPiecesMax);
  return {{piece...}, sizeof...(Pieces)};
}

// The same pieces, `bits` further on.
constexpr PieceList moved(PieceList list, std::uint64_t bits) {
  for (int i = 0; i < list.count; ++i) list.piece[i].bit += bits;
  return list;
}

// Bits of a place.
constexpr int total_width(const PieceList& list) {
  int width = 0;
  for (int i = 0; i < list.count; ++i) width += list.piece[i].width;
  return width;
}

// Gathers the bits of a place. `planes[i]` is the first byte of plane i.
constexpr std::uint32_t read_place(const unsigned char* const* planes, const PieceList& place) {
  std::uint32_t value = 0;
  int shift = 0;
  for (int i = 0; i < place.count; ++i) {
    const Piece& piece = place.piece[i];
    value |= read_bits(planes[piece.plane], piece.bit, piece.width) << shift;
    shift += piece.width;
  }
  return value;
}

// Scatters the low bits of `value` to a place.
constexpr void write_place(unsigned char* const* planes, const PieceList& place,
                           std::uint32_t value) {
  int shift = 0;
  for (int i = 0; i < place.count; ++i) {
    const Piece& piece = place.piece[i];
    write_bits(planes[piece.plane], piece.bit, piece.width, value >> shift);
    shift += piece.width;
  }
}

// What a parameter is for, and how its pattern reads.
// Super parameters belong to a block of several groups.
enum class ParamKind : std::uint8_t {
  kScale,
  kOffset,
  kZero,
  kSuperScale,
  kSuperOffset,
  kGlobalScale
};
enum class ParamCoding : std::uint8_t {
  kMetadata,  // a float of FormatParams::metadata
  kF16,
  kF32,
  kUnsigned,
  kSigned,
  kE8M0,
  kE4M3,
};

struct ParamSpec {
  ParamKind kind;
  ParamCoding coding;
  std::uint8_t bits;  // 0 with kMetadata: float_bits(params.metadata)
  // Where not 0: the plane of the parameter stores aligned 32-bit words minus this, modulo 2^32.
  // Places count in the word with it added (GPTQ v1: zero points less one, borrows included).
  std::uint32_t word_bias = 0;
};

// The first (row, unit) that uses the place of a parameter.
struct ParamUnit {
  std::int64_t row = 0;
  std::int64_t unit = 0;
  friend constexpr bool operator==(const ParamUnit&, const ParamUnit&) = default;
};

constexpr int param_bits(const ParamSpec& spec, const FormatParams& params) {
  return spec.coding == ParamCoding::kMetadata ? float_bits(params.metadata) : spec.bits;
}

// Patterns of all parameters of one group, in the order of the format's kParams.
struct RawParams {
  std::uint32_t pattern[kParamsMax] = {};
};

constexpr std::int64_t ceil_div(std::int64_t a, std::int64_t b) {
  return (a + b - 1) / b;
}

}  // namespace packstone
