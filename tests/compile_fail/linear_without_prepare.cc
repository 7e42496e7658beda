// A Linear is made by prepare, which picks the kernel, and by nothing else.
// error: private within this context
#include "packstone/kernel/matmul/linear.h"

packstone::Result<packstone::Linear> make(packstone::PackedWeight weight) {
  using namespace packstone;
#if defined(RIGHT)
  return Linear::prepare(std::move(weight));
#else
  return Linear(std::move(weight), {}, nullptr);
#endif
}
