// From Oniguruma's Ruby syntax to PCRE2's. Constructs whose meaning differs are rewritten; those
// that are not known here are refused, so that no pattern ever changes its meaning silently.
#include <algorithm>
#include <array>
#include <optional>
#include <utility>

#include "packstone/text/regex.h"
#include "packstone/text/unicode_tables.h"

namespace packstone::text {
namespace {

constexpr std::string_view kSpaceItems =
    "\\x{9}-\\x{d}\\x{20}\\x{85}\\x{a0}\\x{1680}\\x{2000}-\\x{200a}\\x{2028}\\x{2029}\\x{202f}"
    "\\x{205f}\\x{3000}";
constexpr std::string_view kNotSpaceItems =
    "\\x{0}-\\x{8}\\x{e}-\\x{1f}\\x{21}-\\x{84}\\x{86}-\\x{9f}\\x{a1}-\\x{167f}\\x{1681}-\\x{1fff}"
    "\\x{200b}-\\x{2027}\\x{202a}-\\x{202e}\\x{2030}-\\x{205e}\\x{2060}-\\x{2fff}\\x{3001}-"
    "\\x{10ffff}";
constexpr std::string_view kHexItems = "0-9a-fA-F";
constexpr std::string_view kNotHexItems = "\\x{0}-/:-@G-`g-\\x{10ffff}";
constexpr std::string_view kSyntaxCharacters = "\\^$.|?*+()[]{}-/!\"#%&',:;<=>@_`~ ";

// Scripts whose members since Unicode 14 are listed here in full (Scripts.txt of Unicode 16).
struct ScriptAddition {
  std::string_view name;
  std::string_view items;
};
constexpr std::array<ScriptAddition, 6> kScripts = {
    {{"Han", "\\x{2ebf0}-\\x{2ee5d}\\x{31350}-\\x{323af}"},
     {"Hiragana", "\\x{1b132}"},
     {"Katakana", "\\x{1b155}"},
     {"Hangul", ""},
     {"Thai", ""},
     {"Greek", ""}}};

void append_range(std::string& items, const CodeRange& range) {
  items += fmt::format("\\x{{{:x}}}", static_cast<std::uint32_t>(range.first));
  if (range.last != range.first) {
    items += fmt::format("-\\x{{{:x}}}", static_cast<std::uint32_t>(range.last));
  }
}

// Class items of a general category ("L", "Lu") as Unicode 16 has it.
std::string category_items(std::string_view name) {
  std::string items = fmt::format("\\p{{{}}}", name);
  for (const AddedRange& added : kAddedSince14) {
    if (std::string_view(added.category).substr(0, name.size()) == name) {
      append_range(items, added.range);
    }
  }
  return items;
}

std::string word_items() {
  std::string items;
  for (const std::string_view name : {"L", "M", "Nd", "Nl", "Pc"}) items += category_items(name);
  for (const CodeRange& range : kRegexWordExtra) append_range(items, range);
  return items;
}

bool is_category(std::string_view name) {
  static constexpr std::string_view kNames =
      " L Lu Ll Lt Lm Lo M Mn Mc Me N Nd Nl No P Pc Pd Ps Pe Pi Pf Po S Sm Sc Sk So Z Zs Zl Zp Cc "
      "Cf Co ";
  return !name.empty() && name.find(' ') == std::string_view::npos &&
         kNames.find(fmt::format(" {} ", name)) != std::string_view::npos;
}

class Translator {
 public:
  explicit Translator(std::string_view pattern) : pattern_(pattern) {}

  Result<std::string> run() {
    while (at_ < pattern_.size()) {
      PACKSTONE_CHECK_OK(step());
    }
    return std::move(out_);
  }

 private:
  // Items of a character class; `negated` means all but them.
  struct Set {
    std::string items;
    bool negated = false;
  };

  bool starts(std::string_view text) const { return pattern_.substr(at_).starts_with(text); }

  std::unexpected<Error> refuse(std::string_view construct) const {
    return fail(ErrorCode::kUnsupported, "text.regex", fmt::format("pattern '{}'", pattern_),
                fmt::format("{} at byte {}", construct, at_), "a construct known to this build");
  }

  void atom(std::string_view text) {
    atom_ = out_.size();
    out_ += text;
  }

  Status step() {
    const char c = pattern_[at_];
    switch (c) {
      case '\\':
        return escape();
      case '[':
        return character_class();
      case '(':
        return open_group();
      case ')':
        out_ += c;
        ++at_;
        if (groups_.empty()) return refuse("')' without '('");
        atom_ = groups_.back();
        groups_.pop_back();
        return {};
      case '?':
      case '*':
      case '+':
        out_ += c;
        ++at_;
        if (at_ < pattern_.size() && (pattern_[at_] == '?' || pattern_[at_] == '+')) {
          out_ += pattern_[at_++];
        }
        return {};
      case '{':
        return interval();
      case '}':
      case ']':
        atom(fmt::format("\\{}", c));
        ++at_;
        return {};
      case '|':
        out_ += c;
        ++at_;
        return {};
      default:
        break;
    }
    const std::size_t size = decode_utf8(pattern_, at_).bytes;
    atom(pattern_.substr(at_, size));
    at_ += size;
    return {};
  }

  Status open_group() {
    static constexpr std::array<std::pair<std::string_view, std::string_view>, 10> kOpeners = {
        {{"(?:", "(?:"},
         {"(?=", "(?="},
         {"(?!", "(?!"},
         {"(?<=", "(?<="},
         {"(?<!", "(?<!"},
         {"(?>", "(?>"},
         {"(?i:", "(?i:"},
         {"(?-i:", "(?-i:"},
         {"(?m:", "(?s:"},
         {"(?-m:", "(?-s:"}}};
    if (starts("(?i)") && at_ == 0) {
      out_ += "(?i)";
      at_ += 4;
      return {};
    }
    std::size_t size = 1;
    std::string_view text = "(";
    if (starts("(?") || starts("(*")) {
      size = 0;
      for (const auto& [from, to] : kOpeners) {
        if (!starts(from)) continue;
        size = from.size();
        text = to;
        break;
      }
      if (size == 0) return refuse("a group of an unknown kind");
    }
    groups_.push_back(out_.size());
    out_ += text;
    at_ += size;
    return {};
  }

  Status interval() {
    const std::size_t close = pattern_.find('}', at_);
    const std::string_view body =
        close == std::string_view::npos ? "" : pattern_.substr(at_ + 1, close - at_ - 1);
    const bool counts = !body.empty() && body != "," &&
                        body.find_first_not_of("0123456789,") == std::string_view::npos &&
                        std::count(body.begin(), body.end(), ',') <= 1;
    if (!counts) {
      atom("\\{");
      ++at_;
      return {};
    }
    if (atom_ == std::string::npos) return refuse("a count without an atom");
    out_ += fmt::format("{{{}{}}}", body.front() == ',' ? "0" : "", body);
    at_ = close + 1;
    const bool exact = body.find(',') == std::string_view::npos;
    const char next = at_ < pattern_.size() ? pattern_[at_] : '\0';
    if (next == '+' || (next == '?' && exact)) {  // Ruby: the count is repeated, not possessive
      out_.insert(atom_, "(?:");
      out_ += ')';
    } else if (next == '?') {
      out_ += '?';
      ++at_;
    }
    return {};
  }

  static std::string bracket(const Set& set) {
    return fmt::format("[{}{}]", set.negated ? "^" : "", set.items);
  }

  // The set of an escape at `at_` (a backslash), if it is one; moves past it.
  Result<std::optional<Set>> set_escape() {
    if (at_ + 1 >= pattern_.size()) return refuse("a backslash at the end");
    const char c = pattern_[at_ + 1];
    Set set;
    switch (c) {
      case 's':
      case 'S':
        set = {std::string(c == 's' ? kSpaceItems : kNotSpaceItems)};
        break;
      case 'h':
      case 'H':
        set = {std::string(c == 'h' ? kHexItems : kNotHexItems)};
        break;
      case 'd':
      case 'D':
        set = {category_items("Nd"), c == 'D'};
        break;
      case 'w':
      case 'W':
        set = {word_items(), c == 'W'};
        break;
      case 'p':
      case 'P':
        return property();
      default:
        return std::nullopt;
    }
    at_ += 2;
    return set;
  }

  Result<std::optional<Set>> property() {
    const bool upper = pattern_[at_ + 1] == 'P';
    const std::size_t close = pattern_.find('}', at_);
    if (close == std::string_view::npos || at_ + 2 >= pattern_.size() || pattern_[at_ + 2] != '{') {
      return refuse("a property without braces");
    }
    std::string_view name = pattern_.substr(at_ + 3, close - at_ - 3);
    const bool caret = name.starts_with('^');
    if (caret) name.remove_prefix(1);
    Set set;
    set.negated = upper != caret;
    if (is_category(name)) {
      set.items = category_items(name);
    } else {
      for (const ScriptAddition& script : kScripts) {
        if (script.name == name) set.items = fmt::format("\\p{{{}}}{}", name, script.items);
      }
    }
    if (set.items.empty()) return refuse(fmt::format("the property '{}'", name));
    at_ = close + 1;
    return set;
  }

  // The code point of an escaped character at `at_` (a backslash); moves past it.
  Result<char32_t> character_escape() {
    static constexpr std::array<std::pair<char, char32_t>, 7> kControls = {
        {{'n', 10}, {'r', 13}, {'t', 9}, {'f', 12}, {'v', 11}, {'a', 7}, {'e', 27}}};
    const char c = pattern_[at_ + 1];
    for (const auto& [letter, point] : kControls) {
      if (c != letter) continue;
      at_ += 2;
      return point;
    }
    if (c == 'x' || c == 'u') return code_point_escape();
    if (static_cast<unsigned char>(c) < 0x80 &&
        kSyntaxCharacters.find(c) == std::string_view::npos) {
      return refuse(fmt::format("the escape '\\{}'", c));
    }
    const DecodedPoint decoded = decode_utf8(pattern_, at_ + 1);
    at_ += 1 + decoded.bytes;
    return decoded.point;
  }

  Result<char32_t> code_point_escape() {
    const bool braces = pattern_[at_ + 1] == 'x' && pattern_.substr(at_ + 2).starts_with('{');
    const std::size_t begin = at_ + (braces ? 3 : 2);
    std::size_t end = begin + (pattern_[at_ + 1] == 'u' ? 4 : 2);
    if (braces) end = pattern_.find('}', begin);
    if (end == std::string_view::npos || end > pattern_.size() || end == begin || end - begin > 8) {
      return refuse("a code point escape");
    }
    std::uint64_t point = 0;
    for (const char c : pattern_.substr(begin, end - begin)) {
      const std::size_t digit = std::string_view("0123456789abcdef").find(c | 0x20);
      if (digit == std::string_view::npos) return refuse("a code point escape");
      point = point * 16 + digit;
    }
    const bool byte = pattern_[at_ + 1] == 'x' && !braces;
    if (point > 0x10FFFF || (point >= 0xD800 && point < 0xE000) || (byte && point >= 0x80)) {
      return refuse("a code point escape");
    }
    at_ = end + (braces ? 1 : 0);
    return static_cast<char32_t>(point);
  }

  Status escape() {
    PACKSTONE_TRY(const std::optional<Set> set, set_escape());
    if (set) {
      atom(bracket(*set));
      return {};
    }
    const char c = pattern_[at_ + 1];
    if (c == 'A' || c == 'z' || c == 'Z') {
      atom(pattern_.substr(at_, 2));
      at_ += 2;
      return {};
    }
    if (c == 'b' || c == 'B') {
      const std::string word = fmt::format("[{}]", word_items());
      atom(c == 'b' ? fmt::format("(?:(?<={0})(?!{0})|(?<!{0})(?={0}))", word)
                    : fmt::format("(?:(?<={0})(?={0})|(?<!{0})(?!{0}))", word));
      at_ += 2;
      return {};
    }
    PACKSTONE_TRY(const char32_t point, character_escape());
    atom(fmt::format("\\x{{{:x}}}", static_cast<std::uint32_t>(point)));
    return {};
  }

  Status character_class() {
    std::string text = "[";
    ++at_;
    if (starts("^")) {
      text += '^';
      ++at_;
    }
    const std::size_t first = at_;
    while (at_ < pattern_.size() && (pattern_[at_] != ']' || at_ == first)) {
      const char c = pattern_[at_];
      if (c == ']') return refuse("an empty set");
      if (starts("&&")) return refuse("an intersection of sets");
      if (c == '[') {
        if (starts("[:space:]")) {
          text += kSpaceItems;
        } else if (starts("[:digit:]")) {
          text += category_items("Nd");
        } else {
          return refuse("a set within a set");
        }
        at_ += 9;
      } else if (c == '\\') {
        PACKSTONE_TRY(const std::optional<Set> set, set_escape());
        if (set && set->negated) return refuse("a negated set within a set");
        if (set) {
          text += set->items;
          continue;
        }
        if (pattern_[at_ + 1] == 'b') return refuse("a backspace escape");
        PACKSTONE_TRY(const char32_t point, character_escape());
        text += fmt::format("\\x{{{:x}}}", static_cast<std::uint32_t>(point));
      } else {
        const std::size_t size = decode_utf8(pattern_, at_).bytes;
        text += pattern_.substr(at_, size);
        at_ += size;
      }
    }
    if (at_ >= pattern_.size()) return refuse("a set without its end");
    ++at_;
    atom(text + "]");
    return {};
  }

  std::string_view pattern_;
  std::size_t at_ = 0;
  std::string out_;
  std::size_t atom_ = std::string::npos;
  std::vector<std::size_t> groups_;
};

}  // namespace

Result<std::string> translate_pattern(std::string_view pattern) {
  return Translator(pattern).run();
}

}  // namespace packstone::text
