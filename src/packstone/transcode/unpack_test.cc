// Proves, for every format: pack is the inverse of unpack on random bytes, the row decoder equals
// the decode formula applied place by place, and a run repeats along the row.
#include "packstone/transcode/unpack.h"

#include <chrono>
#include <random>

#include "packstone/format/registry.h"
#include "packstone/format/variants.h"
#include "packstone/transcode/transcode.h"

namespace packstone {
namespace {

constexpr std::uint64_t kSeed = 20260730;

struct Random {
  std::vector<std::vector<std::byte>> planes;
  PackedWeight weight;
};

Random random_weight(FormatId id, Shape shape, FormatParams params, std::mt19937_64& random) {
  std::vector<std::vector<std::byte>> planes;
  std::vector<ByteSpan> spans;
  for (int i = 0; i < format_info(id).plane_count; ++i) {
    std::vector<std::byte> plane(plane_bytes(id, i, shape, params));
    for (std::byte& byte : plane) byte = static_cast<std::byte>(random());
    planes.push_back(std::move(plane));
    spans.push_back(planes.back());
  }
  // Group numbers that are those of the columns.
  if (const int index = format_info(id).index_plane; index >= 0)
    for (std::int64_t col = 0; col < shape.cols; ++col)
      write_bits(reinterpret_cast<unsigned char*>(planes[static_cast<std::size_t>(index)].data()),
                 32 * static_cast<std::uint64_t>(col), 32,
                 static_cast<std::uint32_t>(col / group_cols(id, params)));
  auto weight = PackedWeight::bind(id, shape, params, spans, nullptr, "random");
  return {std::move(planes), *std::move(weight)};
}

template <class Function>
void for_every_format(Function&& function) {
  for (std::uint16_t index = 0; index < format_count(); ++index)
    for (const std::int64_t rows : {3, 64})
      for (const std::int64_t cols : {0, 5, 32, 192, 512})
        for (const FormatParams& params : legal_variants(FormatId{index}, {rows, cols}))
          if (!params.act_order) function(FormatId{index}, Shape{rows, cols}, params);
}

bool has_padding(FormatId id, Shape shape, const FormatParams& params) {
  return visit(id, [&]<class F>() {
    std::uint64_t bits = 0;
    for (int plane = 0; plane < static_cast<int>(F::kPlanes.size()); ++plane)
      bits += F::padding_bits(plane, shape, params);
    return bits != 0;
  });
}

// What packing makes of all that unpacking gives.
std::vector<std::vector<std::byte>> repacked(const PackedWeight& weight) {
  const Shape shape = weight.shape();
  const auto groups =
      static_cast<std::size_t>(ceil_div(shape.cols, group_cols(weight.id(), weight.params())));
  std::vector<std::uint32_t> codes(static_cast<std::size_t>(shape.cols));
  std::vector<GroupValues> values(groups);
  std::vector<RawParams> raw(groups);
  std::vector<std::vector<std::byte>> target;
  std::vector<unsigned char*> pointers;
  for (int i = 0; i < weight.plane_count(); ++i) target.emplace_back(weight.plane(i).size());
  for (auto& plane : target) pointers.push_back(reinterpret_cast<unsigned char*>(plane.data()));
  for (std::int64_t row = 0; row < shape.rows; ++row) {
    unpack_row(weight, row, codes, values);
    raw_params_row(weight, row, raw);
    pack_row(weight.id(), shape, weight.params(), pointers.data(), row, codes, raw);
  }
  return target;
}

// Same bits, or both NaN: which NaN is not promised.
bool same_bits(float a, float b) {
  return std::bit_cast<std::uint32_t>(a) == std::bit_cast<std::uint32_t>(b) ||
         (std::isnan(a) && std::isnan(b));
}

TEST(Unpack, PackIsTheInverse) {
  SCOPED_TRACE(kSeed);
  ThreadPool pool(1);
  std::mt19937_64 random(kSeed);
  for_every_format([&](FormatId id, Shape shape, FormatParams params) {
    const FormatInfo& info = format_info(id);
    if (!info.writable || info.block_codes) return;  // not every block is one that packing makes
    const Random source = random_weight(id, shape, params, random);
    std::vector<std::vector<std::byte>> target = repacked(source.weight);
    if (has_padding(id, shape, params)) {  // zero now; all else is as it was
      const std::vector<ByteSpan> spans(target.begin(), target.end());
      const auto clean = PackedWeight::bind(id, shape, params, spans, nullptr, "repacked");
      EXPECT_TRUE(compare_values(*clean, {}, source.weight, {}, pool).same_bits);
      EXPECT_TRUE(repacked(*clean) == target) << format_info(id).name << " " << shape.cols;
    } else {
      EXPECT_TRUE(target == source.planes) << format_info(id).name << " " << shape.cols;
    }
  });
}

TEST(Unpack, RowDecoderEqualsTheFormulaPlaceByPlace) {
  SCOPED_TRACE(kSeed);
  std::mt19937_64 random(kSeed + 1);
  for_every_format([&](FormatId id, Shape shape, FormatParams params) {
    const Random source = random_weight(id, shape, params, random);
    const auto planes = source.weight.plane_pointers();
    std::vector<float> out(static_cast<std::size_t>(shape.cols));
    std::vector<float> together(static_cast<std::size_t>(shape.rows * shape.cols));
    decode_rows(source.weight, 0, shape.rows, together);
    std::vector<std::uint32_t> codes(out.size());
    std::vector<GroupValues> values(
        static_cast<std::size_t>(ceil_div(shape.cols, group_cols(id, params))));
    for (std::int64_t row = 0; row < shape.rows; ++row) {
      decode_row(source.weight, row, out);
      for (std::size_t col = 0; col < out.size(); ++col)
        ASSERT_TRUE(same_bits(out[col], together[static_cast<std::size_t>(row * shape.cols) + col]))
            << format_info(id).name << " " << shape.cols << " row " << row;
      unpack_row(source.weight, row, codes, values);
      visit(id, [&]<class F>() {
        for (std::int64_t col = 0; col < shape.cols; ++col) {
          const GroupValues group = F::values(
              read_params<F>(planes.data(), shape, params, row, col / F::group_cols(params)),
              params);
          const std::uint32_t code = codes[static_cast<std::size_t>(col)];
          if constexpr (PlacedCodes<F>) {
            ASSERT_EQ(code, read_place(planes.data(), code_place<F>(shape, params, row, col)) ^
                                F::kCodeXor);
          }
          const float value = decode_value<typename F::Scheme>(group, code);
          const float got = out[static_cast<std::size_t>(col)];
          ASSERT_TRUE((std::isnan(value) && std::isnan(got)) ||
                      std::bit_cast<std::uint32_t>(value) == std::bit_cast<std::uint32_t>(got))
              << F::kName << " " << row << " " << col;
        }
      });
    }
  });
}

// What encode stores decodes to the group's numbers, and it stores every group of a format whose
// groups have parameters of their own.
TEST(Unpack, EncodeIsTheInverseOfValuesWhereGroupsStandAlone) {
  SCOPED_TRACE(kSeed);
  std::mt19937_64 random(kSeed + 2);
  for_every_format([&](FormatId id, Shape, FormatParams params) {
    const FormatInfo& info = format_info(id);
    const bool alone = info.writable && std::ranges::all_of(info.params, [](const ParamSpec& spec) {
                         return spec.kind == ParamKind::kScale || spec.kind == ParamKind::kOffset ||
                                spec.kind == ParamKind::kZero;
                       });
    for (std::uint32_t pattern = 0; pattern < 65536; ++pattern) {
      RawParams raw, back;
      for (std::size_t which = 0; which < info.params.size(); ++which) {
        const int bits = param_bits(info.params[which], params);
        raw.pattern[which] = which == 0 ? pattern : static_cast<std::uint32_t>(random());
        if (bits < 32) raw.pattern[which] &= (1u << bits) - 1;
      }
      GroupValues values, again;
      decode_params(id, params, {&raw, 1}, {&values, 1});
      const bool stored = encode_params(id, params, {&values, 1}, {&back, 1}) < 0;
      ASSERT_TRUE(stored || !alone) << info.name << " " << pattern;
      if (!stored) continue;
      decode_params(id, params, {&back, 1}, {&again, 1});
      ASSERT_TRUE(same_bits(values.scale, again.scale)) << info.name << " " << pattern;
      ASSERT_TRUE(same_bits(values.offset, again.offset)) << info.name << " " << pattern;
      ASSERT_EQ(values.center, again.center) << info.name << " " << pattern;
      ASSERT_TRUE(same_bits(values.inner, again.inner)) << info.name << " " << pattern;
    }
  });
}

}  // namespace
}  // namespace packstone
