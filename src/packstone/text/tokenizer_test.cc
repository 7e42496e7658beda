// Proves that tokenizers built from small tokenizer.json texts and vocabularies cut, merge and
// decode as the rules say.
#include "packstone/text/tokenizer.h"

#include <gtest/gtest.h>

#include <map>
#include <queue>
#include <random>

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

Vocabulary sentencepiece_vocabulary(bool space_prefix) {
  Vocabulary vocabulary;
  vocabulary.model = "llama";
  vocabulary.pre = "default";
  vocabulary.add_space_prefix = space_prefix;
  const auto add = [&](const std::string& token, TokenType type, float score) {
    vocabulary.tokens.push_back(token);
    vocabulary.types.push_back(type);
    vocabulary.scores.push_back(score);
  };
  add("<unk>", TokenType::kUnknown, 0);
  add("<s>", TokenType::kControl, 0);
  add("</s>", TokenType::kControl, 0);
  for (int byte = 0; byte < 256; ++byte) add(fmt::format("<0x{:02X}>", byte), TokenType::kByte, 0);
  const std::string mark = "\xE2\x96\x81";
  float score = 0;
  for (const std::string& piece :
       {mark + "a", std::string("bc"), mark + "abc", mark + mark, std::string("ab"),
        std::string("cb"), mark + "Hello", mark + "world", mark, std::string("a"), std::string("b"),
        std::string("c"), std::string("!")}) {
    add(piece, TokenType::kNormal, score);
    score -= 1;
  }
  vocabulary.unknown = 0;
  vocabulary.bos = 1;
  vocabulary.eos = 2;
  vocabulary.add_bos = true;
  return vocabulary;
}

// Merging by score as SentencePiece does it: the pair whose joined text has the best score, the
// leftmost of equals.
Ids merge_by_score(const Vocabulary& vocabulary, std::string_view text) {
  std::map<std::string, std::int32_t, std::less<>> ids;
  for (std::size_t id = 0; id < vocabulary.tokens.size(); ++id) ids[vocabulary.tokens[id]] = id;
  std::vector<std::string> parts;
  for (std::size_t i = 0; i < text.size();) {
    const std::size_t size = static_cast<unsigned char>(text[i]) < 0x80 ? 1 : 3;
    parts.emplace_back(text.substr(i, size));
    i += size;
  }
  for (;;) {
    std::size_t best = parts.size();
    float best_score = 0;
    for (std::size_t i = 0; i + 1 < parts.size(); ++i) {
      const auto found = ids.find(parts[i] + parts[i + 1]);
      if (found == ids.end()) continue;
      const float score = vocabulary.scores[found->second];
      if (best == parts.size() || score > best_score) {
        best = i;
        best_score = score;
      }
    }
    if (best == parts.size()) break;
    parts[best] += parts[best + 1];
    parts.erase(parts.begin() + best + 1);
  }
  Ids result;
  for (const std::string& part : parts) result.push_back(ids.at(part));
  return result;
}

TEST(Tokenizer, MergesMadeFromScoresGiveWhatScoresGive) {
  const Vocabulary vocabulary = sentencepiece_vocabulary(false);
  const auto tokenizer = Tokenizer::from_vocabulary(vocabulary);
  ASSERT_TRUE(tokenizer) << tokenizer.error().message;
  std::mt19937 random(7);  // seed 7
  for (int round = 0; round < 2000; ++round) {
    std::string text;
    std::string marked;
    for (unsigned i = 0; i < 1 + random() % 60; ++i) {
      const char c = "abc "[random() % 4];
      text += c;
      marked += c == ' ' ? std::string("\xE2\x96\x81") : std::string(1, c);
    }
    EXPECT_EQ(tokenizer->encode(text, {.add_special = false}), merge_by_score(vocabulary, marked))
        << text;
  }
}

// TOK-06: pieces decoded one at a time join to the whole, with special tokens in the middle.
TEST(Tokenizer, TOK_06_StreamsEqualTheWhole) {
  std::vector<Tokenizer> tokenizers;
  for (const bool prefix : {true, false}) {
    const auto tokenizer = Tokenizer::from_vocabulary(sentencepiece_vocabulary(prefix));
    ASSERT_TRUE(tokenizer) << tokenizer.error().message;
    tokenizers.push_back(*tokenizer);
  }
  tokenizers.push_back(*Tokenizer::from_vocabulary(byte_level_vocabulary()));
  std::mt19937 random(11);  // seed 11
  for (const Tokenizer& tokenizer : tokenizers) {
    for (int round = 0; round < 500; ++round) {
      Ids ids;
      for (unsigned i = 0; i < random() % 12; ++i) {
        ids.push_back(static_cast<std::int32_t>(random() % (tokenizer.size() + 2)) - 1);
      }
      for (const bool skip : {false, true}) {
        StreamDecoder decoder(tokenizer, skip);
        std::string text;
        for (const std::int32_t id : ids) text += decoder.push(id);
        EXPECT_EQ(text + decoder.finish(), tokenizer.decode(ids, skip));
      }
    }
  }
  const Ids hello = tokenizers[0].encode("Hello world!");
  EXPECT_EQ(tokenizers[0].decode(hello, true), "Hello world!");
  const Ids middle = {1, *tokenizers[0].id_of("\xE2\x96\x81Hello"), 2,
                      *tokenizers[0].id_of("\xE2\x96\x81world")};
  EXPECT_EQ(tokenizers[0].decode(middle), "<s> Hello</s> world");
  EXPECT_EQ(tokenizers[0].decode(middle, true), "Hello world");
}

TEST(Tokenizer, StreamHoldsUnfinishedCharactersBack) {
  const auto tokenizer = Tokenizer::from_vocabulary(byte_level_vocabulary());
  ASSERT_TRUE(tokenizer);
  StreamDecoder decoder(*tokenizer);
  std::string pushed[4];
  for (int i = 0; i < 4; ++i) pushed[i] = decoder.push(std::string("\xF0\x9F\x99\x82")[i] & 0xFF);
  EXPECT_EQ(pushed[0] + pushed[1] + pushed[2], "");
  EXPECT_EQ(pushed[3], "\xF0\x9F\x99\x82");
  EXPECT_EQ(decoder.push(0xF0), "");
  EXPECT_EQ(decoder.push('a'),
            "\xF0"
            "a");
  EXPECT_EQ(decoder.push(0xE2), "");
  EXPECT_EQ(decoder.finish(), "\xE2");
}

// SEC-10: only "<0xNN>" with two hexadecimal digits is a byte; the rest is plain text.
TEST(Tokenizer, SEC_10_BadByteTokensAreText) {
  Vocabulary vocabulary = sentencepiece_vocabulary(false);
  for (const char* token : {"<0x-1>", "<0xZZ>", "<0x100>", "<0x+A>", "<0x 1>"}) {
    vocabulary.tokens.push_back(token);
    vocabulary.types.push_back(TokenType::kByte);
    vocabulary.scores.push_back(0);
  }
  const auto tokenizer = Tokenizer::from_vocabulary(vocabulary);
  ASSERT_TRUE(tokenizer) << tokenizer.error().message;
  for (const char* token : {"<0x-1>", "<0xZZ>", "<0x100>", "<0x+A>", "<0x 1>"}) {
    const auto id = tokenizer->id_of(token);
    ASSERT_TRUE(id);
    EXPECT_EQ(tokenizer->decode(Ids{*id}), token);
    EXPECT_EQ(tokenizer->decode(tokenizer->encode(token), true), token);
  }
  EXPECT_EQ(tokenizer->decode(Ids{3 + 0x41}), "A");
}

TEST(Tokenizer, VocabularyAndItsJsonGiveTheSame) {
  for (const Vocabulary& vocabulary :
       {byte_level_vocabulary(), sentencepiece_vocabulary(true), sentencepiece_vocabulary(false)}) {
    const auto json = tokenizer_json(vocabulary);
    ASSERT_TRUE(json) << json.error().message;
    const auto config = tokenizer_config_json(vocabulary);
    const auto from_json = Tokenizer::from_json(json->dump(), config.dump());
    ASSERT_TRUE(from_json) << from_json.error().message;
    const auto direct = Tokenizer::from_vocabulary(vocabulary);
    for (const char* text : {"hello <|end|> Hello  world!", "<s>abc</s> \xC3\xA9", ""}) {
      EXPECT_EQ(from_json->encode(text), direct->encode(text));
    }
    EXPECT_EQ(from_json->end_tokens(), direct->end_tokens());
    EXPECT_EQ(from_json->bos(), direct->bos());
    const auto document = parse_tokenizer_document(json->dump());
    ASSERT_TRUE(document);
    const auto back = vocabulary_from_json(*document, config, vocabulary.tokens.size());
    ASSERT_TRUE(back) << back.error().message;
    EXPECT_EQ(back->tokens, vocabulary.tokens);
    EXPECT_EQ(back->types, vocabulary.types);
    EXPECT_EQ(back->scores, vocabulary.scores);
    EXPECT_EQ(back->merges, vocabulary.merges);
    EXPECT_EQ(back->pre, vocabulary.pre);
    EXPECT_EQ(back->bos, vocabulary.bos);
    EXPECT_EQ(back->eos, vocabulary.eos);
    EXPECT_EQ(back->unknown, vocabulary.unknown);
    EXPECT_EQ(back->add_bos, vocabulary.add_bos);
    EXPECT_EQ(back->add_space_prefix, vocabulary.add_space_prefix);
  }
}

TEST(Tokenizer, VocabularyFromJsonWhateverTheOrderOfMembers) {
  for (const Vocabulary& vocabulary :
       {byte_level_vocabulary(), sentencepiece_vocabulary(true), sentencepiece_vocabulary(false)}) {
    const auto json = tokenizer_json(vocabulary);
    ASSERT_TRUE(json) << json.error().message;
    const nlohmann::ordered_json sorted = nlohmann::json(*json);
    const auto config = tokenizer_config_json(vocabulary);
    const auto back = vocabulary_from_json(sorted, config, vocabulary.tokens.size());
    ASSERT_TRUE(back) << back.error().message;
    EXPECT_EQ(back->model, vocabulary.model);
    EXPECT_EQ(back->pre, vocabulary.pre);
    EXPECT_EQ(back->scores, vocabulary.scores);
    EXPECT_EQ(back->add_space_prefix, vocabulary.add_space_prefix);
  }
}

TEST(Tokenizer, NoBosInTheTemplateIsSaidInTheVocabulary) {
  Vocabulary vocabulary = sentencepiece_vocabulary(false);
  vocabulary.add_bos = false;
  auto json = tokenizer_json(vocabulary);
  ASSERT_TRUE(json) << json.error().message;
  (*json)["model"].erase("gguf");
  auto config = tokenizer_config_json(vocabulary);
  config.erase("add_bos_token");
  const auto back = vocabulary_from_json(*json, config, vocabulary.tokens.size());
  ASSERT_TRUE(back) << back.error().message;
  EXPECT_EQ(back->add_bos, false);
}

TEST(Tokenizer, PaddingRowsBecomeUnusedTokens) {
  const Vocabulary vocabulary = byte_level_vocabulary();
  const auto json = tokenizer_json(vocabulary);
  const auto back = vocabulary_from_json(*json, tokenizer_config_json(vocabulary), 264);
  ASSERT_TRUE(back) << back.error().message;
  EXPECT_EQ(back->tokens[263], "[PAD263]");
  EXPECT_EQ(back->types[263], TokenType::kUnused);
  EXPECT_FALSE(vocabulary_from_json(*json, nullptr, 10));
}

}  // namespace
}  // namespace packstone
