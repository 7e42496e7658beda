// GPTQ, 2 to 8 bits: codes packed along the inputs, zero points along the outputs, input-major.
// Producer: GPTQModel 7.7 (quantize_config.json format "gptq", "gptq_v2", "gptq_p"), AutoGPTQ.
// K = cols (inputs), N = rows (outputs), G = ceil(K / group).
//
//   qweight: I32 [K b / 32, N]   P = 32 / b codes of one output in each word, low bits first:
//                                code (n, k) is bits [b (k % P), + b) of word [k / P][n]
//   qzeros:  I32 [G, N b / 32]   along the outputs: zero (n, g) is bits [b n, + b) of row g
//   scales:  F16 [G, N]
//   g_idx:   I32 [K]             group of each column: k / group, or any with act_order
//
//   3 bits: 32 codes are one stream of 96 bits in 3 words; in qweight these are N words apart.
//   gptq_p: 32 codes in b words, each code cut into planes of 4, 2 or 1 bits (5 = 4 + 1, 6 = 4 + 2,
//           7 = 4 + 2 + 1, 3 = 2 + 1; low bits first); a plane of v bits is v words of 32 / v.
//           With 2, 4 and 8 bits that is the layout of gptq_v2, so those have one format here.
//
// Zero points: "gptq" (v1) stores them less one. With 2, 4 and 8 bits the producer subtracts one
// from every lane of a word at once, borrows included, so a word is read with 0x11111111 (4 bits)
// added, modulo 2^32; with 3 bits each lane wraps alone. gptq_v2 and gptq_p store them as they are.
//
// Decode: w = scale * (q - zero): 11 + 9 bits, exact in binary32.
// Legal: whole words: K and N multiples of 32 / b (3, 5, 6, 7 bits: 32). The last group may be
// short. Accepted elements of qweight and qzeros: 32 bits only; tensors of int16 or int8 words have
// other bytes and are no weight of these formats. Symmetric or not is no property of the layout.
#pragma once

#include "packstone/format/word_layout.h"

namespace packstone {

namespace detail {

// Bits of the planes of a code of `bits` bits, low first; 0 ends the list.
constexpr int planar_width(int bits, int plane) {
  constexpr int kWidths[9][3] = {{}, {1}, {2}, {2, 1}, {4}, {4, 1}, {4, 2}, {4, 2, 1}, {8}};
  return plane < 3 ? kWidths[bits][plane] : 0;
}

// Place of code i of 32 in `bits` words; piece.plane is the word.
constexpr PieceList planar_code(int bits, int i) {
  PieceList list;
  int word = 0;
  for (int plane = 0; planar_width(bits, plane) != 0; ++plane) {
    const int width = planar_width(bits, plane), lanes = 32 / width;
    list.piece[list.count++] = {static_cast<std::uint64_t>(width * (i % lanes)),
                                static_cast<std::uint8_t>(word + i / lanes),
                                static_cast<std::uint8_t>(width)};
    word += width;
  }
  return list;
}

// Place of code i of one stream of words; piece.plane is the word.
constexpr PieceList stream_code(int bits, int i) {
  const int begin = bits * i, word = begin / 32, shift = begin % 32;
  const int low = shift + bits > 32 ? 32 - shift : bits;
  PieceList list;
  list.piece[list.count++] = {static_cast<std::uint64_t>(shift), static_cast<std::uint8_t>(word),
                              static_cast<std::uint8_t>(low)};
  if (low < bits)
    list.piece[list.count++] = {0, static_cast<std::uint8_t>(word + 1),
                                static_cast<std::uint8_t>(bits - low)};
  return list;
}

}  // namespace detail

enum class GptqKind { kV1, kV2, kPlanar };

// Whether codes of `bits` bits do not cross words.
constexpr bool gptq_whole_codes(int bits) {
  return bits == 2 || bits == 4 || bits == 8;
}

// What zero points of v1 are stored less: one in every lane of a word at once, or lane by lane.
constexpr std::uint32_t gptq_word_bias(int bits, GptqKind kind) {
  if (kind != GptqKind::kV1) return 0;
  return bits == 2 ? 0x55555555u : bits == 4 ? 0x11111111u : bits == 8 ? 0x01010101u : 0;
}
constexpr std::uint32_t gptq_lane_bias(int bits, GptqKind kind) {
  return kind == GptqKind::kV1 && !gptq_whole_codes(bits) ? 1 : 0;
}

template <int Bits, GptqKind Kind>
struct GptqWords : ChosenGroups,
                   TensorPlanes<GptqWords<Bits, Kind>>,
                   ScaleZeroParams<ParamCoding::kF16, Bits, gptq_word_bias(Bits, Kind),
                                   gptq_lane_bias(Bits, Kind)> {
  static constexpr bool kIsPlanar = Kind == GptqKind::kPlanar;
  static constexpr bool kWholeCodes = gptq_whole_codes(Bits);
  static_assert(kIsPlanar ? Bits == 3 || (Bits >= 5 && Bits <= 7) : Bits == 3 || kWholeCodes);
  static constexpr std::string_view kLayout = kIsPlanar               ? "gptq_p"
                                              : Kind == GptqKind::kV2 ? "gptq_v2"
                                                                      : "gptq";
  static constexpr std::string_view kOtherLayout =
      Kind == GptqKind::kV2 && kWholeCodes ? "gptq_p" : "";
  static constexpr WidthName kText{kLayout, Bits};
  static constexpr std::string_view kName = kText.view();
  static constexpr std::string_view kSource = "GPTQModel 7.7.0, nn_modules/qlinear/__init__.py";
  using Scheme = LinearScheme;
  static constexpr int kCodeBits = Bits;
  static constexpr std::uint32_t kCodeXor = 0;
  static constexpr TileSpec kTile{1, kWholeCodes ? 32 / Bits : 32, kWholeCodes ? 1 : Bits};
  static constexpr std::array<std::int32_t, 8> kGroups{16, 32, 64, 128, 256, 512, 1024, kWholeRow};
  static constexpr std::array<PlaneSpec, 4> kPlanes{
      {{".qweight", "I32"}, {".qzeros", "I32"}, {".scales", "F16"}, {".g_idx", "I32"}}};
  static constexpr int kIndexPlane = 3;

  static constexpr const char* legal(Shape shape, const FormatParams& params) {
    if (shape.cols % kTile.cols != 0 || shape.rows % kTile.cols != 0)
      return Bits == 2   ? "rows and cols multiples of 16"
             : Bits == 4 ? "rows and cols multiples of 8"
             : Bits == 8 ? "rows and cols multiples of 4"
                         : "rows and cols multiples of 32";
    return group_listed(kGroups, shape.cols, params)
               ? nullptr
               : "a group of 16, 32, 64, 128, 256, 512 or 1024 columns or the whole row";
  }
  static constexpr PlaneDims plane_dims(int plane, Shape shape, const FormatParams& params) {
    if (plane == 0) return plane_dims_of(shape.cols * Bits / 32, shape.rows);
    if (plane == 1) return plane_dims_of(group_count(shape, params), shape.rows * Bits / 32);
    if (plane == 2) return plane_dims_of(group_count(shape, params), shape.rows);
    return plane_dims_of(shape.cols);
  }
  static constexpr std::uint64_t padding_bits(int, Shape, const FormatParams&) { return 0; }

  static constexpr std::uint64_t tile_start(Shape shape, const FormatParams&, std::int64_t row,
                                            std::int64_t col, int segment) {
    const std::int64_t line = col / kTile.cols * kTile.segments + segment;
    return unsigned64(line * shape.rows + row) * 32;
  }
  static constexpr PieceList tile_code(int, int c) {
    if constexpr (kIsPlanar)
      return detail::planar_code(Bits, c);
    else
      return detail::stream_code(Bits, c);
  }
  static constexpr PieceList param(Shape shape, const FormatParams&, int which, std::int64_t row,
                                   std::int64_t unit) {
    const std::uint64_t index = unsigned64(unit * shape.rows + row);
    if (which == 0) return one_piece(2, index * 16, 16);
    if constexpr (!kIsPlanar) {
      return one_piece(1, index * Bits, Bits);
    } else {
      PieceList list = detail::planar_code(Bits, static_cast<int>(row % 32));
      for (int i = 0; i < list.count; ++i) {
        Piece& piece = list.piece[i];
        piece.bit += (index - unsigned64(row % 32)) * Bits + 32u * piece.plane;
        piece.plane = 1;
      }
      return list;
    }
  }
};

template <int Bits>
using Gptq = GptqWords<Bits, GptqKind::kV1>;
template <int Bits>
using GptqV2 = GptqWords<Bits, GptqKind::kV2>;
template <int Bits>
using GptqP = GptqWords<Bits, GptqKind::kPlanar>;

static_assert(CodedFormat<Gptq<4>> && CodedFormat<GptqP<5>>);
static_assert(proves_bijection<Gptq<4>, 2048>({8, 16}, {16}));
static_assert(proves_bijection<GptqP<5>, 8192>({32, 32}, {32}));

}  // namespace packstone
