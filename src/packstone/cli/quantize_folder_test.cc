// packstone quantize to the layouts of folders that have encoders of their own: what is written
// loads and runs, in both modes and for every sharing of scales, and calls without sense are
// refused.
#include <gtest/gtest.h>

#include <fstream>

#include "packstone/cli/test_call.h"
#include "tests/support/packed_folders.h"
#include "tests/support/tiny_checkpoint.h"

namespace packstone::cli {
namespace {

namespace fs = std::filesystem;

class QuantizeFolder : public ::testing::Test {
 protected:
  void SetUp() override {
    ASSERT_TRUE(tiny::write(folder_ / "model", tiny::wide_folder()).has_value());
    std::ofstream ids(folder_ / "ids.json");
    ids << "[";
    for (int i = 0; i < 96; ++i) ids << (i ? "," : "") << i * 7 % 23;
    ids << "]";
  }
  std::string path(std::string_view name) const { return (folder_ / name).string(); }
  Called quantize(std::string_view target, std::vector<std::string> more) const {
    std::vector<std::string> arguments = {"quantize", path("model"), path(target), "--json"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return call(arguments);
  }
  // The error of the tensors that changed; -1 where none did.
  static double error_of(const Json& json) {
    double sum = -1;
    for (const Json& tensor : json["tensors"])
      if (tensor.contains("relative_rms"))
        sum = std::max(sum, 0.0) + tensor["relative_rms"].get<double>();
    return sum;
  }
  tiny::TemporaryFolder folder_;
};

TEST_F(QuantizeFolder, EveryLayoutRunsAndBestIsNoWorse) {
  const std::vector<std::vector<std::string>> calls = {
      {"--method", "fp8", "--to", "fp8"},
      {"--method", "fp8", "--to", "fp8", "--scales", "tensor"},
      {"--method", "fp8", "--to", "fp8", "--scales", "block"},
      {"--method", "fp8", "--to", "fp8-divisor", "--scales", "row"},
      {"--method", "fp8", "--to", "fp8-e5m2-divisor", "--scales", "tensor"},
      {"--method", "fp8", "--to", "fp8-e4m3fnuz-divisor", "--scales", "block", "--group-size",
       "64"},
      {"--method", "fp8", "--to", "fp8-e5m2fnuz", "--scales", "block"},
      {"--method", "fp8", "--to", "fp8-e8m0", "--scales", "block"},
      {"--method", "bnb", "--to", "bnb-nf4"},
      {"--method", "bnb", "--to", "bnb-nf4-nested", "--group-size", "128"},
      {"--method", "bnb", "--to", "bnb-fp4", "--group-size", "4096"},
      {"--method", "bnb", "--to", "bnb-fp4-nested"},
      {"--method", "bnb", "--to", "bnb-int8"},
      {"--method", "qqq", "--to", "qqq"},
      {"--method", "qqq", "--to", "qqq", "--group-size", "128"},
      {"--method", "rtn", "--to", "qqq-g128"},
      {"--method", "rtn", "--to", "mlx-mxfp4"},
      {"--method", "rtn", "--to", "mlx-mxfp8"},
      {"--method", "rtn", "--to", "mlx-nvfp4"},
      {"--method", "rtn", "--to", "ct-nvfp4"},
      {"--method", "rtn", "--to", "modelopt-nvfp4"},
  };
  int number = 0;
  for (const auto& arguments : calls) {
    const std::string name = fmt::format("{}", fmt::join(arguments, " "));
    double errors[2] = {};
    for (const int parity : {0, 1}) {
      std::vector<std::string> more = arguments;
      if (parity != 0) more.insert(more.end(), {"--mode", "parity"});
      const std::string target = fmt::format("out{}", number++);
      const Called made = quantize(target, more);
      ASSERT_EQ(made.code, 0) << name << made.err;
      errors[parity] = error_of(made.json());
      EXPECT_GT(errors[parity], 0) << name;
      const Called run = call({"eval", "logits", path(target), "--tokens", path("ids.json"),
                               "--out", path("x.npy"), "--force", "--json"});
      EXPECT_EQ(run.code, 0) << name << run.err;
    }
    EXPECT_LE(errors[0], errors[1] * (1 + 1e-6)) << name;
  }
}

TEST_F(QuantizeFolder, FeedbackRunsOnFloatBlocksAndRowScales) {
  for (const std::string layout :
       {"mlx-mxfp4", "mlx-mxfp8", "mlx-nvfp4", "ct-nvfp4", "modelopt-nvfp4", "qqq", "qqq-g128"}) {
    const Called made = quantize(layout, {"--method", "gptq", "--to", layout, "--calibration",
                                          path("ids.json"), "--sequence-length", "16"});
    ASSERT_EQ(made.code, 0) << layout << made.err;
    int fed = 0;
    const Json json = made.json();
    for (const Json& tensor : json["tensors"])
      fed += tensor.contains("proxy_error") && tensor.contains("loss");
    EXPECT_GE(fed, 7) << layout;
    EXPECT_EQ(call({"eval", "logits", path(layout), "--tokens", path("ids.json"), "--out",
                    path("x.npy"), "--force", "--json"})
                  .code,
              0);
  }
}

TEST_F(QuantizeFolder, CallsWithoutSenseAreRefused) {
  struct Case {
    std::vector<std::string> more;
    int code;
  };
  const Case cases[] = {
      {{"--method", "fp8", "--to", "bnb-nf4"}, 2},
      {{"--method", "bnb", "--to", "fp8"}, 2},
      {{"--method", "qqq", "--to", "mlx-affine"}, 2},
      {{"--method", "fp8", "--to", "fp8", "--scales", "col"}, 2},
      {{"--method", "fp8", "--to", "fp8", "--group-size", "64"}, 2},
      {{"--method", "rtn", "--to", "mlx-affine", "--scales", "row"}, 2},
      {{"--method", "bnb", "--to", "bnb-nf4", "--group-size", "48"}, 2},
      {{"--method", "bnb", "--to", "bnb-int8", "--group-size", "64"}, 2},
      {{"--method", "qqq", "--to", "qqq", "--group-size", "64"}, 2},
      {{"--method", "gptq", "--to", "fp8", "--calibration", path("ids.json")}, 5},
  };
  for (const Case& one : cases) {
    const Called called = quantize("z", one.more);
    EXPECT_EQ(called.code, one.code) << fmt::format("{}", fmt::join(one.more, " ")) << called.err;
    EXPECT_FALSE(fs::exists(folder_ / "z"));
  }
}

}  // namespace
}  // namespace packstone::cli
