// A planted fault behind four bytes: the fuzzer must find it, or the others prove nothing.
#include <cstddef>
#include <cstdint>

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const std::uint8_t kTable[4] = {1, 2, 3, 4};
  if (size < 5 || data[0] != 'b' || data[1] != 'i' || data[2] != 'r' || data[3] != 'd') return 0;
  // Reads past the table for most of the fifth bytes.
  return kTable[data[4]] == 255 ? -1 : 0;
}
