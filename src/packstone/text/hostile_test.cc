// Proves that broken and hostile tokenizer files give typed errors, without crash or large memory,
// and that long inputs stay cheap.
#include <gtest/gtest.h>

#include <chrono>

#include "packstone/text/pre_rules.h"
#include "packstone/text/regex.h"
#include "packstone/text/tokenizer.h"

namespace packstone {
namespace {

std::string document(const std::string& model, const std::string& rest = "") {
  return R"({"version":"1.0",)" + rest + R"("model":)" + model + "}";
}

const std::string kSmall = R"({"type":"BPE","vocab":{"a":0,"b":1,"ab":2},"merges":["a b"]})";

ErrorCode code_of(const std::string& text, const std::string& config = "") {
  const auto tokenizer = Tokenizer::from_json(text, config);
  EXPECT_FALSE(tokenizer) << text.substr(0, 200);
  return tokenizer ? ErrorCode::kCancelled : tokenizer.error().code;
}

TEST(Hostile, BrokenFilesAreCorrupt) {
  const std::vector<std::string> cases = {
      "",
      "{",
      "[]",
      "null",
      "{}",
      "\xFF\xFE",
      document("[]"),
      document(R"({"type":"BPE","vocab":[],"merges":[]})"),
      document(R"({"type":"BPE","vocab":{"a":-1},"merges":[]})"),
      document(R"({"type":"BPE","vocab":{"a":1.5},"merges":[]})"),
      document(R"({"type":"BPE","vocab":{"a":"0"},"merges":[]})"),
      document(R"({"type":"BPE","vocab":{"a":2147483648},"merges":[]})"),
      document(R"({"type":"BPE","vocab":{"a":18446744073709551615},"merges":[]})"),
      document(R"({"type":"BPE","vocab":{"a":3999999},"merges":[]})"),
      document(R"({"type":"BPE","vocab":{"a":0,"b":0},"merges":[]})"),
      document(R"({"type":"BPE","vocab":{"a":0,"a":1},"merges":[]})"),
      document(R"({"type":"BPE","vocab":{"a":0,"b":1},"merges":["a b"]})"),
      document(R"({"type":"BPE","vocab":{"a":0,"b":1,"ab":2},"merges":["a b c"]})"),
      document(R"({"type":"BPE","vocab":{"a":0,"b":1,"ab":2},"merges":["ab"]})"),
      document(R"({"type":"BPE","vocab":{"a":0,"b":1,"ab":2},"merges":[["a"]]})"),
      document(R"({"type":"BPE","vocab":{"a":0,"b":1,"ab":2},"merges":[["a","b","c"]]})"),
      document(R"({"type":"BPE","vocab":{"a":0,"b":1,"ab":2},"merges":{"a":1}})"),
      document(R"({"type":"BPE","unk_token":"<unk>","vocab":{"a":0},"merges":[]})"),
      document(R"({"type":"BPE","continuing_subword_prefix":"##","vocab":{"a":0,"b":1,"ab":2},)"
               R"("merges":["a b"]})"),
      document(kSmall, R"("added_tokens":{},)"),
      document(kSmall, R"("added_tokens":[{"id":3,"content":"x"}],)"),
      document(kSmall,
               R"("added_tokens":[{"id":9,"content":"x","single_word":false,"lstrip":false,)"
               R"("rstrip":false,"normalized":false,"special":true}],)"),
      document(kSmall, R"("pre_tokenizer":{"type":"Split","behavior":"Isolated","invert":false},)"),
      document(kSmall, R"("pre_tokenizer":{"type":"Split","pattern":{"String":" "},)"
                       R"("behavior":"Sideways","invert":false},)"),
      document(kSmall, R"("pre_tokenizer":{"type":"Sequence"},)"),
      document(kSmall, R"("pre_tokenizer":{"kind":"Sequence"},)"),
      document(kSmall, R"("normalizer":{"type":"Prepend"},)"),
      document(kSmall, R"("normalizer":{"type":"Sequence","normalizers":3},)"),
      document(kSmall, R"("decoder":{"type":"Strip","content":"ab","start":0,"stop":0},)"),
      document(kSmall, R"("decoder":{"type":"Strip","content":"a","start":-1,"stop":0},)"),
      document(kSmall, R"("post_processor":{"type":"TemplateProcessing","single":[]},)"),
      document(kSmall, R"("post_processor":{"type":"TemplateProcessing","single":[{"SpecialToken":)"
                       R"({"id":"x","type_id":0}}],"special_tokens":{"x":{"ids":[7]}}},)"),
  };
  for (const std::string& text : cases) EXPECT_EQ(code_of(text), ErrorCode::kCorruptData) << text;
  EXPECT_EQ(code_of(document(kSmall), "{"), ErrorCode::kCorruptData);
}

TEST(Hostile, UnknownRulesAreRefusedByName) {
  const std::vector<std::pair<std::string, std::string>> cases = {
      {document(R"({"type":"Unigram","vocab":{},"merges":[]})"), "Unigram"},
      {document(R"({"type":"BPE","dropout":0.5,"vocab":{"a":0},"merges":[]})"), "dropout"},
      {document(kSmall, R"("normalizer":{"type":"Precompiled"},)"), "Precompiled"},
      {document(kSmall, R"("pre_tokenizer":{"type":"UnicodeScripts"},)"), "UnicodeScripts"},
      {document(kSmall, R"("decoder":{"type":"CTC"},)"), "CTC"},
      {document(kSmall, R"("post_processor":{"type":"Odd"},)"), "Odd"},
  };
  for (const auto& [text, name] : cases) {
    const auto tokenizer = Tokenizer::from_json(text, "");
    ASSERT_FALSE(tokenizer) << text;
    EXPECT_EQ(tokenizer.error().code, ErrorCode::kUnsupported);
    EXPECT_NE(tokenizer.error().message.find(name), std::string::npos) << tokenizer.error().message;
  }
  Vocabulary vocabulary;
  vocabulary.model = "gpt2";
  vocabulary.pre = "default";
  vocabulary.tokens = {"a"};
  const auto tokenizer = Tokenizer::from_vocabulary(vocabulary);
  ASSERT_FALSE(tokenizer);
  EXPECT_NE(tokenizer.error().message.find("'default'"), std::string::npos);
}

TEST(Hostile, DeepNestingIsRefused) {
  const std::string open(100'000, '[');
  EXPECT_EQ(code_of(open), ErrorCode::kCorruptData);
  std::string rule = R"({"type":"NFC"})";
  for (int i = 0; i < 80; ++i) {
    rule = fmt::format(R"({{"type":"Sequence","normalizers":[{}]}})", rule);
  }
  EXPECT_EQ(code_of(document(kSmall, fmt::format("\"normalizer\":{},", rule))),
            ErrorCode::kCorruptData);
}

TEST(Hostile, PatternsThatBacktrackWithoutBoundAreReported) {
  for (const char* pattern : {"(a+)+$x", "(a|aa)+\\\\z", "(?:a*)*b", "(\\\\s*\\\\w*)*#"}) {
    const std::string rule = fmt::format(
        R"("pre_tokenizer":{{"type":"Split","pattern":{{"Regex":"{}"}},"behavior":"Isolated",)"
        R"("invert":false}},)",
        pattern);
    const auto start = std::chrono::steady_clock::now();
    const auto tokenizer = Tokenizer::from_json(document(kSmall, rule), "");
    if (!tokenizer) {
      EXPECT_EQ(tokenizer.error().code, ErrorCode::kUnsupported) << tokenizer.error().message;
    } else {
      std::string text(50'000, 'a');
      text.push_back('!');
      const auto ids = tokenizer->try_encode(text);
      EXPECT_TRUE(ids || ids.error().code == ErrorCode::kExhausted);
    }
    EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(20)) << pattern;
  }
}

TEST(Hostile, PatternsWithAnotherMeaningAreTranslatedOrRefused) {
  for (const char* pattern :
       {"[a[b]]", "[a&&b]", "\\G", "\\X", "\\1", "(?x)a", "(?<n>a)", "a(?i)b", "\\p{Foo}",
        "[\\P{L}]", "\\", "[a", "a)", "\\u12", "\\xff", "(*UCP)"}) {
    const auto regex = text::Regex::compile(pattern);
    EXPECT_FALSE(regex) << pattern;
  }
  EXPECT_EQ(*text::translate_pattern("a{1,3}+"), "(?:a{1,3})+");
  EXPECT_EQ(*text::translate_pattern("a{,3}"), "a{0,3}");
  EXPECT_EQ(*text::translate_pattern("(ab){2}?"), "(?:(ab){2})?");
  EXPECT_EQ(*text::translate_pattern("\\v"), "\\x{b}");
  EXPECT_EQ(*text::translate_pattern("(?m:.)"), "(?s:.)");
}

TEST(Hostile, LongRunsAreNotQuadratic) {
  Vocabulary vocabulary;
  vocabulary.model = "llama";
  vocabulary.pre = "default";
  vocabulary.add_space_prefix = false;
  vocabulary.add_bos = false;
  std::string token = "a";
  for (int i = 0; i < 8; ++i) {
    vocabulary.tokens.push_back(token);
    vocabulary.scores.push_back(static_cast<float>(i));
    token += token;
  }
  const auto tokenizer = Tokenizer::from_vocabulary(vocabulary);
  ASSERT_TRUE(tokenizer) << tokenizer.error().message;
  const auto start = std::chrono::steady_clock::now();
  const std::string text(1 << 20, 'a');
  EXPECT_EQ(tokenizer->decode(tokenizer->encode(text)), text);
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(20));
}

TEST(Hostile, EveryPreNameBuildsAndIsFoundAgain) {
  for (const text::PreRules& rules : text::pre_rules()) {
    const text::Json normalizer = rules.nfc ? text::Json{{"type", "NFC"}} : text::Json();
    const text::PreRules* found =
        text::match_pre_rules(normalizer, rules.pre_tokenizer(), rules.ignore_merges);
    ASSERT_NE(found, nullptr) << rules.name;
    EXPECT_EQ(found->name, rules.name);
    Vocabulary vocabulary;
    vocabulary.model = "gpt2";
    vocabulary.pre = rules.name;
    vocabulary.tokens = {"a"};
    const auto tokenizer = Tokenizer::from_vocabulary(vocabulary);
    ASSERT_TRUE(tokenizer) << tokenizer.error().message;
    EXPECT_EQ(tokenizer->encode("aa"), (std::vector<std::int32_t>{0, 0}));
  }
}

TEST(Hostile, BadVocabulariesAreRefused) {
  Vocabulary good;
  good.model = "gpt2";
  good.pre = "gpt-2";
  good.tokens = {"a", "b", "ab"};
  good.merges = {"a b"};
  ASSERT_TRUE(Tokenizer::from_vocabulary(good));
  const auto refused = [&](auto change) {
    Vocabulary bad = good;
    change(bad);
    const auto tokenizer = Tokenizer::from_vocabulary(bad);
    return !tokenizer && !tokenizer_json(bad);
  };
  EXPECT_TRUE(refused([](Vocabulary& v) { v.model = "bert"; }));
  EXPECT_TRUE(refused([](Vocabulary& v) { v.tokens.clear(); }));
  EXPECT_TRUE(refused([](Vocabulary& v) { v.tokens[1] = "a"; }));
  EXPECT_TRUE(refused([](Vocabulary& v) { v.tokens[1] = "\xFF"; }));
  EXPECT_TRUE(refused([](Vocabulary& v) { v.types = {TokenType::kNormal}; }));
  EXPECT_TRUE(refused([](Vocabulary& v) { v.scores = {0.0f}; }));
  EXPECT_TRUE(refused([](Vocabulary& v) { v.merges = {"a x"}; }));
  EXPECT_TRUE(refused([](Vocabulary& v) { v.bos = 3; }));
  EXPECT_TRUE(refused([](Vocabulary& v) { v.eos = -1; }));
  EXPECT_TRUE(refused([](Vocabulary& v) { v.add_bos = true; }));
}

}  // namespace
}  // namespace packstone
