#include "packstone/base/check.h"

#include <cstdio>
#include <cstdlib>

namespace packstone {

void check_failed(const char* condition, const char* file, int line) {
  std::fprintf(stderr, "packstone: broken invariant: %s at %s:%d\n", condition, file, line);
  std::abort();
}

}  // namespace packstone
