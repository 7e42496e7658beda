#include "packstone/transcode/format_ops.h"

#include <array>

#include "packstone/format/registry.h"

namespace packstone {
namespace {

template <class... Families>
std::array<const FormatOps*, kFormatCount> join(FamilyList<Families...>) {
  std::array<const FormatOps*, kFormatCount> table{};
  std::size_t at = 0;
  auto append = [&](std::span<const FormatOps> family) {
    for (const FormatOps& ops : family) table[at++] = &ops;
  };
  (append(family_ops<Families>()), ...);
  return table;
}

}  // namespace

const FormatOps& format_ops(FormatId id) {
  static const auto table = join(AllFamilies{});
  return *table[static_cast<std::size_t>(id)];
}

}  // namespace packstone
