// A weight whose bytes have been checked. The type is the proof: no room checks them again.
#pragma once

#include <array>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "packstone/base/bytes.h"
#include "packstone/base/result.h"
#include "packstone/format/registry.h"

namespace packstone {

// What is known of a format at run time; derived from its header.
struct FormatInfo {
  FormatId id{};
  std::string_view name;    // "gguf.q4_0"
  std::string_view layout;  // "gguf:Q4_0"
  std::string_view source;
  SchemeKind scheme{};
  int code_bits = 0;
  int plane_count = 0;
  std::array<std::string_view, kPlanesMax> plane_suffix{};
  std::array<std::string_view, kPlanesMax> plane_type{};  // kMetadataType: as params.metadata says
  std::span<const ParamSpec> params;                      // in the order of RawParams
  std::span<const std::int32_t>
      group_sizes;             // legal groups; one: the format's own; none: no groups
  bool has_offset = false;     // every group has a stored offset
  int zero_bits = 0;           // bits of a stored zero point; 0: none
  bool writable = true;        // weights can be made of codes
  bool block_codes = false;    // codes are read and written by whole blocks; some may have no block
  bool shares_groups = false;  // some parameter belongs to several groups of a row
  bool shares_rows = false;    // some parameter's place belongs to several rows
  int index_plane = -1;        // plane of group numbers per column, or -1
  std::string_view table;      // name of a table scheme
  std::span<const std::int16_t> integer_levels;  // of a table scheme: level / unit of each code
  float unit = 1.0f;
  std::string_view reciprocal_table;  // of a table scheme: see HasReciprocal; empty: none
  bool finite_only = false;           // nothing but finite codes and scales may move here
};

// format_info(id): the derived facts of a format. Cost: a table look-up. Errors: none.
const FormatInfo& format_info(FormatId id);

// find_format("gguf.q4_0"): the format of that name, or nothing.
std::optional<FormatId> find_format(std::string_view name);

// find_layout("gguf:Q4_0"), find_layout("mlx-affine", 4): the format of that layout and width (0:
// the only one of that layout), or nothing. A GGUF type is the layout "gguf:" + its name in ggml.
std::optional<FormatId> find_layout(std::string_view layout, int code_bits = 0);

// layout_rule(id, shape, params): nullptr when legal, else the broken rule in words. Also refuses
// negative sizes and more than limits::kMatrixElementsMax elements, rows or cols.
const char* layout_rule(FormatId id, Shape shape, const FormatParams& params);

// plane_bytes(id, plane, shape, params): exact size of a plane; the shape must be legal.
std::uint64_t plane_bytes(FormatId id, int plane, Shape shape, const FormatParams& params);

// plane_dims(id, plane, shape, params): the plane as a tensor of a checkpoint folder; the shape
// must be legal.
PlaneDims plane_dims(FormatId id, int plane, Shape shape, const FormatParams& params);

// weight_bytes(id, shape, params): bytes of all planes together; the shape must be legal.
std::uint64_t weight_bytes(FormatId id, Shape shape, const FormatParams& params);

// float_name(type): "float32", "float16" or "bfloat16". Errors: none.
std::string_view float_name(FloatType type);

// Columns that share one set of decoded parameters.
std::int64_t group_cols(FormatId id, const FormatParams& params);

// A weight [rows = outputs, cols = inputs] in one of the house's formats: read-only byte planes,
// and the owner that keeps them alive. Copies share the bytes.
class PackedWeight {
 public:
  // bind(id, shape, params, planes, owner, subject) is the weight of those bytes.
  // Shapes: planes[i] must have exactly plane_bytes(id, i, shape, params) bytes.
  // Exact: bitwise; no byte is copied, and none read but the plane of group numbers of a format
  //        that has one.
  // Errors: kInvalidInput for an illegal shape or group; kCorruptData for a plane of another size,
  //         or a group number that is out of range or, without act_order, not col / group.
  //         Messages name `subject` (file and tensor).
  // Threads: safe; the bytes must not change while a weight lives.
  static Result<PackedWeight> bind(FormatId id, Shape shape, const FormatParams& params,
                                   std::vector<ByteSpan> planes, std::shared_ptr<const void> owner,
                                   std::string_view subject);

  FormatId id() const { return id_; }
  const FormatInfo& format() const { return format_info(id_); }
  Shape shape() const { return shape_; }
  const FormatParams& params() const { return params_; }
  int plane_count() const { return static_cast<int>(planes_.size()); }
  ByteSpan plane(int index) const { return planes_[static_cast<std::size_t>(index)]; }
  std::uint64_t bytes() const;
  double bits_per_weight() const;
  const std::shared_ptr<const void>& owner() const { return owner_; }

  // First bytes of the planes, for read_place.
  std::array<const unsigned char*, kPlanesMax> plane_pointers() const;

 private:
  PackedWeight() = default;
  FormatId id_{};
  Shape shape_;
  FormatParams params_;
  std::vector<ByteSpan> planes_;
  std::shared_ptr<const void> owner_;
};

}  // namespace packstone
