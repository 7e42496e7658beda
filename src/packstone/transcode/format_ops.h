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

// All are exact; rows must be in range. Parameters are indexed by group number.
struct FormatOps {
  void (*decode_row)(const ConstPlanes& planes, std::int64_t row, float* out);
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
