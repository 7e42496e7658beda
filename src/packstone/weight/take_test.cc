// Proves that rows and matrices are taken as bytes, and that a weight survives a walk: contracts
// B43 to B47.
#include <sys/mman.h>
#include <unistd.h>

#include "packstone/weight/test_weight.h"

namespace packstone {
namespace {

using testing::doubles;
using testing::same_values;
using testing::test_pool;

using Positions = std::vector<std::int64_t>;

// The rows or matrices of values at positions; zeros out of range.
Array gathered(const Array& values, std::size_t axis, const Positions& positions) {
  Dims dims = values.dims;
  dims[axis] = static_cast<std::int64_t>(positions.size());
  Array result = zeros(values.type, dims);
  std::int64_t outer = 1, inner = 1;
  for (std::size_t i = 0; i < axis; ++i) outer *= dims[i];
  for (std::size_t i = axis + 1; i < dims.size(); ++i) inner *= dims[i];
  const std::size_t run = static_cast<std::size_t>(inner) * value_bytes(values.type);
  for (std::int64_t o = 0; o < outer; ++o)
    for (std::size_t p = 0; p < positions.size(); ++p)
      if (positions[p] >= 0 && positions[p] < values.dims[axis])
        std::memcpy(
            result.bytes.data() + (static_cast<std::size_t>(o) * positions.size() + p) * run,
            values.bytes.data() +
                static_cast<std::size_t>(o * values.dims[axis] + positions[p]) * run,
            run);
  return result;
}

TEST(TypedWeight, B43_EveryLayoutTakesRowsAndMatricesAsBytes) {
  std::mt19937_64 random(43);
  for (const testing::FormatCase& one : testing::all_formats()) {
    std::vector<PackedWeight> list;
    for (int i = 0; i < 3; ++i) list.push_back(testing::random_packed(one, random, true));
    const Weight w = Weight::from(list, Positions{3}).value();
    const Array values = dequant(w, ValueType::kF32, test_pool()).value();
    const Positions matrices = {2, 0, 2, 1};
    const Weight some = take(w, 0, matrices).value();
    EXPECT_TRUE(same_values(dequant(some, ValueType::kF32, test_pool()).value(),
                            gathered(values, 0, matrices)))
        << testing::text_of(one);
    // As many rows as there are, in another order: every layout can store that many.
    Positions rows;
    for (std::int64_t r = 0; r < one.shape.rows; ++r) rows.push_back((r * 3 + 1) % one.shape.rows);
    const auto moved = take(w, 1, rows);
    if (!moved) {
      // Rows that share a parameter cannot part: said, not done otherwise.
      EXPECT_EQ(moved.error().code, ErrorCode::kNotRepresentable) << moved.error().message;
      continue;
    }
    EXPECT_TRUE(same_values(dequant(*moved, ValueType::kF32, test_pool()).value(),
                            gathered(values, 1, rows)))
        << testing::text_of(one);
  }
}

TEST(TypedWeight, B43_FourRowsOfALargeTableTouchFourRows) {
  constexpr std::int64_t kRows = 150000, kRowBytes = 64 / 32 * 34;
  const auto page = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
  const std::size_t size = (kRows * kRowBytes + page - 1) / page * page;
  void* memory = mmap(nullptr, size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(memory, MAP_FAILED);
  const Positions positions = {7, 149999, 70000, 7};
  for (const std::int64_t row : positions) {
    const std::size_t begin = static_cast<std::size_t>(row * kRowBytes) / page * page;
    const std::size_t end = static_cast<std::size_t>((row + 1) * kRowBytes);
    ASSERT_EQ(mprotect(static_cast<char*>(memory) + begin, (end - begin + page - 1) / page * page,
                       PROT_READ | PROT_WRITE),
              0);
    std::memset(static_cast<char*>(memory) + row * kRowBytes, static_cast<int>(row % 100),
                kRowBytes);
  }
  const Weight w = Weight::q8_0({{kRows, kRowBytes},
                                 {static_cast<const std::byte*>(memory), kRows * kRowBytes},
                                 nullptr,
                                 0})
                       .value();
  const Weight four = take(w, 0, positions).value();
  const ByteArray blocks = std::get<Q8_0Parts>(four.parts()).blocks;
  EXPECT_EQ(blocks.dims, (Dims{4, kRowBytes}));
  for (std::size_t i = 0; i < 4; ++i)
    EXPECT_EQ(blocks.bytes[i * kRowBytes + 5], static_cast<std::byte>(positions[i] % 100));
  munmap(memory, size);
}

TEST(TypedWeight, B44_PositionsOutOfRangeAndNegativeOnesGiveZeroBytes) {
  std::mt19937_64 random(44);
  const Weight q6_k = Weight::q6_k(testing::random_bytes({2, 5, 210}, random)).value();
  const Positions positions = {-1, 5, 2, std::numeric_limits<std::int64_t>::min(),
                               std::numeric_limits<std::int64_t>::max()};
  const Weight taken = take(q6_k, -2, positions).value();
  const ByteArray blocks = std::get<Q6_KParts>(taken.parts()).blocks;
  const std::vector<double> values = doubles(dequant(taken, ValueType::kF32, test_pool()).value());
  for (std::size_t matrix = 0; matrix < 2; ++matrix)
    for (const std::size_t row : {0u, 1u, 3u, 4u}) {
      for (std::size_t i = 0; i < 210; ++i)
        EXPECT_EQ(blocks.bytes[(matrix * 5 + row) * 210 + i], std::byte{0});
      EXPECT_TRUE(std::signbit(values[(matrix * 5 + row) * 256])) << "-0.0 in Q6_K";
    }
  const Weight matrices = take(q6_k, 0, Positions{1, 9}).value();
  EXPECT_EQ(std::get<Q6_KParts>(matrices.parts()).blocks.bytes[5 * 210], std::byte{0});
}

TEST(TypedWeight, B45_RefusesTheLastAxisAndAxesThatAreNotThere) {
  std::mt19937_64 random(45);
  const Weight w = Weight::q8_0(testing::random_bytes({2, 4, 5, 34}, random)).value();
  for (const int axis : {3, -1, 4, -5, 100}) {
    const auto taken = take(w, axis, Positions{0});
    ASSERT_FALSE(taken.has_value()) << axis;
    EXPECT_EQ(taken.error().code, ErrorCode::kInvalidInput);
  }
  const Array values = dequant(w, ValueType::kF32, test_pool()).value();
  for (const int axis : {0, 1, 2, -2, -3, -4}) {
    const std::size_t at = static_cast<std::size_t>(axis < 0 ? axis + 4 : axis);
    const Positions positions = {1, 0, 1};
    EXPECT_TRUE(
        same_values(dequant(take(w, axis, positions).value(), ValueType::kF32, test_pool()).value(),
                    gathered(values, at, positions)))
        << axis;
  }
  EXPECT_EQ(take(w, 1, Positions{}).value().shape(), (Dims{2, 0, 5, 32}));
}

TEST(TypedWeight, B46_WalkVisitsPartsInOrderAndRebuilds) {
  std::mt19937_64 random(46);
  for (const testing::FormatCase& one : testing::all_formats()) {
    const Weight w = testing::weight_of(one, random, true);
    std::vector<std::vector<std::byte>> saved;
    const Weight copy = walk(w,
                             [&](std::string_view name, std::string_view,
                                 const ByteArray& part) -> Result<ByteArray> {
                               EXPECT_EQ(name, format_info(one.id).name);
                               saved.emplace_back(part.bytes.begin(), part.bytes.end());
                               return testing::bytes_of(part.dims, saved.back());
                             })
                            .value();
    EXPECT_EQ(saved.size(), static_cast<std::size_t>(format_info(one.id).plane_count));
    EXPECT_TRUE(same_values(dequant(copy, ValueType::kF32, test_pool()).value(),
                            dequant(w, ValueType::kF32, test_pool()).value()))
        << testing::text_of(one);
  }
}

TEST(TypedWeight, B46_WalkOfANamedCaseRebuildsByItsConstructor) {
  std::mt19937_64 random(47);
  const Weight w = Weight::q8_0(testing::random_bytes({6, 68}, random)).value();
  std::vector<std::string> seen;
  const auto with_dims = [&](Dims dims) {
    return walk(w,
                [&, dims](std::string_view name, std::string_view part,
                          const ByteArray& bytes) -> Result<ByteArray> {
                  seen.push_back(fmt::format("{}.{}", name, part));
                  ByteArray changed = bytes;
                  changed.dims = dims;
                  changed.device = 1;
                  return changed;
                });
  };
  const Weight reshaped = with_dims({2, 3, 68}).value();
  EXPECT_EQ(reshaped.shape(), (Dims{2, 3, 64}));
  EXPECT_EQ(seen, (std::vector<std::string>{"q8_0.blocks"}));
  for (const Dims& dims : {Dims{12, 34 - 1}, Dims{408}, Dims{6, 67}}) {
    const auto broken = with_dims(dims);
    ASSERT_FALSE(broken.has_value()) << dims_text(dims);
    EXPECT_TRUE(broken.error().message.starts_with("weight.walk: blocks: "))
        << broken.error().message;
  }
  const auto refused = walk(w, [](std::string_view, std::string_view, const ByteArray&) {
    return Result<ByteArray>(fail(ErrorCode::kIo, "test.save", "disk", "full", "room"));
  });
  ASSERT_FALSE(refused.has_value());
  EXPECT_EQ(refused.error().code, ErrorCode::kIo);
}

}  // namespace
}  // namespace packstone
