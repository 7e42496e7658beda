// Kernels for AArch64 Advanced SIMD.
#include "packstone/kernel/isa/isa.h"

#if defined(__aarch64__)
#  include <arm_neon.h>

namespace packstone {
namespace {

#  include "packstone/kernel/isa/vec_neon.inc"
// The shared bodies build on the Vec above.
#  include "packstone/kernel/isa/ops_body.inc"
// Then the products.
#  include "packstone/kernel/isa/matmul_body.inc"
// Then the readers.
#  include "packstone/kernel/isa/readers_body.inc"

}  // namespace

const Isa* neon_isa() {
  static constexpr Isa kIsa{"neon", make_ops("neon"), kFormatKernels, panel_dot};
  return &kIsa;
}

}  // namespace packstone

#else

namespace packstone {
const Isa* neon_isa() {
  return nullptr;
}
}  // namespace packstone

#endif
