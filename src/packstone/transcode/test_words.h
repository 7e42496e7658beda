// Small weights of the word layouts for tests, made of codes and group values.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>

#include "packstone/transcode/test_layouts.h"

namespace packstone::testing {

using CodeOf = std::function<std::uint32_t(std::int64_t row, std::int64_t col)>;
using GroupOf = std::function<GroupValues(std::int64_t row, std::int64_t group)>;

// A weight with these codes and group values, which the format must be able to store.
inline OwnedWeight planes_of(FormatId id, Shape shape, const FormatParams& params,
                             const CodeOf& code, const GroupOf& group) {
  OwnedWeight owned = OwnedWeight::allocate(id, shape, params).value();
  const auto count = static_cast<std::size_t>(ceil_div(shape.cols, group_cols(id, params)));
  std::vector<std::uint32_t> codes(static_cast<std::size_t>(shape.cols));
  std::vector<GroupValues> groups(count);
  std::vector<RawParams> raw(count);
  for (std::int64_t row = 0; row < shape.rows; ++row) {
    for (std::size_t i = 0; i < codes.size(); ++i)
      codes[i] = code(row, static_cast<std::int64_t>(i));
    for (std::size_t i = 0; i < count; ++i) groups[i] = group(row, static_cast<std::int64_t>(i));
    EXPECT_EQ(encode_params(id, params, groups, raw), -1) << format_info(id).name;
    pack_row(id, shape, params, owned.pointers().data(), row, codes, raw);
  }
  return owned;
}

// The same as a weight.
inline PackedWeight weight_of(FormatId id, Shape shape, const FormatParams& params,
                              const CodeOf& code, const GroupOf& group) {
  return planes_of(id, shape, params, code, group).release("made").value();
}

// Group values of one scale and one zero point.
inline GroupOf constant_group(float scale, std::int32_t zero) {
  return [=](std::int64_t, std::int64_t) { return GroupValues{scale, kNoOffset, zero}; };
}

// The first `count` elements of a plane.
template <class T>
std::vector<T> elements(ByteSpan plane, std::size_t count, std::size_t first = 0) {
  std::vector<T> list;
  for (std::size_t i = first; i < first + count; ++i)
    list.push_back(load_le<T>(plane.data() + i * sizeof(T)));
  return list;
}

// All values, row by row.
inline std::vector<float> decoded(const PackedWeight& weight) {
  const Shape shape = weight.shape();
  std::vector<float> values(static_cast<std::size_t>(shape.rows * shape.cols));
  for (std::int64_t row = 0; row < shape.rows; ++row)
    decode_row(weight, row,
               std::span(values).subspan(static_cast<std::size_t>(row * shape.cols),
                                         static_cast<std::size_t>(shape.cols)));
  return values;
}

}  // namespace packstone::testing
