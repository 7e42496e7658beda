// What an encoder of one GGUF type is: rules from the values of a block to codes and stored
// parameters. The places of both in the block are the format's (format/gguf_*.h).
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "packstone/format/packed_weight.h"

namespace packstone::gguf {

struct BlockInput {
  std::span<const float> x;           // [block], finite
  std::span<const float> importance;  // [block], or empty
  float row_mean_square = 0;          // of the row, where there is an importance
};

// Codes are counted from 0; raw.pattern in the order of the format's kParams.
struct BlockOutput {
  std::span<std::uint8_t> codes;  // [block]
  std::span<RawParams> raw;       // one per group of the block
};

// parity(input, output): ggml's rule. search(x, w, output): ours; on entry `output` holds parity's
// answer, w are the weights of the block, the largest of them 1.
struct BlockEncoder {
  std::string_view layout;
  int block;       // columns of a block
  bool row_sigma;  // sigma2 of ggml's weights is the row's, not the block's
  float largest;   // no finite block holds a value of greater magnitude
  void (*parity)(const BlockInput& input, const BlockOutput& output);
  void (*search)(std::span<const float> x, std::span<const float> w, const BlockOutput& output);
};

// The encoder of a format, or nullptr.
const BlockEncoder* find_block_encoder(FormatId id);

// Parity rules.
void parity_q1_0(const BlockInput& input, const BlockOutput& output);
void parity_q2_0(const BlockInput& input, const BlockOutput& output);
void parity_q4_0(const BlockInput& input, const BlockOutput& output);
void parity_q4_1(const BlockInput& input, const BlockOutput& output);
void parity_q5_0(const BlockInput& input, const BlockOutput& output);
void parity_q5_1(const BlockInput& input, const BlockOutput& output);
void parity_q8_0(const BlockInput& input, const BlockOutput& output);
void parity_ternary(const BlockInput& input, const BlockOutput& output);  // TQ1_0, TQ2_0
void parity_mxfp4(const BlockInput& input, const BlockOutput& output);
void parity_nvfp4(const BlockInput& input, const BlockOutput& output);
void parity_iq4_nl(const BlockInput& input, const BlockOutput& output);
void parity_iq4_xs(const BlockInput& input, const BlockOutput& output);
void parity_q2_k(const BlockInput& input, const BlockOutput& output);
void parity_q3_k(const BlockInput& input, const BlockOutput& output);
void parity_q4_k(const BlockInput& input, const BlockOutput& output);
void parity_q5_k(const BlockInput& input, const BlockOutput& output);
void parity_q6_k(const BlockInput& input, const BlockOutput& output);

// Searches.
using Values = std::span<const float>;
void search_q1_0(Values x, Values w, const BlockOutput& output);
void search_q2_0(Values x, Values w, const BlockOutput& output);
void search_q4_0(Values x, Values w, const BlockOutput& output);
void search_q4_1(Values x, Values w, const BlockOutput& output);
void search_q5_0(Values x, Values w, const BlockOutput& output);
void search_q5_1(Values x, Values w, const BlockOutput& output);
void search_q8_0(Values x, Values w, const BlockOutput& output);
void search_ternary(Values x, Values w, const BlockOutput& output);
void search_mxfp4(Values x, Values w, const BlockOutput& output);
void search_nvfp4(Values x, Values w, const BlockOutput& output);
void search_iq4_nl(Values x, Values w, const BlockOutput& output);
void search_iq4_xs(Values x, Values w, const BlockOutput& output);
void search_q2_k(Values x, Values w, const BlockOutput& output);
void search_q3_k(Values x, Values w, const BlockOutput& output);
void search_q4_k(Values x, Values w, const BlockOutput& output);
void search_q5_k(Values x, Values w, const BlockOutput& output);
void search_q6_k(Values x, Values w, const BlockOutput& output);

}  // namespace packstone::gguf
