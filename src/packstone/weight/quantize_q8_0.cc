#include <algorithm>
#include <cmath>
#include <new>

#include "packstone/format/gguf_q8_0.h"
#include "packstone/format/registry.h"
#include "packstone/quantize/group_rules.h"
#include "packstone/weight/state.h"

namespace packstone {
namespace {

constexpr std::string_view kWhere = "weight.quantize_q8_0";
constexpr std::int64_t kBlocksAtATime = 256;
constexpr int kCols = GgufQ8_0::kBlockCols;
constexpr int kBytes = GgufQ8_0::kBlockBytes;

void count_loss(std::span<const float> x, std::span<const std::uint32_t> codes, std::uint16_t scale,
                BlockLoss& loss) {
  const std::uint32_t magnitude = scale & 0x7FFFu;
  const bool quants = std::ranges::any_of(codes, [](std::uint32_t code) { return code != 128; });
  const bool values = std::ranges::any_of(x, [](float value) { return value != 0; });
  loss.nan += magnitude > 0x7C00u;
  loss.infinite += magnitude == 0x7C00u;
  loss.zero_scale += magnitude == 0 && quants;
  loss.underflow += magnitude == 0 && !quants && values;
}

// One block of 32 values.
void quantize_block(std::span<const float> x, std::byte* block, BlockLoss& loss) {
  std::uint32_t codes[kCols];
  RawParams raw;
  quantize_q8_0(x, codes, raw);
  const auto scale = static_cast<std::uint16_t>(raw.pattern[0]);
  store_le(block, scale);
  for (int i = 0; i < kCols; ++i)
    block[2 + i] = static_cast<std::byte>(codes[i] ^ GgufQ8_0::kCodeXor);
  count_loss(x, codes, scale, loss);
}

}  // namespace

Result<QuantizedQ8_0> quantize_q8_0(const ArrayView& x, ThreadPool& pool) {
  PACKSTONE_CHECK_OK(check_view(x, kWhere, "x"));
  if (x.dims.size() < 2 || x.dims.back() % kCols != 0)
    return fail(ErrorCode::kInvalidInput, kWhere, "x", "shape " + dims_text(x.dims),
                "[..., n, k] with k a multiple of 32");
  try {
    const std::int64_t blocks = *element_count(x.dims) / kCols;
    auto owner =
        std::make_shared<std::vector<std::byte>>(static_cast<std::size_t>(blocks * kBytes));
    std::vector<BlockLoss> losses(static_cast<std::size_t>(pool.size()));
    auto work = [&](std::int64_t begin, std::int64_t end, int worker) {
      for (std::int64_t i = begin; i < end; ++i) {
        float values[kCols];
        load_f32(x.bytes.data() + static_cast<std::size_t>(i * kCols) * value_bytes(x.type), x.type,
                 values);
        quantize_block(values, owner->data() + i * kBytes,
                       losses[static_cast<std::size_t>(worker)]);
      }
    };
    pool.parallel(blocks, kBlocksAtATime, work);
    BlockLoss loss;
    for (const BlockLoss& one : losses) {
      loss.zero_scale += one.zero_scale;
      loss.underflow += one.underflow;
      loss.infinite += one.infinite;
      loss.nan += one.nan;
    }
    ByteArray part{x.dims, *owner, owner, 0};
    part.dims.back() = x.dims.back() / kCols * kBytes;
    PACKSTONE_TRY(Weight weight, Weight::q8_0(std::move(part)));
    return QuantizedQ8_0{std::move(weight), loss};
  } catch (const std::bad_alloc&) {
    return fail(ErrorCode::kExhausted, kWhere, "x", "too little memory",
                fmt::format("{} in memory", dims_text(x.dims)));
  }
}

}  // namespace packstone
