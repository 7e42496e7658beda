// What is derived from each format's header at compile time, as one table of functions per format.
// The instances are spread over ops_<family>.cc, so that a format costs its family's file only.
#pragma once

#include <cstdint>
#include <span>

#include "packstone/format/e2m1.h"
#include "packstone/format/packed_weight.h"
#include "packstone/format/registry.h"

namespace packstone {

// A weight's bytes and what they mean; `Byte` is const where nothing is written.
template <class Byte>
struct Planes {
  Byte* const* plane;
  Shape shape;
  const FormatParams& params;
};
using ConstPlanes = Planes<const unsigned char>;
using MutablePlanes = Planes<unsigned char>;

// Rows [row, row + rows) and columns [col, col + cols) of a weight, whole tiles along the row. The
// code of (row + r, col + c) is byte r * stride + c.
struct CodeBlock {
  std::int64_t row = 0, rows = 0;
  std::int64_t col = 0, cols = 0;
  std::int64_t stride = 0;
};

// Where a group's numbers are its patterns one by one: the scale and the offset are the floats that
// their codings say, and the center is the zero point as stored, or the same for all groups. All of
// this is tried at compile time on a few patterns; a test tries every pattern of 16 bits.
struct PlainParams {
  bool plain = false;
  int scale = -1, offset = -1, zero = -1;  // which parameter; -1: none
  std::int32_t center = 0;                 // without a zero point
};

// The numbers of a group of plain parameters. Exact.
constexpr float plain_number(const ParamSpec& spec, FloatType metadata, std::uint32_t pattern) {
  switch (spec.coding) {
    case ParamCoding::kF16:
      return decode_float(FloatType::kF16, pattern);
    case ParamCoding::kF32:
      return decode_float(FloatType::kF32, pattern);
    case ParamCoding::kE8M0:
      return e8m0_to_float(pattern);
    default:
      return decode_float(metadata, pattern);
  }
}
constexpr GroupValues plain_values(const ParamSpec* specs, const PlainParams& plain,
                                   const FormatParams& params, const RawParams& raw) {
  const auto number = [&](int which) {
    return plain_number(specs[which], params.metadata, raw.pattern[which]);
  };
  return {number(plain.scale), plain.offset >= 0 ? number(plain.offset) : kNoOffset,
          plain.zero >= 0 ? static_cast<std::int32_t>(raw.pattern[plain.zero]) : plain.center};
}

// All are exact; rows must be in range. Parameters are indexed by group number.
struct FormatOps {
  void (*decode_row)(const ConstPlanes& planes, std::int64_t row, float* out);
  void (*decode_rows)(const ConstPlanes& planes, std::int64_t row, std::int64_t rows, float* out);
  void (*read_codes)(const ConstPlanes& planes, std::int64_t row, std::uint32_t* codes);
  // False when the format has no blocks with these codes; the row's bytes are then unspecified.
  bool (*write_codes)(const MutablePlanes& planes, std::int64_t row, const std::uint32_t* codes);
  void (*read_params)(const ConstPlanes& planes, std::int64_t row, std::span<RawParams> raw);
  void (*read_values)(const ConstPlanes& planes, std::int64_t row, std::span<GroupValues> groups);
  // Writes the places that (row, unit) is the first to use, and for row 0 without act-order the
  // group numbers of the columns.
  void (*write_params)(const MutablePlanes& planes, std::int64_t row,
                       std::span<const RawParams> raw);
  void (*values)(const FormatParams& params, std::span<const RawParams> raw,
                 std::span<GroupValues> groups);
  std::int64_t (*encode)(const FormatParams& params, std::span<const GroupValues> groups,
                         std::span<RawParams> raw);
  // The value of a code in a group.
  float (*value)(const GroupValues& group, std::uint32_t code);
  // read_codes and write_codes for a block of codes as bytes, the fast path; null where codes are
  // wider than a byte. Bits of a byte above the code's are ignored.
  void (*read_code_bytes)(const ConstPlanes& planes, const CodeBlock& block, std::uint8_t* codes);
  bool (*write_code_bytes)(const MutablePlanes& planes, const CodeBlock& block,
                           const std::uint8_t* codes);
  std::int64_t tile_cols;
  // Of plain parameters, else null: parameter `which` of all groups of `rows` rows from `row`,
  // patterns[(row * groups + group)]; groups of one row stand together.
  PlainParams plain;
  void (*read_patterns)(const ConstPlanes& planes, int which, std::int64_t row, std::int64_t rows,
                        std::uint32_t* patterns);
  void (*write_patterns)(const MutablePlanes& planes, int which, std::int64_t row,
                         std::int64_t rows, const std::uint32_t* patterns);
};

// format_ops(id): the table of a format. Errors: none. Threads: safe.
const FormatOps& format_ops(FormatId id);

// The tables of a family, in its order; defined in ops_<family>.cc.
template <class Family>
std::span<const FormatOps> family_ops();

// Rows that one worker must pack alone: no byte and no word of parameters of any format belongs to
// rows of two such units.
inline constexpr std::int64_t kPackUnitRows = 64;

}  // namespace packstone
