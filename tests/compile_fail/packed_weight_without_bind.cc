// A PackedWeight is made by bind, which checks its bytes, and by nothing else.
// error: private within this context
#include "packstone/format/packed_weight.h"
#include "packstone/format/registry.h"

packstone::Result<packstone::PackedWeight> make(packstone::ByteSpan plane) {
  using namespace packstone;
#if defined(RIGHT)
  return PackedWeight::bind(kFormatId<GgufQ4_0>, {1, 32}, {}, {plane}, nullptr, "test");
#else
  (void)plane;
  PackedWeight weight;
  return weight;
#endif
}
