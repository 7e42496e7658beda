#include "packstone/text/unicode.h"

#include <unicode/uchar.h>
#include <unicode/unorm2.h>
#include <unicode/uset.h>

#include <algorithm>
#include <array>
#include <iterator>
#include <vector>

#include "packstone/text/unicode_tables.h"

namespace packstone::text {
namespace {

template <std::size_t n>
bool contains(const CodeRange (&ranges)[n], char32_t point) {
  const CodeRange* after =
      std::upper_bound(std::begin(ranges), std::end(ranges), point,
                       [](char32_t value, const CodeRange& range) { return value < range.first; });
  return after != std::begin(ranges) && point <= std::prev(after)->last;
}

bool is_ascii(std::string_view text) {
  return std::all_of(text.begin(), text.end(),
                     [](char c) { return static_cast<unsigned char>(c) < 0x80; });
}

char32_t lower_of(char32_t point) {
  if (point >= kLowerSince14[0].first) {
    for (const CodeRange& pair : kLowerSince14) {
      if (pair.first == point) return pair.last;
    }
  }
  return static_cast<char32_t>(u_tolower(static_cast<UChar32>(point)));
}

const UNormalizer2* plain_normalizer(NormalForm form, UErrorCode& status) {
  switch (form) {
    case NormalForm::kC:
      return unorm2_getNFCInstance(&status);
    case NormalForm::kD:
      return unorm2_getNFDInstance(&status);
    case NormalForm::kKC:
      return unorm2_getNFKCInstance(&status);
    case NormalForm::kKD:
      return unorm2_getNFKDInstance(&status);
  }
  return nullptr;
}

// The library's tables are those of Unicode 9: later characters stay as they are.
const UNormalizer2* make_normalizer(NormalForm form) {
  UErrorCode status = U_ZERO_ERROR;
  const UNormalizer2* plain = plain_normalizer(form, status);
  constexpr std::u16string_view kPattern = u"[:age=9.0:]";
  USet* known = uset_openPattern(kPattern.data(), static_cast<int>(kPattern.size()), &status);
  if (U_FAILURE(status)) return nullptr;
  uset_freeze(known);
  const UNormalizer2* filtered = unorm2_openFiltered(plain, known, &status);
  return U_SUCCESS(status) ? filtered : nullptr;
}

const UNormalizer2* normalizer_of(NormalForm form) {
  static const std::array<const UNormalizer2*, 4> normalizers = {
      make_normalizer(NormalForm::kC), make_normalizer(NormalForm::kD),
      make_normalizer(NormalForm::kKC), make_normalizer(NormalForm::kKD)};
  return normalizers[static_cast<std::size_t>(form)];
}

}  // namespace

void append_utf8(std::string& text, char32_t point) {
  const auto put = [&](char32_t byte) { text.push_back(static_cast<char>(byte)); };
  if (point < 0x80) {
    put(point);
  } else if (point < 0x800) {
    put(0xC0 | (point >> 6));
    put(0x80 | (point & 0x3F));
  } else if (point < 0x10000) {
    put(0xE0 | (point >> 12));
    put(0x80 | ((point >> 6) & 0x3F));
    put(0x80 | (point & 0x3F));
  } else {
    put(0xF0 | (point >> 18));
    put(0x80 | ((point >> 12) & 0x3F));
    put(0x80 | ((point >> 6) & 0x3F));
    put(0x80 | (point & 0x3F));
  }
}

SequenceInfo inspect_utf8(std::string_view bytes) {
  const auto at = [&](std::size_t i) { return static_cast<unsigned char>(bytes[i]); };
  const unsigned lead = at(0);
  if (lead < 0x80) return {1, true, false};
  int length = 0;
  unsigned low = 0x80;  // bounds of the second byte (Unicode table 3-7)
  unsigned high = 0xBF;
  if (lead >= 0xC2 && lead <= 0xDF) {
    length = 2;
  } else if (lead >= 0xE0 && lead <= 0xEF) {
    length = 3;
    if (lead == 0xE0) low = 0xA0;
    if (lead == 0xED) high = 0x9F;
  } else if (lead >= 0xF0 && lead <= 0xF4) {
    length = 4;
    if (lead == 0xF0) low = 0x90;
    if (lead == 0xF4) high = 0x8F;
  } else {
    return {1, false, false};
  }
  for (int i = 1; i < length; ++i) {
    if (static_cast<std::size_t>(i) == bytes.size()) return {i, false, true};
    if (at(i) < low || at(i) > high) return {i, false, false};
    low = 0x80;
    high = 0xBF;
  }
  return {length, true, false};
}

std::string valid_utf8(std::string_view bytes) {
  std::string text;
  text.reserve(bytes.size());
  while (!bytes.empty()) {
    const SequenceInfo info = inspect_utf8(bytes);
    if (info.whole) {
      text.append(bytes.substr(0, info.bytes));
    } else {
      append_utf8(text, 0xFFFD);
    }
    bytes.remove_prefix(info.bytes);
  }
  return text;
}

bool is_one_character(std::string_view text) {
  return !text.empty() && inspect_utf8(text).bytes == static_cast<int>(text.size());
}

bool is_whitespace(char32_t point) {
  if (point < 0x80) return point == ' ' || (point >= 9 && point <= 13);
  return point == 0x85 || point == 0xA0 || point == 0x1680 ||
         (point >= 0x2000 && point <= 0x200A) || point == 0x2028 || point == 0x2029 ||
         point == 0x202F || point == 0x205F || point == 0x3000;
}

bool is_numeric(char32_t point) {
  if (point < 0x80) return point >= '0' && point <= '9';
  return contains(kNumeric, point);
}

bool is_punctuation(char32_t point) {
  return contains(kPunctuation, point);
}

bool is_word(char32_t point) {
  return contains(kWord, point);
}

bool is_combining_mark(char32_t point) {
  return contains(kMark, point);
}

bool has_normal_form(NormalForm form) {
  return normalizer_of(form) != nullptr;
}

std::string normalize(NormalForm form, std::string_view text) {
  const UNormalizer2* normalizer = normalizer_of(form);
  if (normalizer == nullptr || is_ascii(text)) return std::string(text);
  std::u16string source;
  source.reserve(text.size());
  for (std::size_t i = 0; i < text.size();) {
    const DecodedPoint decoded = decode_utf8(text, i);
    i += decoded.bytes;
    if (decoded.point < 0x10000) {
      source.push_back(static_cast<char16_t>(decoded.point));
    } else {
      source.push_back(static_cast<char16_t>(0xD7C0 + (decoded.point >> 10)));
      source.push_back(static_cast<char16_t>(0xDC00 | (decoded.point & 0x3FF)));
    }
  }
  std::u16string target(source.size() + source.size() / 4 + 16, u'\0');
  for (int pass = 0; pass < 2; ++pass) {
    UErrorCode status = U_ZERO_ERROR;
    const std::int32_t size =
        unorm2_normalize(normalizer, source.data(), static_cast<std::int32_t>(source.size()),
                         target.data(), static_cast<std::int32_t>(target.size()), &status);
    target.resize(size > 0 ? static_cast<std::size_t>(size) : 0);
    if (U_SUCCESS(status)) break;
    if (status != U_BUFFER_OVERFLOW_ERROR) return std::string(text);
  }
  std::string result;
  result.reserve(target.size() * 2);
  for (std::size_t i = 0; i < target.size(); ++i) {
    char32_t point = target[i];
    if (point >= 0xD800 && point < 0xDC00 && i + 1 < target.size()) {
      point = ((point - 0xD7C0) << 10) | (target[++i] & 0x3FFu);
    }
    append_utf8(result, point);
  }
  return result;
}

std::string lowercase(std::string_view text) {
  std::string result;
  result.reserve(text.size());
  for (std::size_t i = 0; i < text.size();) {
    const DecodedPoint decoded = decode_utf8(text, i);
    i += decoded.bytes;
    if (decoded.point == 0x130) {  // the one character whose lower case is two
      result.append("i");
      append_utf8(result, 0x307);
    } else {
      append_utf8(result, lower_of(decoded.point));
    }
  }
  return result;
}

}  // namespace packstone::text
