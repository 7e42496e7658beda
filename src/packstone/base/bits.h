// Runs of bits in byte planes, low bit first: bit t of a plane is bit t % 8 of byte t / 8.
// Device-safe: C++20, no allocation, no exceptions.
#pragma once

#include <cstdint>

namespace packstone {

// Reads `width` (1..32) bits from bit `bit` of `bytes`. Touches only the bytes that hold them.
constexpr std::uint32_t read_bits(const unsigned char* bytes, std::uint64_t bit, int width) {
  std::uint64_t value = 0;
  int have = 0;
  std::uint64_t byte = bit / 8;
  int skip = static_cast<int>(bit % 8);
  while (have < width) {
    value |= static_cast<std::uint64_t>(bytes[byte++] >> skip) << have;
    have += 8 - skip;
    skip = 0;
  }
  return static_cast<std::uint32_t>(width == 32 ? value : value & ((1ull << width) - 1));
}

// Writes the low `width` (1..32) bits of `value` at bit `bit` of `bytes`; other bits stay.
constexpr void write_bits(unsigned char* bytes, std::uint64_t bit, int width, std::uint32_t value) {
  int done = 0;
  while (done < width) {
    const std::uint64_t byte = (bit + done) / 8;
    const int skip = static_cast<int>((bit + done) % 8);
    const int take = width - done < 8 - skip ? width - done : 8 - skip;
    const unsigned mask = ((1u << take) - 1u) << skip;
    const unsigned part = static_cast<unsigned>(static_cast<std::uint64_t>(value) >> done) << skip;
    bytes[byte] = static_cast<unsigned char>((bytes[byte] & ~mask) | (part & mask));
    done += take;
  }
}

}  // namespace packstone
