// Searches for scale and offset of one group, x ~ scale * code + offset, least squares under
// weights. All sums are of four lanes in one fixed order.
#pragma once

#include "packstone/quantize/gguf/scale_search.h"

namespace packstone::gguf {

struct AffineFit {
  float scale = 0, offset = 0;
  float error = 0;  // sum w (x - scale * code - offset)^2
};

// Sums of a group that no choice changes.
struct AffineSums {
  float w = 0, x = 0, x2 = 0;  // sum w, sum w x, sum w x^2
  float low = 0, high = 0;     // of the values
};

// affine_sums(group): those sums, in one pass.
AffineSums affine_sums(const Group& group);

// What codes nearest at (scale, offset) give.
struct AffinePass {
  float error = 0;  // sum w (x - scale * code - offset)^2
  float l = 0;      // sum w code
};
AffinePass affine_pass(const Group& group, float scale, float offset, int high);

// affine_codes(group, scale, offset, high, codes): the codes nearest at (scale, offset), which is
// the nearest value of x ~ scale * code + offset; scale 0: codes 0.
void affine_codes(const Group& group, float scale, float offset, int high, std::uint8_t* codes);

// best_affine(group, sums, high, bounded, known): starts that cut either end of the range by parts
// that suit `high` (3, 15 or 31), and the scale and offset of `known` (scale 0: none), a
// two-parameter fit each, then Lloyd's iteration from the best. bounded: the offset is at most 0.
AffineFit best_affine(const Group& group, const AffineSums& sums, int high, bool bounded,
                      const AffineFit& known);

}  // namespace packstone::gguf
