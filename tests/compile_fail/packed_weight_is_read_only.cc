// The bytes of a bound weight cannot be written through it.
// error: read-only location
#include "packstone/format/packed_weight.h"

unsigned first_byte(const packstone::PackedWeight& weight) {
#if defined(RIGHT)
  return static_cast<unsigned>(weight.plane(0)[0]);
#else
  weight.plane(0)[0] = {};
  return 0;
#endif
}
