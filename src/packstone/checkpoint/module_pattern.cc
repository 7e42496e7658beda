#include "packstone/checkpoint/module_pattern.h"

#include <algorithm>
#include <optional>

#include "packstone/checkpoint/names.h"
#include "packstone/text/pcre2_code.h"

namespace packstone {
namespace {

constexpr std::string_view kWhere = "checkpoint.module_pattern";
constexpr std::size_t kPatternBytesMax = 4'096;
constexpr std::string_view kWrapped = ".linear";

std::vector<std::string> split(std::string_view path) {
  std::vector<std::string> parts;
  for (std::size_t begin = 0;;) {
    const std::size_t dot = path.find('.', begin);
    parts.emplace_back(path.substr(begin, dot - begin));
    if (dot == std::string_view::npos) return parts;
    begin = dot + 1;
  }
}

// Whether the path begins with the parts.
bool starts_with_parts(std::string_view path, const std::vector<std::string>& parts) {
  for (std::size_t i = 0; i < parts.size(); ++i) {
    const std::size_t dot = std::min(path.find('.'), path.size());
    if (!glob_match(parts[i], path.substr(0, dot))) return false;
    if (dot == path.size()) return i + 1 == parts.size();
    path.remove_prefix(dot + 1);
  }
  return true;
}

// Whether the parts stand in a row somewhere in the path.
bool has_parts(std::string_view path, const std::vector<std::string>& parts) {
  for (;;) {
    if (starts_with_parts(path, parts)) return true;
    const std::size_t dot = path.find('.');
    if (dot == std::string_view::npos) return false;
    path.remove_prefix(dot + 1);
  }
}

// "mlp.up_proj" of "model.layers.3.mlp.up_proj", or nothing.
std::string_view short_name(std::string_view text) {
  if (!layer_of(text)) return {};
  std::size_t dots = 0;
  for (std::size_t i = 0; i < text.size(); ++i)
    if (text[i] == '.' && ++dots == 3) return text.substr(i + 1);
  return {};
}

bool is_literal(char c) {
  return (c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') || c == '_' ||
         c == '-' || c == '/';
}

// The text of a pattern of literal characters and escaped punctuation, or nothing.
std::optional<std::string> literal_of(std::string_view pattern) {
  std::string text;
  for (std::size_t i = 0; i < pattern.size(); ++i) {
    if (is_literal(pattern[i])) {
      text += pattern[i];
    } else if (pattern[i] == '\\' && i + 1 < pattern.size() &&
               (!is_literal(pattern[i + 1]) || pattern[i + 1] == '-' || pattern[i + 1] == '_' ||
                pattern[i + 1] == '/')) {
      text += pattern[++i];
    } else {
      return std::nullopt;
    }
  }
  return text;
}

// An exact name of the form ^literal$, whose dots need no escape.
std::optional<std::string> exact_of(std::string_view pattern) {
  if (pattern.size() < 3 || pattern.front() != '^' || pattern.back() != '$') return std::nullopt;
  std::string escaped;
  for (const char c : pattern.substr(1, pattern.size() - 2)) {
    if (c == '.' && (escaped.empty() || escaped.back() != '\\')) escaped += '\\';
    escaped += c;
  }
  return literal_of(escaped);
}

}  // namespace

bool glob_match(std::string_view pattern, std::string_view text) {
  std::size_t p = 0, t = 0, star = std::string_view::npos, resume = 0;
  while (t < text.size()) {
    if (p < pattern.size() && pattern[p] == '*') {
      star = p++;
      resume = t;
    } else if (p < pattern.size() && (pattern[p] == '?' || pattern[p] == text[t])) {
      ++p;
      ++t;
    } else if (star != std::string_view::npos) {
      p = star + 1;
      t = ++resume;
    } else {
      return false;
    }
  }
  while (p < pattern.size() && pattern[p] == '*') ++p;
  return p == pattern.size();
}

std::string_view module_key(std::string_view path) {
  for (bool again = true; again;) {
    again = false;
    for (const std::string_view prefix : {"language_model.", "model."})
      if (path.starts_with(prefix)) {
        path.remove_prefix(prefix.size());
        again = true;
      }
  }
  return path;
}

ModulePattern ModulePattern::layers() {
  return ModulePattern(Kind::kLayers);
}

ModulePattern ModulePattern::linear() {
  return ModulePattern(Kind::kLinear);
}

ModulePattern ModulePattern::exact(std::string_view name) {
  ModulePattern pattern(Kind::kExact);
  pattern.text_ = module_key(name);
  return pattern;
}

ModulePattern ModulePattern::skip_entry(std::string_view entry) {
  ModulePattern pattern(Kind::kSkipEntry);
  if (entry.size() > kWrapped.size() && entry.ends_with(kWrapped))
    entry.remove_suffix(kWrapped.size());
  while (entry.ends_with('.')) entry.remove_suffix(1);
  pattern.text_ = entry;
  pattern.parts_ = split(entry);
  return pattern;
}

Result<ModulePattern> ModulePattern::start_regex(std::string_view pattern, bool short_names,
                                                 std::string_view subject) {
  ModulePattern made(Kind::kStart);
  made.short_names_ = short_names;
  made.subject_ = subject;
  if (const std::optional<std::string> exact = exact_of(pattern)) {
    made.text_ = *exact;
    made.whole_ = true;
    return made;
  }
  if (const std::optional<std::string> literal = literal_of(pattern)) {
    made.text_ = *literal;
    return made;
  }
  if (pattern.size() > kPatternBytesMax)
    return fail(ErrorCode::kCorruptData, kWhere, subject,
                fmt::format("a pattern of {} bytes", pattern.size()),
                fmt::format("at most {} bytes", kPatternBytesMax));
  auto code = std::make_shared<text::Pcre2Code>();
  const std::uint32_t options = PCRE2_ANCHORED | PCRE2_UTF | PCRE2_NEVER_BACKSLASH_C;
  const std::string wrong = code->compile(pattern, options, 50);
  if (code->code == nullptr)
    return fail(ErrorCode::kCorruptData, kWhere, subject, wrong, "a pattern that PCRE2 compiles");
  if (!code->limit(kMatchLimit, 1024))
    return fail(ErrorCode::kExhausted, kWhere, subject, "no memory", "memory");
  made.code_ = std::move(code);
  return made;
}

Result<bool> ModulePattern::matches_start(std::string_view name) const {
  if (code_ == nullptr) return whole_ ? name == text_ : name.starts_with(text_);
  const std::unique_ptr<pcre2_match_data, decltype(&pcre2_match_data_free)> data(
      pcre2_match_data_create(1, nullptr), &pcre2_match_data_free);
  const int rc = data == nullptr
                     ? PCRE2_ERROR_NOMEMORY
                     : pcre2_match(code_->code, reinterpret_cast<PCRE2_SPTR>(name.data()),
                                   name.size(), 0, 0, data.get(), code_->context);
  if (rc >= 0) return true;
  if (rc == PCRE2_ERROR_NOMATCH) return false;
  return fail(ErrorCode::kExhausted, kWhere, subject_,
              fmt::format("PCRE2 error {} on '{}'", rc, name), "a match within the step limit",
              "the pattern backtracks too much");
}

Result<bool> ModulePattern::matches(const ModuleName& name) const {
  switch (kind_) {
    case Kind::kLayers:
      return layer_of(name.text).has_value();
    case Kind::kLinear:
      return !name.text.ends_with("embed_tokens");
    case Kind::kExact:
      return module_key(name.text) == text_ || module_key(name.stored) == text_;
    case Kind::kSkipEntry:
      if (has_parts(name.stored, parts_) || has_parts(name.text, parts_)) return true;
      if (text_.find_first_of("*?") != std::string::npos)
        return glob_match(text_, name.stored) || glob_match(text_, name.text);
      // "model.language_model.layers.1" and "language_model.model.layers.1" are one module.
      return !module_key(text_).empty() && module_key(text_) != text_ &&
             (std::string(module_key(name.text)) + ".")
                 .starts_with(std::string(module_key(text_)) + ".");
    case Kind::kStart:
      for (const std::string_view spelling : {name.stored, name.text}) {
        PACKSTONE_TRY(const bool found, matches_start(spelling));
        if (found) return true;
      }
      if (short_names_ && !short_name(name.text).empty())
        return matches_start(short_name(name.text));
      return false;
  }
  return false;
}

}  // namespace packstone
