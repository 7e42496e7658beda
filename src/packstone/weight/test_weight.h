// Arrays, weights and exact products for the tests of this room.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <random>

#include "packstone/kernel/test_weights.h"
#include "packstone/transcode/test_layouts.h"
#include "packstone/transcode/unpack.h"
#include "packstone/weight/placed.h"
#include "packstone/weight/product.h"
#include "packstone/weight/weight.h"

namespace packstone::testing {

// Wide enough that a sum of products is exact next to the bounds that the tests check.
#if defined(__SIZEOF_FLOAT128__)
using Wide = __float128;
#else
using Wide = long double;
#endif

// The pool of the tests; results must not depend on it.
inline ThreadPool& test_pool() {
  static ThreadPool pool(3);
  return pool;
}

// The values, each rounded to the type.
inline Array array_of(Dims dims, const std::vector<float>& values,
                      ValueType type = ValueType::kF32) {
  Array array = zeros(type, std::move(dims));
  store_values(values, type, array.bytes.data());
  return array;
}

// The values as float64.
inline Array array_of(Dims dims, const std::vector<double>& values) {
  Array array = zeros(ValueType::kF64, std::move(dims));
  std::memcpy(array.bytes.data(), values.data(), array.bytes.size());
  return array;
}

// Any type as float64; exact.
inline std::vector<double> doubles(const Array& array) {
  std::vector<double> values(array.bytes.size() / value_bytes(array.type));
  load_f64(array.bytes.data(), array.type, values);
  return values;
}

// Random values of a type, in [-1, 1).
inline Array random_array(Dims dims, ValueType type, std::mt19937_64& random) {
  Array array = zeros(type, dims);
  std::uniform_real_distribution<double> distribution(-1, 1);
  for (std::size_t i = 0; i < array.bytes.size() / value_bytes(type); ++i) {
    const double value = distribution(random);
    const float narrow = static_cast<float>(value);
    if (type == ValueType::kF64)
      store_le(array.bytes.data() + 8 * i, value);
    else
      store_values({&narrow, 1}, type, array.bytes.data() + value_bytes(type) * i);
  }
  return array;
}

// A part that owns its bytes.
inline ByteArray bytes_of(Dims dims, std::vector<std::byte> bytes) {
  auto owner = std::make_shared<const std::vector<std::byte>>(std::move(bytes));
  return {std::move(dims), *owner, owner, 0};
}

// A part of random bytes.
inline ByteArray random_bytes(Dims dims, std::mt19937_64& random) {
  std::vector<std::byte> bytes(static_cast<std::size_t>(*element_count(dims)));
  for (std::byte& byte : bytes) byte = static_cast<std::byte>(random());
  return bytes_of(std::move(dims), std::move(bytes));
}

// A shape that the format allows, of a few hundred columns, and its parameters.
struct FormatCase {
  FormatId id;
  FormatParams params;
  Shape shape;
};

// Every format of the registry on the first shape of a list that it takes, with up to four of its
// variants.
inline std::vector<FormatCase> all_formats() {
  std::vector<FormatCase> cases;
  for (std::size_t i = 0; i < kFormatCount; ++i) {
    const FormatId id{static_cast<std::uint16_t>(i)};
    std::vector<FormatParams> variants;
    Shape shape;
    for (const std::int64_t cols : {256, 512})
      for (const std::int64_t rows : {5, 8, 16, 32, 64, 128, 256})
        if (variants.empty()) variants = legal_variants(id, shape = {rows, cols});
    const std::size_t step = std::max<std::size_t>(1, (variants.size() + 2) / 4);
    for (std::size_t at = 0; at < variants.size(); at += step)
      cases.push_back({id, variants[at], shape});
  }
  return cases;
}

// For messages of tests.
inline std::string text_of(const FormatCase& one) {
  return fmt::format("{} [{}, {}] group {}", format_info(one.id).name, one.shape.rows,
                     one.shape.cols, one.params.group_cols);
}

// Random codes and parameters; `wild` ones are subnormal, largest, infinite and NaN too.
inline PackedWeight random_packed(const FormatCase& one, std::mt19937_64& random,
                                  bool wild = false) {
  return random_weight_of({one.id, one.params}, one.shape,
                          wild ? Recipe::kAdversarial : Recipe::kPlain, random);
}

// A weight of random codes; `wild` leaves random bits in its parameters too.
inline Weight weight_of(const FormatCase& one, std::mt19937_64& random, bool wild = false) {
  return *Weight::from(random_packed(one, random, wild));
}

// Finite Q8_0 blocks of the logical dims, by the named constructor.
inline Weight q8_0_of(Dims dims, std::mt19937_64& random) {
  const Shape shape{*element_count(std::span(dims).first(dims.size() - 1)), dims.back()};
  const PackedWeight packed = random_weight(kFormatId<GgufQ8_0>, shape, {}, random);
  dims.back() = dims.back() / 32 * 34;
  return Weight::q8_0({std::move(dims), packed.plane(0), packed.owner(), 0}).value();
}

// Same bytes, NaN equal to NaN.
inline bool same_values(const Array& a, const Array& b) {
  if (a.type != b.type || a.dims != b.dims) return false;
  const std::vector<double> x = doubles(a), y = doubles(b);
  for (std::size_t i = 0; i < x.size(); ++i)
    if (std::bit_cast<std::uint64_t>(x[i]) != std::bit_cast<std::uint64_t>(y[i]) &&
        !(std::isnan(x[i]) && std::isnan(y[i])))
      return false;
  return true;
}

// Half a unit in the last place of a value rounded to a type, and the type's least step.
inline double rounding_of(ValueType type, double value) {
  const int digits = type == ValueType::kF64    ? 53
                     : type == ValueType::kF32  ? 24
                     : type == ValueType::kBF16 ? 8
                                                : 11;
  const double least = type == ValueType::kF64   ? 0
                       : type == ValueType::kF16 ? std::ldexp(1.0, -25)
                                                 : std::ldexp(1.0, -134);
  return std::abs(value) * std::ldexp(1.0, -digits) + least;
}

// The largest number of a type.
inline double largest_of(ValueType type) {
  if (type == ValueType::kF64) return std::numeric_limits<double>::max();
  if (type == ValueType::kF16) return 65504;
  return type == ValueType::kBF16 ? 0x1.FEp127 : 0x1.FFFFFEp127;
}

// B29: |y - y*| <= gamma_k sum |x||w| and one rounding to the type of y, row by row; values [n, k],
// x [m, k], y [m, n].
inline ::testing::AssertionResult holds_bound(const Array& values, const Array& x, const Array& y,
                                              bool f64_sum) {
  const std::vector<double> w = doubles(values), a = doubles(x), b = doubles(y);
  const std::size_t k = static_cast<std::size_t>(values.dims.back());
  if (k == 0) return ::testing::AssertionSuccess();
  const std::size_t n = w.size() / k, m = a.size() / k;
  if (b.size() != m * n) return ::testing::AssertionFailure() << "shape";
  const double u = std::ldexp(1.0, f64_sum ? -53 : -24);
  const double gamma = static_cast<double>(k) * u / (1 - static_cast<double>(k) * u);
  for (std::size_t i = 0; i < m; ++i)
    for (std::size_t r = 0; r < n; ++r) {
      Wide exact = 0, size = 0;
      for (std::size_t c = 0; c < k; ++c) {
        const Wide product = static_cast<Wide>(a[i * k + c]) * w[r * k + c];
        exact += product;
        size += product < 0 ? -product : product;
      }
      if (!std::isfinite(static_cast<double>(size))) continue;  // a value is infinite or NaN
      if (std::isinf(b[i * n + r]) &&
          std::abs(static_cast<double>(exact)) + gamma * static_cast<double>(size) >=
              largest_of(y.type))
        continue;  // rounds past the type's largest number
      const Wide error = exact - b[i * n + r];
      const double off = std::abs(static_cast<double>(error));
      const double bound = gamma * static_cast<double>(size) * (1 + 1e-12);
      const double limit =
          bound + rounding_of(y.type, std::abs(static_cast<double>(exact)) + bound);
      if (!(off <= limit))
        return ::testing::AssertionFailure()
               << "row " << i << ", output " << r << ": " << off << " above " << limit;
    }
  return ::testing::AssertionSuccess();
}

}  // namespace packstone::testing
