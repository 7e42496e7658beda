#include "packstone/checkpoint/bind_module.h"

#include <algorithm>
#include <array>
#include <numeric>

#include "packstone/base/bytes.h"
#include "packstone/checkpoint/binder.h"
#include "packstone/checkpoint/folder_parts.h"

namespace packstone {
namespace {

constexpr std::string_view kWhere = "checkpoint.bind_module";

// Whether a space-separated list holds the word.
bool lists(std::string_view words, std::string_view word) {
  while (!words.empty()) {
    const std::size_t space = std::min(words.find(' '), words.size());
    if (words.substr(0, space) == word) return true;
    words.remove_prefix(std::min(space + 1, words.size()));
  }
  return false;
}

std::optional<FloatType> float_type(std::string_view name) {
  if (name == "F32") return FloatType::kF32;
  if (name == "F16") return FloatType::kF16;
  if (name == "BF16") return FloatType::kBF16;
  return std::nullopt;
}

// A shape without its axes of one element.
std::vector<std::int64_t> squeezed(std::vector<std::int64_t> shape) {
  std::erase(shape, 1);
  return shape;
}

class PartBinder {
 public:
  explicit PartBinder(const PackedModule& module) : module_(module), says_(module.says) {}

  Result<std::optional<BoundModule>> bind() {
    // The zeros of a file of format "marlin" are never read; both patterns of the middle are met
    // (formats.md 3.1).
    if (says_.zeros != ZeroConvention::kMidpoint) {
      PACKSTONE_TRY(const std::string layout, format_layout());
      return bind_as(layout);
    }
    for (const std::string_view layout : {"gptq", "gptq_v2"}) {
      PACKSTONE_TRY(std::optional<BoundModule> bound, bind_as(layout));
      if (!bound || zeros_in_middle(bound->weight)) return bound;
    }
    return module_.misfit(".qzeros", "other zero points", "zero points in the middle");
  }

 private:
  using Owners = std::vector<std::shared_ptr<const void>>;

  Result<std::optional<BoundModule>> bind_as(std::string_view layout) {
    const bool blocks = layout.starts_with("gguf:");
    const std::optional<FormatId> id =
        find_layout(layout, blocks ? 0 : static_cast<int>(says_.bits));
    if (!id) return std::optional<BoundModule>();
    id_ = *id;
    params_ = {};
    owners_.clear();
    views_.clear();
    PACKSTONE_TRY(companions_, read_companions(module_));
    for (int plane = 0; plane < info().plane_count; ++plane)
      views_.push_back(view_of(info().plane_suffix[static_cast<std::size_t>(plane)]));
    PACKSTONE_CHECK_OK(set_params());
    std::vector<ByteSpan> planes;
    for (int plane = 0; plane < info().plane_count; ++plane) {
      PACKSTONE_TRY(const ByteSpan bytes, plane_of(plane));
      planes.push_back(bytes);
    }
    PACKSTONE_CHECK_OK(set_act_order());
    PACKSTONE_TRY(PackedWeight weight,
                  PackedWeight::bind(id_, module_.shape, params_, std::move(planes),
                                     std::make_shared<const Owners>(std::move(owners_)),
                                     module_.subject(module_.parts.front().suffix)));
    // A config that says symmetric, and zeros that are not in the middle: one of them is wrong.
    const bool gptq = layout.starts_with("gptq");
    if (gptq && says_.symmetric == true && says_.zeros != ZeroConvention::kMidpoint &&
        !zeros_in_middle(weight))
      return module_.misfit(".qzeros", "other zero points",
                            "zero points in the middle, for 'sym' true,");
    return std::optional(BoundModule{std::move(weight), stored_parts()});
  }

  static bool zeros_in_middle(const PackedWeight& weight) {
    std::vector<ByteSpan> planes;
    for (int i = 0; i < weight.plane_count(); ++i) planes.push_back(weight.plane(i));
    return packstone::zeros_in_middle(weight.id(), weight.shape(), weight.params(), planes);
  }

  std::vector<StoredPart> stored_parts() const {
    std::vector<StoredPart> parts;
    for (const ModuleTensor& part : module_.parts) {
      const auto plane = std::ranges::find(views_, part.view);
      parts.push_back({part.suffix, *part.view,
                       plane == views_.end() ? -1 : static_cast<int>(plane - views_.begin())});
    }
    return parts;
  }

  const FormatInfo& info() const { return format_info(id_); }
  const TensorView* view_of(std::string_view plane) const {
    const ModuleTensor* part = module_.find(plane);
    return part == nullptr ? nullptr : part->view;
  }
  std::string suffix_of(int plane) const {
    const std::string_view name = info().plane_suffix[static_cast<std::size_t>(plane)];
    const ModuleTensor* part = module_.find(name);
    return part == nullptr ? std::string(name) : part->suffix;
  }

  // The registry's name of the layout: the variant that the config and the tensors agree on.
  Result<std::string> format_layout() const {
    const std::string& layout = says_.layout;
    if (layout == "mlx-mxfp4" && !find_layout(layout)) return std::string("mxfp4");
    if (layout == "qqq" && says_.group_cols != kWholeRowGroup &&
        says_.group_cols < module_.shape.cols)
      return std::string("qqq-g128");
    if (layout == "bitblas" && says_.zeros != ZeroConvention::kNone)
      return std::string("bitblas-asym");
    if (layout == "ct-pack" && says_.symmetric == false) return std::string("ct-pack-asym");
    if (layout == "bnb-nf4" || layout == "bnb-fp4") {
      const ModuleTensor* nested = module_.find(".weight.nested_absmax");
      if ((nested != nullptr) == says_.nested_scales)
        return says_.nested_scales ? layout + "-nested" : layout;
      return module_.misfit(nested ? nested->suffix : ".weight.nested_absmax",
                            nested ? "nested statistics" : "no such tensor",
                            says_.nested_scales ? "nested statistics" : "plain statistics");
    }
    if (layout == "fp8") return fp8_layout();
    return layout;
  }

  Result<std::string> fp8_layout() const {
    struct Kind {
      std::string_view type, code_type, layout;
    };
    constexpr std::array kKinds = {Kind{"F8_E4M3", "float8_e4m3fn", "fp8"},
                                   Kind{"F8_E5M2", "float8_e5m2", "fp8-e5m2"},
                                   Kind{"F8_E4M3FNUZ", "float8_e4m3fnuz", "fp8-e4m3fnuz"},
                                   Kind{"F8_E5M2FNUZ", "float8_e5m2fnuz", "fp8-e5m2fnuz"}};
    const TensorView* codes = view_of(".weight");
    const TensorView* scales = view_of(".weight_scale_inv");
    const auto kind = std::ranges::find(kKinds, codes->type->name, &Kind::type);
    if (kind == kKinds.end() || kind->code_type != says_.code_type)
      return module_.misfit(".weight", codes->type->name, says_.code_type);
    const std::string name(kind->layout);
    if (says_.scale_divides) return name + "-divisor";
    const bool exponents = scales->type->name == "U8" || scales->type->name == "F8_E8M0";
    return exponents ? name + "-e8m0" : name;
  }

  Status set_params() {
    const Shape shape = module_.shape;
    std::int64_t group = says_.group_cols;
    const bool bnb4 = says_.layout == "bnb-nf4" || says_.layout == "bnb-fp4";
    if (bnb4) {
      if (group != 0 && companions_.block_size && *companions_.block_size != group)
        return module_.misfit(".weight", fmt::format("blocksize {}", *companions_.block_size),
                              fmt::format("blocksize {}", group));
      const std::int64_t block = group != 0 ? group : companions_.block_size.value_or(64);
      group = std::gcd(shape.cols, block);
      params_.group_rows = static_cast<std::int32_t>(block / group);
      params_.constant = companions_.offset_bits;
    }
    if (says_.scales == ScaleGranularity::kBlock)
      params_.group_rows = static_cast<std::int32_t>(says_.block_rows);
    if (says_.scales == ScaleGranularity::kTensor)
      params_.group_rows = static_cast<std::int32_t>(shape.rows);
    const bool grid = says_.scales == ScaleGranularity::kBlock;
    if (group == kWholeRowGroup || says_.scales == ScaleGranularity::kTensor ||
        (group > shape.cols && !grid))
      group = shape.cols;
    const auto groups = info().group_sizes;
    if (groups.size() == 1 && groups[0] != kWholeRow) {
      if (group != 0 && group != groups[0])
        return module_.misfit(module_.parts.front().suffix, fmt::format("groups of {}", groups[0]),
                              fmt::format("groups of {}", group));
      group = groups[0];
    }
    params_.group_cols = groups.empty() ? 0 : static_cast<std::int32_t>(group);
    PACKSTONE_CHECK_OK(set_metadata());
    // Formats of one group size may want it left out.
    if (groups.size() == 1 && layout_rule(id_, shape, params_) != nullptr) {
      FormatParams without = params_;
      without.group_cols = 0;
      if (layout_rule(id_, shape, without) == nullptr) params_ = without;
    }
    if (const char* rule = layout_rule(id_, shape, params_))
      return fail(ErrorCode::kUnsupported, kWhere, module_.subject(module_.parts.front().suffix),
                  fmt::format("{} of [{}, {}] in groups of {}", info().name, shape.rows, shape.cols,
                              params_.group_cols),
                  rule);
    return {};
  }

  Status set_metadata() {
    const TensorView* first = nullptr;
    for (int plane = 0; plane < info().plane_count; ++plane) {
      const TensorView* view = views_[static_cast<std::size_t>(plane)];
      if (info().plane_type[static_cast<std::size_t>(plane)] != kMetadataType || view == nullptr)
        continue;
      const std::optional<FloatType> type = float_type(view->type->name);
      if (!type || (first != nullptr && first->type != view->type))
        return module_.misfit(
            suffix_of(plane), view->type->name,
            first ? fmt::format("{}, the type of '{}',", first->type->name, first->name)
                  : "F32, F16 or BF16");
      params_.metadata = *type;
      first = view;
    }
    return {};
  }

  // Group numbers that are not column / group are act order, which the config must state.
  Status set_act_order() {
    const int plane = info().index_plane;
    const TensorView* index = plane < 0 ? nullptr : views_[static_cast<std::size_t>(plane)];
    if (index == nullptr || index->type->name != "I32" || params_.group_cols < 1) return {};
    if (index->bytes.size() != static_cast<std::size_t>(module_.shape.cols) * 4) return {};
    for (std::int64_t col = 0; col < module_.shape.cols; ++col) {
      const auto group = load_le<std::int32_t>(index->bytes.data() + 4 * col);
      if (group == col / params_.group_cols) continue;
      if (!says_.act_order)
        return module_.misfit(
            suffix_of(plane), fmt::format("group {} of column {}", group, col),
            fmt::format("group {}, for 'desc_act' false,", col / params_.group_cols));
      params_.act_order = true;
      return {};
    }
    return {};
  }

  Result<ByteSpan> plane_of(int plane) {
    const std::size_t i = static_cast<std::size_t>(plane);
    if (views_[i] == nullptr) return made_plane(plane);
    const TensorView& view = *views_[i];
    const bool empty = view.bytes.empty() && plane_bytes(id_, plane, module_.shape, params_) == 0;
    if (!empty) PACKSTONE_CHECK_OK(check_plane(plane, view));
    owners_.push_back(view.owner);
    return view.bytes;
  }

  // What a file may leave out.
  Result<ByteSpan> made_plane(int plane) {
    const std::uint64_t bytes = plane_bytes(id_, plane, module_.shape, params_);
    if (bytes == 0) return ByteSpan();
    auto buffer = std::make_shared<std::vector<std::byte>>(bytes);
    if (plane == info().index_plane) {
      for (std::int64_t col = 0; col < module_.shape.cols; ++col)
        store_le(buffer->data() + 4 * col,
                 static_cast<std::int32_t>(col / std::max(1, params_.group_cols)));
    } else if (says_.layout == "modelopt-nvfp4" && bytes == 4) {
      store_le(buffer->data(), 1.0f);
    } else {
      return module_.misfit(suffix_of(plane), "no such tensor", "all tensors");
    }
    const ByteSpan span(*buffer);
    owners_.push_back(std::move(buffer));
    return span;
  }

  // A plane that another program stores in elements of another width has the same bytes; its last
  // axis is longer or shorter by the ratio.
  Status check_plane(int plane, const TensorView& view) const {
    const std::size_t i = static_cast<std::size_t>(plane);
    const std::string_view named = info().plane_type[i];
    if (named.empty()) return check_rows(view);
    const StorageType* type = safetensors_type(
        named == kMetadataType ? std::string_view(float_storage(params_.metadata)) : named);
    const bool floats = float_type(view.type->name).has_value() ||
                        (type != nullptr && float_type(type->name).has_value());
    if (type == nullptr || (floats && view.type != type))
      return module_.misfit(suffix_of(plane), view.type->name, named);
    const PlaneDims dims = plane_dims(id_, plane, module_.shape, params_);
    std::vector<std::int64_t> need(dims.dim, dims.dim + dims.rank);
    if (!need.empty()) need.back() = need.back() * type->block_bytes / view.type->block_bytes;
    std::vector<std::int64_t> stacked = need;  // gpt-oss: one more axis, of the bytes of a group
    if (view.shape.size() == 3 && stacked.size() == 2 && stacked.back() % 16 == 0) {
      stacked.back() /= 16;
      stacked.push_back(16);
    }
    if (view.shape == need || view.shape == stacked ||
        (plane != 0 && squeezed(view.shape) == squeezed(need)))
      return {};
    return shape_misfit(plane, view, need);
  }

  // GGUF rows: one row of blocks for each output.
  Status check_rows(const TensorView& view) const {
    const std::uint64_t bytes = plane_bytes(id_, 0, module_.shape, params_);
    const std::int64_t rows = module_.shape.rows;
    const std::vector<std::int64_t> need = {
        rows, rows == 0 ? 0 : static_cast<std::int64_t>(bytes) / rows};
    return view.shape == need ? Status() : shape_misfit(0, view, need);
  }

  Status shape_misfit(int plane, const TensorView& view,
                      const std::vector<std::int64_t>& need) const {
    const Shape shape = module_.shape;
    std::string got = fmt::format("{} {}", view.type->name, shape_text(view.shape));
    const std::uint64_t weights =
        static_cast<std::uint64_t>(shape.rows) * static_cast<std::uint64_t>(shape.cols);
    if (plane == 0 && weights != 0 && view.bytes.size() * 8 % weights == 0)
      got += fmt::format(", {} bits a weight,", view.bytes.size() * 8 / weights);
    return module_.misfit(
        suffix_of(plane), got,
        fmt::format("{} for a [{}, {}] matrix of {} bits in groups of {}", shape_text(need),
                    shape.rows, shape.cols, info().code_bits, params_.group_cols));
  }

  static std::string_view float_storage(FloatType type) {
    constexpr std::string_view kNames[] = {"F32", "F16", "BF16"};
    return kNames[static_cast<std::size_t>(type)];
  }

  const PackedModule& module_;
  const ModuleQuantization& says_;
  FormatId id_{};
  FormatParams params_;
  Companions companions_;
  std::vector<const TensorView*> views_;  // by plane; nullptr: absent
  Owners owners_;
};

}  // namespace

std::string PackedModule::subject(std::string_view suffix) const {
  return fmt::format("{}: '{}{}'", file, stored, suffix);
}

const ModuleTensor* PackedModule::find(std::string_view plane) const {
  const StockLayout* layout = stock_layout(says.layout);
  for (const ModuleTensor& part : parts) {
    const StockTensor* stock = layout ? stock_tensor(*layout, part.suffix) : nullptr;
    // The rows of GGUF are a plane without a suffix; companions are no plane.
    const bool is_plane = stock != nullptr && (!stock->plane.empty() || stock->required);
    if (is_plane && stock->plane == plane) return &part;
  }
  return nullptr;
}

const ModuleTensor* PackedModule::find_suffix(std::string_view begin) const {
  for (const ModuleTensor& part : parts)
    if (part.suffix.starts_with(begin)) return &part;
  return nullptr;
}

std::unexpected<Error> PackedModule::misfit(std::string_view suffix, std::string_view got,
                                            std::string_view need) const {
  return fail(ErrorCode::kCorruptData, kWhere, subject(suffix), got,
              fmt::format("{} of layout {}, as {} says", need, says.layout, says.key));
}

Status check_parts(const PackedModule& module) {
  const StockLayout* layout = stock_layout(module.says.layout);
  if (layout == nullptr) return {};  // a layout without a reader: there is nothing to hold it to
  for (const ModuleTensor& part : module.parts) {
    const StockTensor* stock = stock_tensor(*layout, part.suffix);
    if (stock == nullptr)
      return module.misfit(part.suffix, part.view->type->name, "no tensor but those");
    if (!stock->types.empty() && !lists(stock->types, part.view->type->name))
      return module.misfit(part.suffix, part.view->type->name,
                           fmt::format("the type {}", stock->types));
  }
  for (const StockTensor& stock : layout->tensors) {
    if (!stock.required) continue;
    std::size_t spellings = 0;
    for (const ModuleTensor& part : module.parts) {
      const StockTensor* found = stock_tensor(*layout, part.suffix);
      spellings += found->plane == stock.plane && found->required;
    }
    if (spellings == 0) return module.misfit(stock.suffix, "no such tensor", "all tensors");
    if (spellings > 1)
      return module.misfit(stock.suffix, "the tensor in two spellings", "one tensor");
  }
  return {};
}

Result<std::optional<BoundModule>> bind_parts(const PackedModule& module) {
  return PartBinder(module).bind();
}

std::uint64_t total_bytes(std::span<const ModuleTensor> parts) {
  std::uint64_t bytes = 0;
  for (const ModuleTensor& part : parts) bytes += part.view->bytes.size();
  return bytes;
}

}  // namespace packstone
