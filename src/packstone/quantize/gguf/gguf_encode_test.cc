// Proves that parity gives ggml's bytes for every type, that bytes and report do not depend on the
// threads, and that what cannot be stored is refused by its place.
#include "packstone/quantize/gguf/gguf_encode.h"

#include <bit>
#include <cmath>
#include <limits>

#include "packstone/quantize/gguf/block_encoder.h"
#include "packstone/quantize/gguf/test_blocks.h"
#include "packstone/transcode/unpack.h"
#include "tests/support/vectors.h"

namespace packstone {
namespace {

using gguf::encodable_formats;
using gguf::encode;

nlohmann::json load_json(std::string_view name) {
  std::string file(name);
  for (char& letter : file)
    if (letter == '.') letter = '_';
  std::ifstream stream(PACKSTONE_SOURCE_DIR "/tests/vectors/gguf_encode/" + file + ".json");
  return nlohmann::json::parse(stream, nullptr, false);
}

std::vector<float> floats_from_hex(const nlohmann::json& text) {
  const std::vector<std::byte> bytes = vectors::from_hex(text.get<std::string>());
  std::vector<float> values(bytes.size() / 4);
  std::memcpy(values.data(), bytes.data(), bytes.size());
  return values;
}

TEST(GgufEncode, EveryTypeHasAnEncoder) {
  EXPECT_EQ(encodable_formats().size(), 18U);
  EXPECT_FALSE(gguf_encode_supports(find_format("gguf.iq2_xxs").value()));
  EXPECT_FALSE(gguf_encode_supports(kFloat32));
}

void expect_bytes(const std::vector<float>& values, Shape shape, FormatId id,
                  const GgufEncodeOptions& options, const nlohmann::json& hex) {
  const auto made = encode(values, shape, id, options);
  ASSERT_TRUE(made.has_value()) << made.error().message;
  const auto bytes = vectors::from_hex(hex.get<std::string>());
  const ByteSpan plane = made->weight.plane(0);
  ASSERT_EQ(plane.size(), bytes.size());
  for (std::size_t i = 0; i < bytes.size(); ++i)
    ASSERT_EQ(plane[i], bytes[i]) << format_info(id).name
                                  << (options.importance.empty() ? " plain" : " weighted")
                                  << " byte " << i;
  EXPECT_EQ(made->from_search, 0);
}

// Ordinary, heavy-tailed, special, ternary and large values, and binary16 corners of the scales.
TEST(GgufEncode, D27_ParityBytesAreThoseOfGgml) {
  const nlohmann::json given = load_json("values"), corners = load_json("corners");
  ASSERT_TRUE(given.is_object() && corners.is_object());
  const Shape shape{given["rows"], given["cols"]};
  const std::vector<float> values = floats_from_hex(given["values"]);
  const std::vector<float> row = floats_from_hex(corners["values"]);
  const std::vector<float> importance = floats_from_hex(given["importance"]);
  int compared = 0;
  for (const FormatId id : encodable_formats()) {
    const nlohmann::json expected = load_json(format_info(id).name);
    ASSERT_TRUE(expected.is_object()) << format_info(id).name;
    const std::string type(format_info(id).name.substr(std::string_view("gguf.").size()));
    const GgufEncodeOptions plain{.mode = GgufMode::kParity};
    const GgufEncodeOptions weighted{.mode = GgufMode::kParity, .importance = importance};
    expect_bytes(values, shape, id, plain, expected["plain"]);
    expect_bytes(values, shape, id, weighted, expected["weighted"]);
    expect_bytes(row, {1, shape.cols}, id, plain, corners["plain"][type]);
    expect_bytes(row, {1, shape.cols}, id, weighted, corners["weighted"][type]);
    compared += 4;
  }
  EXPECT_EQ(compared, 4 * 18);
}

// The top 31 bits of each state of the generator.
std::vector<std::int64_t> congruence(std::uint64_t seed, std::size_t count) {
  std::vector<std::int64_t> numbers(count);
  for (std::int64_t& number : numbers) {
    seed = seed * 6364136223846793005u + 1442695040888963407u;
    number = static_cast<std::int64_t>(seed >> 33);
  }
  return numbers;
}

std::vector<float> congruent_values(std::uint64_t seed) {
  std::vector<float> values;
  for (const std::int64_t number : congruence(seed, 65536)) {
    const auto v = static_cast<float>(number % 2001 - 1000);
    switch (values.size() / 256 % 4) {
      case 0:
        values.push_back(v * 0x1p-12f);
        break;
      case 1:
        values.push_back(v * v * v * 0x1p-32f);
        break;
      case 2:
        values.push_back(std::abs(v) * 0x1p-10f);
        break;
      default:
        values.push_back(v * 0.5f + 700.0f);
    }
  }
  return values;
}

// Groups without weight leave ggml's fits without a determinant, its scales negative, and in Q2_K
// and Q4_K bits that run over into the next field.
TEST(GgufEncode, D27_ParityWithAnImportanceThatIsMostlyZero) {
  const nlohmann::json hashes = load_json("hashes");
  ASSERT_TRUE(hashes.is_object());
  for (std::size_t i = 0; i < hashes["seeds"].size(); ++i) {
    const auto seed = hashes["seeds"][i].get<std::uint64_t>();
    const std::vector<float> values = congruent_values(seed);
    std::vector<float> importance;
    for (const std::int64_t number : congruence(seed + 1, 256))
      importance.push_back(number % 20 == 0 ? 1.0f : 0.0f);
    for (const FormatId id : encodable_formats()) {
      const auto made =
          encode(values, {256, 256}, id, {.mode = GgufMode::kParity, .importance = importance});
      ASSERT_TRUE(made.has_value()) << made.error().message;
      std::uint64_t hash = 0xCBF29CE484222325;
      for (const std::byte byte : made->weight.plane(0))
        hash = (hash ^ std::to_integer<std::uint64_t>(byte)) * 0x100000001B3;
      const std::string type(format_info(id).name.substr(std::string_view("gguf.").size()));
      EXPECT_EQ(fmt::format("{:016x}", hash), hashes["weighted"][type][i].get<std::string>())
          << type << " seed " << seed;
    }
  }
}

// Every power of two and the floats some steps away, where log2 rounds and the exponent byte wraps.
TEST(GgufEncode, D27_Mxfp4ParityNearEveryPowerOfTwo) {
  const nlohmann::json corners = load_json("corners");
  const gguf::BlockEncoder& encoder = *gguf::find_block_encoder(find_format("gguf.mxfp4").value());
  std::uint64_t hash = 0xCBF29CE484222325;
  auto add = [&hash](std::uint32_t byte) { hash = (hash ^ byte) * 0x100000001B3; };
  int blocks = 0;
  for (int exponent = -149; exponent < 128; ++exponent)
    for (const int steps : {0, 1, 2, 5, 11, 22, 44, 45, 64})
      for (const int sign : {1, -1}) {
        const int bits = std::bit_cast<int>(std::ldexp(1.0f, exponent)) + sign * steps;
        if (bits <= 0 || bits >= 0x7F800000) continue;
        const auto edge = std::bit_cast<float>(bits);
        float x[32];
        for (int i = 0; i < 32; ++i) x[i] = edge * (static_cast<float>(i) / 32.0f);
        x[0] = sign < 0 ? -edge : edge;
        std::uint8_t codes[32];
        RawParams raw;
        encoder.parity({x, {}, 0}, {codes, std::span(&raw, 1)});
        add(raw.pattern[0]);
        for (int i = 0; i < 16; ++i) add(codes[i] | codes[i + 16] << 4);
        ++blocks;
      }
  EXPECT_EQ(blocks, corners["mxfp4_blocks"].get<int>());
  EXPECT_EQ(fmt::format("{:016x}", hash), corners["mxfp4_fnv1a"].get<std::string>());
}

// Bytes of a block of 256 columns' worth of each type.
TEST(GgufEncode, D25_SizesOfTheTypes) {
  const std::pair<const char*, std::size_t> sizes[] = {
      {"q1_0", 36},    {"q2_0", 72},   {"q4_0", 144}, {"q4_1", 160}, {"q5_0", 176},
      {"q5_1", 192},   {"q8_0", 272},  {"q2_k", 84},  {"q3_k", 110}, {"q4_k", 144},
      {"q5_k", 176},   {"q6_k", 210},  {"tq1_0", 54}, {"tq2_0", 66}, {"iq4_nl", 144},
      {"iq4_xs", 136}, {"mxfp4", 136}, {"nvfp4", 144}};
  const std::vector<float> values = gguf::gaussian(3 * 256, 8);
  for (const auto& [name, size] : sizes) {
    const FormatId id = find_format(std::string("gguf.") + name).value();
    const auto made = encode(values, {3, 256}, id, {});
    ASSERT_TRUE(made.has_value());
    EXPECT_EQ(made->weight.plane(0).size(), 3 * size) << name;
    EXPECT_EQ(made->blocks, 3 * 256 / gguf::find_block_encoder(id)->block);
  }
}

// The same bytes and report for any number of threads.
TEST(GgufEncode, D7_BytesDoNotDependOnThreads) {
  const Shape shape{23, 512};
  const std::vector<float> values = gguf::heavy_tailed(23 * 512, 1);
  const std::vector<float> importance = gguf::lognormal(512, 2);
  for (const FormatId id : encodable_formats()) {
    std::optional<GgufEncoded> first;
    for (const int threads : {1, 2, 5}) {
      ThreadPool pool(threads);
      auto made = gguf_encode(matrix_rows({values.data(), 23, 512, 512}), shape, id,
                              {.importance = importance}, pool, "weight");
      ASSERT_TRUE(made.has_value()) << made.error().message;
      if (!first) {
        first = std::move(*made);
        continue;
      }
      EXPECT_TRUE(std::ranges::equal(first->weight.plane(0), made->weight.plane(0)));
      EXPECT_EQ(first->report.relative_rms, made->report.relative_rms);
      EXPECT_EQ(first->report.max_abs, made->report.max_abs);
      EXPECT_EQ(first->report.row, made->report.row);
      EXPECT_EQ(first->report.col, made->report.col);
      EXPECT_EQ(first->weighted_rms, made->weighted_rms);
      EXPECT_EQ(first->from_search, made->from_search);
    }
  }
}

TEST(GgufEncode, ReportIsOfTheBytes) {
  const Shape shape{3, 512};
  const std::vector<float> values = gguf::heavy_tailed(3 * 512, 3);
  const std::vector<float> importance = gguf::lognormal(512, 4);
  for (const FormatId id : encodable_formats()) {
    const auto made = encode(values, shape, id, {.importance = importance});
    ASSERT_TRUE(made.has_value()) << made.error().message;
    double error = 0, weight = 0, weighted_error = 0, weighted_weight = 0, largest = 0;
    std::vector<float> decoded(512);
    for (std::int64_t row = 0; row < 3; ++row) {
      decode_row(made->weight, row, decoded);
      for (std::size_t col = 0; col < 512; ++col) {
        const double value = values[static_cast<std::size_t>(row) * 512 + col];
        const double difference = decoded[col] - value;
        error += difference * difference;
        weight += value * value;
        weighted_error += importance[col] * difference * difference;
        weighted_weight += importance[col] * value * value;
        largest = std::max(largest, std::abs(difference));
      }
    }
    EXPECT_NEAR(made->report.relative_rms, std::sqrt(error / weight), 1e-12);
    EXPECT_NEAR(made->weighted_rms, std::sqrt(weighted_error / weighted_weight), 1e-12);
    EXPECT_EQ(made->report.max_abs, largest);
    EXPECT_GT(made->from_search, 0) << format_info(id).name;
  }
}

TEST(GgufEncode, ZeroRowsAreZero) {
  const std::vector<float> values(512, 0.0f);
  for (const FormatId id : encodable_formats())
    for (const GgufMode mode : {GgufMode::kBest, GgufMode::kParity}) {
      const auto made = encode(values, {1, 512}, id, {.mode = mode});
      ASSERT_TRUE(made.has_value()) << made.error().message;
      EXPECT_EQ(made->report.max_abs, 0) << format_info(id).name;
      EXPECT_EQ(made->report.lost_groups, 0);
      EXPECT_EQ(made->report.relative_rms, 0);
    }
}

// The rule of every primitive: finite weights, named by their place.
TEST(GgufEncode, D25_RefusesValuesThatAreNotFiniteByPlace) {
  for (const FormatId id : encodable_formats())
    for (const GgufMode mode : {GgufMode::kBest, GgufMode::kParity})
      for (const float bad : {NAN, INFINITY, -INFINITY}) {
        std::vector<float> values = gguf::heavy_tailed(4 * 256, 5);
        values[2 * 256 + 77] = bad;
        values[3 * 256 + 5] = bad;
        const auto made = encode(values, {4, 256}, id, {.mode = mode});
        ASSERT_FALSE(made.has_value());
        EXPECT_EQ(made.error().code, ErrorCode::kNotRepresentable);
        EXPECT_NE(made.error().message.find("row 2, column 77"), std::string::npos)
            << made.error().message;
      }
}

TEST(GgufEncode, D25_RefusesIllegalShapesAndImportances) {
  const std::vector<float> values(4096, 1.0f);
  const FormatId q4_k = find_format("gguf.q4_k").value();
  const auto code = [](const Result<GgufEncoded>& made) {
    return made ? std::optional<ErrorCode>() : made.error().code;
  };
  EXPECT_EQ(code(encode(values, {4, 96}, q4_k, {})), ErrorCode::kInvalidInput);
  EXPECT_EQ(code(encode(values, {0, 256}, q4_k, {})), ErrorCode::kInvalidInput);
  EXPECT_EQ(code(encode(values, {1, 0}, q4_k, {})), ErrorCode::kInvalidInput);
  EXPECT_EQ(code(encode(values, {-1, 256}, q4_k, {})), ErrorCode::kInvalidInput);
  EXPECT_EQ(code(encode(values, {1, 256}, find_format("gguf.iq2_xxs").value(), {})),
            ErrorCode::kUnsupported);
  std::vector<float> importance(255, 1.0f);
  EXPECT_EQ(code(encode(values, {1, 256}, q4_k, {.importance = importance})),
            ErrorCode::kInvalidInput);
  importance.resize(256, 1.0f);
  for (const float bad : {-1.0f, NAN, INFINITY}) {
    importance[9] = bad;
    const auto made = encode(values, {1, 256}, q4_k, {.importance = importance});
    ASSERT_EQ(code(made), ErrorCode::kInvalidInput);
    EXPECT_NE(made.error().message.find("column 9"), std::string::npos) << made.error().message;
  }
}

// A scale beyond binary16 is never written, in neither mode, nor a value quietly cut.
TEST(GgufEncode, RefusesValuesBeyondTheScales) {
  for (const FormatId id : encodable_formats()) {
    const bool mxfp4 = format_info(id).name == "gguf.mxfp4";
    std::vector<float> values = gguf::heavy_tailed(512, 6);
    values[300] = mxfp4 ? std::numeric_limits<float>::max() : -3e12f;
    const auto best = encode(values, {1, 512}, id, {});
    ASSERT_FALSE(best.has_value()) << format_info(id).name;
    EXPECT_EQ(best.error().code, ErrorCode::kNotRepresentable);
    EXPECT_NE(best.error().message.find("column 300"), std::string::npos);
    const auto parity = encode(values, {1, 512}, id, {.mode = GgufMode::kParity});
    // ggml's NVFP4 cuts at 448.
    if (format_info(id).name == "gguf.nvfp4") {
      ASSERT_TRUE(parity.has_value());
      EXPECT_GT(parity->report.max_abs, 1e11);
      continue;
    }
    ASSERT_FALSE(parity.has_value()) << format_info(id).name;
    EXPECT_EQ(parity.error().code, ErrorCode::kNotRepresentable);
  }
}

// Magnitudes about the ends of binary16 and binary32: a refusal or finite values, never anything
// else, and at most the value itself as the error of what is too small.
TEST(GgufEncode, TinyAndHugeValuesStayFinite) {
  int made_count = 0;
  for (const FormatId id : encodable_formats())
    for (const GgufMode mode : {GgufMode::kBest, GgufMode::kParity})
      for (int exponent = -149; exponent<128; exponent += exponent> - 30 && exponent < 24 ? 1 : 7) {
        std::vector<float> values = gguf::heavy_tailed(256, 7);
        for (float& value : values) value = std::ldexp(std::clamp(value, -1.0f, 1.0f), exponent);
        const auto made =
            encode(values, {1, 256}, id, {.mode = mode, .weighting = GgufWeighting::kImportance});
        if (!made) {
          EXPECT_EQ(made.error().code, ErrorCode::kNotRepresentable) << made.error().message;
          EXPECT_TRUE(exponent > 0 || mode == GgufMode::kParity);
          continue;
        }
        ++made_count;
        std::vector<float> decoded(256);
        decode_row(made->weight, 0, decoded);
        for (const float value : decoded) ASSERT_TRUE(std::isfinite(value));
        if (mode == GgufMode::kBest) {
          EXPECT_LE(made->report.relative_rms, 1.0) << format_info(id).name << " " << exponent;
        }
      }
  EXPECT_GT(made_count, 1000);
}

}  // namespace
}  // namespace packstone
