// A format's position in the list lives only inside the process: no number becomes one.
// error: (cannot convert|could not convert|no matching function)
#include "packstone/format/packed_weight.h"

const packstone::FormatInfo* info(const char* name) {
  using namespace packstone;
#if defined(RIGHT)
  const auto id = find_format(name);
  return id ? &format_info(*id) : nullptr;
#else
  (void)name;
  return &format_info(3);
#endif
}
