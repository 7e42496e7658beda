// A typed weight is made by its constructors alone.
// error: private within this context|no matching function
#include "packstone/weight/weight.h"

packstone::Result<packstone::Weight> weight(packstone::ByteArray blocks,
                                            std::shared_ptr<const packstone::WeightState> state) {
#if defined(RIGHT)
  static_cast<void>(state);
  return packstone::Weight::q8_0(std::move(blocks));
#else
  static_cast<void>(blocks);
  return packstone::Weight(std::move(state));
#endif
}
