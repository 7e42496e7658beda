#include "packstone/weight/array.h"

#include <algorithm>
#include <cstring>

#include "packstone/base/limits.h"
#include "packstone/base/small_float.h"

namespace packstone {

std::string_view value_type_name(ValueType type) {
  switch (type) {
    case ValueType::kF32:
      return "float32";
    case ValueType::kF64:
      return "float64";
    case ValueType::kBF16:
      return "bfloat16";
    case ValueType::kF16:
      return "float16";
  }
  return {};
}

std::size_t value_bytes(ValueType type) {
  switch (type) {
    case ValueType::kF32:
      return 4;
    case ValueType::kF64:
      return 8;
    case ValueType::kBF16:
    case ValueType::kF16:
      return 2;
  }
  return 0;
}

std::string dims_text(std::span<const std::int64_t> dims) {
  return fmt::format("[{}]", fmt::join(dims, ", "));
}

std::optional<std::int64_t> element_count(std::span<const std::int64_t> dims) {
  if (dims.size() > static_cast<std::size_t>(limits::kRankMax)) return std::nullopt;
  std::int64_t extent = 1, count = 1;
  for (const std::int64_t axis : dims) {
    if (axis < 0 || __builtin_mul_overflow(extent, std::max<std::int64_t>(axis, 1), &extent) ||
        extent > limits::kMatrixElementsMax)
      return std::nullopt;
    count *= axis;
  }
  return count;
}

Array zeros(ValueType type, Dims dims) {
  const std::int64_t count = element_count(dims).value();
  return {type, std::move(dims),
          std::vector<std::byte>(static_cast<std::size_t>(count) * value_bytes(type))};
}

Status check_view(const ArrayView& view, std::string_view where, std::string_view subject) {
  const auto count = element_count(view.dims);
  if (!count)
    return fail(ErrorCode::kInvalidInput, where, subject, "shape " + dims_text(view.dims),
                "axes of at least 0, at most 8, with at most 2^48 elements");
  const std::uint64_t need = static_cast<std::uint64_t>(*count) * value_bytes(view.type);
  if (view.bytes.size() != need)
    return fail(
        ErrorCode::kInvalidInput, where, subject, fmt::format("{} bytes", view.bytes.size()),
        fmt::format("{} for {} of {}", need, dims_text(view.dims), value_type_name(view.type)));
  return {};
}

void store_values(std::span<const float> values, ValueType type, std::byte* target) {
  switch (type) {
    case ValueType::kF32:
      if (!values.empty()) std::memcpy(target, values.data(), values.size_bytes());
      return;
    case ValueType::kF64:
      for (std::size_t i = 0; i < values.size(); ++i)
        store_le(target + 8 * i, static_cast<double>(values[i]));
      return;
    case ValueType::kBF16:
      for (std::size_t i = 0; i < values.size(); ++i)
        store_le(target + 2 * i, float_to_bfloat16(values[i]));
      return;
    case ValueType::kF16:
      for (std::size_t i = 0; i < values.size(); ++i)
        store_le(target + 2 * i, float_to_half(values[i]));
      return;
  }
}

void load_f32(const std::byte* source, ValueType type, std::span<float> values) {
  switch (type) {
    case ValueType::kF32:
      if (!values.empty()) std::memcpy(values.data(), source, values.size_bytes());
      return;
    case ValueType::kF64:
      for (std::size_t i = 0; i < values.size(); ++i)
        values[i] = static_cast<float>(load_le<double>(source + 8 * i));
      return;
    case ValueType::kBF16:
      for (std::size_t i = 0; i < values.size(); ++i)
        values[i] = bfloat16_to_float(load_le<std::uint16_t>(source + 2 * i));
      return;
    case ValueType::kF16:
      for (std::size_t i = 0; i < values.size(); ++i)
        values[i] = half_to_float(load_le<std::uint16_t>(source + 2 * i));
      return;
  }
}

void load_f64(const std::byte* source, ValueType type, std::span<double> values) {
  if (type == ValueType::kF64) {
    if (!values.empty()) std::memcpy(values.data(), source, values.size_bytes());
    return;
  }
  for (std::size_t i = 0; i < values.size(); ++i) {
    float value = 0;
    load_f32(source + value_bytes(type) * i, type, {&value, 1});
    values[i] = value;
  }
}

}  // namespace packstone
