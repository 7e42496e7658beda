// UTF-8, character classes and normal forms as the `tokenizers` library sees them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace packstone::text {

// Code points first..last, both included.
struct CodeRange {
  char32_t first;
  char32_t last;
};

struct DecodedPoint {
  char32_t point;
  int bytes;
};

// The code point at byte `at` of valid UTF-8.
inline DecodedPoint decode_utf8(std::string_view text, std::size_t at) {
  const auto byte = [&](std::size_t i) {
    return static_cast<char32_t>(static_cast<unsigned char>(text[at + i]));
  };
  const char32_t lead = byte(0);
  if (lead < 0x80) return {lead, 1};
  if (lead < 0xE0) return {((lead & 0x1F) << 6) | (byte(1) & 0x3F), 2};
  if (lead < 0xF0) {
    return {((lead & 0x0F) << 12) | ((byte(1) & 0x3F) << 6) | (byte(2) & 0x3F), 3};
  }
  return {
      ((lead & 0x07) << 18) | ((byte(1) & 0x3F) << 12) | ((byte(2) & 0x3F) << 6) | (byte(3) & 0x3F),
      4};
}

// Appends the UTF-8 of a code point.
void append_utf8(std::string& text, char32_t point);

// What a byte sequence at the start of `bytes` is.
struct SequenceInfo {
  int bytes;       // of the character, or of the maximal subpart that is wrong or unfinished
  bool whole;      // a well-formed character
  bool cut_short;  // a proper prefix of one: more bytes could complete it
};
SequenceInfo inspect_utf8(std::string_view bytes);

// The text with U+FFFD for each maximal subpart that is not UTF-8 (Unicode 15, 3.9, U+FFFD
// substitution of maximal subparts; Python's errors="replace").
std::string valid_utf8(std::string_view bytes);

// Whether valid UTF-8 is exactly one character.
bool is_one_character(std::string_view text);

bool is_whitespace(char32_t point);   // White_Space
bool is_numeric(char32_t point);      // the Digits rule
bool is_punctuation(char32_t point);  // the Punctuation rule
bool is_word(char32_t point);         // \w of the Whitespace rule and of single-word tokens
bool is_combining_mark(char32_t point);

enum class NormalForm { kC, kD, kKC, kKD };

// Whether ICU's data for a form is there.
bool has_normal_form(NormalForm form);

// The text (valid UTF-8) in a normal form (ICU, characters of Unicode 9, as the library's tables).
std::string normalize(NormalForm form, std::string_view text);

// Each character's full lower case, without context.
std::string lowercase(std::string_view text);

}  // namespace packstone::text
