// Damaged weights are named by tensor, Hugging Face row and group; a report that cannot be written
// is no failure of finished work; names from files write no control bytes.
#include <gtest/gtest.h>

#include <cstring>
#include <limits>

#include "packstone/cli/test_call.h"
#include "tests/support/tiny_checkpoint.h"

namespace packstone::cli {
namespace {

constexpr std::int64_t kBlockCols = 32;

// Makes a stored matrix one of zero blocks whose first half float (the scale) is 1.
tiny::Tensor& repack(tiny::Gguf& model, std::string_view name, const char* type,
                     std::size_t block_bytes) {
  for (tiny::Tensor& tensor : model.tensors) {
    if (tensor.name != name) continue;
    const auto blocks = static_cast<std::size_t>(tensor.shape[0] * tensor.shape[1] / kBlockCols);
    tensor.type = type;
    tensor.bytes.assign(blocks * block_bytes, std::byte{0});
    for (std::size_t i = 0; i < blocks; ++i) tensor.bytes[i * block_bytes + 1] = std::byte{0x3C};
    return tensor;
  }
  std::abort();
}

void set_half(tiny::Tensor& tensor, std::size_t at, std::uint16_t pattern) {
  std::memcpy(tensor.bytes.data() + at, &pattern, sizeof pattern);
}

class Damage : public ::testing::Test {
 protected:
  // Stored rows 3 and 4 of q (heads of 16) hold the Hugging Face rows 9 and 2.
  void SetUp() override {
    tiny::Gguf model = tiny::gguf("llama");
    tiny::Tensor& q = repack(model, "blk.0.attn_q.weight", "Q4_0", 18);
    set_half(q, (3 * 2 + 1) * 18, 0x7E00);
    set_half(q, (4 * 2 + 1) * 18, 0xFC00);
    tiny::Tensor& v = repack(model, "blk.1.attn_v.weight", "Q4_1", 20);
    set_half(v, (5 * 2 + 0) * 20 + 2, 0x7E00);
    repack(model, "blk.1.attn_output.weight", "Q4_1", 20);
    for (tiny::Tensor& tensor : model.tensors) {
      const float infinity = std::numeric_limits<float>::infinity();
      if (tensor.name == "output_norm.weight")
        std::memcpy(tensor.bytes.data() + 5 * sizeof infinity, &infinity, sizeof infinity);
      if (tensor.name == "blk.0.ffn_up.weight")
        std::memcpy(tensor.bytes.data() + (2 * tiny::kHidden + 7) * sizeof infinity, &infinity,
                    sizeof infinity);
    }
    model.tensors.push_back({"\x1B[2J", "F32", {1}, tiny::float_bytes({1.0f})});
    ASSERT_TRUE(tiny::write(folder_ / "model.gguf", model).has_value());
  }
  std::string path(std::string_view name) const { return (folder_ / name).string(); }
  tiny::TemporaryFolder folder_;
};

// SEC-20: non-finite scales, offsets and values are problems, by tensor, row and group.
TEST_F(Damage, Sec20InspectNamesWhatIsNotFinite) {
  Json one_thread;
  for (const char* threads : {"1", "3"}) {
    const Called called = call({"inspect", path("model.gguf"), "--json", "--threads", threads});
    EXPECT_EQ(called.code, 0) << called.err;
    const Json problems = called.json()["problems"];
    if (one_thread.is_null()) one_thread = problems;
    EXPECT_EQ(problems, one_thread);
  }
  const auto named = [&](const char* text) {
    return std::ranges::count_if(one_thread, [&](const Json& problem) {
      return problem.get<std::string>().find(text) != std::string::npos;
    });
  };
  EXPECT_EQ(named("not finite"), 4) << one_thread.dump(1);
  EXPECT_EQ(named("model.layers.0.self_attn.q_proj.weight: scale -infinity at row 2, group 1; 2 "
                  "groups"),
            1);
  EXPECT_EQ(named("model.layers.1.self_attn.v_proj.weight: offset NaN at row 5, group 0; 1 group "),
            1);
  EXPECT_EQ(named("model.norm.weight: value infinity at row 0, column 5; 1 value "), 1);
  EXPECT_EQ(named("model.layers.0.mlp.up_proj.weight: value infinity at row 2, column 7; 1 value "),
            1);
}

// SEC-20: the exact move keeps the bits or refuses, and names the row as inspect and diff do.
TEST_F(Damage, Sec20ConvertNamesTheHuggingFaceRow) {
  const Called called =
      call({"convert", path("model.gguf"), path("x"), "--to", "mlx-affine", "--json"});
  const Json json = called.json();
  for (const Json& tensor : json["tensors"]) {
    if (tensor["name"] != "model.layers.0.self_attn.q_proj.weight") continue;
    const std::string text = tensor["conditions"].dump() + tensor["reason"].dump();
    EXPECT_NE(text.find("row 2, column"), std::string::npos) << text;
    return;
  }
  ADD_FAILURE() << called.out << called.err;
}

// A stream that takes nothing, as a closed pipe.
class Closed : public std::streambuf {
 protected:
  int_type overflow(int_type) override { return traits_type::eof(); }
};

TEST_F(Damage, FinishedWorkIsZeroWhateverBecomesOfTheReport) {
  const std::atomic<bool> never{false};
  const auto code = [&](std::vector<std::string> words) {
    Closed closed;
    std::ostream out(&closed);
    std::ostringstream err;
    const int result = run_cli(words, {out, err, false}, never);
    EXPECT_NE(err.str().find("standard output"), std::string::npos) << err.str();
    return result;
  };
  EXPECT_EQ(code({"convert", path("model.gguf"), path("y.gguf"), "--to", "gguf:Q4_1"}), 0);
  EXPECT_EQ(code({"convert", path("model.gguf"), path("z.gguf"), "--to", "gguf:Q4_1", "--json"}),
            0);
  EXPECT_TRUE(std::filesystem::exists(folder_ / "z.gguf"));
  EXPECT_EQ(code({"inspect", path("y.gguf")}), 2);
}

TEST_F(Damage, ReportsWriteNoControlBytesOfNames) {
  for (const Called& called :
       {call({"plan", path("model.gguf"), "--to", "gguf:Q4_1"}),
        call({"convert", path("model.gguf"), path("w.gguf"), "--to", "gguf:Q4_1"})}) {
    EXPECT_EQ(called.code, 0) << called.err;
    EXPECT_NE(called.out.find("\\x1B[2J"), std::string::npos) << called.out;
    EXPECT_EQ(called.out.find('\x1B'), std::string::npos);
  }
}

}  // namespace
}  // namespace packstone::cli
