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

// How the file spells a plane, and the type of its elements there (bytes of a plane are what counts
// here; checkpoint readers and writers use the rest).
struct PlaneSpec {
  std::string_view suffix;  // MLX: ".weight", ".scales", ".biases"; GGUF: ""
};

// A format whose every weight has a code of its own. All members are static constexpr.
//
//   kName        "gguf.q4_0": family.variant; file name is the same with underscores
//   kLayout      "gguf:Q4_0": the name on the command line and in reports
//   kSource      producer, file and version that define it
//   Scheme       LinearScheme, FloatScheme<...> or a table scheme
//   kCodeBits    1..32
//   kCodeXor     the stored bits are code ^ kCodeXor; codes are counted from 0 everywhere, so a
//                format of signed bytes has 0x80 here and center 128
//   kRunCols     columns of a run: whole rows are whole runs, the codes of a run lie in the plane
//                at the offsets of the first run's, and a run starts on a byte
//   kGroups      group sizes along a row that are legal; empty where parameters do not exist
//   kPlanes      array of PlaneSpec
//   kParams      array of ParamSpec (may be empty: std::array<ParamSpec, 0>)
//   legal(shape, params)            nullptr, or the broken rule as words: "cols a multiple of 32"
//   group_cols(params)              columns that share one GroupValues
//   param_cols(which, params)       columns that share parameter `which` (a multiple of group_cols)
//   plane_bytes(plane, shape, params)
//   code(shape, params, row, col)            place of the code
//   param(shape, params, which, row, unit)   place of parameter `which` of columns
//                                            [unit * param_cols, (unit + 1) * param_cols)
//   values(raw, params)             GroupValues from the group's raw parameters
//   encode(values, params, raw)     the inverse of values: sets raw so that values(raw, params) has
//                                   the bits of `values` (an offset of zero where the format has
//                                   none), or says false
//   padding_bits(plane, shape, params)   bits of the plane that no place uses (must be zero to be
//                                   canonical; accepted on read)
template <class F>
concept CodedFormat =
    requires(Shape shape, FormatParams params, std::int64_t index, RawParams raw) {
      { F::kName } -> std::convertible_to<std::string_view>;
      { F::kLayout } -> std::convertible_to<std::string_view>;
      { F::kSource } -> std::convertible_to<std::string_view>;
      { F::kCodeBits } -> std::convertible_to<int>;
      { F::kCodeXor } -> std::convertible_to<std::uint32_t>;
      { F::kRunCols } -> std::convertible_to<int>;
      { F::kGroups.size() } -> std::convertible_to<int>;
      { F::Scheme::kKind } -> std::convertible_to<SchemeKind>;
      { F::kPlanes.size() } -> std::convertible_to<int>;
      { F::kParams.size() } -> std::convertible_to<int>;
      { F::legal(shape, params) } -> std::same_as<const char*>;
      { F::group_cols(params) } -> std::convertible_to<std::int64_t>;
      { F::param_cols(0, params) } -> std::convertible_to<std::int64_t>;
      { F::plane_bytes(0, shape, params) } -> std::convertible_to<std::uint64_t>;
      { F::code(shape, params, index, index) } -> std::same_as<PieceList>;
      { F::param(shape, params, 0, index, index) } -> std::same_as<PieceList>;
      { F::values(raw, params) } -> std::same_as<GroupValues>;
      { F::encode(GroupValues{}, params, raw) } -> std::same_as<bool>;
      { F::padding_bits(0, shape, params) } -> std::convertible_to<std::uint64_t>;
    };

// Reads the raw parameters of the group that holds columns [group * group_cols, ...).
template <CodedFormat F>
constexpr RawParams read_params(const unsigned char* const* planes, Shape shape,
                                const FormatParams& params, std::int64_t row, std::int64_t group) {
  RawParams raw;
  const std::int64_t col = group * F::group_cols(params);
  for (int which = 0; which < static_cast<int>(F::kParams.size()); ++which)
    raw.pattern[which] =
        read_place(planes, F::param(shape, params, which, row, col / F::param_cols(which, params)));
  return raw;
}

// Whether every group has a stored offset.
template <CodedFormat F>
constexpr bool has_offset() {
  for (const ParamSpec& spec : F::kParams)
    if (spec.kind == ParamKind::kOffset || spec.kind == ParamKind::kSuperOffset) return true;
  return false;
}

// Proves a layout on one shape: no bit is used twice, every place has its full width inside its
// plane, and the bits that no place uses are exactly the declared padding. `Bits` is at least the
// total number of bits of all planes. Usable in static_assert on a shape of one or two blocks.
template <CodedFormat F, std::uint64_t Bits>
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
      if (!take(F::code(shape, params, row, col), F::kCodeBits)) return false;
    for (int which = 0; which < static_cast<int>(F::kParams.size()); ++which)
      for (std::int64_t unit = 0; unit < ceil_div(shape.cols, F::param_cols(which, params)); ++unit)
        if (!take(F::param(shape, params, which, row, unit), param_bits(F::kParams[which], params)))
          return false;
  }
  for (int plane = 0; plane < static_cast<int>(F::kPlanes.size()); ++plane) {
    std::uint64_t unused = 0;
    for (std::uint64_t bit = base[plane]; bit < base[plane + 1]; ++bit) unused += !used[bit];
    if (unused != F::padding_bits(plane, shape, params)) return false;
  }
  return true;
}

}  // namespace packstone
