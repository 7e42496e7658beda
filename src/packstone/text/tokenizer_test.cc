// Proves that tokenizers built from small tokenizer.json texts and vocabularies cut, merge and
// decode as the rules say.
#include "packstone/text/tokenizer.h"

#include <gtest/gtest.h>

#include "packstone/text/pre_tokenizer.h"

namespace packstone {
namespace {

using Ids = std::vector<std::int32_t>;

Vocabulary byte_level_vocabulary() {
  Vocabulary vocabulary;
  vocabulary.model = "gpt2";
  vocabulary.pre = "gpt-2";
  for (const std::string& character : text::byte_characters()) {
    vocabulary.tokens.push_back(character);
    vocabulary.types.push_back(TokenType::kNormal);
  }
  const auto merge = [&](const std::string& left, const std::string& right) {
    vocabulary.merges.push_back(left + " " + right);
    vocabulary.tokens.push_back(left + right);
    vocabulary.types.push_back(TokenType::kNormal);
  };
  merge("h", "e");                         // 256
  merge("l", "l");                         // 257
  merge("he", "ll");                       // 258
  merge("hell", "o");                      // 259
  vocabulary.tokens.push_back("<|end|>");  // 260
  vocabulary.types.push_back(TokenType::kControl);
  vocabulary.eos = 260;
  return vocabulary;
}

TEST(Tokenizer, ByteLevelVocabularyMergesAndDecodes) {
  const auto tokenizer = Tokenizer::from_vocabulary(byte_level_vocabulary());
  ASSERT_TRUE(tokenizer) << tokenizer.error().message;
  EXPECT_EQ(tokenizer->encode("hello"), (Ids{259}));
  EXPECT_EQ(tokenizer->encode("hell<|end|>he"), (Ids{258, 260, 256}));
  EXPECT_EQ(tokenizer->decode(Ids{258, 260, 256, 0xC3, 0xA9}), "hell<|end|>he\xC3\xA9");
  EXPECT_EQ(tokenizer->decode(Ids{258, 260, 256}, true), "hellhe");
  EXPECT_TRUE(tokenizer->is_special(260));
  EXPECT_EQ(tokenizer->end_tokens(), (Ids{260}));
}

// TPL-02: without parse_special no text gives a control id.
TEST(Tokenizer, TPL_02_TextNeverGivesControlIds) {
  const auto tokenizer = Tokenizer::from_vocabulary(byte_level_vocabulary());
  ASSERT_TRUE(tokenizer);
  const Ids ids = tokenizer->encode("a<|end|>b", {.parse_special = false});
  EXPECT_EQ(std::count(ids.begin(), ids.end(), 260), 0);
  EXPECT_EQ(tokenizer->decode(ids), "a<|end|>b");
}

}  // namespace
}  // namespace packstone
