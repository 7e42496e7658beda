// Checked arithmetic on numbers from files, and little-endian loads and stores at any address.
#pragma once

#include <bit>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <span>

namespace packstone {

using ByteSpan = std::span<const std::byte>;
using MutableByteSpan = std::span<std::byte>;

static_assert(std::endian::native == std::endian::little, "big-endian hosts are not supported");

// a + b, or nothing when the sum does not fit.
constexpr std::optional<std::uint64_t> checked_add(std::uint64_t a, std::uint64_t b) {
  std::uint64_t sum = 0;
  if (__builtin_add_overflow(a, b, &sum)) return std::nullopt;
  return sum;
}

// a * b, or nothing when the product does not fit.
constexpr std::optional<std::uint64_t> checked_mul(std::uint64_t a, std::uint64_t b) {
  std::uint64_t product = 0;
  if (__builtin_mul_overflow(a, b, &product)) return std::nullopt;
  return product;
}

// Whether [offset, offset + size) lies within [0, total); by subtraction, so it cannot wrap.
constexpr bool range_fits(std::uint64_t offset, std::uint64_t size, std::uint64_t total) {
  return offset <= total && size <= total - offset;
}

// value rounded up to a multiple of alignment (> 0), or nothing when that does not fit.
constexpr std::optional<std::uint64_t> checked_align(std::uint64_t value, std::uint64_t alignment) {
  const std::uint64_t rest = value % alignment;
  return rest == 0 ? std::optional(value) : checked_add(value, alignment - rest);
}

// Reads a T at any address.
template <class T>
T load_le(const void* address) {
  static_assert(std::is_trivially_copyable_v<T>);
  T value;
  std::memcpy(&value, address, sizeof(T));
  return value;
}

// Writes a T at any address.
template <class T>
void store_le(void* address, T value) {
  static_assert(std::is_trivially_copyable_v<T>);
  std::memcpy(address, &value, sizeof(T));
}

}  // namespace packstone
