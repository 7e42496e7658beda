// Speed of the matrix products: GB/s of packed bytes at m = 1, GFLOP/s at larger m, on the shapes
// of a small decoder (576 to 1536), over enough layers that the weights come from memory. Each
// result is compared with the derived decode and float64 sums before its time is taken.
//
//   matmul_bench --benchmark_filter='gguf.q4_0/m1/'
#include <benchmark/benchmark.h>

#include "packstone/kernel/matmul/linear.h"
#include "packstone/kernel/ops.h"
#include "packstone/kernel/test_weights.h"
#include "packstone/transcode/unpack.h"

namespace packstone {
namespace {

constexpr Shape kShape{1536, 576};
constexpr std::uint64_t kMemory = 64 << 20, kCache = 1 << 20;

bool result_is_right(const PackedWeight& weight, const float* x, const float* y) {
  std::vector<float> row(static_cast<std::size_t>(weight.shape().cols));
  for (std::int64_t r : {std::int64_t{0}, weight.shape().rows - 1}) {
    decode_row(weight, r, row);
    double exact = 0, size = 0;
    for (std::size_t c = 0; c < row.size(); ++c) {
      exact += static_cast<double>(row[c]) * x[c];
      size += std::abs(static_cast<double>(row[c]) * x[c]);
    }
    if (std::abs(y[r] - exact) > 1e-4 * size) return false;
  }
  return true;
}

void matmul(benchmark::State& state, FormatId id, FormatParams params, std::int64_t m, int threads,
            std::uint64_t bytes_total) {
  std::mt19937_64 random(1);
  Shape shape = kShape;
  if (layout_rule(id, shape, params) != nullptr) shape.cols = 768;
  if (layout_rule(id, shape, params) != nullptr)
    params.group_cols = static_cast<std::int32_t>(shape.cols);  // only whole rows
  std::vector<Linear> layers;
  std::uint64_t bytes = 0;
  const PackedWeight first = testing::random_weight(id, shape, params, random);
  while (layers.empty() || bytes < bytes_total) {
    std::vector<ByteSpan> planes;
    auto owner = std::make_shared<std::vector<std::vector<std::byte>>>();
    for (int i = 0; i < first.plane_count(); ++i)
      owner->emplace_back(first.plane(i).begin(), first.plane(i).end());
    for (const auto& plane : *owner) planes.emplace_back(plane);
    layers.push_back(
        *Linear::prepare(*PackedWeight::bind(id, shape, params, planes, owner, "bench")));
    bytes += first.bytes();
  }
  ThreadPool pool(threads);
  const MatmulWorkspace workspace(threads, shape.cols);
  const std::vector<float> x = testing::random_floats(m * shape.cols, random);
  std::vector<float> y(static_cast<std::size_t>(m * shape.rows));
  layers[0].run(x.data(), m, shape.cols, y.data(), shape.rows, pool, workspace);
  if (!result_is_right(first, x.data(), y.data())) return state.SkipWithError("wrong result");
  for (auto _ : state) {
    for (const Linear& layer : layers)
      layer.run(x.data(), m, shape.cols, y.data(), shape.rows, pool, workspace);
    benchmark::DoNotOptimize(y.data());
  }
  const double count =
      static_cast<double>(layers.size()) * static_cast<double>(shape.rows * shape.cols);
  state.counters["GB/s"] = benchmark::Counter(static_cast<double>(bytes) * 1e-9,
                                              benchmark::Counter::kIsIterationInvariantRate);
  state.counters["GFLOP/s"] = benchmark::Counter(2e-9 * count * static_cast<double>(m),
                                                 benchmark::Counter::kIsIterationInvariantRate);
  state.SetLabel(std::string(layers[0].kernel_name()));
}

void dispatch(benchmark::State& state) {
  ThreadPool pool(static_cast<int>(state.range(0)));
  auto task = [](std::int64_t begin, std::int64_t, int) { benchmark::DoNotOptimize(begin); };
  for (auto _ : state) pool.parallel(36, 1, task);
}
BENCHMARK(dispatch)->Arg(1)->Arg(2)->Arg(4)->UseRealTime();

void attend(benchmark::State& state) {
  std::mt19937_64 random(2);
  const std::int64_t keys = state.range(0);
  const AttentionProblem problem{9, 3, 64, 0.125f, 0.0f};
  const std::vector<float> k = testing::random_floats(keys * 3 * 64, random);
  const std::vector<float> q = testing::random_floats(64, random);
  std::vector<float> scores(static_cast<std::size_t>(keys)), out(64);
  const KvView view{k.data(), k.data(), KvType::kF32};
  for (auto _ : state) {
    ops().attend(q.data(), view, problem, 1, 0, keys, scores.data(), out.data());
    benchmark::DoNotOptimize(out.data());
  }
  state.counters["ns/key"] = benchmark::Counter(
      1e-9 * static_cast<double>(keys),
      benchmark::Counter::kIsIterationInvariantRate | benchmark::Counter::kInvert);
}
BENCHMARK(attend)->Arg(128)->Arg(512)->Arg(2048);

void silu_mul(benchmark::State& state) {
  std::mt19937_64 random(3);
  std::vector<float> gate = testing::random_floats(1536, random), up(1536, 1.0f);
  for (auto _ : state) {
    ops().silu_mul(gate.data(), up.data(), 1536);
    benchmark::DoNotOptimize(gate.data());
  }
}
BENCHMARK(silu_mul);

void rms_norm(benchmark::State& state) {
  std::mt19937_64 random(4);
  const std::vector<float> x = testing::random_floats(576, random);
  std::vector<float> out(576);
  for (auto _ : state) {
    ops().rms_norm(x.data(), x.data(), 1e-5f, 576, out.data());
    benchmark::DoNotOptimize(out.data());
  }
}
BENCHMARK(rms_norm);

void register_all() {
  for (std::uint16_t f = 0; f < kFormatCount; ++f) {
    const auto variants = testing::variants(FormatId{f});
    const FormatParams params =
        variants.size() == 1 ? variants[0] : FormatParams{64, FloatType::kF16};
    const auto add = [&](const char* place, std::int64_t m, int threads, std::uint64_t bytes) {
      auto* bench = benchmark::RegisterBenchmark(
          fmt::format("{}/m{}{}/t{}", format_info(FormatId{f}).name, m, place, threads).c_str(),
          matmul, FormatId{f}, params, m, threads, bytes);
      bench->Unit(benchmark::kMillisecond);
      if (threads > 1) bench->UseRealTime();  // one thread: CPU time, so other load matters less
    };
    for (int threads : {1, 2}) {
      add("_memory", 1, threads, kMemory);
      add("_cache", 1, threads, kCache);
      for (std::int64_t m : {8, 64, 512}) add("", m, threads, 0);
    }
  }
}

}  // namespace
}  // namespace packstone

int main(int argc, char** argv) {
  packstone::register_all();
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 1;
  benchmark::RunSpecifiedBenchmarks();
  return 0;
}
