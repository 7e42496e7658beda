// Rotary position embedding: the frequency of every pair of a head, with the scalings of long
// context, and the cosines and sines of a position.
#pragma once

#include <cstdint>
#include <vector>

#include "packstone/base/result.h"
#include "packstone/checkpoint/model_config.h"

namespace packstone {

// The angle of pair i (elements i and i + d/2 of a head) at position p is p * frequency[i]; cosine
// and sine are multiplied by `magnitude` (yarn).
struct Rope {
  std::vector<double> frequency;  // [head_dim / 2], radians per position
  double magnitude = 1.0;

  // fill(position, cos, sin). Shapes: cos, sin [head_dim / 2]. Exact: angle, cosine and sine in
  // float64, rounded once. Errors: none. Cost: no allocation.
  void fill(std::int64_t position, float* cos, float* sin) const;
};

// make_rope(head_dim, theta, scaling): frequency[i] = theta^(-2i / head_dim), changed by the
// scaling. Errors: kInvalidInput for an odd head_dim or parameters that give no finite frequency,
// by name. Source: linear, llama3 and yarn as in transformers 5 modeling_rope_utils.py and mlx_lm
// 0.32 models/rope_utils.py; yarn: arXiv 2309.00071.
Result<Rope> make_rope(std::int64_t head_dim, double theta, const RopeScaling& scaling);

}  // namespace packstone
