// A packed format = a Scheme + a Layout. This header says what a format header must give; all
// else (unpack, pack, transcode, proofs, reference matmul, tests, docs, benches) is derived.
// Device-safe: C++20, no allocation, no exceptions.
#pragma once

#include <concepts>
#include <cstdint>
#include <string_view>

#include "packstone/format/layout.h"
#include "packstone/format/scheme.h"

namespace packstone {

// A format whose every weight has a code of its own. All members are static constexpr; bases give
// what formats have in common: group_params.h, TensorPlanes and ChosenGroups of layout.h, and
// gguf_rows.h, split_rows.h, word_layout.h.
//
//   kName        "gguf.q4_0": family.variant; file name is the same with underscores
//   kLayout      "gguf:Q4_0": the name on the command line and in reports
//   kSource      producer, file and version that define it
//   Scheme       LinearScheme, FloatScheme<...> or a table scheme (scheme.h)
//   kCodeBits    1..32
//   kCodeXor     the stored bits are code ^ kCodeXor; codes are counted from 0 everywhere, so a
//                format of signed bytes has 0x80 here and center 128
//   kTile        TileSpec: codes repeat tile by tile; legal() lets whole tiles pass only
//   tile_start(shape, params, row, col, segment)   first bit, a multiple of 8, in plane 0 of the
//                                   segment of the tile that holds (row, col)
//   kGroups      group sizes along a row that are legal, perhaps kWholeRow; empty where parameters
//                do not exist
//   kPlanes      array of PlaneSpec; plane 0 has the codes
//   kParams      array of ParamSpec (may be empty: std::array<ParamSpec, 0>)
//   legal(shape, params)            nullptr, or the broken rule as words: "cols a multiple of 32"
//   group_cols(params)              columns that share one GroupValues; the last group of a row may
//                                   be shorter
//   param_cols(which, params)       columns that share parameter `which` (a multiple of group_cols)
//   plane_bytes(plane, shape, params)
//   plane_dims(plane, shape, params)         the plane as a tensor of a folder
//   param(shape, params, which, row, unit)   place of parameter `which` of columns
//                                            [unit * param_cols, (unit + 1) * param_cols)
//   values(raw, params)             GroupValues from the group's raw parameters
//   encode(values, params, raw)     the inverse of values: sets raw so that values(raw, params) has
//                                   the bits of `values` (an offset of zero where the format has
//                                   none), or says false
//   padding_bits(plane, shape, params)   bits of the plane that no place uses (must be zero to be
//                                   canonical; accepted on read)
//
// And either, for codes that are runs of bits,
//   tile_code(r, c)                 place of the code in its tile: bits from the start of the
//                                   segment that piece.plane names
// or, for codes that only a whole block gives (base-3 digits, grids), with kTile{1, n, 1},
//   read_block(block, codes)        the n codes of a block
//   write_block(codes, block)       where blocks can be made: false when no block has these codes
//
// Optional:
//   kOtherLayout  a second layout name that gives the same bytes at this width
//   first_use(shape, params, which, row, unit)   ParamUnit that first uses the place, where places
//                                   are shared beyond param_cols (tensor scales, FP8 blocks)
//   kFiniteOnly                     true: readers of the format disagree on codes and scales that
//                                   are not finite, so that no other format's are moved to it
//   kIndexPlane                     plane of 32-bit group numbers, one per column (GPTQ g_idx):
//                                   col / group_cols unless params.act_order
template <class F>
concept FormatFacts =
    requires(Shape shape, FormatParams params, std::int64_t index, RawParams raw) {
      { F::kName } -> std::convertible_to<std::string_view>;
      { F::kLayout } -> std::convertible_to<std::string_view>;
      { F::kSource } -> std::convertible_to<std::string_view>;
      { F::kCodeBits } -> std::convertible_to<int>;
      { F::kCodeXor } -> std::convertible_to<std::uint32_t>;
      { F::kTile } -> std::convertible_to<TileSpec>;
      { F::kGroups.size() } -> std::convertible_to<int>;
      { F::Scheme::kKind } -> std::convertible_to<SchemeKind>;
      { F::kPlanes.size() } -> std::convertible_to<int>;
      { F::kParams.size() } -> std::convertible_to<int>;
      { F::legal(shape, params) } -> std::same_as<const char*>;
      { F::group_cols(params) } -> std::convertible_to<std::int64_t>;
      { F::param_cols(0, params) } -> std::convertible_to<std::int64_t>;
      { F::plane_bytes(0, shape, params) } -> std::convertible_to<std::uint64_t>;
      { F::plane_dims(0, shape, params) } -> std::same_as<PlaneDims>;
      { F::tile_start(shape, params, index, index, 0) } -> std::convertible_to<std::uint64_t>;
      { F::param(shape, params, 0, index, index) } -> std::same_as<PieceList>;
      { F::values(raw, params) } -> std::same_as<GroupValues>;
      { F::encode(GroupValues{}, params, raw) } -> std::same_as<bool>;
      { F::padding_bits(0, shape, params) } -> std::convertible_to<std::uint64_t>;
    };

template <class F>
concept PlacedCodes = requires {
  { F::tile_code(0, 0) } -> std::same_as<PieceList>;
};
template <class F>
concept BlockCodes =
    requires(const unsigned char* block, std::uint8_t* codes) { F::read_block(block, codes); };
template <class F>
concept WritableBlocks = requires(unsigned char* block, const std::uint8_t* codes) {
  { F::write_block(codes, block) } -> std::same_as<bool>;
};

template <class F>
concept CodedFormat = FormatFacts<F> && (PlacedCodes<F> || BlockCodes<F>);

// Whether weights of the format can be made of codes.
template <CodedFormat F>
constexpr bool is_writable() {
  return PlacedCodes<F> || WritableBlocks<F>;
}

// Whether only finite codes and scales of other formats may move to the format.
template <CodedFormat F>
constexpr bool is_finite_only() {
  if constexpr (requires { F::kFiniteOnly; })
    return F::kFiniteOnly;
  else
    return false;
}

// The plane of group numbers, or -1.
template <CodedFormat F>
constexpr int index_plane() {
  if constexpr (requires { F::kIndexPlane; })
    return F::kIndexPlane;
  else
    return -1;
}

template <class F>
concept SharesPlaces = requires(Shape shape, FormatParams params, std::int64_t index) {
  { F::first_use(shape, params, 0, index, index) } -> std::same_as<ParamUnit>;
};

// The first (row, unit) that uses the place of a parameter.
template <CodedFormat F>
constexpr ParamUnit first_use(Shape shape, const FormatParams& params, int which, std::int64_t row,
                              std::int64_t unit) {
  if constexpr (SharesPlaces<F>)
    return F::first_use(shape, params, which, row, unit);
  else
    return {row, unit};
}

// The place of the code of (row, col) in plane 0. A format of several segments has pieces far
// apart.
template <PlacedCodes F>
constexpr PieceList code_place(Shape shape, const FormatParams& params, std::int64_t row,
                               std::int64_t col) {
  PieceList place =
      F::tile_code(static_cast<int>(row % F::kTile.rows), static_cast<int>(col % F::kTile.cols));
  for (int i = 0; i < place.count; ++i) {
    Piece& piece = place.piece[i];
    piece.bit += F::tile_start(shape, params, row, col, piece.plane);
    piece.plane = 0;
  }
  return place;
}

// Reads a parameter's place; with a word bias from the words with the bias added.
constexpr std::uint32_t read_param(const unsigned char* const* planes, const ParamSpec& spec,
                                   const PieceList& place) {
  if (spec.word_bias == 0) return read_place(planes, place);
  const Piece& piece = place.piece[0];
  const std::uint32_t word = read_bits(planes[piece.plane], piece.bit / 32 * 32, 32);
  const std::uint32_t mask = piece.width == 32 ? ~0u : (1u << piece.width) - 1;
  return ((word + spec.word_bias) >> (piece.bit % 32)) & mask;
}

// Writes a parameter's place; with a word bias other places of the word keep what they mean.
constexpr void write_param(unsigned char* const* planes, const ParamSpec& spec,
                           const PieceList& place, std::uint32_t value) {
  if (spec.word_bias == 0) return write_place(planes, place, value);
  const Piece& piece = place.piece[0];
  unsigned char* plane = planes[piece.plane];
  const std::uint64_t word_bit = piece.bit / 32 * 32;
  unsigned char bytes[4] = {};
  write_bits(bytes, 0, 32, read_bits(plane, word_bit, 32) + spec.word_bias);
  write_bits(bytes, piece.bit % 32, piece.width, value);
  write_bits(plane, word_bit, 32, read_bits(bytes, 0, 32) - spec.word_bias);
}

// Reads the raw parameters of group `group` of a row: columns [group * group_cols, ...), unless the
// format stores the groups of its columns.
template <CodedFormat F>
constexpr RawParams read_params(const unsigned char* const* planes, Shape shape,
                                const FormatParams& params, std::int64_t row, std::int64_t group) {
  RawParams raw;
  const std::int64_t col = group * F::group_cols(params);
  for (int which = 0; which < static_cast<int>(F::kParams.size()); ++which)
    raw.pattern[which] =
        read_param(planes, F::kParams[which],
                   F::param(shape, params, which, row, col / F::param_cols(which, params)));
  return raw;
}

// Whether every group has a stored offset.
template <CodedFormat F>
constexpr bool has_offset() {
  for (const ParamSpec& spec : F::kParams)
    if (spec.kind == ParamKind::kOffset || spec.kind == ParamKind::kSuperOffset) return true;
  return false;
}

// Proves the layout of placed codes on one shape: no bit is used twice, every place has its full
// width inside its plane, and the bits that no place uses are exactly the declared padding. `Bits`
// is at least the total number of bits of all planes. Usable in static_assert on a shape of one or
// two blocks.
template <CodedFormat F, std::uint64_t Bits>
  requires PlacedCodes<F>
constexpr bool proves_bijection(Shape shape, const FormatParams& params) {
  bool used[Bits] = {};
  std::uint64_t base[kPlanesMax + 1] = {};
  for (int plane = 0; plane < static_cast<int>(F::kPlanes.size()); ++plane)
    base[plane + 1] = base[plane] + 8 * F::plane_bytes(plane, shape, params);
  if (base[F::kPlanes.size()] > Bits) return false;
  auto take = [&](const PieceList& place, int width) {
    if (total_width(place) != width) return false;
    for (int i = 0; i < place.count; ++i) {
      const Piece& piece = place.piece[i];
      if (piece.plane >= F::kPlanes.size()) return false;
      if (piece.bit + piece.width > base[piece.plane + 1] - base[piece.plane]) return false;
      for (int b = 0; b < piece.width; ++b) {
        bool& slot = used[base[piece.plane] + piece.bit + static_cast<std::uint64_t>(b)];
        if (slot) return false;
        slot = true;
      }
    }
    return true;
  };
  for (std::int64_t row = 0; row < shape.rows; ++row) {
    for (std::int64_t col = 0; col < shape.cols; ++col)
      if (!take(code_place<F>(shape, params, row, col), F::kCodeBits)) return false;
    for (int which = 0; which < static_cast<int>(F::kParams.size()); ++which)
      for (std::int64_t unit = 0; unit < ceil_div(shape.cols, F::param_cols(which, params)); ++unit)
        if (first_use<F>(shape, params, which, row, unit) == ParamUnit{row, unit} &&
            !take(F::param(shape, params, which, row, unit), param_bits(F::kParams[which], params)))
          return false;
  }
  if (index_plane<F>() >= 0)
    for (std::int64_t col = 0; col < shape.cols; ++col)
      if (!take(one_piece(index_plane<F>(), 32 * static_cast<std::uint64_t>(col), 32), 32))
        return false;
  for (int plane = 0; plane < static_cast<int>(F::kPlanes.size()); ++plane) {
    std::uint64_t unused = 0;
    for (std::uint64_t bit = base[plane]; bit < base[plane + 1]; ++bit) unused += !used[bit];
    if (unused != F::padding_bits(plane, shape, params)) return false;
  }
  return true;
}

// What of that a format of block codes can prove: no bit of a block is in two parameters, and every
// parameter has its full width inside the block.
template <BlockCodes F>
constexpr bool proves_block_params() {
  constexpr std::int64_t kCols = F::kTile.cols;
  constexpr Shape kBlock{1, kCols};
  bool used[8 * F::kBlockBytes] = {};
  for (int which = 0; which < static_cast<int>(F::kParams.size()); ++which)
    for (std::int64_t unit = 0; unit < kCols / F::param_cols(which, {}); ++unit) {
      const PieceList place = F::param(kBlock, {}, which, 0, unit);
      if (total_width(place) != F::kParams[static_cast<std::size_t>(which)].bits) return false;
      for (int i = 0; i < place.count; ++i)
        for (std::uint64_t bit = 0; bit < place.piece[i].width; ++bit) {
          const std::uint64_t at = place.piece[i].bit + bit;
          if (at >= 8 * F::kBlockBytes || used[at]) return false;
          used[at] = true;
        }
    }
  return true;
}

}  // namespace packstone
