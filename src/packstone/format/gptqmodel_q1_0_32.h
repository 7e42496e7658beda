// Q1_0 of GPTQModel 7.3, one sign bit per weight in blocks of 32: 1.5 bits. Its type number there
// is 40, which is NVFP4 in ggml; so the layout has no GGUF type, and lives in GPTQModel's folders
// as rows of blocks.
//
//   one block = 32 weights = 6 bytes: d binary16, then 4 bytes of signs as in Q1_0 (gguf_q1_0.h)
//
// Decode, sign of zero, legality: as Q1_0, with blocks of 32.
#pragma once

#include "packstone/format/gguf_q1_0.h"

namespace packstone {

struct GptqmodelQ1_0_32 : SignBlock<GptqmodelQ1_0_32, 32> {
  static constexpr std::string_view kName = "gptqmodel.q1_0_32";
  static constexpr std::string_view kLayout = "gptqmodel:Q1_0_32";
  static constexpr std::string_view kSource = "GPTQModel 7.3, GGUF Q1_0 of 32 weights";
  static constexpr std::array<PlaneSpec, 1> kPlanes{{{".qweight", "U8"}}};
};

static_assert(CodedFormat<GptqmodelQ1_0_32>);
static_assert(proves_bijection<GptqmodelQ1_0_32, 12 * 8>({1, 64}, {}));

}  // namespace packstone
