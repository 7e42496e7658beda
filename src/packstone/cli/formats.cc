// packstone formats: the table of layouts, and of the moves between them, derived from the list of
// formats.
#include <map>

#include "packstone/cli/arguments.h"
#include "packstone/cli/layouts.h"
#include "packstone/cli/output.h"
#include "packstone/format/variants.h"
#include "packstone/transcode/transcode.h"

namespace packstone::cli {
namespace {

std::vector<std::int64_t> sizes_of(FormatId id) {
  const auto sizes = format_info(id).group_sizes;
  return {sizes.begin(), sizes.end()};
}

// Whether codes of `id` fit in `target` whatever they are; the other moves need luck.
bool may_hold(FormatId target, FormatId id) {
  if (is_float_format(target)) return target == kFloat32;
  return format_info(target).code_bits >= format_info(id).code_bits;
}

// The layouts to which a convert from this format can be exact, as far as headers tell.
std::vector<std::string> exact_targets(FormatId id) {
  std::vector<std::string> names;
  for (FormatId target : all_formats()) {
    if (target == id || !may_hold(target, id) || !format_info(target).writable) continue;
    const TranscodePlan plan = header_verdict(id, kSampleShape, sample_params(id),
                                              TranscodeTarget{target, 0, std::nullopt});
    const std::string name(format_info(target).layout);
    if (plan.verdict != Verdict::kRefused && (names.empty() || names.back() != name))
      names.push_back(name);
  }
  return names;
}

Json format_row(FormatId id) {
  const FormatInfo& info = format_info(id);
  Json row;
  row["name"] = info.layout;
  row["bits"] = info.code_bits;
  row["group_sizes"] = sizes_of(id);
  row["read"] = true;
  row["write"] = info.writable;
  row["run_cpu"] = true;
  row["run_cuda"] = false;
  row["exact_to"] = exact_targets(id);
  row["format"] = info.name;
  row["bits_per_weight"] = bits_per_weight(id, kSampleShape, sample_params(id));
  row["source"] = info.source;
  return row;
}

// One move, by headers of sample weights.
Json pair_row(FormatId from, FormatId to) {
  const TranscodePlan plan =
      header_verdict(from, kSampleShape, sample_params(from), TranscodeTarget{to, 0, std::nullopt});
  Json row;
  row["from"] = format_info(from).name;
  row["to"] = format_info(to).name;
  row["verdict"] = verdict_name(plan.verdict);
  row["conditions"] = plan.conditions;
  row["reason"] = plan.reason;
  return row;
}

void print_row(std::ostream& out, const Json& row) {
  std::string groups, exact;
  for (const Json& size : row["group_sizes"])
    groups += fmt::format("{}{}", groups.empty() ? "" : ",", size.get<std::int64_t>());
  for (const Json& name : row["exact_to"]) exact += " " + name.get<std::string>();
  out << fmt::format("{:<12}{:>5}{:>8.3f}  {:<11}{}\n", row["name"].get<std::string>(),
                     row["bits"].get<int>(), row["bits_per_weight"].get<double>(), groups, exact);
}

void print_pairs(Context& context) {
  Json table = Json::array();
  for (const FormatId from : all_formats())
    for (const FormatId to : all_formats()) table.push_back(pair_row(from, to));
  if (context.json) {
    print_json(context.out, table);
    return;
  }
  for (const Json& row : table)
    context.out << fmt::format("{:<18} {:<18} {}\n", row["from"].get<std::string>(),
                               row["to"].get<std::string>(), row["verdict"].get<std::string>());
}

}  // namespace

Result<int> run_formats(Arguments arguments, Context& context) {
  Options app(
      "formats",
      "The table of layouts. Every one is read and run on the CPU from its packed bytes; none "
      "on CUDA in this build. `bits` are those of an unpacked code, `b/w` the stored bits per "
      "weight, scales included; a grid type stores one index for several codes. `exact to` names "
      "the layouts to which a convert can keep every value, as far as headers tell.");
  bool pairs = false;
  app.flag("--pairs", pairs, "every ordered pair of formats with the best verdict of a convert");
  PACKSTONE_TRY(const Parsed parsed, app.parse(arguments, context));
  if (parsed == Parsed::kHelpShown) return 0;
  if (pairs) {
    print_pairs(context);
    return 0;
  }
  Json table = Json::array();
  for (FormatId id : all_formats()) table.push_back(format_row(id));
  if (context.json) {
    print_json(context.out, table);
    return 0;
  }
  context.out << fmt::format("{:<12}{:>5}{:>8}  {:<11} {}\n", "layout", "bits", "b/w", "groups",
                             "exact to");
  for (const Json& row : table) print_row(context.out, row);
  return 0;
}

}  // namespace packstone::cli
