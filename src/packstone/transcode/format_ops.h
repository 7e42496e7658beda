// What is derived from each format's header at compile time, as one table of functions per format.
// The instances are spread over ops_<family>.cc, so that a format costs its family's file only.
#pragma once

#include <cstdint>
#include <span>

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
