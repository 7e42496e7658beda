#include "packstone/kernel/ops.h"

#include <array>
#include <cstdlib>

#include "packstone/kernel/isa/isa.h"

namespace packstone {
namespace {

// Pointers to what this build and CPU have, in the order given.
template <class T, std::size_t N>
struct Available {
  std::array<const T*, N> item{};
  std::size_t count = 0;
  void add(const T* value) {
    if (value != nullptr) item[count++] = value;
  }
  std::span<const T* const> span() const { return {item.data(), count}; }
};

}  // namespace

std::span<const Isa* const> isas() {
  static const auto list = [] {
    Available<Isa, 4> found;
    found.add(avx512_isa());
    found.add(avx2_isa());
    found.add(neon_isa());
    found.add(scalar_isa());
    return found;
  }();
  return list.span();
}

std::span<const Ops* const> all_ops() {
  static const auto list = [] {
    Available<Ops, 4> found;
    for (std::size_t i = isas().size(); i-- > 0;) found.add(&isas()[i]->ops);
    return found;
  }();
  return list.span();
}

const Ops& ops() {
  const char* forced = std::getenv("PACKSTONE_FORCE_KERNEL");
  if (forced == nullptr || *forced == '\0') return isas().front()->ops;
  for (const Isa* isa : isas())
    if (isa->name == forced) return isa->ops;
  return scalar_isa()->ops;
}

}  // namespace packstone
