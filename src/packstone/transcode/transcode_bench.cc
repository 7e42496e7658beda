// Speed of plan_transcode and transcode, one thread: packed bytes of the source a second, best of
// several runs in processor time. Pairs whose codes and scales only change place.
#include <cstdio>
#include <ctime>
#include <random>

#include "packstone/transcode/format_ops.h"
#include "packstone/transcode/transcode.h"

namespace packstone {
namespace {

constexpr Shape kShape{4096, 4096};

struct Pair {
  std::string_view from, to;
  std::int32_t group;  // 0: the format's own
};

constexpr Pair kPairs[] = {
    {"gguf.q4_0", "mlx.affine.w4", 0},       {"gguf.q4_1", "mlx.affine.w4", 0},
    {"mlx.affine.w4", "gguf.q4_1", 32},      {"gguf.q5_0", "mlx.affine.w5", 0},
    {"gguf.q8_0", "mlx.affine.w8", 0},       {"gguf.mxfp4", "mx.mxfp4", 0},
    {"mx.mxfp4", "gguf.mxfp4", 0},           {"gguf.q4_k", "mlx.affine.w4", 0},
    {"gptq.w4", "gptq_v2.w4", 128},          {"gptq.w4", "awq_gemm.w4", 128},
    {"gptq.w4", "mlx.affine.w4", 128},       {"gptq.w8", "mlx.affine.w8", 128},
    {"gptq.w3", "mlx.affine.w3", 128},       {"awq_gemm.w4", "gptq.w4", 128},
    {"awq_gemm.w4", "marlin_awq.w4", 128},   {"awq_gemm.w4", "mlx.affine.w4", 128},
    {"awq_gemm.w4", "awq_gemv.w4", 128},     {"marlin.w4", "gptq.w4", 128},
    {"marlin_awq.w4", "awq_gemm.w4", 128},   {"ct.pack.w4", "gptq.w4", 128},
    {"ct.pack_asym.w4", "awq_gemm.w4", 128}, {"ct.pack.w8", "gptq.w8", 128},
    {"ct.pack.w4", "mlx.affine.w4", 128},
};

double seconds() {
  return static_cast<double>(std::clock()) / CLOCKS_PER_SEC;
}

// A half of ordinary size.
std::uint32_t ordinary_half(std::mt19937_64& random) {
  return 0x1800u | static_cast<std::uint32_t>(random() & 0x83FFu);
}

std::uint32_t ordinary_param(const ParamSpec& spec, const FormatParams& params,
                             std::mt19937_64& random) {
  const int bits = param_bits(spec, params);
  const auto any = static_cast<std::uint32_t>(random() & ((std::uint64_t{1} << bits) - 1));
  switch (spec.coding) {
    case ParamCoding::kF16:
      return ordinary_half(random);
    case ParamCoding::kMetadata:
      return encode_float(params.metadata,
                          half_to_float(static_cast<std::uint16_t>(ordinary_half(random))));
    case ParamCoding::kE8M0:
      return 110 + any % 16;
    default:
      return any;
  }
}

PackedWeight ordinary_weight(FormatId id, const FormatParams& params) {
  std::mt19937_64 random(7);
  OwnedWeight owned = *OwnedWeight::allocate(id, kShape, params);
  for (auto& plane : owned.planes)
    for (std::byte& byte : plane) byte = static_cast<std::byte>(random());
  const FormatInfo& info = format_info(id);
  std::vector<RawParams> raw(
      static_cast<std::size_t>(ceil_div(kShape.cols, group_cols(id, params))));
  const auto planes = owned.pointers();
  for (std::int64_t row = 0; row < kShape.rows; ++row) {
    for (RawParams& one : raw)
      for (std::size_t i = 0; i < info.params.size(); ++i)
        one.pattern[i] = ordinary_param(info.params[i], params, random);
    format_ops(id).write_params({planes.data(), kShape, params}, row, raw);
  }
  return *std::move(owned).release("bench");
}

template <class Work>
double best_of(int times, Work&& work) {
  double best = 1e9;
  for (int i = 0; i < times; ++i) {
    const double start = seconds();
    work();
    best = std::min(best, seconds() - start);
  }
  return best;
}

void bench(const Pair& pair, int times) {
  const auto from = find_format(pair.from), to = find_format(pair.to);
  if (!from || !to) return;
  const PackedWeight source = ordinary_weight(*from, {pair.group, FloatType::kF16});
  ThreadPool pool(1);
  const TranscodeTarget target{*to};
  TranscodePlan plan;
  const double planning = best_of(times, [&] { plan = plan_transcode(source, target, pool); });
  if (plan.verdict == Verdict::kRefused) {
    std::printf("%-16s -> %-16s refused: %s\n", std::string(pair.from).c_str(),
                std::string(pair.to).c_str(), plan.reason.c_str());
    return;
  }
  std::optional<PackedWeight> made;
  const double moving = best_of(times, [&] {
    made.reset();
    made = *transcode(source, plan, target, {}, pool);
  });
  const bool same = compare_values(source, {}, *made, {}, pool).same_values;
  const double gigabytes = static_cast<double>(source.bytes()) * 1e-9;
  std::printf("%-16s -> %-16s plan %6.2f  transcode %6.2f  both %6.2f GB/s%s\n",
              std::string(pair.from).c_str(), std::string(pair.to).c_str(), gigabytes / planning,
              gigabytes / moving, gigabytes / (planning + moving), same ? "" : "  VALUES DIFFER");
  std::fflush(stdout);
}

}  // namespace
}  // namespace packstone

// transcode_bench [runs [name of a source format]]
int main(int count, char** arguments) {
  const int times = count > 1 ? std::max(1, std::atoi(arguments[1])) : 5;
  const std::string_view only = count > 2 ? arguments[2] : "";
  for (const packstone::Pair& pair : packstone::kPairs)
    if (only.empty() || pair.from == only) packstone::bench(pair, times);
}
