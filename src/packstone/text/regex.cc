#include "packstone/text/regex.h"

#include "packstone/text/pcre2_code.h"
#include "packstone/text/unicode.h"

namespace packstone::text {
namespace {

constexpr std::size_t kPatternBytesMax = 16'384;
// Steps of one match call; ordinary patterns use a few per character.
constexpr std::uint32_t kMatchLimit = 10'000'000;
constexpr std::size_t kJitStackBytes = std::size_t{8} << 20;

struct MatchScratch {
  pcre2_match_data* data = pcre2_match_data_create(8, nullptr);
  pcre2_jit_stack* stack = pcre2_jit_stack_create(32 * 1024, kJitStackBytes, nullptr);
  MatchScratch() = default;
  MatchScratch(const MatchScratch&) = delete;
  MatchScratch& operator=(const MatchScratch&) = delete;
  ~MatchScratch() {
    pcre2_jit_stack_free(stack);
    pcre2_match_data_free(data);
  }
};

MatchScratch& scratch() {
  thread_local MatchScratch value;
  return value;
}

pcre2_jit_stack* stack_of_thread(void*) {
  return scratch().stack;
}

void add_match(std::vector<Match>& matches, std::size_t& previous, std::size_t begin,
               std::size_t end) {
  if (previous != begin) matches.push_back({previous, begin, false});
  matches.push_back({begin, end, true});
  previous = end;
}

}  // namespace

Result<Regex> Regex::compile(std::string_view pattern) {
  if (pattern.size() > kPatternBytesMax) {
    return fail(ErrorCode::kUnsupported, "text.regex", "pattern",
                fmt::format("{} bytes", pattern.size()), "at most 16384 bytes");
  }
  if (valid_utf8(pattern) != pattern) {
    return fail(ErrorCode::kCorruptData, "text.regex", "pattern", "bytes that are not UTF-8",
                "UTF-8");
  }
  PACKSTONE_TRY(std::string translated, translate_pattern(pattern));
  auto code = std::make_shared<Pcre2Code>();
  const std::uint32_t options = PCRE2_UTF | PCRE2_UCP | PCRE2_MULTILINE | PCRE2_NEVER_BACKSLASH_C;
  const std::string wrong = code->compile(translated, options, 100);
  if (code->code == nullptr) {
    return fail(ErrorCode::kUnsupported, "text.regex", fmt::format("pattern '{}'", pattern), wrong,
                "a pattern that PCRE2 compiles");
  }
  // Without JIT (not built in, or refused by the system) the interpreter gives the same matches.
  pcre2_jit_compile(code->code, PCRE2_JIT_COMPLETE);
  if (!code->limit(kMatchLimit, 256 * 1024)) {
    return fail(ErrorCode::kExhausted, "text.regex", "match context", "no memory", "memory");
  }
  pcre2_jit_stack_assign(code->context, stack_of_thread, nullptr);
  Regex regex;
  regex.pattern_ = pattern;
  regex.code_ = std::move(code);
  return regex;
}

Regex Regex::literal(std::string_view text) {
  Regex regex;
  regex.pattern_ = text;
  return regex;
}

Status Regex::find_all(std::string_view text, std::vector<Match>& matches) const {
  matches.clear();
  if (text.empty()) {
    matches.push_back({0, 0, false});
    return {};
  }
  std::size_t previous = 0;  // end of what is covered
  std::size_t start = 0;     // where the next search begins
  bool any = false;          // whether there was a match, ending at `previous`
  while (start <= text.size()) {
    std::size_t begin = 0;
    std::size_t end = 0;
    if (code_ == nullptr) {
      begin = text.find(pattern_, start);
      if (begin == std::string_view::npos) break;
      end = begin + pattern_.size();
    } else {
      pcre2_match_data* data = scratch().data;
      const int rc = pcre2_match(code_->code, reinterpret_cast<PCRE2_SPTR>(text.data()),
                                 text.size(), start, PCRE2_NO_UTF_CHECK, data, code_->context);
      if (rc == PCRE2_ERROR_NOMATCH) break;
      if (rc < 0) {
        return fail(ErrorCode::kExhausted, "text.regex", fmt::format("pattern '{}'", pattern_),
                    fmt::format("PCRE2 error {} on a text of {} bytes", rc, text.size()),
                    "a match within the step limit", "the pattern backtracks too much");
      }
      const PCRE2_SIZE* found = pcre2_get_ovector_pointer(data);
      begin = found[0];
      end = found[1];
    }
    // An empty match right after a match does not count; look one character further.
    if (begin == end && any && end == previous) {
      if (start >= text.size()) break;
      start += decode_utf8(text, start).bytes;
      continue;
    }
    add_match(matches, previous, begin, end);
    any = true;
    start = end;
  }
  if (previous != text.size()) matches.push_back({previous, text.size(), false});
  return {};
}

Result<Regex> pattern_field(const Json& rule, std::string_view rule_name) {
  const Json* pattern = member(rule, "pattern");
  if (pattern != nullptr && pattern->is_object() && pattern->size() == 1) {
    const Json* literal = member(*pattern, "String");
    if (literal != nullptr && literal->is_string()) {
      return Regex::literal(literal->get_ref<const std::string&>());
    }
    const Json* regex = member(*pattern, "Regex");
    if (regex != nullptr && regex->is_string()) {
      return Regex::compile(regex->get_ref<const std::string&>());
    }
  }
  return fail(ErrorCode::kCorruptData, "text.regex", rule_name, "no pattern",
              "a 'pattern' of kind String or Regex");
}

}  // namespace packstone::text
