#include "packstone/text/pcre2_code.h"

namespace packstone::text {

Pcre2Code::~Pcre2Code() {
  pcre2_match_context_free(context);
  pcre2_code_free(code);
}

std::string Pcre2Code::compile(std::string_view pattern, std::uint32_t options,
                               std::uint32_t nesting) {
  int number = 0;
  PCRE2_SIZE offset = 0;
  pcre2_compile_context* settings = pcre2_compile_context_create(nullptr);
  if (settings != nullptr) {
    pcre2_set_newline(settings, PCRE2_NEWLINE_LF);
    pcre2_set_parens_nest_limit(settings, nesting);
  }
  code = pcre2_compile(reinterpret_cast<PCRE2_SPTR>(pattern.data()), pattern.size(), options,
                       &number, &offset, settings);
  pcre2_compile_context_free(settings);
  if (code != nullptr) return {};
  PCRE2_UCHAR message[256] = {};
  pcre2_get_error_message(number, message, sizeof message);
  return reinterpret_cast<const char*>(message);
}

bool Pcre2Code::limit(std::uint32_t steps, std::uint32_t heap_kib) {
  context = pcre2_match_context_create(nullptr);
  if (context == nullptr) return false;
  pcre2_set_match_limit(context, steps);
  pcre2_set_heap_limit(context, heap_kib);
  return true;
}

}  // namespace packstone::text
