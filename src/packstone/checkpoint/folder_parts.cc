#include "packstone/checkpoint/folder_parts.h"

#include <fmt/format.h>

#include <array>
#include <bit>
#include <nlohmann/json.hpp>

#include "packstone/format/bnb_dynamic_map.h"
#include "packstone/format/registry.h"

namespace packstone {
namespace {

struct LayoutFamily {
  std::string_view layout;
  FolderFamily family;
};
constexpr std::array kFamilies = {
    LayoutFamily{"mlx-affine", FolderFamily::kMlx},
    LayoutFamily{"mxfp4", FolderFamily::kMlx},
    LayoutFamily{"mlx-mxfp4", FolderFamily::kMlx},
    LayoutFamily{"mlx-mxfp8", FolderFamily::kMlx},
    LayoutFamily{"mlx-nvfp4", FolderFamily::kMlx},
    LayoutFamily{"gptq", FolderFamily::kGptq},
    LayoutFamily{"gptq_v2", FolderFamily::kGptq},
    LayoutFamily{"gptq_p", FolderFamily::kGptq},
    LayoutFamily{"bitblas", FolderFamily::kGptq},
    LayoutFamily{"awq-gemm", FolderFamily::kAwq},
    LayoutFamily{"awq-gemv", FolderFamily::kAwq},
    LayoutFamily{"awq-gemv_fast", FolderFamily::kAwq},
    LayoutFamily{"llm-awq", FolderFamily::kAwq},
    LayoutFamily{"qqq", FolderFamily::kQqq},
    LayoutFamily{"qqq-g128", FolderFamily::kQqq},
    LayoutFamily{"bnb-nf4", FolderFamily::kBitsandbytes},
    LayoutFamily{"bnb-nf4-nested", FolderFamily::kBitsandbytes},
    LayoutFamily{"bnb-fp4", FolderFamily::kBitsandbytes},
    LayoutFamily{"bnb-fp4-nested", FolderFamily::kBitsandbytes},
    LayoutFamily{"bnb-int8", FolderFamily::kBitsandbytes},
    LayoutFamily{"ct-pack", FolderFamily::kCompressedTensors},
    LayoutFamily{"ct-pack-asym", FolderFamily::kCompressedTensors},
    LayoutFamily{"ct-nvfp4", FolderFamily::kCompressedTensors},
    LayoutFamily{"modelopt-nvfp4", FolderFamily::kModelOpt},
};

template <class T>
std::vector<std::byte> bytes_of(const std::vector<T>& values) {
  std::vector<std::byte> bytes(values.size() * sizeof(T));
  for (std::size_t i = 0; i < values.size(); ++i) store_le(bytes.data() + i * sizeof(T), values[i]);
  return bytes;
}

FolderPart made_part(std::string suffix, std::string_view type, std::vector<std::byte> bytes) {
  const StorageType* storage = safetensors_type(type);
  const auto count = static_cast<std::int64_t>(bytes.size()) / storage->block_bytes;
  return {std::move(suffix), storage, {count}, -1, std::move(bytes)};
}

// quant_map and quant_state, as bitsandbytes 0.50 saves them (functional.py QuantState.as_dict).
void add_bitsandbytes_parts(FormatId format, Shape shape, const FormatParams& params,
                            std::vector<FolderPart>& parts) {
  const std::string_view layout = format_info(format).layout;
  if (layout == "bnb-int8") return;
  const bool nested = layout.ends_with("-nested");
  const std::string_view type = layout.substr(4, 3);
  std::vector<float> levels;
  visit(format, [&]<class F>() {
    for (std::uint32_t code = 0; code < 16; ++code) levels.push_back(F::Scheme::level(code, 0));
  });
  parts.push_back(made_part(".weight.quant_map", "F32", bytes_of(levels)));
  if (nested)
    parts.push_back(made_part(".weight.nested_quant_map", "F32",
                              bytes_of(std::vector(kBnbDynamicMap.begin(), kBnbDynamicMap.end()))));
  std::string state = fmt::format(
      R"({{"quant_type": "{}", "blocksize": {}, "dtype": "float16", "shape": [{}, {}])", type,
      std::int64_t{params.group_cols} * params.group_rows, shape.rows, shape.cols);
  if (nested)
    state +=
        fmt::format(R"(, "nested_blocksize": 256, "nested_dtype": "float32", "nested_offset": {})",
                    static_cast<double>(std::bit_cast<float>(params.constant)));
  state += "}";
  std::vector<std::byte> text(state.size());
  for (std::size_t i = 0; i < state.size(); ++i) text[i] = static_cast<std::byte>(state[i]);
  parts.push_back(
      made_part(fmt::format(".weight.quant_state.bitsandbytes__{}", type), "U8", std::move(text)));
}

template <CodedFormat F>
constexpr bool stores_zeros() {
  for (const ParamSpec& spec : F::kParams)
    if (spec.kind == ParamKind::kZero) return true;
  return false;
}

template <CodedFormat F>
bool zeros_in_middle_of(Shape shape, const FormatParams& params, const unsigned char* const* at) {
  if constexpr (stores_zeros<F>()) {
    const std::int64_t groups = ceil_div(shape.cols, F::group_cols(params));
    for (std::int64_t row = 0; row < shape.rows; ++row)
      for (std::int64_t group = 0; group < groups; ++group)
        if (F::values(read_params<F>(at, shape, params, row, group), params).center !=
            1 << (F::kCodeBits - 1))
          return false;
  }
  return true;
}

}  // namespace

std::optional<FolderFamily> folder_family(FormatId format, Shape shape,
                                          const FormatParams& params) {
  const std::string_view layout = format_info(format).layout;
  for (const LayoutFamily& known : kFamilies)
    if (known.layout == layout) return known.family;
  if (layout == "bitblas-asym") return FolderFamily::kGptq;
  if (layout == "marlin") {
    const bool group = params.group_cols == 128 || params.group_cols == shape.cols;
    const bool read = format_info(format).code_bits == 4 && group && shape.cols % 128 == 0 &&
                      shape.rows % 256 == 0;
    return read ? std::optional(FolderFamily::kMarlin) : std::nullopt;
  }
  if (!layout.starts_with("fp8")) return std::nullopt;
  // A grid of blocks, one scale for a row, or one for all; whole rows in bands have no config.
  const bool grid = params.group_cols < shape.cols;
  const bool row = !grid && params.group_rows == 1;
  if (!grid && !row && params.group_rows != shape.rows) return std::nullopt;
  if (layout.ends_with("-divisor")) return FolderFamily::kFp8Divisor;
  if (grid) return FolderFamily::kFp8Blocks;
  if (layout == "fp8") return FolderFamily::kCompressedTensors;
  return row || layout.ends_with("-e8m0") ? std::nullopt : std::optional(FolderFamily::kFp8Blocks);
}

std::string_view missing_family(FormatId format) {
  const std::string_view layout = format_info(format).layout;
  if (layout == "marlin")
    return "4 bits, groups of 128 or of the row, columns in multiples of 128 and rows of 256: no "
           "program reads other tiles of Marlin from a file";
  if (layout == "marlin-awq")
    return "another layout: programs make the tiles of AWQ when they load awq-gemm";
  if (layout.starts_with("gguf")) return "a GGUF file: no folder is written with rows of ggml";
  if (layout.starts_with("fp8"))
    return "one scale for the weight, a row or a block: no config describes bands of rows, or "
           "powers of two for rows";
  return "a layout of folders, as `packstone formats` lists them";
}

std::vector<FolderPart> folder_parts(FormatId format, Shape shape, const FormatParams& params) {
  constexpr std::string_view kFloats[] = {"F32", "F16", "BF16"};
  const FormatInfo& info = format_info(format);
  const std::optional<FolderFamily> family = folder_family(format, shape, params);
  std::vector<FolderPart> parts;
  for (int plane = 0; plane < info.plane_count; ++plane) {
    const std::size_t i = static_cast<std::size_t>(plane);
    const std::string_view type = info.plane_type[i] == kMetadataType
                                      ? kFloats[static_cast<std::size_t>(params.metadata)]
                                      : info.plane_type[i];
    const PlaneDims dims = plane_dims(format, plane, shape, params);
    FolderPart part{std::string(info.plane_suffix[i]),
                    safetensors_type(type),
                    std::vector<std::int64_t>(dims.dim, dims.dim + dims.rank),
                    plane,
                    {}};
    if (info.layout.starts_with("fp8") && plane == 1 &&
        family == FolderFamily::kCompressedTensors) {
      part.suffix = ".weight_scale";
      part.shape = params.group_rows == 1 ? std::vector{shape.rows, std::int64_t{1}}
                                          : std::vector{std::int64_t{1}};
    }
    parts.push_back(std::move(part));
  }
  if (info.layout.starts_with("ct-pack"))
    parts.push_back(
        made_part(".weight_shape", "I64", bytes_of(std::vector{shape.rows, shape.cols})));
  if (family == FolderFamily::kBitsandbytes) add_bitsandbytes_parts(format, shape, params, parts);
  return parts;
}

bool zeros_in_middle(FormatId format, Shape shape, const FormatParams& params,
                     const std::vector<ByteSpan>& planes) {
  std::array<const unsigned char*, kPlanesMax> at{};
  for (std::size_t i = 0; i < planes.size() && i < at.size(); ++i)
    at[i] = reinterpret_cast<const unsigned char*>(planes[i].data());
  return visit(format, [&]<class F>() { return zeros_in_middle_of<F>(shape, params, at.data()); });
}

}  // namespace packstone
