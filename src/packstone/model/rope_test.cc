// Proves the rotary frequencies against the formulas of the reference implementations, written in
// their own terms (wavelengths and corrected dimensions), and the tables against float64.
#include "packstone/model/rope.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <numbers>

namespace packstone {
namespace {

RopeScaling make_scaling(RopeKind kind, double factor, std::int64_t context = 8192) {
  RopeScaling scaling;
  scaling.kind = kind;
  scaling.factor = factor;
  scaling.original_context = context;
  return scaling;
}

double plain(std::size_t i, double theta, double dim) {
  return 1.0 / std::pow(theta, 2.0 * static_cast<double>(i) / dim);
}

TEST(Rope, PlainAndLinear) {
  const RopeScaling scaling = make_scaling(RopeKind::kLinear, 8.0);
  const Rope rope = *make_rope(64, 10000.0, {});
  const Rope linear = *make_rope(64, 10000.0, scaling);
  ASSERT_EQ(rope.frequency.size(), 32u);
  for (std::size_t i = 0; i < 32; ++i) {
    EXPECT_NEAR(rope.frequency[i], plain(i, 10000.0, 64), 1e-15);
    EXPECT_NEAR(linear.frequency[i], plain(i, 10000.0, 64) / 8, 1e-15);
  }
  EXPECT_EQ(linear.magnitude, 1.0);
}

TEST(Rope, Llama3KeepsShortAndDividesLongWavelengths) {
  const RopeScaling scaling = make_scaling(RopeKind::kLlama3, 8.0);
  const Rope rope = *make_rope(128, 500000.0, scaling);
  int kept = 0, divided = 0, blended = 0;
  for (std::size_t i = 0; i < rope.frequency.size(); ++i) {
    const double base = plain(i, 500000.0, 128), wavelength = 2 * std::numbers::pi / base;
    const double t = (8192 / wavelength - 1.0) / (4.0 - 1.0);
    if (wavelength < 8192 / 4.0) {
      EXPECT_NEAR(rope.frequency[i], base, 1e-15);
      ++kept;
    } else if (wavelength > 8192) {
      EXPECT_NEAR(rope.frequency[i], base / 8, 1e-15);
      ++divided;
    } else {
      EXPECT_NEAR(rope.frequency[i], (1 - t) * base / 8 + t * base, 1e-15);
      ++blended;
    }
  }
  EXPECT_GT(kept, 0);
  EXPECT_GT(divided, 0);
  EXPECT_GT(blended, 0);
}

TEST(Rope, YarnBlendsByPairAndScalesTheMagnitude) {
  RopeScaling scaling = make_scaling(RopeKind::kYarn, 4.0, 4096);
  const double theta = 10000.0, dim = 64.0;
  const Rope rope = *make_rope(64, theta, scaling);
  const auto corrected = [&](double turns) {
    return dim * std::log(4096 / (turns * 2 * std::numbers::pi)) / (2 * std::log(theta));
  };
  const double low = std::floor(corrected(32)), high = std::ceil(corrected(1));
  ASSERT_LT(low, high);
  for (std::size_t i = 0; i < rope.frequency.size(); ++i) {
    const double ramp = std::min(1.0, std::max(0.0, (static_cast<double>(i) - low) / (high - low)));
    const double wave = 1.0 / plain(i, theta, dim), stretched = 4.0 * wave;
    const double expected = wave * stretched / (stretched * (1 - ramp) + wave * ramp);
    EXPECT_NEAR(rope.frequency[i] * expected, 1.0, 1e-12);
  }
  EXPECT_NEAR(rope.magnitude, 0.1 * std::log(4.0) + 1.0, 1e-15);
  scaling.attention_factor = 1.25;
  EXPECT_EQ(make_rope(64, theta, scaling)->magnitude, 1.25);
}

TEST(Rope, FillRoundsOnce) {
  const Rope rope = *make_rope(16, 10000.0, {});
  float cos[8], sin[8];
  for (const std::int64_t position : {0, 1, 4095, 1000000}) {
    rope.fill(position, cos, sin);
    for (std::size_t i = 0; i < 8; ++i) {
      const double angle = static_cast<double>(position) * rope.frequency[i];
      EXPECT_EQ(cos[i], static_cast<float>(std::cos(angle)));
      EXPECT_EQ(sin[i], static_cast<float>(std::sin(angle)));
    }
  }
}

TEST(Rope, RefusesWhatGivesNoFrequency) {
  EXPECT_EQ(make_rope(15, 10000.0, {}).error().code, ErrorCode::kInvalidInput);
  EXPECT_EQ(make_rope(0, 10000.0, {}).error().code, ErrorCode::kInvalidInput);
  EXPECT_EQ(make_rope(16, -1.0, {}).error().code, ErrorCode::kInvalidInput);
  RopeScaling scaling = make_scaling(RopeKind::kLinear, 0.0);
  EXPECT_EQ(make_rope(16, 10000.0, scaling).error().code, ErrorCode::kInvalidInput);
  scaling.kind = RopeKind::kYarn;
  scaling.factor = std::numeric_limits<double>::quiet_NaN();
  EXPECT_EQ(make_rope(16, 10000.0, scaling).error().code, ErrorCode::kInvalidInput);
}

}  // namespace
}  // namespace packstone
