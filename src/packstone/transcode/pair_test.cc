// Proves that the transcoder keeps every value or refuses: for every ordered
// pair of formats, with random codes and adversarial parameters, a move that is
// not refused gives equal real numbers, a header verdict is never better than
// the truth, a move that promises it gives the source's bytes back, and plans
// and bytes are those of the move group by group.
#include <array>
#include <map>

#include "packstone/transcode/test_layouts.h"

namespace packstone {
namespace {

using testing::expect_same_reals;
using testing::Layout;
using testing::layouts_at;
using testing::random_weight_of;
using testing::Recipe;
using testing::same_planes;
using testing::show;

constexpr std::uint64_t kSeed = 20260731;
// Small shapes first: a pair is tried at the first that both of its formats
// take.
constexpr std::array kShapes{Shape{3, 256}, Shape{8, 256}, Shape{64, 256}};

TranscodeTarget target_of(const Layout& layout) {
  TranscodeTarget target{layout.id, layout.params.group_cols, std::nullopt,
                         layout.params.group_rows};
  for (const ParamSpec& spec : format_info(layout.id).params)
    if (spec.coding == ParamCoding::kMetadata) target.metadata = layout.params.metadata;
  return target;
}

// The way back: full where it is promised, equal values wherever it can be
// gone.
void check_back(const PackedWeight& source, const PackedWeight& made, const Layout& from,
                const TranscodePlan& plan, const std::string& pair, ThreadPool& pool) {
  const TranscodeTarget target = target_of(from);
  const TranscodePlan back_plan = plan_transcode(made, target, pool);
  const auto back = transcode(made, back_plan, target, {}, pool);
  const bool promised =
      plan.verdict == Verdict::kSameBytes ||
      std::ranges::find(plan.conditions, "the way back gives the source's bytes") !=
          plan.conditions.end();
  if (promised) {
    ASSERT_TRUE(back.has_value()) << pair << ": " << back.error().message;
    EXPECT_TRUE(same_planes(source, *back)) << pair;
  } else if (back) {
    expect_same_reals(made, *back);
  }
}

// Group by group, which is what every way must give: the same plan and the same
// bytes.
void check_by_group(const PackedWeight& source, const TranscodeTarget& target,
                    const TranscodePlan& plan, const PackedWeight* made, const std::string& pair,
                    ThreadPool& pool) {
  const TranscodePlan again = plan_transcode_by(MoveWay::kByGroup, source, target, pool);
  EXPECT_EQ(plan.verdict, again.verdict) << pair;
  EXPECT_EQ(plan.params, again.params) << pair;
  EXPECT_EQ(plan.conditions, again.conditions) << pair;
  EXPECT_EQ(plan.reason, again.reason) << pair;
  if (made == nullptr) return;
  const auto same = transcode_by(MoveWay::kByGroup, source, plan, target, {}, pool);
  ASSERT_TRUE(same.has_value()) << pair;
  EXPECT_TRUE(same_planes(*made, *same)) << pair;
}

Verdict check_pair(const Layout& from, const Layout& to, Shape shape, Recipe recipe,
                   std::mt19937_64& random, ThreadPool& pool) {
  const PackedWeight source = random_weight_of(from, shape, recipe, random);
  const TranscodeTarget target = target_of(to);
  const TranscodePlan plan = plan_transcode(source, target, pool);
  const TranscodePlan dry = header_verdict(from.id, shape, from.params, target);
  const std::string pair = show(from) + " to " + show(to);
  EXPECT_LE(static_cast<int>(dry.verdict), static_cast<int>(plan.verdict)) << pair;
  const auto made = transcode(source, plan, target, {}, pool);
  check_by_group(source, target, plan, made ? &*made : nullptr, pair, pool);
  if (plan.verdict == Verdict::kRefused) {
    EXPECT_FALSE(plan.reason.empty()) << pair;
    EXPECT_FALSE(made.has_value()) << pair;
    return plan.verdict;
  }
  EXPECT_TRUE(made.has_value()) << pair << ": " << made.error().message;
  if (!made) return plan.verdict;
  expect_same_reals(source, *made);
  EXPECT_TRUE(compare_values(source, {}, *made, {}, pool).same_values) << pair;
  EXPECT_EQ(plan.verdict == Verdict::kSameValuesMoreBytes, made->bytes() > source.bytes()) << pair;
  check_back(source, *made, from, plan, pair, pool);
  return plan.verdict;
}

// Every layout by the first shape it takes.
std::vector<std::pair<Layout, std::size_t>> layouts_by_shape() {
  std::vector<std::pair<Layout, std::size_t>> layouts;
  std::vector<bool> seen(format_count());
  for (std::size_t at = 0; at < kShapes.size(); ++at) {
    std::vector<bool> now(format_count());
    for (const Layout& layout : layouts_at(kShapes[at])) {
      if (seen[static_cast<std::size_t>(layout.id)]) continue;
      now[static_cast<std::size_t>(layout.id)] = true;
      layouts.push_back({layout, at});
    }
    for (std::size_t i = 0; i < format_count(); ++i) seen[i] = seen[i] || now[i];
  }
  for (std::size_t i = 0; i < format_count(); ++i)
    EXPECT_TRUE(seen[i]) << format_info(FormatId{static_cast<std::uint16_t>(i)}).name
                         << " takes none of the shapes";
  return layouts;
}

// Between variants of two formats all pairs of groups would be too many: of
// each pair of formats every variant of one side meets a variant of the other,
// by turns.
TEST(Pair, EveryPairKeepsValuesOrRefuses) {
  SCOPED_TRACE(kSeed);
  std::mt19937_64 random(kSeed);
  ThreadPool pool(1);
  std::map<FormatId, std::vector<std::pair<Layout, std::size_t>>> by_format;
  for (const auto& entry : layouts_by_shape()) by_format[entry.first.id].push_back(entry);
  std::map<Verdict, int> verdicts;
  for (const auto& [from_id, sources] : by_format)
    for (const auto& [to_id, targets] : by_format) {
      const std::size_t turns = std::max(sources.size(), targets.size());
      for (std::size_t turn = 0; turn < turns; ++turn) {
        const auto& [from, from_shape] = sources[turn % sources.size()];
        const auto& [to, to_shape] = targets[(turn * 7 + turn / targets.size()) % targets.size()];
        const Shape shape = kShapes[std::max(from_shape, to_shape)];
        if (layout_rule(from.id, shape, from.params) || layout_rule(to.id, shape, to.params))
          continue;  // a group of all rows at another shape
        if (header_verdict(from.id, shape, from.params, target_of(to)).verdict ==
            Verdict::kRefused) {
          ++verdicts[check_pair(from, to, shape, Recipe::kPlain, random, pool)];
          continue;
        }
        for (const Recipe recipe :
             {Recipe::kPlain, Recipe::kCentered, Recipe::kNarrow, Recipe::kAdversarial}) {
          // On the large shape every other turn, for time.
          if (shape.rows > 8 && (turn + static_cast<std::size_t>(recipe)) % 2 != 0) continue;
          ++verdicts[check_pair(from, to, shape, recipe, random, pool)];
        }
      }
    }
  EXPECT_GT(verdicts[Verdict::kSameBytes], 100);
  EXPECT_GT(verdicts[Verdict::kSameValues], 5);
  EXPECT_GT(verdicts[Verdict::kSameValuesMoreBytes], 500);
  EXPECT_GT(verdicts[Verdict::kRefused], 500);
}

}  // namespace
}  // namespace packstone
