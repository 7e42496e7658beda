// Proves that ids and decoded texts equal those of the `tokenizers` package for every kind of
// rule, on the strings of tests/vectors/text (made by make_text_vectors.py there).
#include <gtest/gtest.h>

#include <fstream>
#include <sstream>

#include "packstone/text/tokenizer.h"
#include "packstone/text/unicode.h"

namespace packstone {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::size_t kGroup = 24;  // strings under one digest

Json load(const std::string& name) {
  std::ifstream file(std::string(PACKSTONE_SOURCE_DIR) + "/tests/vectors/text/" + name);
  EXPECT_TRUE(file) << name;
  return Json::parse(file);
}

std::uint32_t fnv(std::string_view text) {
  std::uint32_t hash = 0x811C9DC5;
  for (const char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 0x01000193;
  return hash;
}

std::string joined(const std::vector<std::int32_t>& ids) {
  return fmt::format("{}", fmt::join(ids, ","));
}

Json document_of(Json base, const Json& pipeline) {
  for (const auto& [key, value] : pipeline.at("model").items()) base["model"][key] = value;
  for (const auto& [key, value] : pipeline.at("parts").items()) base[key] = value;
  return base;
}

std::string streamed(const Tokenizer& tokenizer, const std::vector<std::int32_t>& ids) {
  StreamDecoder decoder(tokenizer);
  std::string text;
  for (const std::int32_t id : ids) {
    const std::string part = decoder.push(id);
    text += part;
  }
  return text + decoder.finish();
}

TEST(Vectors, EveryPipelineGivesTheSameIdsAndTexts) {
  const Json strings = load("strings.json");
  const Json pipelines = load("pipelines.json");
  for (const Json& pipeline : pipelines.at("pipelines")) {
    SCOPED_TRACE(pipeline.at("name").get<std::string>());
    const Json base = load("base_" + pipeline.at("base").get<std::string>() + ".json");
    const auto tokenizer = Tokenizer::from_json(document_of(base, pipeline).dump(), "");
    ASSERT_TRUE(tokenizer) << tokenizer.error().message;
    for (std::size_t group = 0; group * kGroup < strings.size(); ++group) {
      std::string ids_text;
      std::string decoded_text;
      for (std::size_t i = group * kGroup; i < (group + 1) * kGroup; ++i) {
        const auto ids = tokenizer->encode(strings[i].get<std::string>());
        const std::string decoded = tokenizer->decode(ids);
        EXPECT_EQ(streamed(*tokenizer, ids), decoded);
        if (i != group * kGroup) {
          ids_text += "\n";
          decoded_text += "\n";
        }
        ids_text += joined(ids);
        decoded_text += decoded;
      }
      EXPECT_EQ(fnv(ids_text), pipeline.at("ids")[group]) << "group " << group;
      if (pipeline.at("text")[group] != 0) {
        EXPECT_EQ(fnv(decoded_text), pipeline.at("text")[group]) << "group " << group;
      }
    }
  }
}

void check_named(std::string_view prefix) {
  const Json strings = load("strings.json");
  const Json pipelines = load("pipelines.json");
  int checked = 0;
  for (const Json& pipeline : pipelines.at("pipelines")) {
    if (!pipeline.at("name").get<std::string>().starts_with(prefix)) continue;
    const auto tokenizer =
        Tokenizer::from_json(document_of(load("base_bytes.json"), pipeline).dump(), "");
    ASSERT_TRUE(tokenizer) << tokenizer.error().message;
    for (std::size_t i = 0; i < pipeline.at("first").size(); ++i) {
      const Json& expected = pipeline.at("first")[i];
      if (expected.is_null()) continue;
      EXPECT_EQ(tokenizer->encode(strings[i].get<std::string>()),
                expected.get<std::vector<std::int32_t>>())
          << strings[i];
      ++checked;
    }
  }
  EXPECT_GT(checked, 8);
}

// TOK-01: Punctuation, ByteLevel, Digits and Split in sequence.
TEST(Vectors, TOK_01_RulesInSequence) {
  check_named("TOK-01");
}

// TOK-03: a String pattern is literal text, the same characters as a Regex are a pattern.
TEST(Vectors, TOK_03_StringPatternIsLiteral) {
  check_named("TOK-03");
}

// TOK-04: added tokens with every combination of flags.
TEST(Vectors, TOK_04_AddedTokenFlags) {
  const Json file = load("added_tokens.json");
  const Json base = load("base_bytes.json");
  const auto size = static_cast<std::int64_t>(base.at("model").at("vocab").size());
  for (const Json& item : file.at("cases")) {
    Json document = base;
    const auto add = [&](const std::string& content, std::int64_t id, const Json& flags) {
      Json token = {{"id", id}, {"content", content}};
      for (const auto& [key, value] : flags.items()) token[key] = value;
      document["added_tokens"].push_back(token);
    };
    add("<m>", size, item.at("flags"));
    add("<m><n>", size + 1, item.at("flags"));
    add("<mm>", size + 2,
        {{"single_word", false},
         {"lstrip", false},
         {"rstrip", false},
         {"normalized", false},
         {"special", true}});
    document["normalizer"] = item.at("lower") == true ? Json{{"type", "Lowercase"}} : Json();
    const auto tokenizer = Tokenizer::from_json(document.dump(), "");
    ASSERT_TRUE(tokenizer) << tokenizer.error().message;
    Json all = Json::array();
    for (const Json& text : file.at("texts")) {
      all.push_back(tokenizer->encode(text.get<std::string>()));
    }
    EXPECT_EQ(fnv(all.dump()), item.at("digest")) << item.dump() << all.dump();
  }
}

TEST(Vectors, InvalidUtf8IsReplacedAsPythonDoes) {
  for (const Json& pair : load("invalid_utf8.json")) {
    const auto hex = pair[0].get<std::string>();
    std::string bytes;
    for (std::size_t i = 0; i < hex.size(); i += 2) {
      bytes.push_back(static_cast<char>(std::stoi(hex.substr(i, 2), nullptr, 16)));
    }
    EXPECT_EQ(text::valid_utf8(bytes), pair[1].get<std::string>()) << hex;
  }
}

}  // namespace
}  // namespace packstone
