// How quantization configs name modules: skip lists by path parts and wildcards, class names, exact
// names, and regular expressions anchored at the start.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "packstone/base/result.h"

namespace packstone::text {
struct Pcre2Code;
}

namespace packstone {

// A module by the name that its tensors have in the file, and by the name without the prefix of a
// multimodal wrapper ("model.layers.0.mlp.up_proj").
struct ModuleName {
  std::string_view stored;
  std::string_view text;
};

// One pattern. Immutable; safe to share between threads.
class ModulePattern {
 public:
  // Every module of a layer.
  static ModulePattern layers();
  // Every linear module: all but the embedding.
  static ModulePattern linear();
  // Exactly this name, with or without the prefixes that writers disagree on.
  static ModulePattern exact(std::string_view name);
  // skip_entry(entry): whole path parts, anywhere in the name; `*` and `?` stand within a part, or,
  // over the whole name, across parts. A trailing ".linear" (a wrapped module) may be missing.
  // "layers.1" is not layers.10; "gate" is not gate_proj.
  static ModulePattern skip_entry(std::string_view entry);
  // start_regex(pattern, subject): a Perl-compatible expression that must match at the first byte
  // of the name, not up to its end (Python's re.match). "^...$" of literal characters alone is the
  // exact name. With `short_names` the name inside the layer ("mlp.up_proj") is tried too.
  // Errors: kCorruptData for a pattern that PCRE2 does not compile or that is too long; messages
  //         name `subject`.
  static Result<ModulePattern> start_regex(std::string_view pattern, bool short_names,
                                           std::string_view subject);

  // Whether the pattern names the module. Errors: kExhausted when a regular expression backtracks
  // too much. Cost: linear in the name but for regular expressions, which take at most
  // kMatchLimit steps.
  Result<bool> matches(const ModuleName& name) const;

  // Whether matching costs more than a comparison.
  bool is_regex() const { return code_ != nullptr; }
  // Whether it names a class of modules.
  bool is_class() const { return kind_ == Kind::kLinear; }

  static constexpr std::uint32_t kMatchLimit = 2'000;

 private:
  enum class Kind { kLayers, kLinear, kExact, kSkipEntry, kStart };
  explicit ModulePattern(Kind kind) : kind_(kind) {}
  Result<bool> matches_start(std::string_view name) const;

  Kind kind_;
  bool short_names_ = false;
  bool whole_ = false;              // kStart without code: the name ends with the text
  std::string text_;                // kExact, kStart without code, kSkipEntry
  std::vector<std::string> parts_;  // kSkipEntry
  std::string subject_;
  std::shared_ptr<const text::Pcre2Code> code_;
};

// glob_match(pattern, text): `*` is any run of characters, `?` any one. Cost: product of lengths.
bool glob_match(std::string_view pattern, std::string_view text);

// A module path without the prefixes that writers disagree on ("model.", "language_model."):
// "layers.0.mlp.up_proj".
std::string_view module_key(std::string_view path);

}  // namespace packstone
