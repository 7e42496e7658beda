#include "packstone/text/normalizer.h"

#include "packstone/text/pre_tokenizer.h"
#include "packstone/text/regex.h"
#include "packstone/text/unicode.h"

namespace packstone::text {
namespace {

class FormNormalizer final : public Normalizer {
 public:
  explicit FormNormalizer(NormalForm form) : form_(form) {}
  Status apply(std::string& text, bool&) const override {
    text = normalize(form_, text);
    return {};
  }

 private:
  NormalForm form_;
};

class LowercaseNormalizer final : public Normalizer {
 public:
  Status apply(std::string& text, bool&) const override {
    text = lowercase(text);
    return {};
  }
};

class StripAccentsNormalizer final : public Normalizer {
 public:
  Status apply(std::string& text, bool& at_start) const override {
    std::string kept;
    kept.reserve(text.size());
    for (std::size_t i = 0; i < text.size();) {
      const DecodedPoint decoded = decode_utf8(text, i);
      if (!is_combining_mark(decoded.point)) {
        kept.append(text, i, decoded.bytes);
      } else if (i == 0) {
        at_start = false;
      }
      i += decoded.bytes;
    }
    text = std::move(kept);
    return {};
  }
};

class StripNormalizer final : public Normalizer {
 public:
  StripNormalizer(bool left, bool right) : left_(left), right_(right) {}
  Status apply(std::string& text, bool& at_start) const override {
    std::size_t begin = 0;
    std::size_t end = text.size();
    while (left_ && begin < end) {
      const DecodedPoint decoded = decode_utf8(text, begin);
      if (!is_whitespace(decoded.point)) break;
      begin += decoded.bytes;
    }
    while (right_ && end > begin) {
      std::size_t last = end - 1;
      while (last > begin && (static_cast<unsigned char>(text[last]) & 0xC0) == 0x80) --last;
      if (!is_whitespace(decode_utf8(text, last).point)) break;
      end = last;
    }
    if (begin > 0) at_start = false;
    text = text.substr(begin, end - begin);
    return {};
  }

 private:
  bool left_;
  bool right_;
};

class PrependNormalizer final : public Normalizer {
 public:
  explicit PrependNormalizer(std::string prefix) : prefix_(std::move(prefix)) {}
  Status apply(std::string& text, bool&) const override {
    if (!text.empty()) text.insert(0, prefix_);
    return {};
  }

 private:
  std::string prefix_;
};

class ReplaceNormalizer final : public Normalizer {
 public:
  ReplaceNormalizer(Regex regex, std::string content)
      : regex_(std::move(regex)), content_(std::move(content)) {}
  Status apply(std::string& text, bool& at_start) const override {
    std::vector<Match> matches;
    PACKSTONE_CHECK_OK(regex_.find_all(text, matches));
    std::string result;
    result.reserve(text.size());
    for (const Match& match : matches) {
      if (match.matched) {
        result += content_;
        // The library aligns what it inserts with the last byte that it replaces.
        if (match.begin == 0 && (match.end > 1 || content_.empty())) at_start = false;
      } else {
        result.append(text, match.begin, match.end - match.begin);
      }
    }
    text = std::move(result);
    return {};
  }

 private:
  Regex regex_;
  std::string content_;
};

class ByteLevelNormalizer final : public Normalizer {
 public:
  Status apply(std::string& text, bool&) const override {
    std::string result;
    result.reserve(text.size() * 2);
    for (const char c : text) result += byte_characters()[static_cast<unsigned char>(c)];
    text = std::move(result);
    return {};
  }
};

class SequenceNormalizer final : public Normalizer {
 public:
  explicit SequenceNormalizer(std::vector<std::unique_ptr<Normalizer>> steps)
      : steps_(std::move(steps)) {}
  Status apply(std::string& text, bool& at_start) const override {
    for (const auto& step : steps_) PACKSTONE_CHECK_OK(step->apply(text, at_start));
    return {};
  }

 private:
  std::vector<std::unique_ptr<Normalizer>> steps_;
};

using Made = Result<std::unique_ptr<Normalizer>>;

Made make_sequence(const Json& rule) {
  const Json* list = member(rule, "normalizers");
  if (list == nullptr || !list->is_array()) {
    return fail(ErrorCode::kCorruptData, "text.normalizer", "Sequence", "no list of normalizers",
                "'normalizers'");
  }
  std::vector<std::unique_ptr<Normalizer>> steps;
  for (const Json& item : *list) {
    PACKSTONE_TRY(auto step, make_normalizer(item));
    if (step != nullptr) steps.push_back(std::move(step));
  }
  return std::make_unique<SequenceNormalizer>(std::move(steps));
}

Made make_form(NormalForm form) {
  if (!has_normal_form(form)) {
    return fail(ErrorCode::kUnsupported, "text.normalizer", "normal form", "no ICU data",
                "ICU with its normalization data");
  }
  return std::make_unique<FormNormalizer>(form);
}

}  // namespace

Result<std::unique_ptr<Normalizer>> make_normalizer(const Json& rule) {
  if (rule.is_null()) return nullptr;
  PACKSTONE_TRY(const std::string type, rule_type(rule, "normalizer"));
  if (type == "NFC") return make_form(NormalForm::kC);
  if (type == "NFD") return make_form(NormalForm::kD);
  if (type == "NFKC") return make_form(NormalForm::kKC);
  if (type == "NFKD") return make_form(NormalForm::kKD);
  if (type == "Lowercase") return std::make_unique<LowercaseNormalizer>();
  if (type == "StripAccents") return std::make_unique<StripAccentsNormalizer>();
  if (type == "ByteLevel") return std::make_unique<ByteLevelNormalizer>();
  if (type == "Sequence") return make_sequence(rule);
  if (type == "Strip") {
    PACKSTONE_TRY(const bool left, bool_field(rule, "strip_left", std::nullopt));
    PACKSTONE_TRY(const bool right, bool_field(rule, "strip_right", std::nullopt));
    return std::make_unique<StripNormalizer>(left, right);
  }
  if (type == "Prepend") {
    PACKSTONE_TRY(std::string prefix, text_field(rule, "prepend"));
    return std::make_unique<PrependNormalizer>(std::move(prefix));
  }
  if (type == "Replace") {
    PACKSTONE_TRY(Regex regex, pattern_field(rule, "Replace"));
    PACKSTONE_TRY(std::string content, text_field(rule, "content"));
    return std::make_unique<ReplaceNormalizer>(std::move(regex), std::move(content));
  }
  return fail(ErrorCode::kUnsupported, "text.normalizer", fmt::format("rule '{}'", type),
              "a rule this build lacks", "a known normalizer");
}

}  // namespace packstone::text
