// Random packed weights of every format, for the tests and the benchmark of this room.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <memory>
#include <random>
#include <vector>

#include "packstone/format/variants.h"

namespace packstone::testing {

// Same bits, or both NaN (which NaN is not promised).
inline bool same_float(float a, float b) {
  if (std::isnan(a) || std::isnan(b)) return std::isnan(a) && std::isnan(b);
  return std::bit_cast<std::uint32_t>(a) == std::bit_cast<std::uint32_t>(b);
}

// Index of the first difference, or -1.
inline std::int64_t first_difference(const std::vector<float>& a, const std::vector<float>& b) {
  if (a.size() != b.size()) return 0;
  for (std::size_t i = 0; i < a.size(); ++i)
    if (!same_float(a[i], b[i])) return static_cast<std::int64_t>(i);
  return -1;
}

// Uniform in [-size, size).
inline std::vector<float> random_floats(std::int64_t n, std::mt19937_64& random, float size = 1) {
  std::vector<float> values(static_cast<std::size_t>(n));
  std::uniform_real_distribution<float> distribution(-size, size);
  for (float& value : values) value = distribution(random);
  return values;
}

// Writes small finite numbers over the float parameters of a weight whose bytes are random, and
// finite codes over the others of its table.
template <class F>
void tame_parameters(const std::vector<unsigned char*>& planes, Shape shape,
                     const FormatParams& params, std::mt19937_64& random) {
  std::uniform_real_distribution<float> distribution(-0.1f, 0.1f);
  for (std::int64_t row = 0; row < shape.rows; ++row) {
    if constexpr (F::Scheme::kKind == SchemeKind::kFloat) {
      for (std::int64_t col = 0; col < shape.cols; ++col) {
        const FloatType type = F::kCodeBits == 32             ? FloatType::kF32
                               : F::kName == DenseBF16::kName ? FloatType::kBF16
                                                              : FloatType::kF16;
        write_place(planes.data(), code_place<F>(shape, params, row, col),
                    encode_float(type, distribution(random)));
      }
    }
    if constexpr (PlacedCodes<F> && F::Scheme::kKind == SchemeKind::kTable && F::kCodeBits == 8) {
      for (std::int64_t col = 0; col < shape.cols; ++col) {
        const PieceList place = code_place<F>(shape, params, row, col);
        if (!std::isfinite(F::Scheme::level(read_place(planes.data(), place) ^ F::kCodeXor, 0)))
          write_place(planes.data(), place, 1u ^ F::kCodeXor);
      }
    }
    for (int which = 0; which < static_cast<int>(F::kParams.size()); ++which) {
      const ParamSpec spec = F::kParams[static_cast<std::size_t>(which)];
      FloatType type = params.metadata;
      if (spec.coding == ParamCoding::kF16) type = FloatType::kF16;
      if (spec.coding == ParamCoding::kF32) type = FloatType::kF32;
      if (spec.coding == ParamCoding::kE8M0 || spec.coding == ParamCoding::kE4M3) {
        // Near 1: E8M0 120..127, E4M3 of magnitude 2^-3 to 1.
        const bool power = spec.coding == ParamCoding::kE8M0;
        for (std::int64_t unit = 0; unit < ceil_div(shape.cols, F::param_cols(which, params));
             ++unit)
          write_param(planes.data(), spec, F::param(shape, params, which, row, unit),
                      static_cast<std::uint32_t>((power ? 120 : 32) + random() % (power ? 8 : 24)));
        continue;
      }
      if (spec.coding != ParamCoding::kMetadata && spec.coding != ParamCoding::kF16 &&
          spec.coding != ParamCoding::kF32)
        continue;
      for (std::int64_t unit = 0; unit < ceil_div(shape.cols, F::param_cols(which, params)); ++unit)
        write_place(planes.data(), F::param(shape, params, which, row, unit),
                    encode_float(type, distribution(random)));
    }
  }
}

// A weight of random codes. The planes start at odd addresses and end where their memory ends, so
// that the address sanitizer sees any load past an end. `wild` leaves random bits in the scales
// too: infinities, NaN, subnormals.
inline PackedWeight random_weight(FormatId id, Shape shape, const FormatParams& params,
                                  std::mt19937_64& random, bool wild = false) {
  auto owner = std::make_shared<std::vector<std::vector<std::byte>>>();
  std::vector<ByteSpan> planes;
  std::vector<unsigned char*> pointers;
  for (int plane = 0; plane < format_info(id).plane_count; ++plane) {
    owner->emplace_back(plane_bytes(id, plane, shape, params) + 1);
    for (std::byte& byte : owner->back()) byte = static_cast<std::byte>(random());
    planes.push_back(ByteSpan(owner->back()).subspan(1));
    pointers.push_back(reinterpret_cast<unsigned char*>(owner->back().data() + 1));
  }
  // Group numbers in order.
  if (const int index = format_info(id).index_plane; index >= 0)
    for (std::int64_t col = 0; col < shape.cols; ++col)
      write_bits(pointers[static_cast<std::size_t>(index)], 32 * static_cast<std::uint64_t>(col),
                 32, static_cast<std::uint32_t>(col / group_cols(id, params)));
  if (!wild) visit(id, [&]<class F>() { tame_parameters<F>(pointers, shape, params, random); });
  return *PackedWeight::bind(id, shape, params, std::move(planes), owner, "random weight");
}

// The variants of a format that the kernels tell apart.
inline std::vector<FormatParams> variants(FormatId id) {
  std::vector<FormatParams> list;
  if (layout_rule(id, {1, 256}, {}) == nullptr) return {FormatParams{}};
  for (std::int32_t group : {32, 64, 128})
    for (FloatType type : {FloatType::kF32, FloatType::kF16, FloatType::kBF16})
      if (layout_rule(id, {1, 256}, {group, type}) == nullptr) list.push_back({group, type});
  if (!list.empty()) return list;
  list = legal_variants(id, {64, 256});  // formats whose tiles have several rows
  if (list.size() > 3) list.resize(3);
  return list;
}

}  // namespace packstone::testing
