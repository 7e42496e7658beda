#include "packstone/cli/npy.h"

namespace packstone::cli {

std::string npy_header(std::int64_t rows, std::int64_t cols) {
  constexpr std::size_t kPrefix = 10, kAlignment = 64;
  std::string dict =
      fmt::format("{{'descr': '<f4', 'fortran_order': False, 'shape': ({}, {}), }}", rows, cols);
  const std::size_t unpadded = kPrefix + dict.size() + 1;
  dict.append((kAlignment - unpadded % kAlignment) % kAlignment, ' ');
  dict += '\n';
  std::string header("\x93NUMPY\x01\x00", 8);
  header += static_cast<char>(dict.size() & 255);
  header += static_cast<char>(dict.size() >> 8);
  return header + dict;
}

}  // namespace packstone::cli
