// packstone diff: two models, tensor by tensor, by their Hugging Face names, rows and values.
#include <set>

#include "packstone/cli/arguments.h"
#include "packstone/cli/compare.h"
#include "packstone/cli/described.h"
#include "packstone/cli/layouts.h"
#include "packstone/cli/output.h"
#include "packstone/cli/progress.h"

namespace packstone::cli {
namespace {

struct Difference {
  std::string name;
  double max_abs = 0;
  std::vector<std::int64_t> at;  // row and column; empty when the shapes differ
  std::string note;
};

struct DiffReport {
  std::vector<std::string> same_bytes, same_values;  // by name; the second without the first
  std::vector<Difference> different;
  std::vector<std::string> only_in_a, only_in_b;
  std::vector<std::string> reordered;  // of same_values: channels in another order
};

// The joint moves from `a`, with act-order, to `b`, without, under which every tensor of the move
// has the values of its pair.
Result<std::vector<ChannelMove>> moves_between(const Checkpoint& a, const Checkpoint& b,
                                               Context& context) {
  const ChannelMoves moves(a, [&](const CheckpointTensor& tensor) {
    const CheckpointTensor* other = b.find(tensor.name);
    return other != nullptr && other->shape == tensor.shape && !other->weight.params().act_order &&
           !compare_tensors(tensor, *other, context.pool()).same_values;
  });
  std::vector<ChannelMove> holding;
  for (const ChannelMove& move : moves.all()) {
    bool holds = move.fault.empty();
    for (const CheckpointTensor* tensor : move.tensors()) {
      if (!holds) break;
      PACKSTONE_CHECK_OK(context.check_cancel("diff"));
      const CheckpointTensor* other = b.find(tensor->name);
      holds = other != nullptr && other->shape == tensor->shape;
      if (!holds) break;
      PACKSTONE_TRY(const ValueComparison values,
                    compare_tensors(*tensor, move.of(*tensor), *other, context.pool()));
      holds = values.same_values;
    }
    if (holds) holding.push_back(move);
  }
  return holding;
}

// Names of the tensors whose channels stand in another order on the two sides, with equal values.
Result<std::set<std::string>> reordered_names(const Checkpoint& a, const Checkpoint& b,
                                              Context& context) {
  std::set<std::string> names;
  for (const auto& [from, to] : {std::pair(&a, &b), std::pair(&b, &a)}) {
    PACKSTONE_TRY(const std::vector<ChannelMove> moves, moves_between(*from, *to, context));
    for (const ChannelMove& move : moves)
      for (const CheckpointTensor* tensor : move.tensors()) names.insert(tensor->name);
  }
  return names;
}

void diff_tensor(const CheckpointTensor& a, const CheckpointTensor& b, Context& context,
                 DiffReport& report) {
  if (a.shape != b.shape) {
    report.different.push_back(
        {a.name,
         std::numeric_limits<double>::infinity(),
         {},
         fmt::format("shapes {} and {}", json_line(a.shape), json_line(b.shape))});
    return;
  }
  if (equal_storage(a, b)) {
    report.same_bytes.push_back(a.name);
    return;
  }
  const ValueComparison comparison = compare_tensors(a, b, context.pool());
  if (comparison.same_values)
    report.same_values.push_back(a.name);
  else
    report.different.push_back({a.name, comparison.max_abs, {comparison.row, comparison.col}, {}});
}

// Modules of layouts without a format: by their bytes. One that the other model has in a format is
// there under the same name.
void diff_described(const Checkpoint& a, const Checkpoint& b, DiffReport& report) {
  const auto name_of = &UnsupportedTensor::name;
  for (const UnsupportedTensor& module : a.unsupported) {
    const auto other = std::ranges::find(b.unsupported, module.name, name_of);
    if (other == b.unsupported.end()) {
      report.only_in_a.push_back(module.name);
      continue;
    }
    const std::string fault = described_fault(module, *other);
    if (fault.empty())
      report.same_bytes.push_back(module.name);
    else
      report.different.push_back({module.name, std::numeric_limits<double>::infinity(), {}, fault});
  }
  for (const UnsupportedTensor& module : b.unsupported)
    if (std::ranges::find(a.unsupported, module.name, name_of) == a.unsupported.end())
      report.only_in_b.push_back(module.name);
}

Json diff_json(const DiffReport& report) {
  Json json;
  json["same_bytes"] = report.same_bytes.size();
  json["same_values"] = report.same_bytes.size() + report.same_values.size();
  Json different = Json::array();
  for (const Difference& difference : report.different) {
    Json item;
    item["name"] = difference.name;
    item["max_abs"] = difference.max_abs;
    item["at"] = difference.at;
    if (!difference.note.empty()) item["note"] = difference.note;
    different.push_back(std::move(item));
  }
  json["different"] = std::move(different);
  json["reordered"] = report.reordered;
  json["only_in_a"] = report.only_in_a;
  json["only_in_b"] = report.only_in_b;
  Json tensors = Json::object();
  for (const std::string& name : report.same_bytes) tensors[name] = "same_bytes";
  for (const std::string& name : report.same_values) tensors[name] = "same_values";
  for (const Difference& difference : report.different) tensors[difference.name] = "different";
  json["tensors"] = std::move(tensors);
  return json;
}

void print_diff(std::ostream& out, const DiffReport& report) {
  for (const Difference& difference : report.different) {
    out << "different: " << line_text(difference.name);
    if (difference.at.empty())
      out << ": " << difference.note << '\n';
    else
      out << fmt::format(": largest difference {:.9g} at row {}, column {}\n", difference.max_abs,
                         difference.at[0], difference.at[1]);
  }
  for (const std::string& name : report.reordered)
    out << "same values, channels in another order: " << line_text(name) << '\n';
  for (const std::string& name : report.only_in_a) out << "only in A: " << line_text(name) << '\n';
  for (const std::string& name : report.only_in_b) out << "only in B: " << line_text(name) << '\n';
  out << fmt::format(
      "{} tensors: {} same bytes, {} same values, {} different, {} only in A, {} only in B\n",
      report.same_bytes.size() + report.same_values.size() + report.different.size() +
          report.only_in_a.size() + report.only_in_b.size(),
      report.same_bytes.size(), report.same_values.size(), report.different.size(),
      report.only_in_a.size(), report.only_in_b.size());
}

}  // namespace

Result<int> run_diff(Arguments arguments, Context& context) {
  Options app(
      "diff",
      "Compares two models by tensor names, in any containers: the same stored bytes, the "
      "same values, or "
      "the largest difference and where (row and column in Hugging Face order). Exit 3 "
      "when a value "
      "differs or a tensor is missing. Where one side has act-order and the other has its "
      "columns sorted and the rows that make them in the same order, the values are the "
      "same and the tensors are listed as reordered. In --json same_bytes counts the tensors whose "
      "storage is equal "
      "and same_values those whose values are equal, the former included.");
  std::string path_a, path_b;
  app.positional("A", path_a, "GGUF file or folder");
  app.positional("B", path_b, "GGUF file or folder");
  PACKSTONE_TRY(const Parsed parsed, app.parse(arguments, context));
  if (parsed == Parsed::kHelpShown) return 0;
  PACKSTONE_TRY(const Checkpoint a, open_checkpoint(path_a));
  PACKSTONE_TRY(const Checkpoint b, open_checkpoint(path_b));
  PACKSTONE_CHECK_OK(require_comparable(a, "cli.diff"));
  PACKSTONE_CHECK_OK(require_comparable(b, "cli.diff"));
  DiffReport report;
  PACKSTONE_TRY(const std::set<std::string> reordered, reordered_names(a, b, context));
  Progress progress(context, "comparing", a.bytes());
  for (const CheckpointTensor& tensor : a.tensors) {
    PACKSTONE_CHECK_OK(context.check_cancel("diff"));
    const CheckpointTensor* other = b.find(tensor.name);
    if (other == nullptr)
      report.only_in_a.push_back(tensor.name);
    else if (reordered.contains(tensor.name))
      report.same_values.push_back(tensor.name), report.reordered.push_back(tensor.name);
    else
      diff_tensor(tensor, *other, context, report);
    progress.add(tensor.weight.bytes());
  }
  for (const CheckpointTensor& tensor : b.tensors)
    if (a.find(tensor.name) == nullptr) report.only_in_b.push_back(tensor.name);
  progress.finish();
  diff_described(a, b, report);
  if (context.json)
    print_json(context.out, diff_json(report));
  else
    print_diff(context.out, report);
  const bool same =
      report.different.empty() && report.only_in_a.empty() && report.only_in_b.empty();
  return same ? 0 : 3;
}

}  // namespace packstone::cli
