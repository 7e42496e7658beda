// Speed of decode_row and pack_row per format, one thread.
#include <chrono>
#include <cstdio>

#include "packstone/transcode/unpack.h"

namespace packstone {
namespace {

constexpr std::int64_t kRows = 64, kCols = 4096;

// Million weights a second of work(row), the best of 20 passes.
template <class Work>
double rate(Work work) {
  using Clock = std::chrono::steady_clock;
  double best = 0;
  for (int repeat = 0; repeat < 20; ++repeat) {
    const auto start = Clock::now();
    for (std::int64_t row = 0; row < kRows; ++row) work(row);
    const std::chrono::duration<double, std::micro> time = Clock::now() - start;
    best = std::max(best, static_cast<double>(kRows * kCols) / time.count());
  }
  return best;
}

void bench(FormatId id) {
  const Shape shape{kRows, kCols};
  const FormatParams params{format_info(id).group_sizes.size() > 1 ? 64 : 0, FloatType::kF16};
  std::vector<std::vector<std::byte>> planes;
  std::vector<ByteSpan> spans;
  std::vector<unsigned char*> pointers;
  for (int i = 0; i < format_info(id).plane_count; ++i)
    planes.emplace_back(plane_bytes(id, i, shape, params), std::byte{0x15});
  for (auto& plane : planes) {
    spans.push_back(plane);
    pointers.push_back(reinterpret_cast<unsigned char*>(plane.data()));
  }
  const auto weight = PackedWeight::bind(id, shape, params, spans, nullptr, "bench");
  if (!weight) return;
  const auto groups = static_cast<std::size_t>(ceil_div(kCols, group_cols(id, params)));
  std::vector<float> out(kCols);
  std::vector<std::uint32_t> codes(kCols);
  std::vector<GroupValues> values(groups);
  std::vector<RawParams> raw(groups);
  const double decode = rate([&](std::int64_t row) { decode_row(*weight, row, out); });
  const double unpack = rate([&](std::int64_t row) { unpack_row(*weight, row, codes, values); });
  raw_params_row(*weight, 0, raw);
  const double pack = rate(
      [&](std::int64_t row) { pack_row(id, shape, params, pointers.data(), row, codes, raw); });
  std::printf("%-14s decode %7.0f  unpack %7.0f  pack %7.0f  million weights/s\n",
              std::string(format_info(id).name).c_str(), decode, unpack, pack);
}

}  // namespace
}  // namespace packstone

int main() {
  for (std::uint16_t id = 0; id < packstone::format_count(); ++id)
    packstone::bench(packstone::FormatId{id});
}
