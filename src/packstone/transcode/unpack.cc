#include "packstone/transcode/unpack.h"

#include <array>
#include <type_traits>
#include <utility>

#include "packstone/base/check.h"

namespace packstone {
namespace {

// Codes of one run; bytes where they fit, so that the compiler can work on whole vectors.
template <CodedFormat F>
using Code = std::conditional_t<(F::kCodeBits <= 8), std::uint8_t, std::uint32_t>;

// Places of the codes of the first run: what every other run looks like from its first byte.
template <CodedFormat F>
consteval std::array<PieceList, F::kRunCols> run_places() {
  std::array<PieceList, F::kRunCols> places;
  for (int i = 0; i < F::kRunCols; ++i)
    places[static_cast<std::size_t>(i)] = F::code(Shape{1, F::kRunCols}, FormatParams{}, 0, i);
  return places;
}

template <CodedFormat F>
inline constexpr auto kRunPlaces = run_places<F>();

// First byte of the run that starts at column `col`.
template <CodedFormat F, class Byte>
Byte* run_start(Byte* const* planes, Shape shape, const FormatParams& params, std::int64_t row,
                std::int64_t col) {
  const Piece here = F::code(shape, params, row, col).piece[0];
  return planes[here.plane] + (here.bit - kRunPlaces<F>[0].piece[0].bit) / 8;
}

// Calls take<piece, first bit of the code>() for each piece of a place, all known at compile time.
template <PieceList Place, int P = 0, int Shift = 0, class Take>
inline void for_pieces(Take&& take) {
  if constexpr (P < Place.count) {
    take.template operator()<Place.piece[P], Shift>();
    for_pieces<Place, P + 1, Shift + Place.piece[P].width>(take);
  }
}

template <CodedFormat F, std::size_t Index>
inline std::uint32_t read_code(const unsigned char* run) {
  constexpr PieceList kPlace = kRunPlaces<F>[Index];
  std::uint32_t code = 0;
  for_pieces<kPlace>(
      [&]<Piece P, int Shift>() { code |= read_bits(run, P.bit, P.width) << Shift; });
  return code ^ F::kCodeXor;
}

template <CodedFormat F, std::size_t Index>
inline void write_code(unsigned char* run, std::uint32_t code) {
  constexpr PieceList kPlace = kRunPlaces<F>[Index];
  code ^= F::kCodeXor;
  for_pieces<kPlace>([&]<Piece P, int Shift>() { write_bits(run, P.bit, P.width, code >> Shift); });
}

template <CodedFormat F>
void read_run(const unsigned char* run, Code<F>* codes) {
  [&]<std::size_t... Index>(std::index_sequence<Index...>) {
    ((codes[Index] = static_cast<Code<F>>(read_code<F, Index>(run))), ...);
  }(std::make_index_sequence<F::kRunCols>{});
}

template <CodedFormat F>
void write_run(unsigned char* run, const std::uint32_t* codes) {
  [&]<std::size_t... Index>(std::index_sequence<Index...>) {
    (write_code<F, Index>(run, codes[Index]), ...);
  }(std::make_index_sequence<F::kRunCols>{});
}

// Calls take(col, count, codes) for pieces of the row in order; a piece never crosses a group's end
// and starts a group when col is a multiple of it.
template <CodedFormat F, class Take>
void for_codes(const unsigned char* const* planes, Shape shape, const FormatParams& params,
               std::int64_t row, Take&& take) {
  static_assert(F::kRunCols > 0, "a format without runs needs a reader by places");
  const std::int64_t group = F::group_cols(params);
  const std::int64_t step = group < F::kRunCols ? group : F::kRunCols;
  alignas(64) Code<F> codes[F::kRunCols];
  for (std::int64_t col = 0; col < shape.cols; col += F::kRunCols) {
    read_run<F>(run_start<F>(planes, shape, params, row, col), codes);
    for (std::int64_t at = 0; at < F::kRunCols; at += step) take(col + at, step, codes + at);
  }
}

template <CodedFormat F>
void decode_row_of(const unsigned char* const* planes, Shape shape, const FormatParams& params,
                   std::int64_t row, float* out) {
  if constexpr (F::Scheme::kKind == SchemeKind::kFloat) {
    const unsigned char* start = run_start<F>(planes, shape, params, row, 0);
    for (std::int64_t col = 0; col < shape.cols; ++col) {
      std::conditional_t<F::kCodeBits == 32, std::uint32_t, std::uint16_t> pattern;
      std::memcpy(&pattern, start + col * static_cast<std::int64_t>(sizeof pattern),
                  sizeof pattern);
      out[col] = F::Scheme::level(pattern, 0);
    }
  } else {
    const std::int64_t group = F::group_cols(params);
    GroupValues values;
    for_codes<F>(planes, shape, params, row,
                 [&](std::int64_t col, std::int64_t count, const Code<F>* codes) {
                   if (col % group == 0)
                     values =
                         F::values(read_params<F>(planes, shape, params, row, col / group), params);
                   const GroupValues here = values;
                   float* to = out + col;
                   for (std::int64_t i = 0; i < count; ++i)
                     to[i] = decode_value<typename F::Scheme>(here, codes[i]);
                 });
  }
}

template <CodedFormat F>
void raw_params_of(const unsigned char* const* planes, Shape shape, const FormatParams& params,
                   std::int64_t row, std::span<RawParams> raw) {
  for (std::size_t group = 0; group < raw.size(); ++group)
    raw[group] = read_params<F>(planes, shape, params, row, static_cast<std::int64_t>(group));
}

template <CodedFormat F>
void pack_row_of(unsigned char* const* planes, Shape shape, const FormatParams& params,
                 std::int64_t row, std::span<const std::uint32_t> codes,
                 std::span<const RawParams> raw) {
  for (std::int64_t col = 0; col < shape.cols; col += F::kRunCols)
    write_run<F>(run_start<F>(planes, shape, params, row, col), codes.data() + col);
  for (int which = 0; which < static_cast<int>(F::kParams.size()); ++which) {
    const std::int64_t cols = F::param_cols(which, params);
    for (std::int64_t unit = 0; unit < ceil_div(shape.cols, cols); ++unit)
      write_place(
          planes, F::param(shape, params, which, row, unit),
          raw[static_cast<std::size_t>(unit * cols / F::group_cols(params))].pattern[which]);
  }
}

std::size_t group_count(const PackedWeight& weight) {
  return static_cast<std::size_t>(
      ceil_div(weight.shape().cols, group_cols(weight.id(), weight.params())));
}

bool row_in_range(const PackedWeight& weight, std::int64_t row, std::size_t cols) {
  return row >= 0 && row < weight.shape().rows &&
         static_cast<std::int64_t>(cols) == weight.shape().cols;
}

}  // namespace

void decode_row(const PackedWeight& weight, std::int64_t row, std::span<float> out) {
  PACKSTONE_ASSERT(row_in_range(weight, row, out.size()));
  const auto planes = weight.plane_pointers();
  visit(weight.id(), [&]<class F>() {
    decode_row_of<F>(planes.data(), weight.shape(), weight.params(), row, out.data());
  });
}

void unpack_row(const PackedWeight& weight, std::int64_t row, std::span<std::uint32_t> codes,
                std::span<GroupValues> groups) {
  PACKSTONE_ASSERT(row_in_range(weight, row, codes.size()));
  PACKSTONE_ASSERT(groups.size() == group_count(weight));
  const auto planes = weight.plane_pointers();
  visit(weight.id(), [&]<class F>() {
    for_codes<F>(planes.data(), weight.shape(), weight.params(), row,
                 [&](std::int64_t col, std::int64_t count, const Code<F>* run) {
                   for (std::int64_t i = 0; i < count; ++i)
                     codes[static_cast<std::size_t>(col + i)] = run[i];
                 });
    for (std::size_t group = 0; group < groups.size(); ++group)
      groups[group] = F::values(read_params<F>(planes.data(), weight.shape(), weight.params(), row,
                                               static_cast<std::int64_t>(group)),
                                weight.params());
  });
}

void raw_params_row(const PackedWeight& weight, std::int64_t row, std::span<RawParams> raw) {
  PACKSTONE_ASSERT(row >= 0 && row < weight.shape().rows);
  PACKSTONE_ASSERT(raw.size() == group_count(weight));
  const auto planes = weight.plane_pointers();
  visit(weight.id(), [&]<class F>() {
    raw_params_of<F>(planes.data(), weight.shape(), weight.params(), row, raw);
  });
}

void pack_row(FormatId id, Shape shape, const FormatParams& params, unsigned char* const* planes,
              std::int64_t row, std::span<const std::uint32_t> codes,
              std::span<const RawParams> raw) {
  PACKSTONE_ASSERT(row >= 0 && row < shape.rows);
  PACKSTONE_ASSERT(static_cast<std::int64_t>(codes.size()) == shape.cols);
  visit(id, [&]<class F>() { pack_row_of<F>(planes, shape, params, row, codes, raw); });
}

void decode_params(FormatId id, const FormatParams& params, std::span<const RawParams> raw,
                   std::span<GroupValues> groups) {
  PACKSTONE_ASSERT(raw.size() == groups.size());
  visit(id, [&]<class F>() {
    for (std::size_t i = 0; i < raw.size(); ++i) groups[i] = F::values(raw[i], params);
  });
}

std::int64_t encode_params(FormatId id, const FormatParams& params,
                           std::span<const GroupValues> groups, std::span<RawParams> raw) {
  PACKSTONE_ASSERT(raw.size() == groups.size());
  return visit(id, [&]<class F>() -> std::int64_t {
    for (std::size_t i = 0; i < groups.size(); ++i)
      if (!F::encode(groups[i], params, raw[i])) return static_cast<std::int64_t>(i);
    return -1;
  });
}

}  // namespace packstone
