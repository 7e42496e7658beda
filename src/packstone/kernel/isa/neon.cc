#include "packstone/kernel/isa/isa.h"

namespace packstone {
const Isa* neon_isa() {
  return nullptr;
}
}  // namespace packstone
