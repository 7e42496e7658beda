#include "packstone/checkpoint/module_tensors.h"

#include <algorithm>
#include <array>

namespace packstone {
namespace {

constexpr std::string_view kFloats = "F16 BF16 F32";
constexpr std::string_view kWords = "I32 U32";
constexpr std::string_view kFloat8 = "F8_E4M3 F8_E5M2 F8_E4M3FNUZ F8_E5M2FNUZ";

constexpr std::array kMlxAffine = {StockTensor{".weight", ".weight", true, "U32"},
                                   StockTensor{".scales", ".scales", true, kFloats},
                                   StockTensor{".biases", ".biases", true, kFloats}};
constexpr std::array kMlxFloat = {StockTensor{".weight", ".weight", true, "U32"},
                                  StockTensor{".scales", ".scales", true, "U8"}};
constexpr std::array kGptq = {StockTensor{".qweight", ".qweight", true, "I32 I16 I8"},
                              StockTensor{".qzeros", ".qzeros", true, "I32 I16 I8"},
                              StockTensor{".scales", ".scales", true, kFloats},
                              StockTensor{".g_idx", ".g_idx", false, "I32 I64"}};
constexpr std::array kBitblas = {StockTensor{".qweight", ".qweight", true, "I8 U8"},
                                 StockTensor{".qzeros", ".qzeros", false, "I8 U8"},
                                 StockTensor{".scales", ".scales", true, kFloats}};
constexpr std::array kAwq = {StockTensor{".qweight", ".qweight", true, kWords},
                             StockTensor{".qzeros", ".qzeros", true, kWords},
                             StockTensor{".scales", ".scales", true, kFloats}};
constexpr std::array kGemvFast = {StockTensor{".qweight", ".qweight", true, "I16"},
                                  StockTensor{".scales", ".scales", true, kFloats},
                                  StockTensor{".qzeros", ".qzeros", true, kFloats}};
constexpr std::array kLlmAwq = {StockTensor{".qweight", ".qweight", true, "I16"},
                                StockTensor{".scales", ".scales", true, kFloats},
                                StockTensor{".scaled_zeros", ".scaled_zeros", true, kFloats}};
constexpr std::array kQqq = {StockTensor{".B", ".B", true, "I32"},
                             StockTensor{".s_channel", ".s_channel", true, "F32"},
                             StockTensor{".s_group", ".s_group", false, "F16"}};
constexpr std::array kMarlinTiles = {StockTensor{".B", ".B", true, "I32"},
                                     StockTensor{".s", ".s", true, "F16"}};
constexpr std::array kParoQuant = {
    StockTensor{".qweight", ".qweight", true, "I32"},
    StockTensor{".qzeros", ".qzeros", true, "I32"},
    StockTensor{".scales", ".scales", true, kFloats},
    StockTensor{".theta", ".theta", true, "F16"},
    StockTensor{".pairs", ".pairs", true, "I16"},
    StockTensor{".channel_scales", ".channel_scales", true, "F16 BF16"}};
constexpr std::array kExl3 = {StockTensor{".trellis", ".trellis", true, "I16"},
                              StockTensor{".suh", ".suh", false, "F16"},
                              StockTensor{".svh", ".svh", false, "F16"},
                              StockTensor{".su", ".suh", false, "I16"},
                              StockTensor{".sv", ".svh", false, "I16"},
                              StockTensor{".mcg", "", false, "I32"},
                              StockTensor{".mul1", "", false, "I32"}};
constexpr std::array kFp8 = {
    StockTensor{".weight", ".weight", true, kFloat8},
    StockTensor{".weight_scale_inv", ".weight_scale_inv", true, "F32 F16 BF16 U8 F8_E8M0"},
    StockTensor{".weight_scale", ".weight_scale_inv", true, "F32 F16 BF16 U8 F8_E8M0"},
    StockTensor{".scale", ".weight_scale_inv", true, "F32 F16 BF16 U8 F8_E8M0"},
    StockTensor{".input_scale", "", false, ""},
    StockTensor{".activation_scale", "", false, ""},
    StockTensor{".input_scale_ub", "", false, ""}};
constexpr std::array kBnb4 = {
    StockTensor{".weight", ".weight", true, "U8"},
    StockTensor{".weight.absmax", ".weight.absmax", true, "F32 U8"},
    StockTensor{".weight_absmax", ".weight.absmax", true, "F32 U8"},
    StockTensor{".weight.nested_absmax", ".weight.nested_absmax", false, "F32"},
    StockTensor{".weight_nested_absmax", ".weight.nested_absmax", false, "F32"},
    StockTensor{".weight.quant_map", "", false, "F32"},
    StockTensor{".weight_quant_map", "", false, "F32"},
    StockTensor{".weight.nested_quant_map", "", false, "F32"},
    StockTensor{".weight_nested_quant_map", "", false, "F32"},
    StockTensor{".weight.quant_state.*", "", false, "U8"},
    StockTensor{".weight_quant_state", "", false, "U8"}};
constexpr std::array kBnb8 = {StockTensor{".weight", ".weight", true, "I8"},
                              StockTensor{".SCB", ".SCB", true, "F32"},
                              StockTensor{".weight_scb", ".SCB", true, "F32"},
                              StockTensor{".weight_format", "", false, "U8"}};
constexpr std::array kGguf = {StockTensor{".qweight", "", true, "U8"}};
constexpr std::array kCtPack = {
    StockTensor{".weight_packed", ".weight_packed", true, "I32"},
    StockTensor{".weight_scale", ".weight_scale", true, kFloats},
    StockTensor{".weight_zero_point", ".weight_zero_point", false, "I32"},
    StockTensor{".weight_shape", "", false, "I64 I32"},
    StockTensor{".weight_g_idx", ".weight_g_idx", false, "I32"},
    StockTensor{".input_scale", "", false, ""}};
constexpr std::array kCtNvfp4 = {
    StockTensor{".weight_packed", ".weight_packed", true, "U8"},
    StockTensor{".weight_scale", ".weight_scale", true, "F8_E4M3"},
    StockTensor{".weight_global_scale", ".weight_global_scale", true, "F32"},
    StockTensor{".input_global_scale", "", false, "F32"}};
constexpr std::array kModelOptNvfp4 = {
    StockTensor{".weight", ".weight", true, "U8"},
    StockTensor{".weight_scale", ".weight_scale", true, "F8_E4M3"},
    StockTensor{".weight_scale_2", ".weight_scale_2", false, "F32"},
    StockTensor{".input_scale", "", false, "F32"}};
constexpr std::array kMxfp4 = {StockTensor{"_blocks", ".weight", true, "U8"},
                               StockTensor{".weight_packed", ".weight", true, "U8"},
                               StockTensor{"_scales", ".scales", true, "U8"},
                               StockTensor{".weight_scale", ".scales", true, "U8 F8_E8M0"}};

constexpr std::array kLayouts = {
    StockLayout{"mlx-affine", kMlxAffine},
    StockLayout{"mlx-mxfp4", kMlxFloat},
    StockLayout{"mlx-mxfp8", kMlxFloat},
    StockLayout{"mlx-nvfp4", kMlxFloat},
    StockLayout{"gptq", kGptq},
    StockLayout{"gptq_v2", kGptq},
    StockLayout{"gptq_p", kGptq},
    StockLayout{"marlin", kMarlinTiles},
    StockLayout{"bitblas", kBitblas},
    StockLayout{"awq-gemm", kAwq},
    StockLayout{"awq-gemv", kAwq},
    StockLayout{"awq-gemv_fast", kGemvFast},
    StockLayout{"llm-awq", kLlmAwq},
    StockLayout{"qqq", kQqq},
    StockLayout{"paroquant", kParoQuant},
    StockLayout{"exl3", kExl3},
    StockLayout{"fp8", kFp8},
    StockLayout{"bnb-nf4", kBnb4},
    StockLayout{"bnb-fp4", kBnb4},
    StockLayout{"bnb-int8", kBnb8},
    StockLayout{"ct-pack", kCtPack},
    StockLayout{"ct-nvfp4", kCtNvfp4},
    StockLayout{"modelopt-nvfp4", kModelOptNvfp4},
    StockLayout{"mxfp4", kMxfp4},
};

bool same_suffix(const StockTensor& stock, std::string_view suffix) {
  if (!stock.suffix.ends_with('*')) return stock.suffix == suffix;
  return suffix.starts_with(stock.suffix.substr(0, stock.suffix.size() - 1));
}

}  // namespace

const StockLayout* stock_layout(std::string_view layout) {
  static constexpr StockLayout kGgufRows{"gguf", kGguf};
  if (layout.starts_with("gguf:")) return &kGgufRows;
  const auto it = std::ranges::find(kLayouts, layout, &StockLayout::layout);
  return it == kLayouts.end() ? nullptr : &*it;
}

const StockTensor* stock_tensor(const StockLayout& layout, std::string_view suffix) {
  for (const StockTensor& stock : layout.tensors)
    if (same_suffix(stock, suffix)) return &stock;
  return nullptr;
}

bool is_packed_suffix(std::string_view suffix) {
  for (const StockLayout& layout : kLayouts)
    if (stock_tensor(layout, suffix) != nullptr) return true;
  return false;
}

bool is_code_tensor(std::string_view name, const StorageType& type) {
  if (type.block_cols > 1) return true;
  if (type.name == "F32" || type.name == "F16" || type.name == "BF16") return false;
  return std::ranges::any_of(kLayouts, [&](const StockLayout& layout) {
    return name.ends_with(layout.tensors.front().suffix);
  });
}

}  // namespace packstone
