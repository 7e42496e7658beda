// What the layouts of 32-bit words share: GPTQ, AWQ, Marlin, BitBLAS, QQQ. Device-safe.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <string_view>

#include "packstone/format/group_params.h"

namespace packstone {

// "gptq.w4": what formats of one layout are called.
class WidthName {
 public:
  constexpr WidthName(std::string_view stem, int bits) {
    for (const char c : stem) text_[size_++] = c;
    for (const char c : {'.', 'w', static_cast<char>('0' + bits)}) text_[size_++] = c;
  }
  constexpr std::string_view view() const { return {text_, size_}; }

 private:
  char text_[24] = {};
  std::size_t size_ = 0;
};

// Whether the group is one of `groups`, or the whole row (kWholeRow in the list).
template <std::size_t N>
constexpr bool group_listed(const std::array<std::int32_t, N>& groups, std::int64_t cols,
                            const FormatParams& params) {
  if (params.group_cols <= 0) return false;
  for (const std::int32_t group : groups)
    if (group == params.group_cols || (group == kWholeRow && cols == params.group_cols))
      return true;
  return false;
}

constexpr std::int64_t group_count(Shape shape, const FormatParams& params) {
  return ceil_div(shape.cols, params.group_cols);
}

constexpr std::uint64_t unsigned64(std::int64_t value) {
  return static_cast<std::uint64_t>(value);
}

// Position of logical lane j of eight in AWQ's order of nibbles, 0 2 4 6 1 3 5 7 from low to high;
// Marlin's and QQQ's tiles have the same.
constexpr int awq_nibble(int lane) {
  return lane / 2 + 4 * (lane % 2);
}

// The same of four bytes, 0 2 1 3.
constexpr int marlin_byte(int lane) {
  return lane == 1 ? 2 : lane == 2 ? 1 : lane;
}

// Where Marlin and QQQ keep the entry of output n in a line of N: an 8 x 8 transposition in each
// 64 outputs.
constexpr std::int64_t marlin_grouped_position(std::int64_t n) {
  return n / 64 * 64 + 8 * (n % 8) + n % 64 / 8;
}

// The same where the group is the whole row: outputs 8 a + 2 i + e of each 32 at 8 i + 2 a + e.
constexpr std::int64_t marlin_single_position(std::int64_t n) {
  return n / 32 * 32 + 8 * (n % 8 / 2) + 2 * (n % 32 / 8) + n % 2;
}

}  // namespace packstone
