// Bytes, errors and speed of the GGUF encoders beside ggml's, one thread.
//
//   gguf_encode_bench [path of libggml-base.so]
//
// Without a library: ours alone. Weights are Gaussian with a heavy tail, the importance lognormal.
#include <dlfcn.h>

#include <cmath>
#include <cstdio>
#include <ctime>
#include <random>
#include <vector>

#include "packstone/quantize/gguf/gguf_encode.h"

namespace packstone {
namespace {

constexpr std::int64_t kRows = 512, kCols = 2048;
constexpr std::uint64_t kSeed = 5;

// ggml_quantize_chunk(type, source, target, start, rows, cols, importance).
using Chunk = std::size_t (*)(int, const float*, void*, std::int64_t, std::int64_t, std::int64_t,
                              const float*);

struct Type {
  const char* name;
  int number;  // of ggml
  std::int64_t block;
};

constexpr Type kTypes[] = {
    {"gguf.q1_0", 41, 128},   {"gguf.q2_0", 42, 64},   {"gguf.q4_0", 2, 32},
    {"gguf.q4_1", 3, 32},     {"gguf.q5_0", 6, 32},    {"gguf.q5_1", 7, 32},
    {"gguf.q8_0", 8, 32},     {"gguf.q2_k", 10, 256},  {"gguf.q3_k", 11, 256},
    {"gguf.q4_k", 12, 256},   {"gguf.q5_k", 13, 256},  {"gguf.q6_k", 14, 256},
    {"gguf.tq1_0", 34, 256},  {"gguf.tq2_0", 35, 256}, {"gguf.iq4_nl", 20, 32},
    {"gguf.iq4_xs", 23, 256}, {"gguf.mxfp4", 39, 32},  {"gguf.nvfp4", 40, 64},
};

struct Data {
  std::vector<float> values, importance;
};

Data make_data() {
  std::mt19937_64 random(kSeed);
  std::normal_distribution<float> normal;
  Data data{std::vector<float>(kRows * kCols), std::vector<float>(kCols)};
  for (float& value : data.values) {
    value = 0.02f * normal(random);
    if (random() % 64 == 0) value *= 4;
  }
  for (float& value : data.importance) value = std::exp(1.5f * normal(random));
  return data;
}

// Processor time, which other programs on the machine do not lengthen much.
double seconds_of(auto work) {
  const std::clock_t start = std::clock();
  work();
  return static_cast<double>(std::clock() - start) / CLOCKS_PER_SEC;
}

struct Run {
  std::vector<std::byte> bytes;
  double error = 0, seconds = 0;
  double from_search = 0;  // part of the blocks
};

Run ours(const Data& data, FormatId id, GgufMode mode, std::span<const float> importance) {
  ThreadPool pool(1);
  Run run;
  run.seconds = seconds_of([&] {
    const auto made =
        gguf_encode(matrix_rows({data.values.data(), kRows, kCols, kCols}), {kRows, kCols}, id,
                    {mode, importance, GgufWeighting::kImportance}, pool, "bench");
    if (!made) return;
    run.error = made->weighted_rms;
    run.from_search = static_cast<double>(made->from_search) / static_cast<double>(made->blocks);
    run.bytes.assign(made->weight.plane(0).begin(), made->weight.plane(0).end());
  });
  return run;
}

std::int64_t equal_blocks(const Run& run, std::span<const std::byte> other, std::int64_t blocks) {
  const std::size_t size = run.bytes.size() / static_cast<std::size_t>(blocks);
  std::int64_t equal = 0;
  for (std::size_t i = 0; i < run.bytes.size(); i += size)
    equal += std::equal(run.bytes.begin() + static_cast<std::ptrdiff_t>(i),
                        run.bytes.begin() + static_cast<std::ptrdiff_t>(i + size),
                        other.begin() + static_cast<std::ptrdiff_t>(i));
  return equal;
}

void bench(const Type& type, const Data& data, bool weighted, Chunk chunk) {
  const FormatId id = find_format(type.name).value();
  std::span<const float> importance;
  if (weighted) importance = data.importance;
  const Run parity = ours(data, id, GgufMode::kParity, importance);
  const Run best = ours(data, id, GgufMode::kBest, importance);
  const std::int64_t blocks = kRows * kCols / type.block;
  const double gigabytes = static_cast<double>(kRows * kCols) * 4e-9;
  std::printf("%-12s %-9s", type.name, weighted ? "weighted" : "plain");
  if (chunk != nullptr) {
    std::vector<std::byte> other(parity.bytes.size());
    const double seconds = seconds_of([&] {
      chunk(type.number, data.values.data(), other.data(), 0, kRows, kCols,
            weighted ? data.importance.data() : nullptr);
    });
    std::printf(" equal %6lld of %6lld  ggml %.4f GB/s",
                static_cast<long long>(equal_blocks(parity, other, blocks)),
                static_cast<long long>(blocks), gigabytes / seconds);
  }
  std::printf("  parity %.4f GB/s error %.6f  best %.4f GB/s error %.6f (%.3f, %.0f%% of blocks)\n",
              gigabytes / parity.seconds, parity.error, gigabytes / best.seconds, best.error,
              best.error / parity.error, 100 * best.from_search);
}

}  // namespace
}  // namespace packstone

int main(int count, char** arguments) {
  packstone::Chunk chunk = nullptr;
  if (count > 1) {
    void* library = dlopen(arguments[1], RTLD_NOW);
    if (library != nullptr)
      chunk = reinterpret_cast<packstone::Chunk>(dlsym(library, "ggml_quantize_chunk"));
    if (chunk == nullptr) {
      std::fprintf(stderr, "%s has no ggml_quantize_chunk\n", arguments[1]);
      return 1;
    }
  }
  const packstone::Data data = packstone::make_data();
  for (const packstone::Type& type : packstone::kTypes)
    for (const bool weighted : {false, true}) packstone::bench(type, data, weighted, chunk);
}
