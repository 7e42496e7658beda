// Proves that plain parameters mean what their patterns say (every pattern of 16 bits, with every
// zero point, and back), that patterns read and written in blocks are those read and written group
// by group, and that plain rows move as they do group by group, rows out of order included.
#include "packstone/transcode/plain_move.h"

#include <bit>
#include <random>

#include "packstone/transcode/test_layouts.h"

namespace packstone {
namespace {

constexpr std::uint64_t kSeed = 20261202;
constexpr Shape kShape{64, 256};

bool same_numbers(const GroupValues& a, const GroupValues& b) {
  return std::bit_cast<std::uint32_t>(a.scale) == std::bit_cast<std::uint32_t>(b.scale) &&
         std::bit_cast<std::uint32_t>(a.offset) == std::bit_cast<std::uint32_t>(b.offset) &&
         a.center == b.center && a.inner == b.inner;
}

void check_meaning(const testing::Layout& layout, const RawParams& raw) {
  const FormatInfo& info = format_info(layout.id);
  const FormatOps& ops = format_ops(layout.id);
  GroupValues values;
  RawParams back;
  ops.values(layout.params, {&raw, 1}, {&values, 1});
  ASSERT_TRUE(same_numbers(values, plain_values(info.params.data(), ops.plain, layout.params, raw)))
      << testing::show(layout) << " of " << raw.pattern[0] << ", " << raw.pattern[1];
  ASSERT_EQ(ops.encode(layout.params, {&values, 1}, {&back, 1}), -1)
      << testing::show(layout) << " of " << raw.pattern[0] << ", " << raw.pattern[1];
  for (std::size_t i = 0; i < info.params.size(); ++i)
    ASSERT_EQ(raw.pattern[i], back.pattern[i]) << testing::show(layout);
}

// All patterns of up to 16 bits of one parameter, the others at random.
void check_patterns(const testing::Layout& layout, std::size_t which, std::mt19937_64& random) {
  const FormatInfo& info = format_info(layout.id);
  const auto mask = [&](std::size_t i) {
    return (std::uint64_t{1} << param_bits(info.params[i], layout.params)) - 1;
  };
  for (std::uint64_t pattern = 0; pattern <= std::min<std::uint64_t>(mask(which), 65535);
       ++pattern) {
    RawParams raw;
    for (std::size_t i = 0; i < info.params.size(); ++i)
      raw.pattern[i] = static_cast<std::uint32_t>(random() & mask(i));
    if (mask(which) <= 65535) raw.pattern[which] = static_cast<std::uint32_t>(pattern);
    ASSERT_NO_FATAL_FAILURE(check_meaning(layout, raw));
  }
}

TEST(PlainMove, EveryPatternOfAPlainParameterMeansItself) {
  SCOPED_TRACE(kSeed);
  std::mt19937_64 random(kSeed);
  std::vector<bool> seen(3 * format_count());
  int plain = 0;
  for (const testing::Layout& layout : testing::layouts_at(kShape)) {
    const std::size_t key =
        3 * static_cast<std::size_t>(layout.id) + static_cast<std::size_t>(layout.params.metadata);
    if (!format_ops(layout.id).plain.plain || seen[key]) continue;
    seen[key] = true;
    ++plain;
    for (std::size_t which = 0; which < format_info(layout.id).params.size(); ++which)
      ASSERT_NO_FATAL_FAILURE(check_patterns(layout, which, random));
  }
  EXPECT_GT(plain, 40);
}

void check_blocks(const testing::Layout& layout, std::mt19937_64& random) {
  const FormatOps& ops = format_ops(layout.id);
  const FormatInfo& info = format_info(layout.id);
  const PackedWeight weight =
      testing::random_weight_of(layout, kShape, testing::Recipe::kAdversarial, random);
  const auto planes = weight.plane_pointers();
  const ConstPlanes bytes{planes.data(), kShape, layout.params};
  const auto groups =
      static_cast<std::size_t>(ceil_div(kShape.cols, group_cols(layout.id, layout.params)));
  OwnedWeight owned = *OwnedWeight::allocate(layout.id, kShape, layout.params);
  const auto pointers = owned.pointers();
  std::vector<std::vector<RawParams>> raw(static_cast<std::size_t>(kShape.rows),
                                          std::vector<RawParams>(groups));
  for (std::size_t row = 0; row < raw.size(); ++row)
    ops.read_params(bytes, static_cast<std::int64_t>(row), raw[row]);
  std::vector<std::uint32_t> patterns(groups * raw.size());
  for (std::size_t which = 0; which < info.params.size(); ++which)
    for (std::int64_t row = 0; row < kShape.rows;) {
      const std::int64_t rows =
          std::min(kShape.rows - row, 1 + static_cast<std::int64_t>(random() % 20));
      ops.read_patterns(bytes, static_cast<int>(which), row, rows, patterns.data());
      for (std::int64_t r = 0; r < rows; ++r)
        for (std::size_t group = 0; group < groups; ++group)
          ASSERT_EQ(patterns[static_cast<std::size_t>(r) * groups + group],
                    raw[static_cast<std::size_t>(row + r)][group].pattern[which])
              << testing::show(layout) << " row " << row + r << " group " << group;
      ops.write_patterns({pointers.data(), kShape, layout.params}, static_cast<int>(which), row,
                         rows, patterns.data());
      row += rows;
    }
  std::vector<RawParams> back(groups);
  std::vector<const unsigned char*> made(pointers.begin(), pointers.end());
  for (std::size_t row = 0; row < raw.size(); ++row) {
    ops.read_params({made.data(), kShape, layout.params}, static_cast<std::int64_t>(row), back);
    for (std::size_t group = 0; group < groups; ++group)
      for (std::size_t which = 0; which < info.params.size(); ++which)
        ASSERT_EQ(back[group].pattern[which], raw[row][group].pattern[which])
            << testing::show(layout) << " row " << row << " group " << group;
  }
}

TEST(PlainMove, PatternsInBlocksAreThoseOfGroups) {
  SCOPED_TRACE(kSeed);
  std::mt19937_64 random(kSeed);
  for (const testing::Layout& layout : testing::layouts_at(kShape)) {
    if (!format_ops(layout.id).plain.plain) continue;
    ASSERT_NO_FATAL_FAILURE(check_blocks(layout, random));
  }
}

struct Move {
  std::string_view from, to;
  std::int32_t group;
};

// Rows of each kind: plain, with zero, infinite and NaN scales, in any order and on any number of
// threads, beyond one unit of rows.
TEST(PlainMove, RowsInAnyOrderMoveAsGroupByGroup) {
  SCOPED_TRACE(kSeed);
  std::mt19937_64 random(kSeed);
  constexpr Shape kTall{192, 512};
  std::vector<std::int32_t> order(static_cast<std::size_t>(kTall.rows));
  for (std::size_t i = 0; i < order.size(); ++i) order[i] = static_cast<std::int32_t>(i);
  std::ranges::shuffle(order, random);
  for (const Move& move :
       {Move{"gguf.q4_0", "mlx.affine.w4", 0}, Move{"gguf.q8_0", "mlx.affine.w8", 0},
        Move{"gptq.w4", "mlx.affine.w4", 128}, Move{"awq_gemm.w4", "marlin_awq.w4", 128},
        Move{"gptq.w4", "ct.pack.w4", 128}, Move{"gguf.mxfp4", "mx.mxfp4", 0},
        Move{"mlx.affine.w4", "gguf.q4_1", 32}})
    for (const testing::Recipe recipe :
         {testing::Recipe::kPlain, testing::Recipe::kNarrow, testing::Recipe::kAdversarial})
      for (const int threads : {1, 3}) {
        const PackedWeight source = testing::random_weight_of(
            {*find_format(move.from), {move.group, FloatType::kF16}}, kTall, recipe, random);
        ThreadPool pool(threads);
        const TranscodeTarget target{*find_format(move.to)};
        for (const std::span<const std::int32_t> rows :
             {std::span<const std::int32_t>(), std::span<const std::int32_t>(order)}) {
          const TranscodePlan plan = plan_transcode(source, target, pool, rows);
          const TranscodePlan want =
              plan_transcode_by(MoveWay::kByGroup, source, target, pool, rows);
          EXPECT_EQ(plan.verdict, want.verdict) << move.from << " to " << move.to;
          EXPECT_EQ(plan.params, want.params) << move.from << " to " << move.to;
          EXPECT_EQ(plan.conditions, want.conditions) << move.from << " to " << move.to;
          EXPECT_EQ(plan.reason, want.reason) << move.from << " to " << move.to;
          if (plan.verdict == Verdict::kRefused) continue;
          const auto made = transcode(source, plan, target, rows, pool);
          const auto again = transcode_by(MoveWay::kByGroup, source, plan, target, rows, pool);
          ASSERT_TRUE(made.has_value() && again.has_value()) << move.from << " to " << move.to;
          EXPECT_TRUE(testing::same_planes(*made, *again)) << move.from << " to " << move.to;
        }
      }
}

}  // namespace
}  // namespace packstone
