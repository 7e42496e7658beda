// 16 bytes at a time, for what moves codes: plain vector types of the compiler, which every machine
// has some instructions for. Exact: nothing here but moves of bits.
#pragma once

#include <cstdint>
#include <cstring>

namespace packstone {
// 16 bytes, in lanes of 1, 2, 4 and 8.
typedef std::uint8_t Bytes16 __attribute__((vector_size(16)));
typedef std::uint16_t Halves8 __attribute__((vector_size(16)));
typedef std::uint32_t Words4 __attribute__((vector_size(16)));
typedef std::uint64_t Longs2 __attribute__((vector_size(16)));
// From and to any address; a byte in every lane.
inline Bytes16 load16(const void* from) {
  Bytes16 bytes;
  std::memcpy(&bytes, from, sizeof bytes);
  return bytes;
}
inline void store16(void* to, Bytes16 bytes) {
  std::memcpy(to, &bytes, sizeof bytes);
}
inline Bytes16 all_bytes(std::uint8_t byte) {
  return Bytes16{} + byte;
}

// The low nibble of every byte; the high one.
inline Bytes16 low_nibbles(Bytes16 bytes) {
  return bytes & all_bytes(15);
}
inline Bytes16 high_nibbles(Bytes16 bytes) {
  return (Bytes16)((Halves8)bytes >> 4) & all_bytes(15);
}
// Bytes with these nibbles; bits of `low` and `high` above a nibble are ignored.
inline Bytes16 join_nibbles(Bytes16 low, Bytes16 high) {
  return (low & all_bytes(15)) | (Bytes16)((Halves8)(high & all_bytes(15)) << 4);
}

// a0 b0 a1 b1 ... of the first half, or the second.
inline Bytes16 zip_low(Bytes16 a, Bytes16 b) {
  return __builtin_shufflevector(a, b, 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23);
}
inline Bytes16 zip_high(Bytes16 a, Bytes16 b) {
  return __builtin_shufflevector(a, b, 8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15,
                                 31);
}
// The same of units of two, four and eight bytes.
inline Bytes16 zip_low_halves(Bytes16 a, Bytes16 b) {
  return (Bytes16)__builtin_shufflevector((Halves8)a, (Halves8)b, 0, 8, 1, 9, 2, 10, 3, 11);
}
inline Bytes16 zip_high_halves(Bytes16 a, Bytes16 b) {
  return (Bytes16)__builtin_shufflevector((Halves8)a, (Halves8)b, 4, 12, 5, 13, 6, 14, 7, 15);
}
inline Bytes16 zip_low_words(Bytes16 a, Bytes16 b) {
  return (Bytes16)__builtin_shufflevector((Words4)a, (Words4)b, 0, 4, 1, 5);
}
inline Bytes16 zip_high_words(Bytes16 a, Bytes16 b) {
  return (Bytes16)__builtin_shufflevector((Words4)a, (Words4)b, 2, 6, 3, 7);
}
inline Bytes16 zip_low_longs(Bytes16 a, Bytes16 b) {
  return (Bytes16)__builtin_shufflevector((Longs2)a, (Longs2)b, 0, 2);
}
inline Bytes16 zip_high_longs(Bytes16 a, Bytes16 b) {
  return (Bytes16)__builtin_shufflevector((Longs2)a, (Longs2)b, 1, 3);
}

// Bytes 0 2 4 ... of two vectors one after the other, and bytes 1 3 5 ...
inline Bytes16 even_bytes(Bytes16 a, Bytes16 b) {
  return __builtin_shufflevector(a, b, 0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30);
}
inline Bytes16 odd_bytes(Bytes16 a, Bytes16 b) {
  return __builtin_shufflevector(a, b, 1, 3, 5, 7, 9, 11, 13, 15, 17, 19, 21, 23, 25, 27, 29, 31);
}

// Sixteen codes of 4 bits, each in a byte, as eight bytes: neighbours share a byte, the first is
// low. Of two vectors one after the other.
inline Bytes16 pack_nibbles(Bytes16 a, Bytes16 b) {
  const auto pairs = [](Bytes16 codes) {
    const auto halves = (Halves8)(codes & all_bytes(15));
    return (Halves8)((halves | halves >> 4) & (Halves8{} + 0xFF));
  };
  return even_bytes((Bytes16)pairs(a), (Bytes16)pairs(b));
}

// 16 x 16 bytes: byte j of vector i and byte i of vector j change places.
inline void transpose16(Bytes16 (&rows)[16]) {
  for (int stage = 0; stage < 4; ++stage) {
    Bytes16 next[16];
    for (int i = 0; i < 8; ++i) {
      next[2 * i] = zip_low(rows[i], rows[i + 8]);
      next[2 * i + 1] = zip_high(rows[i], rows[i + 8]);
    }
    for (int i = 0; i < 16; ++i) rows[i] = next[i];
  }
}

}  // namespace packstone
