#include "packstone/cli/described.h"

#include <algorithm>
#include <map>

namespace packstone::cli {
namespace {

using ByName = std::map<std::string_view, const UnsupportedTensor*>;

ByName by_name(const Checkpoint& checkpoint) {
  ByName modules;
  for (const UnsupportedTensor& module : checkpoint.unsupported)
    modules.emplace(module.name, &module);
  return modules;
}

}  // namespace

Status check_described_move(const Checkpoint& source, const LayoutTarget& layout,
                            std::string_view command) {
  const std::string where = fmt::format("cli.{}", command);
  PACKSTONE_CHECK_OK(require_comparable(source, where));
  for (const UnsupportedTensor& module : source.unsupported)
    if (module.type != layout.name)
      return fail(ErrorCode::kUnsupported, where,
                  fmt::format("{}: '{}'", source.path.string(), module.stored_name),
                  fmt::format("layout {} with --to {}", module.type, layout.name),
                  fmt::format("--to {}, which copies the folder", module.type),
                  "this build reads and describes the layout; it decodes no weight of it");
  if (!layout.described || !source.unsupported.empty()) return {};
  return fail(
      ErrorCode::kUnsupported, where, "--to",
      fmt::format("`{}` for {}, which has no module of it", layout.name, source.path.string()),
      "a layout that this build makes",
      "`packstone formats` lists them; a folder of this layout is copied");
}

Status require_comparable(const Checkpoint& checkpoint, std::string_view where) {
  const bool described = std::ranges::all_of(
      checkpoint.unsupported,
      [](const UnsupportedTensor& tensor) { return is_described_layout(tensor.type); });
  return described ? Status() : require_supported(checkpoint, where);
}

Result<std::vector<DescribedPair>> described_pairs(const Checkpoint& source,
                                                   const Checkpoint& target,
                                                   std::string_view command) {
  std::vector<DescribedPair> pairs;
  ByName targets = by_name(target);
  const auto refuse = [&](std::string_view name, std::string_view got) {
    return fail(ErrorCode::kNotRepresentable, fmt::format("cli.{}", command),
                fmt::format("'{}'", name), got, "the same tensors, byte for byte");
  };
  for (const UnsupportedTensor& module : source.unsupported) {
    const auto it = targets.find(module.name);
    if (it == targets.end()) return refuse(module.name, "no such module in the target");
    const std::string fault = described_fault(module, *it->second);
    if (!fault.empty()) return refuse(module.name, fault);
    pairs.push_back({&module, it->second});
    targets.erase(it);
  }
  if (!targets.empty()) return refuse(targets.begin()->first, "no such module in the source");
  return pairs;
}

}  // namespace packstone::cli
