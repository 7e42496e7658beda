// packstone formats: the table of layouts, derived from the list of formats.
#include <map>

#include "packstone/cli/arguments.h"
#include "packstone/cli/layouts.h"
#include "packstone/cli/output.h"
#include "packstone/transcode/transcode.h"

namespace packstone::cli {
namespace {

// A shape that every format takes.
constexpr Shape kSample{1, 1024};

FormatParams sample_params(FormatId id) {
  FormatParams params;
  if (is_mlx_format(id)) params.group_cols = 32;
  return params;
}

std::vector<std::int64_t> group_sizes(FormatId id) {
  if (is_float_format(id)) return {};
  if (is_mlx_format(id)) return {32, 64, 128};
  return {group_cols(id, sample_params(id))};
}

// Whether codes of `id` fit in `target` whatever they are; the other moves need luck.
bool may_hold(FormatId target, FormatId id) {
  if (is_float_format(target)) return target == kFormatId<DenseF32>;
  return format_info(target).code_bits >= format_info(id).code_bits;
}

// The layouts to which a convert from this format can be exact, as far as headers tell.
std::vector<std::string> exact_targets(FormatId id) {
  std::vector<std::string> names;
  for (FormatId target : all_formats()) {
    if (target == id || !may_hold(target, id)) continue;
    const TranscodePlan plan =
        header_verdict(id, kSample, sample_params(id), TranscodeTarget{target, 0, std::nullopt});
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
  row["group_sizes"] = group_sizes(id);
  row["read"] = true;
  row["write"] = true;
  row["run_cpu"] = true;
  row["run_cuda"] = false;
  row["exact_to"] = exact_targets(id);
  row["format"] = info.name;
  row["bits_per_weight"] = bits_per_weight(id, kSample, sample_params(id));
  row["source"] = info.source;
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

}  // namespace

Result<int> run_formats(Arguments arguments, Context& context) {
  Options app(
      "formats",
      "The table of layouts. Every one is read, written, and run on the CPU from its packed "
      "bytes; none on CUDA in this build. `exact to` names the layouts to which a convert "
      "can keep every value, as far as headers tell.");
  PACKSTONE_TRY(const Parsed parsed, app.parse(arguments, context));
  if (parsed == Parsed::kHelpShown) return 0;
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
