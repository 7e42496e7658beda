// Proves that every operation gives the same bits on every instruction set at odd and even sizes,
// that results are right against float64 within the stated errors, and that attention over a window
// of positions does not depend on how it is reached.
#include "packstone/kernel/ops.h"

#include "packstone/base/small_float.h"
#include "packstone/kernel/test_weights.h"

namespace packstone {
namespace {

using testing::first_difference;
using testing::random_floats;
using testing::same_float;

constexpr std::int64_t kSizes[] = {1,  2,  3,  15, 16,  17,  31,  33,
                                   63, 64, 65, 96, 100, 128, 576, 1000};

const Ops& reference() {
  return *all_ops().front();
}

std::vector<float> hard_floats(std::int64_t n, std::mt19937_64& random) {
  std::vector<float> values = random_floats(n, random, 12);
  const float special[] = {0.0f,
                           -0.0f,
                           1e-40f,
                           -1e-30f,
                           88.8f,
                           -88.8f,
                           200.0f,
                           -200.0f,
                           1e30f,
                           -3e38f,
                           std::numeric_limits<float>::infinity(),
                           -std::numeric_limits<float>::infinity(),
                           std::numeric_limits<float>::quiet_NaN()};
  for (float& value : values)
    if (random() % 8 == 0) value = special[random() % std::size(special)];
  return values;
}

TEST(Ops, TheReferenceIsFirst) {
  EXPECT_EQ(reference().name, "scalar");
}

TEST(Ops, ElementwiseBitsAreTheSameEverywhere) {
  std::mt19937_64 random(1);
  for (const Ops* table : all_ops())
    for (std::int64_t n : kSizes) {
      const std::vector<float> x = hard_floats(n, random), y = hard_floats(n, random);
      auto check = [&](const char* what, auto apply) {
        std::vector<float> a = x, b = x;
        apply(*table, a);
        apply(reference(), b);
        EXPECT_EQ(first_difference(a, b), -1) << table->name << " " << what << " " << n;
      };
      check("add", [&](const Ops& o, auto& v) { o.add(v.data(), y.data(), n); });
      check("scale", [&](const Ops& o, auto& v) { o.scale(v.data(), 0.3f, n); });
      check("exp", [&](const Ops& o, auto& v) { o.exp(v.data(), n); });
      check("silu_mul", [&](const Ops& o, auto& v) { o.silu_mul(v.data(), y.data(), n); });
      check("gelu_mul", [&](const Ops& o, auto& v) { o.gelu_mul(v.data(), y.data(), n); });
      check("softcap", [&](const Ops& o, auto& v) { o.softcap(v.data(), 30.0f, n); });
      check("rms_norm",
            [&](const Ops& o, auto& v) { o.rms_norm(v.data(), y.data(), 1e-5f, n, v.data()); });
      check("dot", [&](const Ops& o, auto& v) { v[0] = o.dot(v.data(), y.data(), n); });
      check("log_sum_exp",
            [&](const Ops& o, auto& v) { v[0] = static_cast<float>(o.log_sum_exp(v.data(), n)); });
      for (KvType type : {KvType::kF32, KvType::kF16, KvType::kBF16})
        check("store_kv", [&](const Ops& o, auto& v) {
          std::vector<float> target(v.size(), 0.0f);
          o.store_kv(v.data(), n, type, target.data());
          v = target;
        });
    }
}

TEST(Ops, RopeBitsAreTheSameEverywhereAndRotate) {
  std::mt19937_64 random(2);
  for (std::int64_t head_dim : {2, 6, 30, 32, 34, 64, 80, 96, 128, 256}) {
    const std::vector<float> x = random_floats(head_dim, random);
    std::vector<float> cosine, sine;
    for (std::int64_t i = 0; i < head_dim / 2; ++i) {
      cosine.push_back(static_cast<float>(std::cos(0.1 * static_cast<double>(i))));
      sine.push_back(static_cast<float>(std::sin(0.1 * static_cast<double>(i))));
    }
    std::vector<float> expected = x;
    reference().rope(expected.data(), cosine.data(), sine.data(), head_dim);
    for (std::size_t i = 0; i < cosine.size(); ++i) {
      const double a = x[i], b = x[i + cosine.size()];
      EXPECT_NEAR(expected[i], a * cosine[i] - b * sine[i], 1e-6);
      EXPECT_NEAR(expected[i + cosine.size()], b * cosine[i] + a * sine[i], 1e-6);
    }
    for (const Ops* table : all_ops()) {
      std::vector<float> y = x;
      table->rope(y.data(), cosine.data(), sine.data(), head_dim);
      EXPECT_EQ(first_difference(y, expected), -1) << table->name << " " << head_dim;
    }
  }
}

double ulp(double value) {
  const float f = std::max(std::abs(static_cast<float>(value)), std::numeric_limits<float>::min());
  return static_cast<double>(std::nextafter(f, std::numeric_limits<float>::infinity())) - f;
}

// Largest error of f in ulp of the exact value, over a fine grid of [low, high].
template <class Function, class Exact>
double worst_ulp(double low, double high, const Function& function, const Exact& exact) {
  constexpr int kBlock = 4096, kBlocks = 64;
  double worst = 0;
  for (int block = 0; block < kBlocks; ++block) {
    std::vector<float> x(kBlock);
    for (int i = 0; i < kBlock; ++i)
      x[static_cast<std::size_t>(i)] =
          static_cast<float>(low + (high - low) * (block * kBlock + i) / (kBlock * kBlocks));
    std::vector<float> y = x;
    function(y);
    for (std::size_t i = 0; i < x.size(); ++i) {
      const double want = exact(static_cast<double>(x[i]));
      worst = std::max(worst, std::abs(y[i] - want) / ulp(want));
    }
  }
  return worst;
}

TEST(Ops, StatedErrorsHold) {
  const Ops& fast = ops();
  std::vector<float> ones(4096, 1.0f);
  const auto exp_function = [&](std::vector<float>& v) { fast.exp(v.data(), 4096); };
  const auto exp_exact = [](double x) { return std::exp(x); };
  EXPECT_LE(worst_ulp(-87, 88.7, exp_function, exp_exact), 1.02);
  EXPECT_LE(worst_ulp(-0.4, 0.4, exp_function, exp_exact), 1.02);
  EXPECT_LE(worst_ulp(-110, -87, exp_function, exp_exact), 1.02);
  const auto silu = [&](std::vector<float>& v) { fast.silu_mul(v.data(), ones.data(), 4096); };
  const auto silu_exact = [](double x) { return x / (1 + std::exp(-x)); };
  EXPECT_LE(worst_ulp(-80, 80, silu, silu_exact), 3.0);
  EXPECT_LE(worst_ulp(-1, 1, silu, silu_exact), 3.0);
  const auto tanh_function = [&](std::vector<float>& v) { fast.softcap(v.data(), 1.0f, 4096); };
  const auto tanh_exact = [](double x) { return std::tanh(x); };
  EXPECT_LE(worst_ulp(-12, 12, tanh_function, tanh_exact), 3.0);
  EXPECT_LE(worst_ulp(-0.5, 0.5, tanh_function, tanh_exact), 3.0);
  EXPECT_LE(worst_ulp(-1e-20, 1e-20, tanh_function, tanh_exact), 3.0);
  for (double x = -6; x < 6; x += 0.001) {
    std::vector<float> v(1, static_cast<float>(x));
    fast.gelu_mul(v.data(), ones.data(), 1);
    const double xf = static_cast<float>(x);
    const double want =
        0.5 * xf * (1 + std::tanh(std::sqrt(2 / M_PI) * (xf + 0.044715 * xf * xf * xf)));
    ASSERT_NEAR(v[0], want, 2e-6 * std::abs(want) + 1e-9) << x;
  }
  float hard[3] = {0.0f, -1e30f, 1e30f};
  fast.gelu_mul(hard, ones.data(), 3);
  EXPECT_EQ(hard[0], 0.0f);
  EXPECT_EQ(hard[1], 0.0f);
  EXPECT_EQ(hard[2], 1e30f);
}

TEST(Ops, LogSumExpIsAccurate) {
  std::mt19937_64 random(3);
  for (std::int64_t n : {1, 5, 16, 49152}) {
    const std::vector<float> x = random_floats(n, random, 20);
    double sum = 0, top = *std::max_element(x.begin(), x.end());
    for (float value : x) sum += std::exp(static_cast<double>(value) - top);
    for (const Ops* table : all_ops())
      EXPECT_NEAR(table->log_sum_exp(x.data(), n), top + std::log(sum), 2e-7 * (1 + std::abs(top)));
  }
}

TEST(Ops, RmsNormIsAccurate) {
  std::mt19937_64 random(4);
  const std::vector<float> x = random_floats(576, random), w = random_floats(576, random);
  double squares = 0;
  for (float value : x) squares += static_cast<double>(value) * value;
  std::vector<float> out(576);
  ops().rms_norm(x.data(), w.data(), 1e-5f, 576, out.data());
  for (std::size_t i = 0; i < 576; ++i)
    EXPECT_NEAR(out[i], x[i] * w[i] / std::sqrt(squares / 576 + 1e-5), 1e-6);
}

TEST(Ops, StoreKvRoundsAsTheSharedConversions) {
  std::mt19937_64 random(5);
  std::vector<float> x(4099);
  for (float& value : x) value = std::bit_cast<float>(static_cast<std::uint32_t>(random()));
  for (const Ops* table : all_ops()) {
    std::vector<std::uint16_t> half(x.size()), bfloat(x.size());
    table->store_kv(x.data(), std::ssize(x), KvType::kF16, half.data());
    table->store_kv(x.data(), std::ssize(x), KvType::kBF16, bfloat.data());
    for (std::size_t i = 0; i < x.size(); ++i) {
      EXPECT_TRUE(same_float(half_to_float(half[i]), half_to_float(float_to_half(x[i]))))
          << table->name;
      EXPECT_TRUE(
          same_float(bfloat16_to_float(bfloat[i]), bfloat16_to_float(float_to_bfloat16(x[i]))))
          << table->name;
    }
  }
}

struct Cache {
  std::vector<unsigned char> k, v;
  std::vector<float> k_values, v_values;  // as stored
  KvType type;
  KvView view() const { return {k.data(), v.data(), type}; }
};

std::vector<float> widened(const std::vector<unsigned char>& bytes, std::size_t n, KvType type) {
  std::vector<float> values(n);
  for (std::size_t i = 0; i < n; ++i) {
    if (type == KvType::kF32) {
      values[i] = load_le<float>(bytes.data() + 4 * i);
    } else {
      const auto pattern = load_le<std::uint16_t>(bytes.data() + 2 * i);
      values[i] = type == KvType::kF16 ? half_to_float(pattern) : bfloat16_to_float(pattern);
    }
  }
  return values;
}

Cache make_cache(std::int64_t n, KvType type, std::mt19937_64& random) {
  Cache cache;
  cache.type = type;
  const std::size_t size = static_cast<std::size_t>(n) * (type == KvType::kF32 ? 4 : 2);
  cache.k.resize(size);
  cache.v.resize(size);
  reference().store_kv(random_floats(n, random).data(), n, type, cache.k.data());
  reference().store_kv(random_floats(n, random).data(), n, type, cache.v.data());
  cache.k_values = widened(cache.k, static_cast<std::size_t>(n), type);
  cache.v_values = widened(cache.v, static_cast<std::size_t>(n), type);
  return cache;
}

std::vector<double> exact_attention(const std::vector<float>& q, const Cache& cache,
                                    const AttentionProblem& problem, std::int64_t kv_head,
                                    std::int64_t first, std::int64_t last) {
  std::vector<double> weights, out(q.size(), 0.0);
  const auto at = [&](std::int64_t p, std::size_t i) {
    return static_cast<std::size_t>((p * problem.kv_heads + kv_head) * problem.head_dim) + i;
  };
  double sum = 0;
  for (std::int64_t p = first; p < last; ++p) {
    double score = 0;
    for (std::size_t i = 0; i < q.size(); ++i)
      score += static_cast<double>(q[i]) * cache.k_values[at(p, i)];
    score *= problem.scale;
    if (problem.softcap != 0) score = problem.softcap * std::tanh(score / problem.softcap);
    weights.push_back(std::exp(score));
    sum += weights.back();
  }
  for (std::int64_t p = first; p < last; ++p)
    for (std::size_t i = 0; i < q.size(); ++i)
      out[i] += weights[static_cast<std::size_t>(p - first)] / sum * cache.v_values[at(p, i)];
  return out;
}

TEST(Ops, AttentionIsRightAndTheSameEverywhere) {
  std::mt19937_64 random(6);
  for (std::int64_t head_dim : {4, 16, 20, 64, 80, 96, 128, 256})
    for (KvType type : {KvType::kF32, KvType::kF16, KvType::kBF16})
      for (float cap : {0.0f, 5.0f}) {
        const AttentionProblem problem{4, 2, head_dim,
                                       1.0f / std::sqrt(static_cast<float>(head_dim)), cap};
        const Cache cache = make_cache(50 * 2 * head_dim, type, random);
        const std::vector<float> q = random_floats(head_dim, random, 3);
        const std::pair<std::int64_t, std::int64_t> windows[] = {
            {0, 1}, {0, 3}, {0, 16}, {5, 38}, {0, 50}, {49, 50}, {7, 7}};
        for (const auto& [first, last] : windows) {
          std::vector<float> scores(50), expected(q.size());
          reference().attend(q.data(), cache.view(), problem, 1, first, last, scores.data(),
                             expected.data());
          const std::vector<double> exact = exact_attention(q, cache, problem, 1, first, last);
          for (std::size_t i = 0; i < q.size(); ++i) ASSERT_NEAR(expected[i], exact[i], 2e-6);
          for (const Ops* table : all_ops()) {
            std::vector<float> out(q.size(), -1.0f);
            table->attend(q.data(), cache.view(), problem, 1, first, last, scores.data(),
                          out.data());
            ASSERT_EQ(first_difference(out, expected), -1)
                << table->name << " " << head_dim << " type " << static_cast<int>(type) << " "
                << first << " " << last;
          }
        }
      }
}

}  // namespace
}  // namespace packstone
