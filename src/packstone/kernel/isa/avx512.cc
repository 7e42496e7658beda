// Kernels for AVX-512 F, BW, DQ and VL. Everything between the target pragmas is in an unnamed
// namespace: a shared inline function compiled here would carry these instructions into the whole
// program.
#include "packstone/kernel/isa/isa.h"

#if defined(__x86_64__)
#  include <immintrin.h>

#  include "packstone/base/cpu.h"

#  if defined(__clang__)
#    pragma clang attribute push(                                                    \
        __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,avx2,fma,f16c"))), \
        apply_to = function)
#  else
// GCC 12's intrinsics start from an undefined register on purpose and warn about it (PR 105593).
#    pragma GCC diagnostic ignored "-Wuninitialized"
#    pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#    pragma GCC push_options
#    pragma GCC target("avx512f,avx512bw,avx512dq,avx512vl,avx2,fma,f16c")
#  endif

namespace packstone {
namespace {

#  include "packstone/kernel/isa/vec_avx512.inc"
// The shared bodies build on the Vec above.
#  include "packstone/kernel/isa/ops_body.inc"
// Then the products.
#  include "packstone/kernel/isa/matmul_body.inc"
// Then the readers.
#  include "packstone/kernel/isa/readers_body.inc"

}  // namespace
}  // namespace packstone

#  if defined(__clang__)
#    pragma clang attribute pop
#  else
#    pragma GCC pop_options
#  endif

namespace packstone {

const Isa* avx512_isa() {
  static constexpr Isa kIsa{"avx512", make_ops("avx512"), kFormatKernels, panel_dot};
  return cpu_features().avx512 ? &kIsa : nullptr;
}

}  // namespace packstone

#else

namespace packstone {
const Isa* avx512_isa() {
  return nullptr;
}
}  // namespace packstone

#endif
