// Proves that codes read and written in blocks are those read and written one by one, for every
// format, on random bytes, with blocks that begin and end anywhere in the rows.
#include <random>

#include "packstone/transcode/test_layouts.h"

namespace packstone {
namespace {

constexpr std::uint64_t kSeed = 20261201;

struct Bytes {
  std::vector<std::vector<unsigned char>> planes;
  std::vector<unsigned char*> pointers;
  std::vector<const unsigned char*> const_pointers;
};

Bytes random_bytes(const testing::Layout& layout, Shape shape, std::mt19937_64& random) {
  Bytes bytes;
  for (int plane = 0; plane < format_info(layout.id).plane_count; ++plane) {
    bytes.planes.emplace_back(plane_bytes(layout.id, plane, shape, layout.params));
    for (unsigned char& byte : bytes.planes.back()) byte = static_cast<unsigned char>(random());
  }
  for (auto& plane : bytes.planes) {
    bytes.pointers.push_back(plane.data());
    bytes.const_pointers.push_back(plane.data());
  }
  return bytes;
}

// A block of the shape that begins and ends at tiles of columns.
CodeBlock random_block(Shape shape, std::int64_t tile, std::mt19937_64& random) {
  const auto below = [&](std::int64_t end) {
    return static_cast<std::int64_t>(random() % static_cast<std::uint64_t>(end + 1));
  };
  CodeBlock block;
  block.row = below(shape.rows);
  block.rows = below(shape.rows - block.row);
  block.col = below(shape.cols / tile) * tile;
  block.cols = below((shape.cols - block.col) / tile) * tile;
  if (random() % 3 == 0) block = {0, shape.rows, 0, shape.cols, 0};
  block.stride = block.cols + below(3);
  return block;
}

void check_read(const testing::Layout& layout, Shape shape, std::mt19937_64& random) {
  const FormatOps& ops = format_ops(layout.id);
  const Bytes bytes = random_bytes(layout, shape, random);
  const ConstPlanes planes{bytes.const_pointers.data(), shape, layout.params};
  const CodeBlock block = random_block(shape, ops.tile_cols, random);
  std::vector<std::uint8_t> codes(static_cast<std::size_t>(block.rows * block.stride) + 1, 0xEE);
  ops.read_code_bytes(planes, block, codes.data());
  std::vector<std::uint32_t> row(static_cast<std::size_t>(shape.cols));
  for (std::int64_t r = 0; r < block.rows; ++r) {
    ops.read_codes(planes, block.row + r, row.data());
    for (std::int64_t c = 0; c < block.stride; ++c) {
      const std::uint32_t want =
          c < block.cols ? row[static_cast<std::size_t>(block.col + c)] : 0xEE;
      ASSERT_EQ(codes[static_cast<std::size_t>(r * block.stride + c)], want)
          << testing::show(layout) << " row " << block.row + r << " column " << block.col + c;
    }
  }
  ASSERT_EQ(codes.back(), 0xEE);
}

void check_write(const testing::Layout& layout, Shape shape, std::mt19937_64& random) {
  const FormatOps& ops = format_ops(layout.id);
  const Bytes one = random_bytes(layout, shape, random);
  Bytes other{one.planes, {}, {}};
  for (auto& plane : other.planes) other.pointers.push_back(plane.data());
  const CodeBlock block = random_block(shape, ops.tile_cols, random);
  std::vector<std::uint8_t> codes(static_cast<std::size_t>(block.rows * block.stride) + 1);
  for (std::uint8_t& code : codes) code = static_cast<std::uint8_t>(random());
  const bool good =
      ops.write_code_bytes({one.pointers.data(), shape, layout.params}, block, codes.data());
  // The rows of the block as they are, with the block's codes.
  bool want = true;
  std::vector<std::uint32_t> row(static_cast<std::size_t>(shape.cols));
  std::vector<const unsigned char*> now(other.pointers.begin(), other.pointers.end());
  for (std::int64_t r = 0; r < block.rows; ++r) {
    ops.read_codes({now.data(), shape, layout.params}, block.row + r, row.data());
    for (std::int64_t c = 0; c < block.cols; ++c)
      row[static_cast<std::size_t>(block.col + c)] =
          codes[static_cast<std::size_t>(r * block.stride + c)];
    want =
        ops.write_codes({other.pointers.data(), shape, layout.params}, block.row + r, row.data()) &&
        want;
  }
  ASSERT_EQ(good, want) << testing::show(layout);
  if (good) {
    ASSERT_EQ(one.planes, other.planes) << testing::show(layout);
  }
}

TEST(CodeBytes, BlocksAreTheCodesOneByOne) {
  SCOPED_TRACE(kSeed);
  std::mt19937_64 random(kSeed);
  int checked = 0;
  for (const Shape shape : {Shape{3, 256}, Shape{40, 96}, Shape{64, 512}, Shape{128, 320}})
    for (const testing::Layout& layout : testing::layouts_at(shape)) {
      const FormatInfo& info = format_info(layout.id);
      const FormatOps& ops = format_ops(layout.id);
      ASSERT_EQ(ops.read_code_bytes != nullptr, info.code_bits <= 8);
      ASSERT_EQ(ops.write_code_bytes != nullptr, info.code_bits <= 8);
      if (ops.read_code_bytes == nullptr) continue;
      for (int repeat = 0; repeat < 4; ++repeat) {
        check_read(layout, shape, random);
        if (!info.block_codes) check_write(layout, shape, random);
        ++checked;
      }
    }
  EXPECT_GT(checked, 200);
}

}  // namespace
}  // namespace packstone
