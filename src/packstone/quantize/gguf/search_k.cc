// Searches of types whose groups share a super scale: first every group's own best scale, then
// super scales that make them stored numbers, tried on the values, then a fit of the super scales
// to all codes.
#include <algorithm>
#include <cmath>

#include "packstone/quantize/gguf/affine_search.h"
#include "packstone/quantize/gguf/block_encoder.h"

namespace packstone::gguf {
namespace {

constexpr int kRefits = 4;
// Steps from a group's own stored scale that are tried with each super scale, and in the end.
constexpr int kNear = 1, kFar = 5;

// The pattern of a finite binary16, or 0.
std::uint16_t finite_half(std::uint32_t pattern) {
  return (pattern & 0x7C00) == 0x7C00 ? std::uint16_t{0} : static_cast<std::uint16_t>(pattern);
}

// A signed super scale: value = d * stored * level, stored in [kLow, kHigh].
template <class LevelGrid, int GroupCols, int Low, int High>
struct SignedKind {
  using Grid = LevelGrid;
  static constexpr int kGroups = 256 / GroupCols, kCols = GroupCols;
  static constexpr int kLow = Low, kHigh = High;
};

template <class Kind>
struct SignedChoice {
  std::uint16_t d = 0;
  int stored[Kind::kGroups] = {};
  float error = INFINITY;
};

template <class Kind>
class SignedSearch {
 public:
  // `known` are the scales of a first answer, whose d is `d`.
  SignedSearch(Values x, Values w, std::uint16_t d, std::span<const float> known)
      : x_(x), w_(w), known_d_(d) {
    for (int j = 0; j < Kind::kGroups; ++j)
      scales_[j] = best_scale<Grid>(group(j), known[static_cast<std::size_t>(j)]).scale;
  }

  SignedChoice<Kind> best() {
    constexpr float kParts[] = {1.0f, 0.97f, 0.94f, 0.9f, 0.86f, 0.8f, 0.7f, 0.55f};
    const float edge = edge_of(scales_, Kind::kGroups);
    try_scale(known_d_, kNear);
    for (const float limit : {float{Kind::kLow}, float{Kind::kHigh}})
      for (const float part : kParts) try_scale(bounded_half(edge / (part * limit)), kNear);
    for (int i = 0; i < kRefits; ++i) {
      bool better = try_scale(bounded_half(fit_d()), kNear);
      for (const int steps : {-1, 1}) better |= try_scale(half_step(best_.d, steps), kNear);
      if (!better) break;
    }
    if (try_scale(best_.d, kFar)) try_scale(bounded_half(fit_d()), kFar);
    return best_;
  }

  Group group(int j) const {
    return {x_.data() + j * Kind::kCols, w_.data() + j * Kind::kCols, Kind::kCols};
  }

 private:
  using Grid = typename Kind::Grid;

  // The stored scales that suit d; kept where the error is the least.
  bool try_scale(std::uint16_t half, int reach) {
    SignedChoice<Kind> tried{half, {}, 0};
    const float d = half_to_float(half), inverse = d != 0 ? 1 / d : 0.0f;
    for (int j = 0; j < Kind::kGroups; ++j) {
      const auto middle = static_cast<int>(std::lrint(std::clamp(
          scales_[j] * inverse, static_cast<float>(Kind::kLow), static_cast<float>(Kind::kHigh))));
      float least = INFINITY;
      const int first = std::max(middle - reach, Kind::kLow);
      const int last = std::min(middle + reach, Kind::kHigh);
      for (int stored = first; stored <= last; ++stored) {
        const float error = scale_error<Grid>(group(j), d * static_cast<float>(stored));
        if (!(error < least)) continue;
        least = error;
        tried.stored[j] = stored;
      }
      tried.error += least;
      if (!(tried.error < best_.error)) return false;
    }
    best_ = tried;
    return true;
  }

  // The d of least error for the levels of the best choice.
  float fit_d() const {
    double xl = 0, l2 = 0;
    for (int j = 0; j < Kind::kGroups; ++j) {
      const auto stored = static_cast<float>(best_.stored[j]);
      const float scale = half_to_float(best_.d) * stored;
      if (scale == 0) continue;
      const Group part = group(j);
      const float inverse = 1 / scale;
      for (int i = 0; i < part.count; i += 4) {
        const Float4 x = load4(part.x + i), w = load4(part.w + i);
        const Float4 level = stored * Grid::nearest(x * inverse);
        xl += static_cast<double>(sum4(w * level * x));
        l2 += static_cast<double>(sum4(w * level * level));
      }
    }
    return l2 > 0 ? static_cast<float>(xl / l2) : 0.0f;
  }

  Values x_, w_;
  std::uint16_t known_d_;
  float scales_[Kind::kGroups];
  SignedChoice<Kind> best_;
};

// `bias` is added to the stored scale to make its pattern.
template <class Kind>
void search_signed(Values x, Values w, int bias, std::uint32_t mask, const BlockOutput& output) {
  float known[Kind::kGroups];
  const auto d = finite_half(output.raw[0].pattern[0]);
  for (int j = 0; j < Kind::kGroups; ++j) {
    // The pattern is `stored + bias` cut to the bits of the mask; a byte has the bias 0 and a sign.
    const std::uint32_t pattern = output.raw[static_cast<std::size_t>(j)].pattern[1];
    const int stored =
        bias == 0 ? static_cast<std::int8_t>(pattern) : static_cast<int>(pattern) - bias;
    known[j] = half_to_float(d) * static_cast<float>(stored);
  }
  SignedSearch<Kind> search(x, w, d, known);
  const SignedChoice<Kind> choice = search.best();
  for (int j = 0; j < Kind::kGroups; ++j) {
    output.raw[static_cast<std::size_t>(j)] = {
        {choice.d, static_cast<std::uint32_t>(choice.stored[j] + bias) & mask}};
    scale_codes<typename Kind::Grid>(search.group(j),
                                     half_to_float(choice.d) * static_cast<float>(choice.stored[j]),
                                     output.codes.data() + j * Kind::kCols);
  }
}

// Unsigned super scale and minimum: value = d * ls * code - dmin * lm, ls and lm in [0, kTop].
template <int GroupCols, int High>
struct AffineKind {
  static constexpr int kCols = GroupCols, kGroups = 256 / GroupCols, kHigh = High;
  static constexpr int kTop = GroupCols == 16 ? 15 : 63;
};

template <class Kind>
struct AffineChoice {
  std::uint16_t d = 0, dmin = 0;
  int ls[Kind::kGroups] = {}, lm[Kind::kGroups] = {};
  float error = INFINITY;
};

template <class Kind>
class AffineSearch {
 public:
  // `known` are the parameters of a first answer.
  AffineSearch(Values x, Values w, std::span<const RawParams> known)
      : x_(x),
        w_(w),
        known_d_(finite_half(known[0].pattern[0])),
        known_dmin_(finite_half(known[0].pattern[1])) {
    for (int j = 0; j < Kind::kGroups; ++j) {
      const RawParams& raw = known[static_cast<std::size_t>(j)];
      const AffineFit first{half_to_float(known_d_) * static_cast<float>(raw.pattern[2]),
                            -(half_to_float(known_dmin_) * static_cast<float>(raw.pattern[3])), 0};
      sums_[j] = affine_sums(group(j));
      const AffineFit fit = best_affine(group(j), sums_[j], Kind::kHigh, true, first);
      scales_[j] = fit.scale;
      minimums_[j] = -fit.offset;
    }
  }

  AffineChoice<Kind> best() {
    constexpr float kParts[] = {1.0f, 1.04f, 0.97f, 0.93f, 0.88f, 0.82f, 0.74f, 0.6f};
    const auto top = static_cast<float>(Kind::kTop);
    const float scale = *std::max_element(scales_, scales_ + Kind::kGroups) / top;
    const float minimum = *std::max_element(minimums_, minimums_ + Kind::kGroups) / top;
    try_scales(known_d_, known_dmin_, kNear);
    for (const float part : kParts)
      try_scales(bounded_half(scale / part), bounded_half(minimum), kNear);
    const std::uint16_t d = best_.d;
    for (const float part : kParts) try_scales(d, bounded_half(minimum / part), kNear);
    for (int i = 0; i < kRefits; ++i) {
      bool better = try_refit(kNear);
      for (const int steps : {-1, 1}) {
        better |= try_scales(half_step(best_.d, steps), best_.dmin, kNear);
        better |= try_scales(best_.d, half_step(best_.dmin, steps), kNear);
      }
      if (!better) break;
    }
    if (try_scales(best_.d, best_.dmin, kFar)) try_refit(kFar);
    return best_;
  }

  Group group(int j) const {
    return {x_.data() + j * Kind::kCols, w_.data() + j * Kind::kCols, Kind::kCols};
  }

 private:
  struct GroupChoice {
    int ls = 0, lm = 0;
    float error = INFINITY;
  };

  static int stored(float value, float step) {
    if (step == 0) return 0;
    return static_cast<int>(
        std::lrint(std::clamp(value / step, 0.0f, static_cast<float>(Kind::kTop))));
  }

  // Of stored scales next to the group's own, each with the minimum that suits its codes.
  GroupChoice choose(int j, float d, float dmin, int reach) const {
    GroupChoice best;
    const int middle = stored(scales_[j], d);
    const int first = std::max(middle - reach, 0), last = std::min(middle + reach, Kind::kTop);
    for (int ls = first; ls <= last; ++ls) {
      const float scale = d * static_cast<float>(ls);
      int lm = stored(minimums_[j], dmin);
      for (int round = 0; round < 3; ++round) {
        const AffinePass pass =
            affine_pass(group(j), scale, -(dmin * static_cast<float>(lm)), Kind::kHigh);
        if (pass.error < best.error) best = {ls, lm, pass.error};
        const int next = stored((scale * pass.l - sums_[j].x) / sums_[j].w, dmin);
        if (next == lm) break;
        lm = next;
      }
    }
    return best;
  }

  bool try_scales(std::uint16_t d, std::uint16_t dmin, int reach) {
    AffineChoice<Kind> tried{d, dmin, {}, {}, 0};
    for (int j = 0; j < Kind::kGroups; ++j) {
      const GroupChoice choice = choose(j, half_to_float(d), half_to_float(dmin), reach);
      tried.ls[j] = choice.ls;
      tried.lm[j] = choice.lm;
      tried.error += choice.error;
      if (!(tried.error < best_.error)) return false;
    }
    best_ = tried;
    return true;
  }

  // d and dmin of least error for the codes of the best choice: x ~ d (ls code) - dmin lm.
  bool try_refit(int reach) {
    double aa = 0, ab = 0, bb = 0, xa = 0, xb = 0;
    for (int j = 0; j < Kind::kGroups; ++j) {
      const auto ls = static_cast<float>(best_.ls[j]);
      const double lm = best_.lm[j];
      std::uint8_t codes[Kind::kCols];
      const Group part = group(j);
      affine_codes(part, half_to_float(best_.d) * ls,
                   -(half_to_float(best_.dmin) * static_cast<float>(best_.lm[j])), Kind::kHigh,
                   codes);
      for (int i = 0; i < Kind::kCols; ++i) {
        const double w = part.w[i], a = static_cast<double>(ls) * codes[i], x = part.x[i];
        aa += w * a * a;
        ab += w * a * lm;
        bb += w * lm * lm;
        xa += w * a * x;
        xb += w * lm * x;
      }
    }
    const double determinant = aa * bb - ab * ab;
    if (!(determinant > 1e-9 * aa * bb)) {
      if (!(aa > 0)) return false;
      return try_scales(bounded_half(static_cast<float>(xa / aa)), best_.dmin, reach);
    }
    const double d = (xa * bb - xb * ab) / determinant, dmin = (xa * ab - xb * aa) / determinant;
    if (!(d > 0 && dmin > 0)) return false;
    return try_scales(bounded_half(static_cast<float>(d)), bounded_half(static_cast<float>(dmin)),
                      reach);
  }

  Values x_, w_;
  std::uint16_t known_d_, known_dmin_;
  AffineSums sums_[Kind::kGroups];
  float scales_[Kind::kGroups], minimums_[Kind::kGroups];
  AffineChoice<Kind> best_;
};

template <class Kind>
void search_affine(Values x, Values w, const BlockOutput& output) {
  AffineSearch<Kind> search(x, w, output.raw);
  const AffineChoice<Kind> choice = search.best();
  const float d = half_to_float(choice.d), dmin = half_to_float(choice.dmin);
  for (int j = 0; j < Kind::kGroups; ++j) {
    output.raw[static_cast<std::size_t>(j)] = {{choice.d, choice.dmin,
                                                static_cast<std::uint32_t>(choice.ls[j]),
                                                static_cast<std::uint32_t>(choice.lm[j])}};
    affine_codes(search.group(j), d * static_cast<float>(choice.ls[j]),
                 -(dmin * static_cast<float>(choice.lm[j])), Kind::kHigh,
                 output.codes.data() + j * Kind::kCols);
  }
}

}  // namespace

void search_q3_k(Values x, Values w, const BlockOutput& output) {
  search_signed<SignedKind<LinearGrid<-4, 3, 3>, 16, -32, 31>>(x, w, 32, 63, output);
}

void search_q6_k(Values x, Values w, const BlockOutput& output) {
  search_signed<SignedKind<LinearGrid<-32, 31, 6>, 16, -128, 127>>(x, w, 0, 255, output);
}

void search_iq4_xs(Values x, Values w, const BlockOutput& output) {
  search_signed<SignedKind<Iq4Grid, 32, -32, 31>>(x, w, 32, 63, output);
}

void search_q2_k(Values x, Values w, const BlockOutput& output) {
  search_affine<AffineKind<16, 3>>(x, w, output);
}

void search_q4_k(Values x, Values w, const BlockOutput& output) {
  search_affine<AffineKind<32, 15>>(x, w, output);
}

void search_q5_k(Values x, Values w, const BlockOutput& output) {
  search_affine<AffineKind<32, 31>>(x, w, output);
}

}  // namespace packstone::gguf
