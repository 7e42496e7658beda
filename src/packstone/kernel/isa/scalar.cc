// The scalar reference: every operation in plain C++, std::fma semantics, no instruction set
// needed.
#include "packstone/base/bytes.h"
#include "packstone/kernel/isa/isa.h"

namespace packstone {
namespace {

#include "packstone/kernel/isa/vec_scalar.inc"
// The shared bodies build on the Vec above.
#include "packstone/kernel/isa/ops_body.inc"
// Then the products.
#include "packstone/kernel/isa/matmul_body.inc"

}  // namespace

const Isa* scalar_isa() {
  static constexpr Isa kIsa{"scalar", make_ops("scalar"), {}, panel_dot};
  return &kIsa;
}

}  // namespace packstone
