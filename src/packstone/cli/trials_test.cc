// The known faults of packing, zero points, groups, shards and conversion state, each tried on
// files that the program reads and converts.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <iterator>
#include <limits>

#include "packstone/cli/test_call.h"
#include "packstone/cli/vectors.h"
#include "tests/support/packed_folders.h"

namespace packstone::cli {
namespace {

namespace fs = std::filesystem;
constexpr std::int64_t kWide = tiny::kWide;
const std::string kUp = "model.layers.0.mlp.up_proj";

std::string content(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

class Trials : public ::testing::Test {
 protected:
  std::string path(std::string_view name) const { return (folder_ / name).string(); }
  template <class Made>
  void write(std::string_view name, const Made& made) {
    const Status status = tiny::write(folder_ / name, made);
    ASSERT_TRUE(status) << status.error().message;
  }
  Called convert(std::string_view source, std::string_view target, const std::string& layout) {
    return call({"convert", path(source), path(target), "--to", layout, "--force", "--json"});
  }
  void expect_converts(std::string_view source, std::string_view target,
                       const std::string& layout) {
    const Called called = convert(source, target, layout);
    EXPECT_EQ(called.code, 0) << called.err;
    EXPECT_EQ(call({"diff", path(source), path(target)}).code, 0) << source << ' ' << target;
  }
  void expect_refused(std::string_view source, const std::string& layout, int code,
                      const std::vector<std::string>& parts) {
    const Called called = convert(source, "none", layout);
    EXPECT_EQ(called.code, code) << layout << called.err;
    for (const std::string& part : parts)
      EXPECT_NE(called.err.find(part), std::string::npos)
          << called.err << " does not mention " << part;
    EXPECT_FALSE(fs::exists(folder_ / "none"));
  }
  // The tensors of both folders have the same names, types, shapes and bytes.
  void expect_same_tensors(std::string_view a, std::string_view b) {
    const Result<RawCheckpoint> x = open_raw(path(a)), y = open_raw(path(b));
    ASSERT_TRUE(x && y);
    ASSERT_EQ(x->tensors.size(), y->tensors.size());
    for (const TensorView& view : x->tensors) {
      const auto other = std::ranges::find(y->tensors, view.name, &TensorView::name);
      ASSERT_NE(other, y->tensors.end()) << view.name;
      EXPECT_EQ(view.type->name, other->type->name) << view.name;
      EXPECT_EQ(view.shape, other->shape) << view.name;
      EXPECT_TRUE(std::ranges::equal(view.bytes, other->bytes)) << view.name;
    }
  }
  std::vector<float> values(std::string_view name, const std::string& tensor) {
    const Result<Checkpoint> checkpoint = open_checkpoint(path(name));
    EXPECT_TRUE(checkpoint) << checkpoint.error().message;
    return checkpoint ? decode_all(checkpoint->find(tensor)->weight) : std::vector<float>();
  }
  tiny::TemporaryFolder folder_;
};

// An AWQ GEMM folder of codes code(k, n) and zero points zero(g, n), in AWQ's nibble order.
template <class Code, class Zero>
tiny::Folder awq_folder(Code code, Zero zero) {
  constexpr int kOrder[8] = {0, 2, 4, 6, 1, 3, 5, 7};
  tiny::Folder made = tiny::packed_folder("awq-gemm", 4, 64);
  for (tiny::Tensor& tensor : made.tensors) {
    const bool codes = tensor.name.ends_with(".qweight");
    if (!codes && !tensor.name.ends_with(".qzeros")) continue;
    for (std::int64_t row = 0; row < tensor.shape[0]; ++row)
      for (std::int64_t word = 0; word < kWide / 8; ++word) {
        std::uint32_t bits = 0;
        for (int p = 0; p < 8; ++p) {
          const std::int64_t n = 8 * word + kOrder[p];
          bits |= static_cast<std::uint32_t>((codes ? code(row, n) : zero(row, n)) % 16) << 4 * p;
        }
        store_le(tensor.bytes.data() + 4 * (row * kWide / 8 + word), bits);
      }
  }
  return made;
}

std::uint32_t word_of(const RawCheckpoint& raw, const std::string& name, std::int64_t at) {
  const auto view = std::ranges::find(raw.tensors, name, &TensorView::name);
  return load_le<std::uint32_t>(view->bytes.data() + 4 * at);
}

// PCK-02: AWQ to GPTQ to AWQ gives the same bytes; the words are those of both orders.
TEST_F(Trials, Pck02AwqAndGptqOrders) {
  const auto code = [](std::int64_t k, std::int64_t n) { return 3 * k + 5 * n; };
  write("awq", awq_folder(code, [](std::int64_t g, std::int64_t n) { return g + n; }));
  for (const char* layout : {"gptq", "gptq_v2"}) {
    expect_converts("awq", "gptq", layout);
    const Result<RawCheckpoint> raw = open_raw(path("gptq"));
    ASSERT_TRUE(raw);
    for (std::int64_t n = 0; n < kWide; ++n) {
      std::uint32_t bits = 0;
      for (int j = 0; j < 8; ++j) bits |= static_cast<std::uint32_t>(code(8 + j, n) % 16) << 4 * j;
      EXPECT_EQ(word_of(*raw, kUp + ".qweight", kWide + n), bits) << n;
    }
    expect_converts("gptq", "back", "awq-gemm");
    expect_same_tensors("awq", "back");
  }
  // Values 0 to 7 in turn are the words of the definition.
  write("ramp", awq_folder([](std::int64_t, std::int64_t n) { return n % 8; },
                           [](std::int64_t, std::int64_t) { return 0; }));
  EXPECT_EQ(word_of(*open_raw(path("ramp")), kUp + ".qweight", 3), 0x75316420u);
  write("deep", awq_folder([](std::int64_t k, std::int64_t) { return k % 8; },
                           [](std::int64_t, std::int64_t) { return 0; }));
  expect_converts("deep", "deepq", "gptq_v2");
  EXPECT_EQ(word_of(*open_raw(path("deepq")), kUp + ".qweight", 3), 0x76543210u);
}

// PCK-03: unsigned levels around zero point 9 go to a layout of signed integers and back; float
// zeros that are NaN or 15.5 steps are refused.
TEST_F(Trials, Pck03UnsignedAndSignedLevels) {
  write("awq", awq_folder([](std::int64_t k, std::int64_t n) { return k + n; },
                          [](std::int64_t, std::int64_t) { return 9; }));
  expect_converts("awq", "ct", "ct-pack");
  expect_converts("ct", "back", "awq-gemm");
  expect_same_tensors("awq", "back");
  for (const float zero : {std::numeric_limits<float>::quiet_NaN(), 15.5f}) {
    tiny::Folder made = tiny::packed_folder("llm-awq", 4, 128);
    for (tiny::Tensor& tensor : made.tensors)
      for (std::size_t i = 0; i + 1 < tensor.bytes.size(); i += 2) {
        if (tensor.name.ends_with(".scales"))
          store_le(tensor.bytes.data() + i, std::uint16_t{0x3C00});
        if (tensor.name.ends_with(".scaled_zeros"))
          store_le(tensor.bytes.data() + i,
                   static_cast<std::uint16_t>(encode_float(FloatType::kF16, -zero)));
      }
    write("scaled", made);
    for (const char* layout : {"gptq_v2", "awq-gemm", "ct-pack"})
      expect_refused("scaled", layout, 3, {kUp});
  }
}

// PCK-05: a product of 16 bits keeps float32 scales; groups of 16 have no place in MLX.
TEST_F(Trials, Pck05ProductsOfKQuants) {
  tiny::Gguf made = tiny::wide_gguf(tiny::wide_folder());
  for (tiny::Tensor& tensor : made.tensors) {
    if (tensor.name != "blk.0.ffn_up.weight") continue;
    tensor.type = "Q4_K";
    std::vector<std::byte> block(144, std::byte{0x5A});
    store_le(block.data(), std::uint16_t{0x3C01});
    store_le(block.data() + 2, std::uint16_t{0});
    for (int i = 0; i < 4; ++i) {  // all sub-scales 63, all minima 0
      block[static_cast<std::size_t>(4 + i)] = std::byte{0xFF};
      block[static_cast<std::size_t>(8 + i)] = std::byte{0};
      block[static_cast<std::size_t>(12 + i)] = std::byte{0x0F};
    }
    tensor.bytes.clear();
    for (std::int64_t row = 0; row < kWide; ++row)
      tensor.bytes.insert(tensor.bytes.end(), block.begin(), block.end());
  }
  write("q4k.gguf", made);
  expect_converts("q4k.gguf", "mlx", "mlx-affine");
  const Result<Checkpoint> mlx = open_checkpoint(path("mlx"));
  ASSERT_TRUE(mlx) << mlx.error().message;
  EXPECT_EQ(mlx->find(kUp + ".weight")->weight.params().metadata, FloatType::kF32);
  EXPECT_EQ(values("mlx", kUp + ".weight")[0], 10.0f * 64575.0f / 1024.0f);
  for (tiny::Tensor& tensor : made.tensors) {
    if (tensor.name != "blk.0.ffn_up.weight") continue;
    tensor.type = "Q6_K";
    tensor.bytes.assign(kWide * 210, std::byte{0x35});
  }
  write("q6k.gguf", made);
  expect_refused("q6k.gguf", "mlx-affine", 3, {kUp});
}

// PCK-06: NVFP4 with a global scale of 0.3 and every E4M3 byte: codes and scale bytes unchanged
// with the factor beside them, or refused; never folded into other scales.
TEST_F(Trials, Pck06GlobalScaleOfNvfp4) {
  for (const char* layout : {"modelopt-nvfp4", "ct-nvfp4"}) {
    tiny::Folder made = tiny::packed_folder(layout, 4, 0);
    for (tiny::Tensor& tensor : made.tensors) {
      if (tensor.name.ends_with(".weight_scale"))
        for (std::size_t i = 0; i < tensor.bytes.size(); ++i)
          tensor.bytes[i] = static_cast<std::byte>(i);
      if (tensor.name.ends_with("_scale_2") || tensor.name.ends_with("_global_scale"))
        store_le(tensor.bytes.data(), 0.3f);
    }
    write(layout, made);
    ASSERT_EQ(convert(layout, "copy", layout).code, 0);
    expect_same_tensors(layout, "copy");
    for (const char* other : {"mlx-nvfp4", "gguf:NVFP4", "mxfp4"})
      expect_refused(layout, other, 3, {kUp});
  }
  expect_refused("modelopt-nvfp4", "ct-nvfp4", 3, {kUp});
  expect_refused("ct-nvfp4", "modelopt-nvfp4", 3, {kUp});
  // llama.cpp keeps the factor in a tensor of its own: its blocks have no place for it.
  tiny::Gguf made = tiny::wide_gguf(tiny::wide_folder());
  for (tiny::Tensor& tensor : made.tensors) {
    if (tensor.name != "blk.0.ffn_up.weight") continue;
    tensor.type = "NVFP4";
    tensor.bytes.resize(static_cast<std::size_t>(kWide * kWide / 64 * 36));
    for (std::size_t i = 0; i < tensor.bytes.size(); ++i)
      tensor.bytes[i] = static_cast<std::byte>(i % 36 < 4 ? i / 36 * 4 + i % 36 : i * 7);
  }
  made.tensors.push_back({"blk.0.ffn_up.scale", "F32", {1}, tiny::float_bytes({0.3f})});
  write("factor.gguf", made);
  for (const char* layout : {"gguf:NVFP4", "mlx-nvfp4", "modelopt-nvfp4", "float32"})
    expect_refused("factor.gguf", layout, 5,
                   {"blk.0.ffn_up.weight", "factor in 'blk.0.ffn_up.scale'", "no place"});
  EXPECT_NE(call({"inspect", path("factor.gguf")}).out.find("factor in 'blk.0.ffn_up.scale'"),
            std::string::npos);
}

// ZP-02: zero points 0 to 15 in turn, through v1, whose words borrow, and v2, and back.
TEST_F(Trials, Zp02EveryZeroPoint) {
  write("awq", awq_folder([](std::int64_t k, std::int64_t n) { return k * 7 + n; },
                          [](std::int64_t g, std::int64_t n) { return n + 5 * g; }));
  expect_converts("awq", "v1", "gptq");
  expect_converts("v1", "v2", "gptq_v2");
  expect_converts("v2", "v1b", "gptq");
  expect_same_tensors("v1", "v1b");
  expect_converts("v1b", "back", "awq-gemm");
  expect_same_tensors("awq", "back");
}

// GRP-01: groups that do not divide the row have a short last one; a layout without it refuses by
// name.
TEST_F(Trials, Grp01ShortLastGroups) {
  for (const auto& [cols, group] : {std::pair(192, 128), {4304, 32}, {100, 128}}) {
    const tiny::Folder floats = tiny::wide_folder(kWide, cols);
    const FormatId id = *find_layout("ct-pack", 4);
    FormatParams params;
    params.group_cols = group;
    if (layout_rule(id, {kWide, cols}, params) != nullptr) {
      write("floats", floats);
      continue;
    }
    write("short", tiny::packed_folder("ct-pack", 4, group, floats));
    const Result<Checkpoint> checkpoint = open_checkpoint(path("short"));
    ASSERT_TRUE(checkpoint) << checkpoint.error().message;
    expect_converts("short", "wide", "float32");
  }
  // 192 columns in groups of 128: column 128 takes the second scale.
  tiny::Folder made = tiny::packed_folder("gptq", 4, 128, tiny::wide_folder(kWide, 192));
  const std::string down = "model.layers.0.mlp.down_proj";
  EXPECT_EQ(made.at(down + ".scales").shape, (std::vector<std::int64_t>{2, kWide}));
  tiny::Tensor& scales = made.at(down + ".scales");
  for (std::size_t i = 0; i < scales.bytes.size(); i += 2)
    store_le(scales.bytes.data() + i,
             static_cast<std::uint16_t>(i < scales.bytes.size() / 2 ? 0x3C00 : 0x4400));
  for (std::byte& byte : made.at(down + ".qweight").bytes) byte = std::byte{0x99};
  for (std::byte& byte : made.at(down + ".qzeros").bytes) byte = std::byte{0x77};
  write("gptq", made);
  const std::vector<float> decoded = values("gptq", down + ".weight");
  for (std::size_t i = 0; i < decoded.size(); ++i)
    ASSERT_EQ(decoded[i], i % 192 < 128 ? 1.0f : 4.0f) << i;
  made.at(down + ".scales").shape = {1, 2 * kWide};
  write("gptq", made);
  EXPECT_EQ(call({"convert", path("gptq"), path("none"), "--to", "float32"}).code, 4);
}

// GRP-05: NF4 and FP4 at every block size, with a last block that is not full.
TEST_F(Trials, Grp05PartialBlocksOfBitsandbytes) {
  constexpr std::int64_t kRows = 64 * 3 + 6;
  for (const char* layout : {"bnb-nf4", "bnb-fp4"})
    for (int block = 32; block <= 4096; block *= 2) {
      SCOPED_TRACE(fmt::format("{} blocks of {}", layout, block));
      tiny::Folder made = tiny::packed_folder(layout, 4, block, tiny::wide_folder(kWide, kRows));
      tiny::Tensor& absmax = made.at(kUp + ".weight.absmax");
      const std::int64_t blocks = (kRows * kWide + block - 1) / block;
      ASSERT_EQ(absmax.bytes.size(), static_cast<std::size_t>(4 * blocks));
      for (std::int64_t i = 0; i < blocks; ++i)
        store_le(absmax.bytes.data() + 4 * i, 1.0f + static_cast<float>(i));
      // What lies after the codes and after the statistics of the last block.
      for (const char* next : {"model.layers.0.mlp.gate_proj", "model.layers.0.mlp.down_proj"})
        for (std::byte& byte : made.at(std::string(next) + ".weight.absmax").bytes)
          byte = std::byte{0x70};
      std::vector<float> levels(16);
      const tiny::Tensor& map = made.at(kUp + ".weight.quant_map");
      std::memcpy(levels.data(), map.bytes.data(), 64);
      write("bnb", made);
      const std::vector<float> decoded = values("bnb", kUp + ".weight");
      ASSERT_EQ(decoded.size(), static_cast<std::size_t>(kRows * kWide));
      const tiny::Tensor& codes = made.at(kUp + ".weight");
      for (std::size_t i = 0; i < decoded.size(); ++i) {
        const auto byte = std::to_integer<unsigned>(codes.bytes[i / 2]);
        const float level = levels[i % 2 == 0 ? byte >> 4 : byte & 15u];
        ASSERT_EQ(decoded[i], level * (1.0f + static_cast<float>(i / static_cast<unsigned>(block))))
            << i;
      }
    }
}

// GRP-07: FP8 blocks of 128 over 1000 x 300 and 576 rows: row 127 uses scale row 0, row 128 row 1.
TEST_F(Trials, Grp07BlocksThatDoNotDivide) {
  for (const auto& [rows, cols] : {std::pair(1000, 300), {576, 256}}) {
    FormatParams params;
    params.group_cols = params.group_rows = 128;
    params.metadata = FloatType::kF32;
    tiny::Folder made =
        tiny::packed_folder(*find_layout("fp8", 8), params, tiny::wide_folder(cols, rows));
    tiny::Tensor& scales = made.at(kUp + ".weight_scale_inv");
    const std::int64_t bands = (rows + 127) / 128, blocks = (cols + 127) / 128;
    ASSERT_EQ(scales.shape, (std::vector<std::int64_t>{bands, blocks}));
    ASSERT_EQ(scales.type, "F32");
    for (std::int64_t i = 0; i < bands * blocks; ++i)
      store_le(scales.bytes.data() + 4 * i,
               std::ldexp(1.0f, static_cast<int>(i / blocks - i % blocks)));
    for (std::byte& byte : made.at(kUp + ".weight").bytes) byte = std::byte{0x38};  // 1
    write("fp8", made);
    const std::vector<float> decoded = values("fp8", kUp + ".weight");
    for (int row = 0; row < rows; ++row)
      for (int col = 0; col < cols; ++col)
        ASSERT_EQ(decoded[static_cast<std::size_t>(row * cols + col)],
                  std::ldexp(1.0f, row / 128 - col / 128))
            << row << ' ' << col;
    // The shape of blocks of 125 rows is another config.
    scales.shape = {bands * blocks, 1};
    write("fp8", made);
    EXPECT_EQ(call({"convert", path("fp8"), path("none"), "--to", "float32"}).code, 4);
  }
}

// CFG-08: an extra prediction head decides nothing about the norms, which are rewritten once.
TEST_F(Trials, Cfg08AnExtraHeadChangesNoNorm) {
  tiny::Folder made = tiny::folder("gemma3_text");
  write("plain", made);
  std::mt19937 random(1);
  made.tensors.push_back(tiny::random_tensor("mtp.norm.weight", {tiny::kHidden}, random));
  made.tensors.push_back(
      tiny::random_tensor("mtp.fc.weight", {tiny::kHidden, 2 * tiny::kHidden}, random));
  write("extra", made);
  tiny::write_text(folder_ / "tokens.json", "[1, 5, 7, 9]");
  std::vector<std::string> logits;
  for (const char* name : {"plain", "extra"}) {
    const std::string model = name;
    expect_converts(model, model + ".gguf", "gguf:F32");
    expect_converts(model + ".gguf", model + "-back", "float32");
    expect_converts(model + "-back", model + "-again.gguf", "gguf:F32");
    EXPECT_EQ(call({"diff", path(model), path(model + "-again.gguf")}).code, 0);
    for (const char* end : {"", ".gguf", "-back", "-again.gguf"}) {
      const Called called = call({"eval", "logits", path(model + end), "--tokens",
                                  path("tokens.json"), "--out", path("x.npy"), "--force"});
      ASSERT_EQ(called.code, 0) << called.err;
      logits.push_back(content(folder_ / "x.npy"));
    }
  }
  for (const std::string& one : logits) EXPECT_TRUE(one == logits[0]);
}

// SHD-04: a model in three GGUF files opens from any part; every disagreement is refused.
TEST_F(Trials, Shd04SplitSets) {
  const tiny::Gguf whole = tiny::gguf("llama");
  const auto name = [](int part) { return fmt::format("m-{:05}-of-00003.gguf", part + 1); };
  struct Change {
    int number = -1, count = -1, total = -1;  // of the part; -1: right
    bool other = false;                       // tensors of another model
  };
  const auto make = [&](int part, const Change& change) {
    tiny::Gguf made = change.other ? tiny::gguf("llama", 1) : whole;
    const std::size_t all = made.tensors.size(), third = (all + 2) / 3;
    const auto from = made.tensors.begin() + static_cast<std::ptrdiff_t>(third) * part;
    const auto to = part == 2 ? made.tensors.end() : from + static_cast<std::ptrdiff_t>(third);
    made.tensors = {from, to};
    if (part != 0) made.keys.clear();
    const auto said = [](int value, std::size_t right) {
      return value < 0 ? static_cast<std::int32_t>(right) : value;
    };
    made.set("split.no",
             static_cast<std::uint16_t>(said(change.number, static_cast<std::size_t>(part))));
    made.set("split.count", static_cast<std::uint16_t>(said(change.count, 3)));
    made.set("split.tensors.count", said(change.total, all));
    write(name(part), made);
  };
  const auto make_all = [&] {
    for (int part = 0; part < 3; ++part) make(part, {});
  };
  make_all();
  write("whole.gguf", whole);
  for (int part = 0; part < 3; ++part)
    EXPECT_EQ(call({"diff", path("whole.gguf"), path(name(part))}).code, 0) << part;
  expect_converts(name(1), "folder", "float32");
  const auto expect_bad = [&](const std::string& what) {
    for (int part = 0; part < 3; ++part) {
      if (!fs::exists(folder_ / name(part))) continue;
      const Called called = convert(name(part), "none", "float32");
      EXPECT_NE(called.code, 0) << what << part;
      EXPECT_NE(called.err.find("m-0000"), std::string::npos) << called.err;
      EXPECT_FALSE(fs::exists(folder_ / "none"));
    }
    make_all();
  };
  fs::remove(folder_ / name(2));
  expect_bad("a missing part");
  make(1, {.count = 2});
  expect_bad("a part that counts two");
  for (int part = 0; part < 3; ++part) make(part, {.number = part + 1});
  expect_bad("numbers from one");
  make(2, {.total = 5});
  expect_bad("a wrong total");
  make(1, {.other = true});
  expect_bad("a part of another model");
}

}  // namespace
}  // namespace packstone::cli
