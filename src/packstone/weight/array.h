// Tensors at the edge of the typed weight: bytes with a shape, and values with a shape and a type.
// Row-major and contiguous, the last axis fastest. Nothing here knows a packed format.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "packstone/base/bytes.h"
#include "packstone/base/result.h"

namespace packstone {

using Dims = std::vector<std::int64_t>;

// Types of values that go into and out of a weight.
enum class ValueType : std::uint8_t { kF32, kF64, kBF16, kF16 };

// "float32", "float64", "bfloat16", "float16".
std::string_view value_type_name(ValueType type);
std::size_t value_bytes(ValueType type);

// "[2, 3]".
std::string dims_text(std::span<const std::int64_t> dims);

// element_count(dims) is the product. Errors: nothing for a negative axis, more than
// limits::kRankMax axes, or a product (an empty axis counted as 1) above
// limits::kMatrixElementsMax.
std::optional<std::int64_t> element_count(std::span<const std::int64_t> dims);

// A part of a weight as a reader has it: bytes, their shape (of a layout without a case of its own,
// the shape that the part has as a tensor of a folder), and who keeps them alive. `device` is the
// host device whose memory they are.
struct ByteArray {
  Dims dims;
  ByteSpan bytes;
  std::shared_ptr<const void> owner;
  int device = 0;
};

// Values that someone else owns; at any address. Functions that take one check that dims and bytes
// agree.
struct ArrayView {
  ValueType type = ValueType::kF32;
  Dims dims;
  ByteSpan bytes;
};

// Positions: 64-bit integers that someone else owns.
struct IdsView {
  Dims dims;
  std::span<const std::int64_t> values;
};

// Owned values.
struct Array {
  ValueType type = ValueType::kF32;
  Dims dims;
  std::vector<std::byte> bytes;

  ArrayView view() const { return {type, dims, bytes}; }
  // The values as T: float, double, or std::uint16_t patterns of the 16-bit types.
  template <class T>
  std::span<const T> as() const {
    return {reinterpret_cast<const T*>(bytes.data()), bytes.size() / sizeof(T)};
  }
  template <class T>
  std::span<T> as() {
    return {reinterpret_cast<T*>(bytes.data()), bytes.size() / sizeof(T)};
  }
};

// zeros(type, dims): +0.0 everywhere. Errors: std::bad_alloc. Preconditions: legal dims.
Array zeros(ValueType type, Dims dims);

// check_view(view, where, subject): the view's bytes are those of its dims and type.
// Errors: kInvalidInput.
Status check_view(const ArrayView& view, std::string_view where, std::string_view subject);

// store_values(values, type, target): each value rounded once to the type, to nearest, ties to
// even. Shapes: target [values.size()] of the type, at any address. Exact: rounded.
void store_values(std::span<const float> values, ValueType type, std::byte* target);

// load_f32(source, type, values): each value at float32; float64 is rounded once, the others are
// exact. load_f64: all exact. Shapes: source [values.size()] of the type, at any address.
void load_f32(const std::byte* source, ValueType type, std::span<float> values);
void load_f64(const std::byte* source, ValueType type, std::span<double> values);

}  // namespace packstone
