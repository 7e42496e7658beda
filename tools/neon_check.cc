// Compares the NEON kernels with the scalar reference bit for bit, without a test framework, so
// that it runs under an emulator. Prints what it compared; ends with status 1 on any difference.
#include <cstdio>
#include <cstdlib>

#include "packstone/kernel/isa/isa.h"
#include "packstone/kernel/matmul/linear.h"
#include "packstone/kernel/test_weights.h"
#include "packstone/transcode/unpack.h"

namespace packstone {
namespace {

int failures = 0;
int compared = 0;

void expect_same(const std::vector<float>& a, const std::vector<float>& b,
                 const std::string& what) {
  ++compared;
  const std::int64_t at = testing::first_difference(a, b);
  if (at < 0) return;
  ++failures;
  std::printf("FAIL %s: differs at %lld: %a and %a\n", what.c_str(), static_cast<long long>(at),
              static_cast<double>(a[static_cast<std::size_t>(at)]),
              static_cast<double>(b[static_cast<std::size_t>(at)]));
}

std::vector<float> product(const PackedWeight& weight, const char* isa, const std::vector<float>& x,
                           std::int64_t m, ThreadPool& pool) {
  ::setenv("PACKSTONE_FORCE_KERNEL", isa, 1);
  const Linear layer = *Linear::prepare(weight);
  const Shape shape = layer.shape();
  const MatmulWorkspace workspace(pool.size(), shape.cols);
  std::vector<float> y(static_cast<std::size_t>(m * shape.rows));
  layer.run(x.data(), m, shape.cols, y.data(), shape.rows, pool, workspace);
  return y;
}

void check_products(std::mt19937_64& random) {
  ThreadPool pool(2);
  for (std::uint16_t f = 0; f < kFormatCount; ++f)
    for (const FormatParams& params : testing::variants(FormatId{f}))
      for (std::int64_t cols : {17, 100, 96, 256}) {
        const Shape shape{9, cols};
        if (layout_rule(FormatId{f}, shape, params) != nullptr) continue;
        const PackedWeight weight = testing::random_weight(FormatId{f}, shape, params, random);
        const std::string what(format_info(FormatId{f}).name);
        const std::vector<float> x = testing::random_floats(3 * cols, random);
        const std::vector<float> expected = product(weight, "scalar", x, 3, pool);
        for (std::int64_t m : {1, 2, 3})
          expect_same(product(weight, "neon", x, m, pool),
                      {expected.begin(), expected.begin() + m * 9}, what + " product");
        std::vector<float> row(static_cast<std::size_t>(cols)), values(row.size());
        const Linear layer = *Linear::prepare(weight);
        for (std::int32_t r = 0; r < 9; ++r) {
          decode_row(weight, r, row);
          layer.gather(std::span(&r, 1), values.data());
          expect_same(values, row, what + " decode");
        }
      }
}

void check_attention(std::mt19937_64& random) {
  const Ops &a = scalar_isa()->ops, &b = neon_isa()->ops;
  for (std::int64_t head_dim : {20, 64, 80})
    for (KvType type : {KvType::kF32, KvType::kF16, KvType::kBF16}) {
      const AttentionProblem problem{2, 2, head_dim, 0.2f, 4.0f};
      const std::vector<float> rows = testing::random_floats(21 * 2 * head_dim, random);
      std::vector<float> k(rows.size()), scores(21),
          q = testing::random_floats(head_dim, random, 3);
      a.store_kv(rows.data(), std::ssize(rows), type, k.data());
      const KvView view{k.data(), k.data(), type};
      std::vector<float> x(q.size()), y(q.size());
      a.attend(q.data(), view, problem, 1, 2, 21, scores.data(), x.data());
      b.attend(q.data(), view, problem, 1, 2, 21, scores.data(), y.data());
      expect_same(x, y, "attend");
    }
}

void check_ops(std::mt19937_64& random) {
  const Ops &a = scalar_isa()->ops, &b = neon_isa()->ops;
  for (std::int64_t n : {1, 2, 15, 16, 17, 31, 33, 64, 100, 576}) {
    std::vector<float> x = testing::random_floats(n, random, 20);
    const std::vector<float> y = testing::random_floats(n, random);
    if (n > 4) x[3] = std::numeric_limits<float>::quiet_NaN();
    if (n > 8) x[7] = -std::numeric_limits<float>::infinity();
    const auto check = [&](const char* what, auto apply) {
      std::vector<float> u = x, v = x;
      apply(a, u);
      apply(b, v);
      expect_same(u, v, what);
    };
    check("add", [&](const Ops& o, auto& v) { o.add(v.data(), y.data(), n); });
    check("scale", [&](const Ops& o, auto& v) { o.scale(v.data(), 0.7f, n); });
    check("silu", [&](const Ops& o, auto& v) { o.silu_mul(v.data(), y.data(), n); });
    check("gelu", [&](const Ops& o, auto& v) { o.gelu_mul(v.data(), y.data(), n); });
    check("softcap", [&](const Ops& o, auto& v) { o.softcap(v.data(), 9.0f, n); });
    check("rms_norm",
          [&](const Ops& o, auto& v) { o.rms_norm(y.data(), y.data(), 1e-6f, n, v.data()); });
    check("dot", [&](const Ops& o, auto& v) { v[0] = o.dot(y.data(), y.data(), n); });
    check("log_sum_exp",
          [&](const Ops& o, auto& v) { v[0] = static_cast<float>(o.log_sum_exp(y.data(), n)); });
    check("rope", [&](const Ops& o, auto& v) {
      if (n % 2 == 0) o.rope(v.data(), y.data(), y.data() + n / 2, n);
    });
    for (KvType type : {KvType::kF16, KvType::kBF16}) {
      std::vector<std::uint16_t> u(x.size()), v(x.size());
      a.store_kv(y.data(), n, type, u.data());
      b.store_kv(y.data(), n, type, v.data());
      expect_same({u.begin(), u.end()}, {v.begin(), v.end()}, "store_kv");
    }
  }
}

// Prints the result as GoogleTest does, for the test runner.
void run_case(const char* name, void (*check)(std::mt19937_64&)) {
  std::mt19937_64 random(1);
  const int before = failures;
  check(random);
  std::printf(failures == before ? "[       OK ] %s (0 ms)\n" : "[  FAILED  ] %s (0 ms)\n", name);
}

}  // namespace
}  // namespace packstone

int main() {
  if (packstone::neon_isa() == nullptr) {
    std::printf("no NEON in this build\n");
    return 1;
  }
  packstone::run_case("Neon.OperationsEqualTheReference", packstone::check_ops);
  packstone::run_case("Neon.AttentionEqualsTheReference", packstone::check_attention);
  packstone::run_case("Neon.ProductsAndDecodeEqualTheReference", packstone::check_products);
  std::printf("%d comparisons, %d failed\n", packstone::compared, packstone::failures);
  return packstone::failures == 0 ? 0 : 1;
}
