// Searches of types whose blocks have one scale (and offset) a group.
#include <algorithm>
#include <cmath>

#include "packstone/format/gguf_nvfp4.h"
#include "packstone/quantize/gguf/affine_search.h"
#include "packstone/quantize/gguf/block_encoder.h"

namespace packstone::gguf {
namespace {

Group group_of(Values x, Values w) {
  return {x.data(), w.data(), static_cast<int>(x.size())};
}

// One binary16 scale: the best of the scale found and its neighbours, as stored.
template <class Grid>
void search_scale(Values x, Values w, const BlockOutput& output) {
  const Group group = group_of(x, w);
  const float known = half_to_float(static_cast<std::uint16_t>(output.raw[0].pattern[0]));
  const std::uint16_t found =
      bounded_half(best_scale<Grid>(group, std::isfinite(known) ? known : 0.0f).scale);
  std::uint16_t best = found;
  float least = scale_error<Grid>(group, half_to_float(found));
  for (const int steps : {-1, 1}) {
    const std::uint16_t half = half_step(found, steps);
    const float error = scale_error<Grid>(group, half_to_float(half));
    if (!(error < least)) continue;
    least = error;
    best = half;
  }
  output.raw[0].pattern[0] = best;
  scale_codes<Grid>(group, half_to_float(best), output.codes.data());
}

// Binary16 scale and offset: of three scales, each with the offset that suits its codes.
template <int High>
void search_scale_offset(Values x, Values w, const BlockOutput& output) {
  const Group group = group_of(x, w);
  const AffineSums sums = affine_sums(group);
  AffineFit known{half_to_float(static_cast<std::uint16_t>(output.raw[0].pattern[0])),
                  half_to_float(static_cast<std::uint16_t>(output.raw[0].pattern[1])), 0};
  if (!std::isfinite(known.scale) || !std::isfinite(known.offset)) known = {};
  const AffineFit fit = best_affine(group, sums, High, false, known);
  const std::uint16_t found = bounded_half(fit.scale);
  std::uint16_t best_scale_half = 0, best_offset = 0;
  float least = INFINITY;
  for (const int steps : {0, -1, 1}) {
    const std::uint16_t half = half_step(found, steps);
    const float scale = half_to_float(half);
    float offset = fit.offset;
    for (int round = 0; round < 3; ++round) {
      const std::uint16_t offset_half = bounded_half(offset);
      const AffinePass pass = affine_pass(group, scale, half_to_float(offset_half), High);
      if (pass.error < least) {
        least = pass.error;
        best_scale_half = half;
        best_offset = offset_half;
      }
      offset = (sums.x - scale * pass.l) / sums.w;
      if (bounded_half(offset) == offset_half) break;
    }
  }
  output.raw[0].pattern[0] = best_scale_half;
  output.raw[0].pattern[1] = best_offset;
  affine_codes(group, half_to_float(best_scale_half), half_to_float(best_offset), High,
               output.codes.data());
}

// sum w (x - value)^2 of E2M1 codes at a scale.
double e2m1_error(Values x, Values w, float scale, std::span<std::uint8_t> codes) {
  e2m1_codes(x, scale, codes);
  double error = 0;
  for (std::size_t i = 0; i < x.size(); ++i) {
    const double difference =
        static_cast<double>(x[i]) - static_cast<double>(scale * E2M1Scheme::level(codes[i], 0));
    error += static_cast<double>(w[i]) * (difference * difference);
  }
  return error;
}

// The scale code of [first, last] with the least error, and its codes.
template <float (*Decode)(std::uint32_t)>
void search_e2m1(Values x, Values w, int first, int last, std::uint32_t& scale,
                 std::span<std::uint8_t> codes) {
  std::uint8_t tried[32];
  const auto part = std::span(tried).first(x.size());
  double least = INFINITY;
  for (int code = first; code <= last; ++code) {
    const auto pattern = static_cast<std::uint32_t>(code);
    const double error = e2m1_error(x, w, Decode(pattern), part);
    if (!(error < least)) continue;
    least = error;
    scale = pattern;
    std::ranges::copy(part, codes.begin());
  }
}

}  // namespace

void search_q1_0(Values x, Values w, const BlockOutput& output) {
  double sum = 0, weight = 0;
  for (std::size_t i = 0; i < x.size(); ++i) {
    sum += static_cast<double>(w[i]) * std::abs(x[i]);
    weight += w[i];
  }
  output.raw[0].pattern[0] = bounded_half(static_cast<float>(sum / weight));
  for (std::size_t i = 0; i < x.size(); ++i) output.codes[i] = x[i] >= 0.0f;
}

void search_q2_0(Values x, Values w, const BlockOutput& output) {
  search_scale<LinearGrid<-1, 2, 2>>(x, w, output);
}

void search_ternary(Values x, Values w, const BlockOutput& output) {
  search_scale<LinearGrid<-1, 1, 2>>(x, w, output);
}

void search_q4_0(Values x, Values w, const BlockOutput& output) {
  search_scale<LinearGrid<-8, 7, 4>>(x, w, output);
}

void search_q5_0(Values x, Values w, const BlockOutput& output) {
  search_scale<LinearGrid<-16, 15, 5>>(x, w, output);
}

void search_q8_0(Values x, Values w, const BlockOutput& output) {
  search_scale<LinearGrid<-128, 127, 8>>(x, w, output);
}

void search_iq4_nl(Values x, Values w, const BlockOutput& output) {
  search_scale<Iq4Grid>(x, w, output);
}

void search_q4_1(Values x, Values w, const BlockOutput& output) {
  search_scale_offset<15>(x, w, output);
}

void search_q5_1(Values x, Values w, const BlockOutput& output) {
  search_scale_offset<31>(x, w, output);
}

void search_mxfp4(Values x, Values w, const BlockOutput& output) {
  const float edge = edge_of(x.data(), static_cast<int>(x.size()));
  const int exponent = std::ilogb(edge) + 125;  // puts the edge in [4, 8)
  search_e2m1<e8m0_to_float>(x, w, std::clamp(exponent - 3, 0, 253),
                             std::clamp(exponent + 1, 0, 253), output.raw[0].pattern[0],
                             output.codes);
}

void search_nvfp4(Values x, Values w, const BlockOutput& output) {
  constexpr int kLargest = 0x7E;  // 448
  for (std::size_t group = 0; group < 4; ++group) {
    const auto part = x.subspan(16 * group, 16);
    const float scale = std::abs(edge_of(part.data(), 16)) / 6.0f;
    int near = 0;
    while (near < kLargest && ggml_ue4m3_to_float(static_cast<std::uint32_t>(near)) < scale) ++near;
    search_e2m1<ggml_ue4m3_to_float>(part, w.subspan(16 * group, 16), std::max(near - 10, 0),
                                     std::min(near + 3, kLargest), output.raw[group].pattern[0],
                                     output.codes.subspan(16 * group, 16));
  }
}

}  // namespace packstone::gguf
