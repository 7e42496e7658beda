// GGUF TQ1_0, 1.6875 bits per weight. Producer: ggml (ggml-common.h block_tq1_0, type id 34).
//
//   one block = 256 weights = 54 bytes
//   +-----------------------+--------------------+-------------+-------------+
//   | 0..31: 5 digits each  | 32..47: 5 each     | 48..51: 4   | d 52, 53    |
//   | weights 0..159        | weights 160..239   | 240..255    | binary16    |
//   +-----------------------+--------------------+-------------+-------------+
//   weight i < 160: digit i / 32 of byte i % 32; i < 240: digit (i - 160) / 16 of byte
//   32 + (i - 160) % 16; else digit (i - 240) / 4 of byte 48 + (i - 240) % 4
//   A byte is the fraction V / 243 of 256, rounded up, V the number whose five base-3 digits are
//   the codes, first digit highest (of the last four bytes the fifth digit is 0). So digit n is
//   the whole part of 3 * frac(byte * 3^n / 256).
//
// Decode: w = d * (q - 1), q in 0..2. Exact in binary32. Legal: cols a multiple of 256.
// Not canonical: the 13 byte values that no V gives (175 for bytes 48..51) decode as ggml reads
// them, and write_block makes other bytes of the same codes.
#pragma once

#include "packstone/format/gguf_rows.h"

namespace packstone {

struct GgufTQ1_0 : GgufRows<GgufTQ1_0, 256, 54, 256>, ScaleParams<ParamCoding::kF16, 1> {
  static constexpr std::string_view kName = "gguf.tq1_0";
  static constexpr std::string_view kLayout = "gguf:TQ1_0";
  static constexpr std::string_view kSource = "ggml 0.26, ggml-common.h block_tq1_0";
  using Scheme = LinearScheme;
  static constexpr int kCodeBits = 2;

  static constexpr void read_block(const unsigned char* block, std::uint8_t* codes) {
    for (const Run& run : kRuns) {
      unsigned scaled[32] = {};
      for (int b = 0; b < run.bytes; ++b) scaled[b] = block[run.byte + b];
      std::uint8_t* to = codes + run.first;
      for (int n = 0; n < run.digits; ++n)
        for (int b = 0; b < run.bytes; ++b) {
          scaled[b] *= 3;
          *to++ = static_cast<std::uint8_t>(scaled[b] >> 8);
          scaled[b] &= 255u;
        }
    }
  }
  static constexpr bool write_block(const std::uint8_t* codes, unsigned char* block) {
    for (int i = 0; i < 256; ++i)
      if (codes[i] > 2) return false;
    for (const Run& run : kRuns)
      for (int b = 0; b < run.bytes; ++b) {
        unsigned number = 0;
        for (int n = 0; n < 5; ++n)
          number = 3 * number + (n < run.digits ? codes[run.first + n * run.bytes + b] : 0u);
        block[run.byte + b] = static_cast<unsigned char>((number * 256 + 242) / 243);
      }
    return true;
  }
  static constexpr PieceList block_param(int, int) { return one_piece(0, 8u * 52, 16); }

 private:
  struct Run {
    int byte, bytes, digits, first;
  };
  static constexpr Run kRuns[3] = {{0, 32, 5, 0}, {32, 16, 5, 160}, {48, 4, 4, 240}};
};

static_assert(CodedFormat<GgufTQ1_0>);
static_assert(proves_block_params<GgufTQ1_0>());

}  // namespace packstone
