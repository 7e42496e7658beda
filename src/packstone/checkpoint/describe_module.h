// Modules of layouts that are read, described and copied, but have no format: EXL3 and ParoQuant.
#pragma once

#include <string>

#include "packstone/checkpoint/bind_module.h"

namespace packstone {

// What a report says of such a module.
struct ModuleDescription {
  std::string text;       // "exl3 3 bit mcg", "paroquant 4 bit g128 krot 8"
  std::int64_t bits = 0;  // of a code; 0: the config does not say
};

// describe_module(module): holds the tensors of an EXL3 or ParoQuant module to the shapes and types
// of its layout and to the config; of any other layout it says what the config says. check_parts
// comes first.
//   EXL3: trellis [K/16, N/16, 16 b] gives the bits, K and N multiples of 128; suh [K] or the
//   packed signs su [K/16], svh [N] or sv [N/16]; the scalar markers mcg, then mul1 name the
//   codebook, 3inst without one.
//   ParoQuant: qweight, qzeros and scales as AWQ GEMM, theta [krot, K/2], channel_scales [1, K],
//   and pairs [krot, K], in every group and rotation a permutation of 0..g-1.
// Source: formats.md 5.1, 10, 11.
// Errors: kCorruptData naming the tensor, what it has and what the layout needs; kUnsupported for a
// matrix or group that the layout does not have.
// Cost: reads the pairs, no other tensor byte.
Result<ModuleDescription> describe_module(const PackedModule& module);

}  // namespace packstone
