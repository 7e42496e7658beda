// Proves which types the recipes give to the matrices of a model.
#include "packstone/cli/gguf_recipes.h"

#include <gtest/gtest.h>

#include <map>

#include "packstone/cli/test_call.h"
#include "tests/support/tiny_checkpoint.h"

namespace packstone::cli {
namespace {

// Types by matrix of packstone-17m: 4 layers, widths that blocks of 256 divide, tied embeddings.
std::map<std::string, std::string> types(const std::string& recipe) {
  const std::string model = std::string(PACKSTONE_SOURCE_DIR) + "/models/packstone-17m";
  const Called called = call({"plan", model, "--to", recipe, "--method", "rtn", "--json"});
  EXPECT_EQ(called.code, 0) << called.err;
  const Json plan = called.json();
  std::map<std::string, std::string> found;
  for (const Json& tensor : plan["tensors"]) {
    std::string type = tensor["to"];
    found[tensor["name"]] = type;
  }
  return found;
}

std::string letters(const std::map<std::string, std::string>& found, std::string_view matrix) {
  std::string all;
  for (int layer = 0; layer < 4; ++layer)
    all += found.at(fmt::format("model.layers.{}.{}.weight", layer, matrix))[6];
  return all;
}

TEST(GgufRecipes, GiveMatricesTypesByLayer) {
  struct Case {
    const char *name, *values, *down, *output, *gate;
  };
  // By the rules of llama-quantize: the digit of gguf:Q._K, layer by layer.
  const Case cases[] = {{"gguf:Q2_K_S", "2222", "2222", "2222", "2222"},
                        {"gguf:Q3_K_S", "3333", "3333", "3333", "3333"},
                        {"gguf:Q3_K_M", "5544", "4444", "4444", "3333"},
                        {"gguf:Q3_K_L", "5555", "5555", "5555", "3333"},
                        {"gguf:Q4_K_S", "5555", "4444", "4444", "4444"},
                        {"gguf:Q4_K_M", "4466", "4466", "4444", "4444"},
                        {"gguf:Q5_K_S", "5555", "5555", "5555", "5555"},
                        {"gguf:Q5_K_M", "5566", "5566", "5555", "5555"}};
  for (const Case& one : cases) {
    const auto found = types(one.name);
    EXPECT_EQ(letters(found, "self_attn.v_proj"), one.values) << one.name;
    EXPECT_EQ(letters(found, "mlp.down_proj"), one.down) << one.name;
    EXPECT_EQ(letters(found, "self_attn.o_proj"), one.output) << one.name;
    EXPECT_EQ(letters(found, "mlp.gate_proj"), one.gate) << one.name;
    EXPECT_EQ(found.at("model.embed_tokens.weight"), "gguf:Q6_K") << one.name;
  }
}

// Columns that blocks of 256 do not divide get a type with smaller blocks, and the plan says so.
TEST(GgufRecipes, SmallWidthsTakeSmallerBlocks) {
  const tiny::TemporaryFolder folder;
  ASSERT_TRUE(tiny::write(folder / "model.gguf", tiny::gguf("llama")).has_value());
  const Called called = call({"plan", (folder / "model.gguf").string(), "--to", "gguf:Q4_K_M",
                              "--method", "rtn", "--json"});
  ASSERT_EQ(called.code, 0) << called.err;
  const Json plan = called.json();
  int named = 0;
  for (const Json& tensor : plan["tensors"]) {
    if (tensor["name"] == "model.layers.1.self_attn.q_proj.weight") {
      EXPECT_EQ(tensor["to"], "gguf:Q5_0");
    }
    for (const Json& condition : tensor["conditions"])
      named += condition.get<std::string>().find("do not divide") != std::string::npos;
  }
  EXPECT_EQ(named, 15);
}

}  // namespace
}  // namespace packstone::cli
