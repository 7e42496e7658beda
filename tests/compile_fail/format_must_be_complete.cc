// A type that says only half of a format is not a CodedFormat.
// error: constraint
#include "packstone/format/registry.h"

struct Half {
  static constexpr std::string_view kName = "half";
  static constexpr int kCodeBits = 4;
};

template <packstone::CodedFormat F>
constexpr int code_bits() {
  return F::kCodeBits;
}

#if defined(RIGHT)
static_assert(code_bits<packstone::GgufQ4_0>() == 4);
#else
static_assert(code_bits<Half>() == 4);
#endif
