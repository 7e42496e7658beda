// Act-order goes where layouts have no group numbers by a joint move, exact and recorded, or is
// refused with the reason; never in silence (ACT-03).
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <iterator>
#include <random>

#include "packstone/cli/conversion.h"
#include "packstone/cli/test_call.h"
#include "packstone/cli/vectors.h"
#include "packstone/format/registry.h"
#include "packstone/transcode/permute.h"
#include "tests/support/tiny_checkpoint.h"

namespace packstone::cli {
namespace {

namespace fs = std::filesystem;

constexpr std::int64_t kGroup = 32;
constexpr std::string_view kDown = "model.layers.0.mlp.down_proj.weight";

// Group numbers that count.
std::vector<std::int32_t> plain_groups(std::int64_t cols) {
  std::vector<std::int32_t> groups(static_cast<std::size_t>(cols));
  for (std::size_t i = 0; i < groups.size(); ++i)
    groups[i] = static_cast<std::int32_t>(i) / static_cast<std::int32_t>(kGroup);
  return groups;
}

void set_groups(tiny::Tensor& tensor, std::span<const std::int32_t> groups) {
  for (std::size_t i = 0; i < groups.size(); ++i) store_le(tensor.bytes.data() + 4 * i, groups[i]);
}

void shuffle_groups(tiny::Folder& made, const std::string& module, std::mt19937& random) {
  tiny::Tensor& tensor = made.at(module + ".g_idx");
  std::vector<std::int32_t> groups = plain_groups(tensor.shape[0]);
  std::ranges::shuffle(groups, random);
  set_groups(tensor, groups);
}

// Replaces a float matrix by 4-bit gptq_v2: random codes, scales that are powers of two, and zero
// points that are random or, symmetric, all 8.
void pack_gptq(tiny::Folder& made, const std::string& module, bool symmetric,
               std::mt19937& random) {
  const tiny::Tensor dense = made.at(module + ".weight");
  const std::int64_t rows = dense.shape[0], cols = dense.shape[1], groups = cols / kGroup;
  made.erase(module + ".weight");
  const auto bytes = [&](std::int64_t count) {
    std::vector<std::byte> list(static_cast<std::size_t>(count));
    for (std::byte& byte : list) byte = static_cast<std::byte>(random());
    return list;
  };
  tiny::Tensor scales{module + ".scales", "F16", {groups, rows}, bytes(groups * rows * 2)};
  for (std::size_t i = 0; i < scales.bytes.size(); i += 2)
    store_le(scales.bytes.data() + i, static_cast<std::uint16_t>((8 + random() % 4) << 10));
  tiny::Tensor zeros{module + ".qzeros", "I32", {groups, rows / 8}, bytes(groups * rows / 2)};
  if (symmetric) std::ranges::fill(zeros.bytes, std::byte{0x88});
  tiny::Tensor index{module + ".g_idx", "I32", {cols}, bytes(cols * 4)};
  set_groups(index, plain_groups(cols));
  made.tensors.push_back({module + ".qweight", "I32", {cols / 8, rows}, bytes(rows * cols / 2)});
  made.tensors.push_back(std::move(zeros));
  made.tensors.push_back(std::move(scales));
  made.tensors.push_back(std::move(index));
}

// A model of two layers, packed as GPTQ, with the columns of down_proj in act-order and biases in
// the MLP. Sizes are those that every layout takes.
tiny::Folder act_order_folder(bool symmetric, unsigned seed, bool floats_in_mlp = false) {
  std::mt19937 random(seed);
  tiny::Folder made = tiny::folder("llama", 2, seed);
  made.config["num_key_value_heads"] = tiny::kHeads;
  made.config["mlp_bias"] = true;
  for (const char* layer : {"0", "1"}) {
    const std::string prefix = fmt::format("model.layers.{}.", layer);
    for (const char* name : {"k_proj", "v_proj"})
      made.at(fmt::format("{}self_attn.{}.weight", prefix, name)) =
          tiny::random_tensor(fmt::format("{}self_attn.{}.weight", prefix, name),
                              {tiny::kHidden, tiny::kHidden}, random);
    for (const auto& [name, size] : {std::pair("gate", tiny::kIntermediate),
                                     {"up", tiny::kIntermediate},
                                     {"down", tiny::kHidden}})
      made.tensors.push_back(
          tiny::random_tensor(fmt::format("{}mlp.{}_proj.bias", prefix, name), {size}, random));
  }
  std::vector<std::string> modules;
  for (const tiny::Tensor& tensor : made.tensors)
    if (tensor.name.ends_with("_proj.weight"))
      modules.push_back(tensor.name.substr(0, tensor.name.size() - 7));
  for (const std::string& module : modules) {
    if (floats_in_mlp && (module.ends_with("gate_proj") || module.ends_with("up_proj"))) continue;
    pack_gptq(made, module, symmetric, random);
    if (module.ends_with("down_proj")) shuffle_groups(made, module, random);
  }
  made.config["quantization_config"] = {{"quant_method", "gptq"}, {"bits", 4},
                                        {"group_size", kGroup},   {"sym", symmetric},
                                        {"desc_act", true},       {"checkpoint_format", "gptq_v2"}};
  if (floats_in_mlp)
    made.config["quantization_config"]["dynamic"] = {{"-:.*(gate|up)_proj", tiny::Json::object()}};
  return made;
}

std::vector<float> logits_of(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  const std::size_t header = text.find('\n') + 1;
  std::vector<float> values((text.size() - header) / sizeof(float));
  std::memcpy(values.data(), text.data() + header, values.size() * sizeof(float));
  return values;
}

class ActOrder : public ::testing::Test {
 protected:
  std::string path(std::string_view name) const { return (folder_ / name).string(); }
  Json ok(std::vector<std::string> arguments) const {
    arguments.push_back("--json");
    const Called called = call(arguments);
    EXPECT_EQ(called.code, 0) << called.err << called.out;
    return called.json();
  }
  void write(const tiny::Folder& made, std::string_view name = "gptq") const {
    ASSERT_TRUE(tiny::write(folder_ / name, made).has_value());
  }
  // What convert says when it refuses; nothing may be left behind.
  std::string refused(std::string_view layout) const {
    const Called called = call({"convert", path("gptq"), path("no"), "--to", std::string(layout)});
    EXPECT_EQ(called.code, 3) << called.err;
    EXPECT_FALSE(fs::exists(folder_ / "no"));
    const Called plan = call({"plan", path("gptq"), "--to", std::string(layout)});
    EXPECT_EQ(plan.code, 3) << plan.out;
    return called.err;
  }
  static Json entry(const Json& report, std::string_view name) {
    for (const Json& tensor : report["tensors"])
      if (tensor["name"] == name) return tensor;
    ADD_FAILURE() << name;
    return {};
  }
  tiny::TemporaryFolder folder_;
};

void expect_contains(const std::string& text, std::initializer_list<std::string_view> words) {
  for (const std::string_view word : words)
    EXPECT_NE(text.find(word), std::string::npos) << word << " is not in " << text;
}

// Every value of the target is the source's at the place that the source's own group numbers give.
void expect_values(const Checkpoint& source, const Checkpoint& target) {
  ASSERT_EQ(source.tensors.size(), target.tensors.size());
  for (const CheckpointTensor& tensor : source.tensors) {
    const CheckpointTensor* made = target.find(tensor.name);
    ASSERT_NE(made, nullptr) << tensor.name;
    EXPECT_FALSE(made->weight.params().act_order);
    const std::vector<std::int32_t> stored = made->stored_rows();
    const std::vector<float> want = decode_all(tensor.weight), have = decode_all(made->weight);
    const std::size_t mlp = tensor.name.find(".mlp.");
    std::vector<std::int32_t> order;
    if (mlp != std::string::npos)
      order = *sorted_columns(
          source.find(tensor.name.substr(0, mlp) + ".mlp.down_proj.weight")->weight, "down");
    const bool down = tensor.name.ends_with("down_proj.weight");
    const bool follows = mlp != std::string::npos && !tensor.name.contains("down_proj");
    const auto rows = static_cast<std::size_t>(
        tensor.shape.size() == 1 ? tensor.shape[0] : tensor.weight.shape().rows);
    const std::size_t cols = want.size() / rows;
    for (std::size_t row = 0; row < rows; ++row)
      for (std::size_t col = 0; col < cols; ++col) {
        const std::size_t from_row = follows ? static_cast<std::size_t>(order[row]) : row;
        const std::size_t from_col = down ? static_cast<std::size_t>(order[col]) : col;
        const std::size_t at = stored.empty() ? row : static_cast<std::size_t>(stored[row]);
        ASSERT_EQ(want[from_row * cols + from_col], have[at * cols + col])
            << tensor.name << " " << row << ", " << col;
      }
  }
}

// ACT-03: each layout without group numbers takes the model, with the move in the plan, in the
// report and in the certificate; values stand where the sort says, and the logits are those of the
// unsorted model but for the order of sums.
TEST_F(ActOrder, Act03JointMovesAreExactAndRecorded) {
  const unsigned seed = std::random_device()();
  SCOPED_TRACE(fmt::format("seed {}", seed));
  tiny::write_text(folder_ / "ids.json", "[3, 17, 40, 5, 88, 61]");
  for (const bool symmetric : {false, true}) {
    const std::string name = symmetric ? "symmetric" : "gptq";
    write(act_order_folder(symmetric, seed), name);
    const Checkpoint source = *open_checkpoint(folder_ / name);
    ASSERT_TRUE(source.find(kDown)->weight.params().act_order);
    ok({"eval", "logits", path(name), "--tokens", path("ids.json"), "--out", path("a.npy"),
        "--force"});
    const std::vector<float> want = logits_of(folder_ / "a.npy");
    for (const std::string layout : {"mlx-affine", "awq-gemm", "gguf:Q4_1", "ct-pack", "bitblas"}) {
      SCOPED_TRACE(layout);
      const std::string to = name + (layout.starts_with("gguf") ? "out.gguf" : "-" + layout);
      const Json plan = ok({"plan", path(name), "--to", layout});
      const Json made = ok({"convert", path(name), path(to), "--to", layout});
      for (const Json& report : {plan, made}) {
        const Json down = entry(report, kDown);
        EXPECT_TRUE(down["verdict"].get<std::string>().starts_with("same_values"));
        expect_contains(down["conditions"].dump(),
                        {"columns sorted by group", "model.layers.0.mlp.gate_proj.weight",
                         "up_proj.weight", "gate_proj.bias"});
        for (const char* part : {"gate_proj.weight", "up_proj.weight", "up_proj.bias"}) {
          const Json follower = entry(report, fmt::format("model.layers.0.mlp.{}", part));
          EXPECT_TRUE(follower["verdict"].get<std::string>().starts_with("same_values"));
          expect_contains(follower["conditions"].dump(), {"rows in the order", kDown});
          EXPECT_EQ(follower["conditions"].dump().find("way back"), std::string::npos);
        }
        EXPECT_EQ(entry(report, "model.layers.0.self_attn.q_proj.weight")["conditions"].dump().find(
                      "order of the columns"),
                  std::string::npos);
      }
      EXPECT_NE(made["worst_verdict"], "same_bytes");
      expect_values(source, *open_checkpoint(path(to)));
      const Json checked = ok({"verify", path(to), "--against", path(name)});
      EXPECT_EQ(checked["holds"], true);
      expect_contains(entry(checked, kDown)["conditions"].dump(), {"columns sorted by group"});
      ok({"eval", "logits", path(to), "--tokens", path("ids.json"), "--out", path("b.npy"),
          "--force"});
      const std::vector<float> have = logits_of(folder_ / "b.npy");
      ASSERT_EQ(have.size(), want.size());
      for (std::size_t i = 0; i < want.size(); ++i)
        ASSERT_NEAR(have[i], want[i], 1e-3 * (1 + std::abs(want[i]))) << i;
    }
  }
}

// Group numbers stay where the layout has them, and floats are decoded in the source's order.
TEST_F(ActOrder, Act03NothingMovesWhereNothingMust) {
  write(act_order_folder(false, 3));
  for (const char* layout : {"gptq", "gptq_v2", "float32"}) {
    const std::string to = fmt::format("{}-made", layout);
    const Json made = ok({"convert", path("gptq"), path(to), "--to", layout});
    EXPECT_EQ(made.dump().find("sorted by group"), std::string::npos) << layout;
    EXPECT_EQ(call({"verify", path(to), "--against", path("gptq")}).code, 0) << layout;
    EXPECT_TRUE(ok({"diff", path("gptq"), path(to)})["reordered"].empty()) << layout;
  }
}

// Producers that are not packed follow too.
TEST_F(ActOrder, Act03FloatProducersFollow) {
  write(act_order_folder(false, 4, true));
  for (const auto& [to, layout] : {std::pair("mlx", "mlx-affine"), {"q.gguf", "gguf:Q4_1"}}) {
    ok({"convert", path("gptq"), path(to), "--to", layout});
    expect_values(*open_checkpoint(folder_ / "gptq"), *open_checkpoint(folder_ / to));
    EXPECT_EQ(call({"verify", path(to), "--against", path("gptq")}).code, 0) << to;
  }
}

// Rows that share a scale follow only if they stay together: blocks of 64 rows are refused, one
// scale for the whole tensor is not.
TEST_F(ActOrder, RowsThatShareScalesFollowOnlyTogether) {
  constexpr FormatId kFp8 = kFormatId<Fp8<Fp8Kind::kE4M3FN>>;
  const Shape shape{tiny::kIntermediate, tiny::kHidden};
  write(act_order_folder(false, 13));
  Checkpoint source = *open_checkpoint(folder_ / "gptq");
  const ChannelMoves moves(source, [](const CheckpointTensor&) { return true; });
  CheckpointTensor& gate = source.tensors[source.index.at("model.layers.0.mlp.gate_proj.weight")];
  std::ostringstream out, err;
  const std::atomic<bool> never{false};
  Context context(out, err, false, never);
  for (const std::int32_t rows : {64, 128}) {
    OwnedWeight owned = *OwnedWeight::allocate(kFp8, shape, {64, FloatType::kF32, rows});
    for (std::size_t i = 0; i < owned.planes[1].size() / 4; ++i)
      store_le(owned.planes[1].data() + 4 * i, static_cast<float>(i + 1));
    gate.weight = *std::move(owned).release("fp8");
    const TensorPlan plan = plan_pair(gate, kFp8, ContainerKind::kFolder, moves, context);
    EXPECT_EQ(plan.plan.verdict, rows == 64 ? Verdict::kRefused : Verdict::kSameValues) << rows;
    if (rows == 64) expect_contains(plan.plan.reason, {"parameters other rows share"});
  }
}

// diff sees the same values through the sort, in both directions and through floats; a change of
// one value, or of one row's place, is a difference.
TEST_F(ActOrder, DiffUnderstandsJointMoves) {
  write(act_order_folder(false, 5));
  ok({"convert", path("gptq"), path("mlx"), "--to", "mlx-affine"});
  ok({"convert", path("mlx"), path("float"), "--to", "float32"});
  for (const auto& [a, b] : {std::pair("gptq", "mlx"), {"mlx", "gptq"}, {"gptq", "float"}}) {
    const Json json = ok({"diff", path(a), path(b)});
    EXPECT_EQ(json["reordered"].size(), 10u) << a << b;
    EXPECT_TRUE(json["different"].empty());
  }
  EXPECT_TRUE(ok({"diff", path("mlx"), path("float")})["reordered"].empty());
  const fs::path file = folder_ / "float/model.safetensors";
  std::fstream stream(file, std::ios::binary | std::ios::in | std::ios::out);
  const Checkpoint made = *open_checkpoint(folder_ / "float");
  const auto at = made.find("model.layers.1.mlp.gate_proj.bias")->weight.plane(0).data() -
                  made.safetensors.tensors[0].bytes.data();
  const auto offset = static_cast<std::int64_t>(made.safetensors.tensors[0].offset) + at;
  stream.seekp(offset + 2);
  stream.put('\x33').flush();
  const Called called = call({"diff", path("gptq"), path("float"), "--json"});
  EXPECT_EQ(called.code, 3);
  EXPECT_EQ(called.json()["reordered"].size(), 5u) << called.out;  // the other layer's
}

// A flipped bit of any stored tensor of a joint move, on either side, is found.
TEST_F(ActOrder, VerifyFindsAFlippedBit) {
  write(act_order_folder(false, 6));
  ok({"convert", path("gptq"), path("mlx"), "--to", "mlx-affine"});
  ASSERT_EQ(call({"verify", path("mlx"), "--against", path("gptq")}).code, 0);
  std::size_t tried = 0;
  for (const char* side : {"gptq", "mlx"}) {
    const Checkpoint checkpoint = *open_checkpoint(folder_ / side);
    for (const TensorView& view : checkpoint.stored_tensors()) {
      if (view.name.find("layers.0.mlp.") == std::string::npos) continue;
      std::fstream stream(folder_ / side / "model.safetensors",
                          std::ios::binary | std::ios::in | std::ios::out);
      const auto at = static_cast<std::streamoff>(view.offset + view.bytes.size() / 2);
      stream.seekg(at);
      const char first = static_cast<char>(stream.get());
      stream.seekp(at);
      stream.put(static_cast<char>(first ^ 1)).flush();
      const int code = call({"verify", path("mlx"), "--against", path("gptq")}).code;
      EXPECT_TRUE(code == 3 || code == 4) << side << ' ' << view.name << ": " << code;
      stream.seekp(at);
      stream.put(first).flush();
      ++tried;
    }
  }
  EXPECT_GE(tried, 20u);
  EXPECT_EQ(call({"verify", path("mlx"), "--against", path("gptq")}).code, 0);
}

// A target whose rows do not follow is no target of this source, whatever its sums say.
TEST_F(ActOrder, Act03UnsortedProducersAreNoTarget) {
  write(act_order_folder(false, 7));
  tiny::Folder other = act_order_folder(false, 7);
  set_groups(other.at("model.layers.0.mlp.down_proj.g_idx"), plain_groups(tiny::kIntermediate));
  write(other, "other");
  ok({"convert", path("other"), path("mlx"), "--to", "mlx-affine"});
  EXPECT_EQ(call({"verify", path("mlx"), "--against", path("gptq")}).code, 3);
  const Called called = call({"diff", path("gptq"), path("mlx"), "--json"});
  EXPECT_EQ(called.code, 3);
  EXPECT_EQ(called.json()["reordered"].size(), 5u);
}

// ACT-03: columns of the residual stream and of heads keep their order: refused, naming tensor,
// group, reason and what would work.
TEST_F(ActOrder, Act03OtherColumnsAreRefused) {
  for (const auto& [module, reason] : {std::pair("self_attn.q_proj", "residual stream"),
                                       {"self_attn.o_proj", "heads"},
                                       {"mlp.gate_proj", "residual stream"}}) {
    tiny::Folder made = act_order_folder(false, 8);
    const std::string name = fmt::format("model.layers.1.{}", module);
    tiny::Tensor& index = made.at(name + ".g_idx");
    std::vector<std::int32_t> groups = plain_groups(index.shape[0]);
    std::swap(groups[5], groups[40]);
    set_groups(index, groups);
    write(made);
    for (const char* layout : {"mlx-affine", "gguf:Q4_1", "awq-gemm"})
      expect_contains(refused(layout),
                      {name, "column 5 is of group 1, not 0", reason, "no place for group numbers",
                       "use gptq, gptq_v2 or gptq_p"});
    ok({"convert", path("gptq"), path("kept"), "--to", "gptq", "--force"});
    fs::remove_all(folder_ / "gptq");
  }
}

// If one of the three cannot move, none does; each says why.
TEST_F(ActOrder, Act03AllOrNone) {
  tiny::Folder made = act_order_folder(false, 9);
  std::mt19937 random(9);
  shuffle_groups(made, "model.layers.0.mlp.up_proj", random);
  write(made);
  const Called called = call({"convert", path("gptq"), path("no"), "--to", "mlx-affine", "--json"});
  EXPECT_EQ(called.code, 3);
  const Json json = called.json();
  expect_contains(entry(json, "model.layers.0.mlp.up_proj.weight")["reason"], {"residual stream"});
  for (const char* part :
       {"gate_proj.weight", "gate_proj.bias", "up_proj.bias", "down_proj.weight"}) {
    const Json tensor = entry(json, fmt::format("model.layers.0.mlp.{}", part));
    EXPECT_EQ(tensor["verdict"], "refused") << part;
    expect_contains(tensor["reason"],
                    {"only together with model.layers.0.mlp.up_proj.weight", "residual stream"});
  }
  EXPECT_NE(entry(json, "model.layers.0.mlp.down_proj.bias")["verdict"], "refused");
  EXPECT_NE(entry(json, "model.layers.1.mlp.down_proj.weight")["verdict"], "refused");
}

// Groups that sorting does not make whole.
TEST_F(ActOrder, Act03UnevenGroupsAreRefused) {
  tiny::Folder made = act_order_folder(false, 10);
  std::vector<std::int32_t> groups = plain_groups(tiny::kIntermediate);
  groups[0] = 2;
  set_groups(made.at("model.layers.0.mlp.down_proj.g_idx"), groups);
  write(made);
  expect_contains(refused("mlx-affine"),
                  {kDown, "31 columns of group 0", "need 32", "gptq, gptq_v2 or gptq_p",
                   "model.layers.0.mlp.gate_proj.weight: moves together with"});
}

// The sorted copy is in the prediction.
TEST_F(ActOrder, PlanCountsTheSortedCopy) {
  write(act_order_folder(false, 11));
  const Json made = ok({"convert", path("gptq"), path("mlx"), "--to", "mlx-affine"});
  EXPECT_GE(made["peak_memory_predicted"].get<std::uint64_t>(),
            open_checkpoint(folder_ / "gptq")->bytes());
  EXPECT_LE(made["peak_memory_measured"].get<std::uint64_t>(),
            made["peak_memory_predicted"].get<std::uint64_t>());
}

// quantize reads act-order as it is: values change, no order does.
TEST_F(ActOrder, QuantizeKeepsTheOrder) {
  write(act_order_folder(false, 12));
  const Json made = ok({"quantize", path("gptq"), path("q8"), "--method", "rtn", "--to",
                        "mlx-affine", "--bits", "8", "--group-size", "32"});
  EXPECT_EQ(made.dump().find("sorted by group"), std::string::npos);
}

}  // namespace
}  // namespace packstone::cli
