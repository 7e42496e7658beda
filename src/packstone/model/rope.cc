#include "packstone/model/rope.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace packstone {
namespace {

// Keeps short wavelengths, divides long ones by the factor, and blends between.
double llama3_frequency(double frequency, const RopeScaling& scaling) {
  const double context = static_cast<double>(scaling.original_context);
  const double wavelength = 2 * std::numbers::pi / frequency;
  if (wavelength < context / scaling.high_freq_factor) return frequency;
  if (wavelength > context / scaling.low_freq_factor) return frequency / scaling.factor;
  const double blend = (context / wavelength - scaling.low_freq_factor) /
                       (scaling.high_freq_factor - scaling.low_freq_factor);
  return frequency * ((1 - blend) / scaling.factor + blend);
}

// The pair that makes `rotations` full turns over the original context.
double yarn_pair(double rotations, double head_dim, double theta, double context) {
  return head_dim * std::log(context / (rotations * 2 * std::numbers::pi)) / (2 * std::log(theta));
}

double yarn_mscale(double factor, double mscale) {
  return factor <= 1 ? 1.0 : 0.1 * mscale * std::log(factor) + 1.0;
}

void apply_yarn(Rope& rope, std::int64_t head_dim, double theta, const RopeScaling& scaling) {
  const double dim = static_cast<double>(head_dim);
  const double context = static_cast<double>(scaling.original_context);
  const double low = std::max(std::floor(yarn_pair(scaling.beta_fast, dim, theta, context)), 0.0);
  double high = std::min(std::ceil(yarn_pair(scaling.beta_slow, dim, theta, context)), dim - 1);
  if (high == low) high += 0.001;
  for (std::size_t i = 0; i < rope.frequency.size(); ++i) {
    const double ramp = std::clamp((static_cast<double>(i) - low) / (high - low), 0.0, 1.0);
    rope.frequency[i] *= (1 - ramp) + ramp / scaling.factor;
  }
  rope.magnitude =
      scaling.attention_factor.value_or(yarn_mscale(scaling.factor, scaling.mscale) /
                                        yarn_mscale(scaling.factor, scaling.mscale_all_dim));
}

}  // namespace

void Rope::fill(std::int64_t position, float* cos, float* sin) const {
  for (std::size_t i = 0; i < frequency.size(); ++i) {
    const double angle = static_cast<double>(position) * frequency[i];
    cos[i] = static_cast<float>(std::cos(angle) * magnitude);
    sin[i] = static_cast<float>(std::sin(angle) * magnitude);
  }
}

Result<Rope> make_rope(std::int64_t head_dim, double theta, const RopeScaling& scaling) {
  if (head_dim < 2 || head_dim % 2 != 0)
    return fail(ErrorCode::kInvalidInput, "model.make_rope", "head_dim", fmt::to_string(head_dim),
                "an even number, at least 2");
  Rope rope;
  rope.frequency.resize(static_cast<std::size_t>(head_dim / 2));
  for (std::size_t i = 0; i < rope.frequency.size(); ++i)
    rope.frequency[i] =
        std::pow(theta, -2.0 * static_cast<double>(i) / static_cast<double>(head_dim));
  switch (scaling.kind) {
    case RopeKind::kNone:
      break;
    case RopeKind::kLinear:
      for (double& frequency : rope.frequency) frequency /= scaling.factor;
      break;
    case RopeKind::kLlama3:
      for (double& frequency : rope.frequency) frequency = llama3_frequency(frequency, scaling);
      break;
    case RopeKind::kYarn:
      apply_yarn(rope, head_dim, theta, scaling);
      break;
  }
  const bool finite = std::isfinite(rope.magnitude) &&
                      std::all_of(rope.frequency.begin(), rope.frequency.end(),
                                  [](double frequency) { return std::isfinite(frequency); });
  if (!finite)
    return fail(ErrorCode::kInvalidInput, "model.make_rope", "rope parameters",
                fmt::format("theta {}, factor {}", theta, scaling.factor), "finite frequencies",
                "check rope_theta and rope_scaling in the config");
  return rope;
}

}  // namespace packstone
