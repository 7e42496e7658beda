// A Result must be looked into: it does not turn into its value by itself.
// error: (cannot convert|could not convert|conversion from)
#include "packstone/base/result.h"

int value(const packstone::Result<int>& result) {
#if defined(RIGHT)
  return result ? *result : 0;
#else
  return result;
#endif
}
