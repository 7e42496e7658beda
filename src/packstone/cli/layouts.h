// LAYOUT names of the command line: a name stands for one format, or for a family whose width is
// chosen per tensor.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "packstone/checkpoint/checkpoint.h"
#include "packstone/format/packed_weight.h"

namespace packstone::cli {

// A parsed LAYOUT. Without `format` it is a family (mlx-affine, gptq, ...) whose member is chosen
// per tensor.
struct LayoutTarget {
  std::string name;
  std::optional<FormatId> format;
  bool gguf = false;             // the name wants a GGUF file
  std::vector<FormatId> family;  // what the name stands for, narrow codes first
  bool described = false;        // a layout without a format: the folder is copied
};

// parse_layout("gguf:Q4_0"). gguf:F32, gguf:F16 and gguf:BF16 are the floats in a GGUF file.
// Errors: kInvalidInput for an unknown name, with the nearest; kUnsupported for a known layout that
//         this build lacks. exl3 and paroquant are names of copies.
Result<LayoutTarget> parse_layout(std::string_view command, std::string_view text);

// The formats that a packed tensor may take under the target, best first:
//   a family:   the source's own format if it belongs to it, then the widths that hold the source's
//               codes, narrow ones first
//   gguf:X:     X, then the packed gguf formats from few to many bytes
//   floats:     that float
std::vector<FormatId> candidate_formats(const LayoutTarget& target, const PackedWeight& source);

// The kind of container at DST: a name ending in .gguf or a gguf: layout is a GGUF file.
// Errors: kInvalidInput for a layout of folders into a name ending in .gguf.
Result<ContainerKind> target_container(std::string_view command, const LayoutTarget& target,
                                       std::string_view destination);

// float32, float16 or bfloat16.
bool is_float_format(FormatId id);
// mlx-affine of any width.
bool is_mlx_format(FormatId id);
// A packed block format of GGUF.
bool is_gguf_format(FormatId id);

// The mlx-affine format of a width, or nothing.
std::optional<FormatId> mlx_format(int bits);

// "mlx-affine 4 bit g32 float16", "gptq 4 bit g128", "gguf:Q4_1", "bfloat16": for people.
std::string layout_text(FormatId id, const FormatParams& params);

// 8 * bytes / elements of a weight of that shape.
double bits_per_weight(FormatId id, Shape shape, const FormatParams& params);

// Every format of this build.
std::vector<FormatId> all_formats();

}  // namespace packstone::cli
