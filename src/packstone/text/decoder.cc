#include "packstone/text/decoder.h"

#include <algorithm>

#include "packstone/text/pre_tokenizer.h"
#include "packstone/text/unicode.h"

namespace packstone::text {
namespace {

std::unexpected<Error> refuse(std::string_view rule, std::string_view got) {
  return fail(ErrorCode::kUnsupported, "text.decoder", fmt::format("rule '{}'", rule), got,
              "a known decoder in a known place");
}

Result<std::string> character_field(const Json& rule, std::string_view key) {
  PACKSTONE_TRY(std::string text, text_field(rule, key));
  if (!is_one_character(text)) {
    return fail(ErrorCode::kCorruptData, "text.decoder", key, text, "one character");
  }
  return text;
}

Result<std::int64_t> count_field(const Json& rule, std::string_view key) {
  const Json* value = member(rule, key);
  if (value == nullptr || !value->is_number_integer() || *value < 0 || *value > 1'000'000) {
    return fail(ErrorCode::kCorruptData, "text.decoder", key, "no count in range", "0 to 1000000");
  }
  return value->get<std::int64_t>();
}

// The token as the bytes its characters stand for; itself when one stands for none.
void append_byte_level(std::string_view token, std::string& bytes) {
  const std::size_t size = bytes.size();
  for (std::size_t i = 0; i < token.size();) {
    const DecodedPoint decoded = decode_utf8(token, i);
    const int byte = byte_of_character(decoded.point);
    if (byte < 0) {
      bytes.resize(size);
      bytes += token;
      return;
    }
    bytes.push_back(static_cast<char>(byte));
    i += decoded.bytes;
  }
}

}  // namespace

Result<Decoder> Decoder::create(const Json& rule) {
  Decoder decoder;
  if (rule.is_null()) {
    decoder.joins_with_space_ = true;
    return decoder;
  }
  bool fused = false;
  PACKSTONE_CHECK_OK(decoder.add(rule, fused));
  return decoder;
}

Status Decoder::add(const Json& rule, bool& fused) {
  PACKSTONE_TRY(const std::string type, rule_type(rule, "decoder"));
  if (type == "Sequence") {
    const Json* list = member(rule, "decoders");
    if (list == nullptr || !list->is_array()) {
      return fail(ErrorCode::kCorruptData, "text.decoder", "Sequence", "no list", "'decoders'");
    }
    for (const Json& item : *list) PACKSTONE_CHECK_OK(add(item, fused));
    return {};
  }
  if (type == "Fuse") {
    fused = true;
    return {};
  }
  if (type == "Strip") return add_strip(rule, fused);
  if (fused) return refuse(type, "a rule over the joined text");
  if (type == "ByteLevel") {
    byte_level_ = true;
    fused = true;
    return {};
  }
  if (type == "ByteFallback") {
    steps_.push_back({Kind::kByteFallback, std::nullopt, {}});
    return {};
  }
  if (type == "Replace") {
    PACKSTONE_TRY(Regex regex, pattern_field(rule, "Replace"));
    PACKSTONE_TRY(std::string content, text_field(rule, "content"));
    steps_.push_back({Kind::kReplace, std::move(regex), std::move(content)});
    return {};
  }
  if (type == "Metaspace") {
    PACKSTONE_TRY(std::string mark, character_field(rule, "replacement"));
    PACKSTONE_TRY(const bool legacy, bool_field(rule, "add_prefix_space", true));
    const Json* scheme = member(rule, "prepend_scheme");
    Step step = {Kind::kMetaspace, std::nullopt, std::move(mark)};
    step.drops_first = legacy && (scheme == nullptr || *scheme != "never");
    steps_.push_back(std::move(step));
    return {};
  }
  return refuse(type, "a rule this build lacks");
}

Status Decoder::add_strip(const Json& rule, bool fused) {
  PACKSTONE_TRY(std::string content, character_field(rule, "content"));
  PACKSTONE_TRY(const std::int64_t start, count_field(rule, "start"));
  PACKSTONE_TRY(const std::int64_t stop, count_field(rule, "stop"));
  if (!fused) {
    Step step = {Kind::kStrip, std::nullopt, std::move(content)};
    step.start = start;
    step.stop = stop;
    steps_.push_back(std::move(step));
    return {};
  }
  if (stop != 0 || !lead_.empty()) return refuse("Strip", "a cut at the end of the joined text");
  lead_ = std::move(content);
  lead_count_ = static_cast<std::int32_t>(start);
  return {};
}

void Decoder::strip(const Step& step, std::string& text) {
  std::size_t begin = 0;
  std::size_t end = text.size();
  const std::string_view view = text;
  for (std::int64_t i = 0; i < step.start && view.substr(begin).starts_with(step.text); ++i) {
    begin += step.text.size();
  }
  for (std::int64_t i = 0;
       i < step.stop && end > begin && view.substr(begin, end - begin).ends_with(step.text); ++i) {
    end -= step.text.size();
  }
  text = text.substr(begin, end - begin);
}

void Decoder::append(std::string_view token, bool verbatim, DecodeCursor& cursor,
                     std::string& bytes) const {
  if (cursor.to_strip < 0) cursor.to_strip = lead_count_;
  std::string text;
  if (joins_with_space_ && !cursor.first) text = " ";
  if (!verbatim || !byte_level_) {
    std::string word(token);
    bool is_byte = false;
    std::vector<Match> matches;
    for (const Step& step : steps_) {
      if (is_byte) break;
      if (step.kind == Kind::kByteFallback) {
        const std::optional<std::uint8_t> byte = byte_token(word);
        is_byte = byte.has_value();
        if (is_byte) word.assign(1, static_cast<char>(*byte));
      } else if (step.kind == Kind::kStrip) {
        strip(step, word);
      } else if (step.kind == Kind::kMetaspace) {
        std::string replaced;
        for (std::size_t i = 0; i < word.size();) {
          const std::size_t size = decode_utf8(word, i).bytes;
          if (std::string_view(word).substr(i, size) != step.text) {
            replaced.append(word, i, size);
          } else if (!cursor.first || !step.drops_first) {
            replaced += ' ';
          }
          i += size;
        }
        word = std::move(replaced);
      } else if (step.regex->find_all(word, matches)) {
        std::string replaced;
        for (const Match& match : matches) {
          replaced += match.matched ? step.text : word.substr(match.begin, match.end - match.begin);
        }
        word = std::move(replaced);
      }
    }
    if (byte_level_) {
      append_byte_level(word, text);
    } else {
      text += word;
    }
  } else {
    text += token;
  }
  cursor.first = false;
  std::string_view rest = text;
  while (cursor.to_strip > 0 && !rest.empty()) {
    if (!rest.starts_with(lead_)) {
      cursor.to_strip = 0;
      break;
    }
    rest.remove_prefix(lead_.size());
    --cursor.to_strip;
  }
  bytes += rest;
}

}  // namespace packstone::text
