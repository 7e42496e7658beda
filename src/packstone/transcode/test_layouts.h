// Random weights of every format, for the tests of this room.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <string>
#include <vector>

#include "packstone/format/variants.h"
#include "packstone/transcode/format_ops.h"
#include "packstone/transcode/transcode.h"

namespace packstone::testing {

struct Layout {
  FormatId id;
  FormatParams params;
};

// A layout in words, for messages.
inline std::string show(const Layout& layout) {
  return fmt::format("{} g{}x{} m{}{}", format_info(layout.id).name, layout.params.group_rows,
                     layout.params.group_cols, static_cast<int>(layout.params.metadata),
                     layout.params.act_order ? " act-order" : "");
}

// Every format with each of its legal parameters at a shape; formats without any are left out.
inline std::vector<Layout> layouts_at(Shape shape) {
  std::vector<Layout> layouts;
  for (std::uint16_t index = 0; index < kFormatCount; ++index)
    for (const FormatParams& params : legal_variants(FormatId{index}, shape))
      layouts.push_back({FormatId{index}, params});
  return layouts;
}

// What random weights look like. kCentered: the zero of a group with an offset is a middle code;
// kNarrow: also few codes, around the middle, and powers of two for the scales of table formats;
// kAdversarial: zero, subnormal, largest, infinite and NaN scales of both signs, and codes that are
// not finite.
enum class Recipe { kPlain, kCentered, kNarrow, kAdversarial };

// A binary16 pattern, often an extreme one.
inline std::uint32_t pick_half(std::mt19937_64& random) {
  constexpr std::uint32_t kHalves[] = {0x0000, 0x8000, 0x0001, 0x8001, 0x03FF, 0x0400, 0x7BFF,
                                       0xFBFF, 0x7C00, 0xFC00, 0x7E00, 0x7C01, 0x3C01, 0x6000};
  return random() % 2 ? kHalves[random() % std::size(kHalves)]
                      : static_cast<std::uint32_t>(random() & 0xFFFF);
}

// A stored parameter; `power`: a narrow scale is a power of two.
inline std::uint32_t random_param(const ParamSpec& spec, const FormatParams& params, Recipe recipe,
                                  bool power, std::mt19937_64& random) {
  const int bits = param_bits(spec, params);
  const std::uint32_t mask = bits == 32 ? ~0u : (1u << bits) - 1u;
  const bool wild = recipe == Recipe::kAdversarial;
  std::uint32_t half =
      wild ? pick_half(random) : 0x2400 | static_cast<std::uint32_t>(random() & 0x83FF);
  if (recipe == Recipe::kNarrow && power) half &= 0x7C00;
  switch (spec.coding) {
    case ParamCoding::kF16:
      return half;
    case ParamCoding::kF32:
    case ParamCoding::kMetadata: {
      const FloatType type = spec.coding == ParamCoding::kF32 ? FloatType::kF32 : params.metadata;
      return encode_float(type, half_to_float(static_cast<std::uint16_t>(half)));
    }
    case ParamCoding::kE8M0:
      return wild ? static_cast<std::uint32_t>(random() & 255)
                  : 118 + static_cast<std::uint32_t>(random() % 12);
    case ParamCoding::kE4M3:
      return wild ? static_cast<std::uint32_t>(random() & 255)
                  : 32 + static_cast<std::uint32_t>(random() % 48);
    case ParamCoding::kUnsigned:
    case ParamCoding::kSigned:
      break;
  }
  // Zero points around the middle, but for adversarial weights.
  if (spec.kind == ParamKind::kZero && !wild)
    return (mask / 2 + 1 + static_cast<std::uint32_t>(random() % 2)) & mask;
  return static_cast<std::uint32_t>(random()) & mask;
}

// Patterns of one group.
inline RawParams random_params(const FormatInfo& info, const FormatParams& params, Recipe recipe,
                               std::mt19937_64& random) {
  RawParams raw;
  for (std::size_t i = 0; i < info.params.size(); ++i)
    raw.pattern[i] =
        random_param(info.params[i], params, recipe, info.scheme == SchemeKind::kTable, random);
  const bool centered = recipe == Recipe::kCentered || recipe == Recipe::kNarrow;
  if (centered && info.has_offset && info.params.size() == 2) {
    const FloatType type =
        info.params[0].coding == ParamCoding::kF16 ? FloatType::kF16 : params.metadata;
    // The scale keeps few bits, so that every multiple of it is a number of any of the types.
    raw.pattern[0] &= type == FloatType::kF32   ? 0xFFF00000u
                      : type == FloatType::kF16 ? 0xFF00u
                                                : 0xFFF0u;
    const float zero = static_cast<float>(1 << (info.code_bits - 1));
    raw.pattern[1] = encode_float(type, -zero * decode_float(type, raw.pattern[0]));
  }
  return raw;
}

// A code, or the pattern of a float.
inline std::uint32_t random_code(const FormatInfo& info, FormatId id, Recipe recipe,
                                 std::mt19937_64& random) {
  auto code = static_cast<std::uint32_t>(random());
  if (info.code_bits < 32) code &= (1u << info.code_bits) - 1u;
  if (recipe == Recipe::kNarrow && info.code_bits >= 2 && info.code_bits <= 8)
    code = info.scheme == SchemeKind::kTable
               ? code & 0x77u  // no NaN of an 8-bit float
               : ((1u << (info.code_bits - 1)) - 2 + code % 4) & ((1u << info.code_bits) - 1u);
  if (info.scheme == SchemeKind::kTable && recipe != Recipe::kAdversarial &&
      !std::isfinite(format_ops(id).value({}, code)))
    code = 1;
  if (info.scheme == SchemeKind::kFloat && recipe != Recipe::kAdversarial)
    code = encode_float(id == kFormatId<DenseF32>   ? FloatType::kF32
                        : id == kFormatId<DenseF16> ? FloatType::kF16
                                                    : FloatType::kBF16,
                        static_cast<float>(static_cast<int>(code % 255) - 127) / 64.0f);
  return code;
}

// Random group numbers for the columns.
inline void random_group_numbers(const FormatInfo& info, std::int64_t groups, OwnedWeight& owned,
                                 std::mt19937_64& random) {
  auto* bytes = reinterpret_cast<unsigned char*>(
      owned.planes[static_cast<std::size_t>(info.index_plane)].data());
  for (std::int64_t col = 0; col < owned.shape.cols; ++col)
    write_bits(bytes, 32 * static_cast<std::uint64_t>(col), 32,
               static_cast<std::uint32_t>(random() % static_cast<std::uint64_t>(groups)));
}

// A weight of the recipe. Formats with block codes start from random blocks.
inline PackedWeight random_weight_of(const Layout& layout, Shape shape, Recipe recipe,
                                     std::mt19937_64& random) {
  const FormatInfo& info = format_info(layout.id);
  OwnedWeight owned = *OwnedWeight::allocate(layout.id, shape, layout.params);
  const std::int64_t width = group_cols(layout.id, layout.params);
  const std::int64_t groups = ceil_div(shape.cols, width);
  std::vector<std::uint32_t> codes(static_cast<std::size_t>(shape.cols));
  std::vector<RawParams> raw(static_cast<std::size_t>(groups));
  const std::vector<unsigned char*> planes = owned.pointers();
  if (info.block_codes)
    for (std::byte& byte : owned.planes[0]) byte = static_cast<std::byte>(random());
  if (info.index_plane >= 0 && layout.params.act_order)
    random_group_numbers(info, groups, owned, random);
  const FormatOps& ops = format_ops(layout.id);
  const MutablePlanes bytes{planes.data(), shape, layout.params};
  for (std::int64_t row = 0; row < shape.rows; ++row) {
    for (std::uint32_t& code : codes) code = random_code(info, layout.id, recipe, random);
    for (RawParams& one : raw) one = random_params(info, layout.params, recipe, random);
    if (!info.block_codes) ops.write_codes(bytes, row, codes.data());
    ops.write_params(bytes, row, raw);
  }
  return *std::move(owned).release("random");
}

// Whether two weights of one format have the same bytes.
inline bool same_planes(const PackedWeight& a, const PackedWeight& b) {
  if (a.id() != b.id() || a.params() != b.params()) return false;
  for (int i = 0; i < a.plane_count(); ++i)
    if (!std::ranges::equal(a.plane(i), b.plane(i))) return false;
  return true;
}

// Compares without any code of the room but the row decoder.
inline void expect_same_reals(const PackedWeight& a, const PackedWeight& b) {
  std::vector<float> x(static_cast<std::size_t>(a.shape().cols)), y(x.size());
  for (std::int64_t row = 0; row < a.shape().rows; ++row) {
    decode_row(a, row, x);
    decode_row(b, row, y);
    for (std::size_t col = 0; col < x.size(); ++col)
      ASSERT_TRUE(static_cast<long double>(x[col]) == static_cast<long double>(y[col]) ||
                  (std::isnan(x[col]) && std::isnan(y[col])))
          << a.format().name << " to " << b.format().name << " at " << row << ", " << col << ": "
          << x[col] << " became " << y[col];
  }
}

}  // namespace packstone::testing
