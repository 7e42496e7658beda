// A pattern compiled by PCRE2 with the limits of its matches. Included where PCRE2 is called only.
#pragma once

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <cstdint>
#include <string>
#include <string_view>

namespace packstone::text {

// Owns the code and the match context. Once both are made it may be shared between threads.
struct Pcre2Code {
  pcre2_code* code = nullptr;
  pcre2_match_context* context = nullptr;

  Pcre2Code() = default;
  Pcre2Code(const Pcre2Code&) = delete;
  Pcre2Code& operator=(const Pcre2Code&) = delete;
  ~Pcre2Code();

  // Makes the code, once: `options` are PCRE2_*, newlines are LF, parentheses nest up to `nesting`
  // times. Returns what PCRE2 finds wrong with the pattern, or nothing.
  std::string compile(std::string_view pattern, std::uint32_t options, std::uint32_t nesting);

  // Makes the context, once: one match call takes at most `steps` steps and `heap_kib` KiB. False:
  // no memory.
  bool limit(std::uint32_t steps, std::uint32_t heap_kib);
};

}  // namespace packstone::text
