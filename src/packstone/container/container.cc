#include "packstone/container/container.h"

#include <array>

namespace packstone {
namespace {

// Names and sizes: `Dtype` of huggingface/safetensors 0.8. The types under a byte are stored
// densely; here a row of them must fill whole bytes.
constexpr auto kSafetensorsTypes = std::to_array<StorageType>({
    {"BOOL", 1, 1},    {"F4", 2, 1},          {"F6_E2M3", 4, 3},     {"F6_E3M2", 4, 3},
    {"U8", 1, 1},      {"I8", 1, 1},          {"F8_E5M2", 1, 1},     {"F8_E4M3", 1, 1},
    {"F8_E8M0", 1, 1}, {"F8_E4M3FNUZ", 1, 1}, {"F8_E5M2FNUZ", 1, 1}, {"I16", 1, 2},
    {"U16", 1, 2},     {"F16", 1, 2},         {"BF16", 1, 2},        {"I32", 1, 4},
    {"U32", 1, 4},     {"F32", 1, 4},         {"C64", 1, 8},         {"F64", 1, 8},
    {"I64", 1, 8},     {"U64", 1, 8},
});

// Numbers, names and block sizes: ggml.h and ggml-common.h of ggml 0.26. The PyPI package gguf 0.19
// has the same, but lacks Q2_0 and gives Q8_1 (never stored in files) 40 bytes.
constexpr auto kGgufTypes = std::to_array<StorageType>({
    {"F32", 1, 4, 0},         {"F16", 1, 2, 1},         {"Q4_0", 32, 18, 2},
    {"Q4_1", 32, 20, 3},      {"Q5_0", 32, 22, 6},      {"Q5_1", 32, 24, 7},
    {"Q8_0", 32, 34, 8},      {"Q8_1", 32, 36, 9},      {"Q2_K", 256, 84, 10},
    {"Q3_K", 256, 110, 11},   {"Q4_K", 256, 144, 12},   {"Q5_K", 256, 176, 13},
    {"Q6_K", 256, 210, 14},   {"Q8_K", 256, 292, 15},   {"IQ2_XXS", 256, 66, 16},
    {"IQ2_XS", 256, 74, 17},  {"IQ3_XXS", 256, 98, 18}, {"IQ1_S", 256, 50, 19},
    {"IQ4_NL", 32, 18, 20},   {"IQ3_S", 256, 110, 21},  {"IQ2_S", 256, 82, 22},
    {"IQ4_XS", 256, 136, 23}, {"I8", 1, 1, 24},         {"I16", 1, 2, 25},
    {"I32", 1, 4, 26},        {"I64", 1, 8, 27},        {"F64", 1, 8, 28},
    {"IQ1_M", 256, 56, 29},   {"BF16", 1, 2, 30},       {"TQ1_0", 256, 54, 34},
    {"TQ2_0", 256, 66, 35},   {"MXFP4", 32, 17, 39},    {"NVFP4", 64, 36, 40},
    {"Q1_0", 128, 18, 41},    {"Q2_0", 64, 18, 42},
});

}  // namespace

std::optional<std::uint64_t> tensor_bytes(const StorageType& type,
                                          const std::vector<std::int64_t>& shape) {
  std::uint64_t blocks = 1;
  for (std::size_t axis = 0; axis < shape.size(); ++axis) {
    std::int64_t count = shape[axis];
    if (count < 0) return std::nullopt;
    if (axis + 1 == shape.size()) {
      if (count % type.block_cols != 0) return std::nullopt;
      count /= type.block_cols;
    }
    const auto product = checked_mul(blocks, static_cast<std::uint64_t>(count));
    if (!product) return std::nullopt;
    blocks = *product;
  }
  if (shape.empty() && type.block_cols != 1) return std::nullopt;
  return checked_mul(blocks, static_cast<std::uint64_t>(type.block_bytes));
}

const StorageType* safetensors_type(std::string_view name) {
  for (const StorageType& type : kSafetensorsTypes)
    if (type.name == name) return &type;
  return nullptr;
}

const StorageType* gguf_type(std::int32_t id) {
  for (const StorageType& type : kGgufTypes)
    if (type.gguf_id == id) return &type;
  return nullptr;
}

const StorageType* gguf_type(std::string_view name) {
  for (const StorageType& type : kGgufTypes)
    if (type.name == name) return &type;
  return nullptr;
}

}  // namespace packstone
