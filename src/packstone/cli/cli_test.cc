// Unknown words, options without effect, and devices give their exit code, one line in the house's
// form, and the nearest valid name; --help tells only what exists.
#include <gtest/gtest.h>

#include <regex>

#include "packstone/cli/command.h"
#include "packstone/cli/test_call.h"
#include "packstone/format/registry.h"

namespace packstone::cli {
namespace {

TEST(Cli, HelpTellsEveryCommandAndNoOther) {
  const Called help = call({"--help"});
  EXPECT_EQ(help.code, 0);
  for (const Command& command : commands())
    EXPECT_NE(help.out.find(command.name), std::string::npos) << command.name;
  for (const char* absent : {"serve", "chat", "bake-lora", "render", "grammar"})
    EXPECT_EQ(help.out.find(absent), std::string::npos) << absent;
}

TEST(Cli, EveryCommandHasHelp) {
  for (const Command& command : commands()) {
    std::vector<std::string> words;
    std::string name(command.name);
    if (const std::size_t space = name.find(' '); space != std::string::npos) {
      words.push_back(name.substr(0, space));
      name.erase(0, space + 1);
    }
    words.push_back(name);
    words.push_back("--help");
    const Called help = call(words);
    EXPECT_EQ(help.code, 0) << command.name;
    EXPECT_NE(help.out.find("--json"), std::string::npos) << command.name;
  }
}

TEST(Cli, UnknownWordsNameTheNearest) {
  for (const auto& [words, nearest] : std::vector<std::pair<std::vector<std::string>, std::string>>{
           {{"inspct", "x"}, "`inspect`"},
           {{"eval", "pppl", "x"}, "`ppl`"},
           {{"serve", "x"}, "need one of inspect"},
           {{"inspect", "x", "--jason"}, "`--json`"},
           {{"convert", "a", "b", "--to", "mlx-afine"}, "`mlx-affine`"},
           {{"convert", "a", "b", "--to", "gguf:Q4_2"}, "`gguf:Q4_"},
           {{"quantize", "a", "b", "--to", "mlx-affine", "--method", "rtm"}, "`rtn`"},
           {{"inspect", "x", "--device", "cpuu"}, "`cpu`"}}) {
    const Called called = call(words);
    EXPECT_EQ(called.code, 2) << words[0];
    EXPECT_EQ(called.out, "");
    EXPECT_NE(called.err.find(nearest), std::string::npos) << called.err;
    EXPECT_EQ(std::ranges::count(called.err, '\n'), 1) << called.err;
  }
}

// The one line of every message: `room.function: subject: got X, need Y; hint`.
void expect_form(const Called& called, int code) {
  EXPECT_EQ(called.code, code) << called.err;
  EXPECT_TRUE(std::regex_match(called.err, std::regex("[a-z_.]+: [^:]+: got .+, need .+\n")))
      << called.err;
  for (const char c : called.err) EXPECT_TRUE(c == '\n' || c >= ' ') << called.err;
}

TEST(Cli, MissingDoubledAndWrongValuesHaveTheForm) {
  for (const char* value : {"0", "-1", "1025", "99999999999999999999", "nan", "inf", "1.5", "0x10",
                            " 1", "+1", "", "abc", "1,2", "--json"})
    expect_form(call({"inspect", "x", "--threads", value}), 2);
  for (const char* value : {"-1", "nan", "inf", "-inf", "101", "0x1p3", "1e999", ""})
    expect_form(call({"generate", "x", "-p", "hi", "--temp", value}), 2);
  expect_form(call({"inspect"}), 2);
  expect_form(call({"inspect", "x", "--threads"}), 2);
  expect_form(call({"inspect", "x", "--threads", "1", "--threads", "2"}), 2);
  expect_form(call({"inspect", "x", "--json=5"}), 2);
  expect_form(call({"convert", "x", "--to", "float32"}), 2);
  expect_form(call({"inspect", std::string(300, 'a')}), 2);
}

TEST(Cli, MessagesHoldNoControlBytesAndStayShort) {
  for (const char* word : {"\x1B[2J", "a\nb", "\xFF\xFE",
                           "\xC2\x9B"
                           "2J",
                           ""}) {
    expect_form(call({"inspect", word}), 2);
    expect_form(call({word}), 2);
    if (*word != 0) expect_form(call({"inspect", "x", std::string("--") + word}), 2);
  }
  EXPECT_LT(call({"inspect", "x", "--" + std::string(1'000'000, 'a')}).err.size(), 20'000u);
}

TEST(Cli, NothingToDoIsTwo) {
  EXPECT_EQ(call({}).code, 2);
  EXPECT_EQ(call({"eval"}).code, 2);
  EXPECT_EQ(call({"inspect"}).code, 2);
  EXPECT_EQ(call({"inspect", "a", "b"}).code, 2);
  EXPECT_EQ(call({"inspect", "/nonexistent/model"}).code, 2);
}

TEST(Cli, WhatTheBuildLacksIsFive) {
  EXPECT_EQ(call({"inspect", "x", "--device", "cuda"}).code, 5);
  EXPECT_EQ(call({"inspect", "x", "--device", "cuda:1"}).code, 5);
  EXPECT_EQ(call({"quantize", "a", "b", "--to", "exl3", "--method", "rtn"}).code, 5);
  EXPECT_EQ(call({"convert", "a", "b.gguf", "--to", "gguf:Q4_K_M"}).code, 5);
  EXPECT_EQ(call({"generate", "a", "-p", "x", "--kv-type", "q8_0"}).code, 5);
  EXPECT_EQ(call({"quantize", "a", "b", "--to", "mlx-affine", "--method", "exl3"}).code, 5);
}

TEST(Cli, OptionsWithoutEffectAreErrors) {
  const std::vector<std::string> rtn = {"quantize",   "a",        "b",  "--to",
                                        "mlx-affine", "--method", "rtn"};
  for (const std::vector<std::string>& more : std::vector<std::vector<std::string>>{
           {"--resume"}, {"--calibration", "x"}, {"--bits", "7"}, {"--group-size", "48"}}) {
    std::vector<std::string> words = rtn;
    words.insert(words.end(), more.begin(), more.end());
    EXPECT_EQ(call(words).code, 2) << more[0];
  }
  EXPECT_EQ(call({"plan", "a", "--to", "mlx-affine", "--bits", "4"}).code, 2);
  EXPECT_EQ(call({"generate", "a", "-p", "x", "--top-p", "0.5"}).code, 2);
  EXPECT_EQ(
      call({"quantize", "a", "b.gguf", "--to", "gguf:Q8_0", "--method", "rtn", "--bits", "4"}).code,
      2);
  EXPECT_EQ(call({"convert", "a", "b.gguf", "--to", "mlx-affine"}).code, 2);
}

TEST(Cli, NumbersOutOfRangeAreErrors) {
  for (const auto& [option, number] :
       std::vector<std::pair<std::string, std::string>>{{"--seed", "-1"},
                                                        {"--seed", "18446744073709551616"},
                                                        {"--max-tokens", "0"},
                                                        {"--max-tokens", "1e3"},
                                                        {"--temp", "-1"},
                                                        {"--top-p", "2"},
                                                        {"--threads", "0"},
                                                        {"--threads", "99999999999999999999"},
                                                        {"--context", "-5"}}) {
    const Called called = call({"generate", "a", "-p", "x", option, number});
    EXPECT_EQ(called.code, 2) << option << number;
    EXPECT_NE(called.err.find("cli.generate"), std::string::npos) << called.err;
  }
}

TEST(Cli, JsonErrorsAreOneDocument) {
  const Called called = call({"inspect", "/nonexistent/model", "--json"});
  const Json document = Json::parse(called.out, nullptr, false);
  ASSERT_TRUE(document.is_object());
  EXPECT_EQ(document["error"]["code"], "not_found");
  EXPECT_EQ(document["error"]["message"].get<std::string>() + "\n", called.err);
}

TEST(Cli, FormatsListsEveryLayout) {
  const Called called = call({"formats", "--json"});
  ASSERT_EQ(called.code, 0);
  const Json table = Json::parse(called.out, nullptr, false);
  ASSERT_EQ(table.size(), kFormatCount);
  for (const Json& row : table)
    for (const char* key :
         {"name", "bits", "group_sizes", "read", "write", "run_cpu", "run_cuda", "exact_to"})
      EXPECT_TRUE(row.contains(key)) << key;
  EXPECT_EQ(call({"formats"}).code, 0);
}

}  // namespace
}  // namespace packstone::cli
