#include "packstone/text/pre_tokenizer.h"

#include <optional>

#include "packstone/text/regex.h"
#include "packstone/text/unicode.h"

namespace packstone::text {
namespace {

enum class Behavior { kIsolated, kRemoved, kContiguous, kMergedWithPrevious, kMergedWithNext };

// Turns matches and gaps into words: `matched` of the result means "remove".
void apply_behavior(Behavior behavior, std::vector<Match>& matches) {
  if (behavior == Behavior::kRemoved) return;
  if (behavior == Behavior::kIsolated) {
    for (Match& match : matches) match.matched = false;
    return;
  }
  std::vector<Match> words;
  bool previous = false;
  const auto visit = [&](const Match& match) {
    const bool joins =
        behavior == Behavior::kContiguous ? match.matched == previous : match.matched && !previous;
    if (!joins || words.empty()) {
      words.push_back({match.begin, match.end, false});
    } else if (behavior == Behavior::kMergedWithNext) {
      words.back().begin = match.begin;
    } else {
      words.back().end = match.end;
    }
    previous = match.matched;
  };
  if (behavior == Behavior::kMergedWithNext) {
    for (auto it = matches.rbegin(); it != matches.rend(); ++it) visit(*it);
    matches.assign(words.rbegin(), words.rend());
  } else {
    for (const Match& match : matches) visit(match);
    matches = std::move(words);
  }
}

// Calls cut(text, matches) on every piece without a token and replaces it by the words.
template <class Cut>
Status cut_pieces(Pieces& pieces, Behavior behavior, Cut cut) {
  std::vector<Piece> list;
  list.reserve(pieces.list.size());
  std::vector<Match> matches;
  for (const Piece& piece : pieces.list) {
    if (piece.token >= 0) {
      list.push_back(piece);
      continue;
    }
    PACKSTONE_CHECK_OK(cut(pieces.text(piece), matches));
    apply_behavior(behavior, matches);
    for (const Match& match : matches) {
      if (match.matched || match.begin == match.end) continue;
      list.push_back({piece.begin + match.begin, piece.begin + match.end, -1,
                      piece.at_start && match.begin == 0});
    }
  }
  pieces.list = std::move(list);
  return {};
}

// Cuts out every character that `test` accepts.
template <class Test>
void match_characters(std::string_view text, std::vector<Match>& matches, Test test) {
  matches.clear();
  std::size_t previous = 0;
  for (std::size_t i = 0; i < text.size();) {
    const DecodedPoint decoded = decode_utf8(text, i);
    const std::size_t end = i + decoded.bytes;
    if (test(decoded.point)) {
      if (previous != i) matches.push_back({previous, i, false});
      matches.push_back({i, end, true});
      previous = end;
    }
    i = end;
  }
  if (previous != text.size()) matches.push_back({previous, text.size(), false});
}

class CharacterSplit final : public PreTokenizer {
 public:
  CharacterSplit(bool (*test)(char32_t), Behavior behavior) : test_(test), behavior_(behavior) {}
  Status apply(Pieces& pieces) const override {
    return cut_pieces(pieces, behavior_,
                      [&](std::string_view text, std::vector<Match>& matches) -> Status {
                        match_characters(text, matches, test_);
                        return {};
                      });
  }

 private:
  bool (*test_)(char32_t);
  Behavior behavior_;
};

class PatternSplit final : public PreTokenizer {
 public:
  PatternSplit(Regex regex, Behavior behavior, bool invert)
      : regex_(std::move(regex)), behavior_(behavior), invert_(invert) {}
  Status apply(Pieces& pieces) const override {
    return cut_pieces(pieces, behavior_,
                      [&](std::string_view text, std::vector<Match>& matches) -> Status {
                        PACKSTONE_CHECK_OK(regex_.find_all(text, matches));
                        if (invert_) {
                          for (Match& match : matches) match.matched = !match.matched;
                        }
                        return {};
                      });
  }

 private:
  Regex regex_;
  Behavior behavior_;
  bool invert_;
};

// Runs of word characters and runs of what is neither word nor space.
class WhitespaceWords final : public PreTokenizer {
 public:
  Status apply(Pieces& pieces) const override {
    return cut_pieces(pieces, Behavior::kRemoved, words);
  }

 private:
  static Status words(std::string_view text, std::vector<Match>& matches) {
    matches.clear();
    int previous = 0;
    for (std::size_t i = 0; i < text.size();) {
      const DecodedPoint decoded = decode_utf8(text, i);
      const int kind = is_word(decoded.point) ? 1 : is_whitespace(decoded.point) ? 0 : 2;
      if (kind != 0 && kind == previous) {
        matches.back().end += decoded.bytes;
      } else if (kind != 0) {
        matches.push_back({i, i + decoded.bytes, false});
      }
      previous = kind;
      i += decoded.bytes;
    }
    return {};
  }
};

class ByteLevelRule final : public PreTokenizer {
 public:
  ByteLevelRule(bool prefix_space, std::optional<Regex> regex)
      : prefix_space_(prefix_space), regex_(std::move(regex)) {}

  Status apply(Pieces& pieces) const override {
    if (prefix_space_) prepend_space(pieces);
    if (regex_) {
      PACKSTONE_CHECK_OK(cut_pieces(pieces, Behavior::kIsolated,
                                    [&](std::string_view text, std::vector<Match>& matches) {
                                      return regex_->find_all(text, matches);
                                    }));
    }
    Pieces mapped;
    mapped.buffer.reserve(pieces.buffer.size() * 2);
    mapped.list.reserve(pieces.list.size());
    for (Piece piece : pieces.list) {
      const std::string_view text = pieces.text(piece);
      piece.begin = mapped.buffer.size();
      for (const char c : text) {
        mapped.buffer += byte_characters()[static_cast<unsigned char>(c)];
      }
      piece.end = mapped.buffer.size();
      mapped.list.push_back(piece);
    }
    pieces = std::move(mapped);
    return {};
  }

 private:
  static void prepend_space(Pieces& pieces) {
    Pieces result;
    for (Piece piece : pieces.list) {
      const std::string_view text = pieces.text(piece);
      piece.begin = result.buffer.size();
      if (piece.token < 0 && !text.starts_with(' ')) result.buffer += ' ';
      result.buffer += text;
      piece.end = result.buffer.size();
      result.list.push_back(piece);
    }
    pieces = std::move(result);
  }

  bool prefix_space_;
  std::optional<Regex> regex_;
};

enum class Prepend { kFirst, kNever, kAlways };

class Metaspace final : public PreTokenizer {
 public:
  Metaspace(std::string replacement, Prepend prepend, bool split)
      : mark_(std::move(replacement)), prepend_(prepend), split_(split) {}

  Status apply(Pieces& pieces) const override {
    Pieces result;
    for (Piece piece : pieces.list) {
      std::string text;
      for (const char c : pieces.text(piece)) {
        if (c == ' ') {
          text += mark_;
        } else {
          text += c;
        }
      }
      if (piece.token < 0 && !text.starts_with(mark_) &&
          (prepend_ == Prepend::kAlways || (prepend_ == Prepend::kFirst && piece.at_start))) {
        text.insert(0, mark_);
      }
      piece.begin = result.buffer.size();
      result.buffer += text;
      piece.end = result.buffer.size();
      result.list.push_back(piece);
    }
    pieces = std::move(result);
    if (!split_) return drop_empty(pieces);
    const char32_t mark = decode_utf8(mark_, 0).point;
    return cut_pieces(pieces, Behavior::kMergedWithNext,
                      [&](std::string_view text, std::vector<Match>& matches) -> Status {
                        match_characters(text, matches,
                                         [&](char32_t point) { return point == mark; });
                        return {};
                      });
  }

 private:
  static Status drop_empty(Pieces& pieces) {
    std::erase_if(pieces.list,
                  [](const Piece& piece) { return piece.token < 0 && piece.begin == piece.end; });
    return {};
  }

  std::string mark_;
  Prepend prepend_;
  bool split_;
};

class SequenceRule final : public PreTokenizer {
 public:
  explicit SequenceRule(std::vector<std::unique_ptr<PreTokenizer>> steps)
      : steps_(std::move(steps)) {}
  Status apply(Pieces& pieces) const override {
    for (const auto& step : steps_) PACKSTONE_CHECK_OK(step->apply(pieces));
    return {};
  }

 private:
  std::vector<std::unique_ptr<PreTokenizer>> steps_;
};

using Made = Result<std::unique_ptr<PreTokenizer>>;

Result<Behavior> behavior_field(const Json& rule, std::optional<Behavior> otherwise) {
  const Json* value = member(rule, "behavior");
  if (value == nullptr && otherwise) return *otherwise;
  PACKSTONE_TRY(const std::string name, text_field(rule, "behavior"));
  if (name == "Isolated") return Behavior::kIsolated;
  if (name == "Removed") return Behavior::kRemoved;
  if (name == "Contiguous") return Behavior::kContiguous;
  if (name == "MergedWithPrevious") return Behavior::kMergedWithPrevious;
  if (name == "MergedWithNext") return Behavior::kMergedWithNext;
  return fail(ErrorCode::kCorruptData, "text.pre_tokenizer", "behavior", name,
              "a known split behaviour");
}

Made make_sequence(const Json& rule) {
  const Json* list = member(rule, "pretokenizers");
  if (list == nullptr || !list->is_array()) {
    return fail(ErrorCode::kCorruptData, "text.pre_tokenizer", "Sequence",
                "no list of pre-tokenizers", "'pretokenizers'");
  }
  std::vector<std::unique_ptr<PreTokenizer>> steps;
  for (const Json& item : *list) {
    PACKSTONE_TRY(auto step, make_pre_tokenizer(item));
    if (step != nullptr) steps.push_back(std::move(step));
  }
  return std::make_unique<SequenceRule>(std::move(steps));
}

Made make_byte_level(const Json& rule) {
  PACKSTONE_TRY(const bool prefix, bool_field(rule, "add_prefix_space", std::nullopt));
  PACKSTONE_TRY(const bool use_regex, bool_field(rule, "use_regex", true));
  PACKSTONE_CHECK_OK(bool_field(rule, "trim_offsets", std::nullopt));
  std::optional<Regex> regex;
  if (use_regex) {
    PACKSTONE_TRY(Regex compiled, Regex::compile(kGpt2Pattern));
    regex = std::move(compiled);
  }
  return std::make_unique<ByteLevelRule>(prefix, std::move(regex));
}

Made make_metaspace(const Json& rule) {
  PACKSTONE_TRY(std::string mark, text_field(rule, "replacement"));
  if (!is_one_character(mark)) {
    return fail(ErrorCode::kCorruptData, "text.pre_tokenizer", "Metaspace replacement", mark,
                "one character");
  }
  Prepend prepend = Prepend::kAlways;
  if (const Json* scheme = member(rule, "prepend_scheme")) {
    const bool first = *scheme == "first";
    if (!first && *scheme != "never" && *scheme != "always") {
      return fail(ErrorCode::kCorruptData, "text.pre_tokenizer", "Metaspace prepend_scheme",
                  "an unknown value", "first, never or always");
    }
    prepend = first ? Prepend::kFirst : *scheme == "never" ? Prepend::kNever : Prepend::kAlways;
  }
  PACKSTONE_TRY(const bool legacy, bool_field(rule, "add_prefix_space", true));
  if (!legacy && prepend != Prepend::kNever && member(rule, "prepend_scheme") != nullptr) {
    return fail(ErrorCode::kCorruptData, "text.pre_tokenizer", "Metaspace add_prefix_space",
                "false with another prepend_scheme", "prepend_scheme never");
  }
  if (!legacy) prepend = Prepend::kNever;
  PACKSTONE_TRY(const bool split, bool_field(rule, "split", true));
  return std::make_unique<Metaspace>(std::move(mark), prepend, split);
}

}  // namespace

Result<std::unique_ptr<PreTokenizer>> make_pre_tokenizer(const Json& rule) {
  if (rule.is_null()) return nullptr;
  PACKSTONE_TRY(const std::string type, rule_type(rule, "pre_tokenizer"));
  if (type == "Sequence") return make_sequence(rule);
  if (type == "ByteLevel") return make_byte_level(rule);
  if (type == "Metaspace") return make_metaspace(rule);
  if (type == "Split") {
    PACKSTONE_TRY(Regex regex, pattern_field(rule, "Split"));
    PACKSTONE_TRY(const Behavior behavior, behavior_field(rule, std::nullopt));
    PACKSTONE_TRY(const bool invert, bool_field(rule, "invert", std::nullopt));
    return std::make_unique<PatternSplit>(std::move(regex), behavior, invert);
  }
  if (type == "Digits") {
    PACKSTONE_TRY(const bool individual, bool_field(rule, "individual_digits", std::nullopt));
    return std::make_unique<CharacterSplit>(
        is_numeric, individual ? Behavior::kIsolated : Behavior::kContiguous);
  }
  if (type == "Punctuation") {
    PACKSTONE_TRY(const Behavior behavior, behavior_field(rule, Behavior::kIsolated));
    return std::make_unique<CharacterSplit>(is_punctuation, behavior);
  }
  if (type == "Whitespace") return std::make_unique<WhitespaceWords>();
  if (type == "WhitespaceSplit") {
    return std::make_unique<CharacterSplit>(is_whitespace, Behavior::kRemoved);
  }
  return fail(ErrorCode::kUnsupported, "text.pre_tokenizer", fmt::format("rule '{}'", type),
              "a rule this build lacks", "a known pre-tokenizer");
}

const std::array<std::string, 256>& byte_characters() {
  static const std::array<std::string, 256> table = [] {
    std::array<std::string, 256> made;
    char32_t next = 256;
    for (char32_t byte = 0; byte < 256; ++byte) {
      const bool itself = (byte >= '!' && byte <= '~') || (byte >= 0xA1 && byte != 0xAD);
      append_utf8(made[byte], itself ? byte : next++);
    }
    return made;
  }();
  return table;
}

int byte_of_character(char32_t point) {
  static const std::array<std::int16_t, 324> table = [] {
    std::array<std::int16_t, 324> made;
    made.fill(-1);
    for (int byte = 0; byte < 256; ++byte) {
      made[decode_utf8(byte_characters()[byte], 0).point] = static_cast<std::int16_t>(byte);
    }
    return made;
  }();
  return point < table.size() ? table[point] : -1;
}

}  // namespace packstone::text
