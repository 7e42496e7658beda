#include <map>

#include "packstone/cli/conversion.h"

namespace packstone::cli {
namespace {

// The target's layout; of a refused tensor, the one that was asked for.
std::string target_layout(const ConversionPlan& whole, const TensorPlan& tensor) {
  if (tensor.plan.verdict == Verdict::kRefused) return whole.layout.name;
  return std::string(format_info(tensor.target.id).layout);
}

std::string target_text(const ConversionPlan& whole, const TensorPlan& tensor) {
  if (tensor.plan.verdict == Verdict::kRefused) return whole.layout.name;
  return layout_text(tensor.target.id, tensor.plan.params);
}

Json tensor_json(const ConversionPlan& whole, const TensorPlan& tensor) {
  Json json;
  json["name"] = tensor.source->name;
  json["from"] = tensor.source->weight.format().layout;
  json["to"] = target_layout(whole, tensor);
  json["verdict"] = verdict_name(tensor.plan.verdict);
  json["conditions"] = tensor.plan.conditions;
  json["reason"] = tensor.plan.reason;
  if (tensor.plan.verdict != Verdict::kRefused) {
    json["bits"] = format_info(tensor.target.id).code_bits;
    if (!is_float_format(tensor.target.id))
      json["group_size"] = group_cols(tensor.target.id, tensor.plan.params);
    json["bytes"] = tensor.bytes;
  }
  if (tensor.report) {
    json["relative_rms"] = tensor.report->relative_rms;
    json["max_abs"] = tensor.report->max_abs;
    json["lost_groups"] = tensor.report->lost_groups;
  }
  if (tensor.proxy_error) json["proxy_error"] = *tensor.proxy_error;
  if (tensor.loss) json["loss"] = *tensor.loss;
  return json;
}

Json described_json(const UnsupportedTensor& module) {
  Json json;
  json["name"] = module.name;
  json["from"] = json["to"] = module.type;
  json["verdict"] = verdict_name(Verdict::kSameBytes);
  json["conditions"] = Json::array();
  json["reason"] = "";
  json["bits"] = module.bits;
  json["bytes"] = module.bytes;
  return json;
}

std::string tensor_line(const ConversionPlan& whole, const TensorPlan& tensor) {
  std::string line =
      fmt::format("{:<56} {} -> {}: {}", line_text(tensor.source->name),
                  layout_text(tensor.source->weight.id(), tensor.source->weight.params()),
                  target_text(whole, tensor), verdict_name(tensor.plan.verdict));
  for (const std::string& condition : tensor.plan.conditions) line += "; " + line_text(condition);
  if (tensor.report)
    line += fmt::format("; relative rms {:.3e}, largest difference {:.3e}",
                        tensor.report->relative_rms, tensor.report->max_abs);
  if (!tensor.plan.reason.empty()) line += fmt::format(" ({})", line_text(tensor.plan.reason));
  return line;
}

struct Group {
  std::size_t tensors = 0;
  std::uint64_t bytes = 0;
  double rms_max = -1;
};

void print_groups(std::ostream& out, const ConversionPlan& whole) {
  std::map<std::string, Group> groups;
  for (const TensorPlan& tensor : whole.tensors) {
    if (tensor.plan.verdict == Verdict::kRefused) continue;
    Group& group = groups[fmt::format(
        "{} -> {}: {}", layout_text(tensor.source->weight.id(), tensor.source->weight.params()),
        target_text(whole, tensor), verdict_name(tensor.plan.verdict))];
    ++group.tensors;
    group.bytes += tensor.bytes;
    if (tensor.report) group.rms_max = std::max(group.rms_max, tensor.report->relative_rms);
  }
  for (const UnsupportedTensor* module : whole.described) {
    Group& group = groups[fmt::format("{} -> copied: same_bytes", line_text(module->detail))];
    ++group.tensors;
    group.bytes += module->bytes;
  }
  for (const auto& [name, group] : groups) {
    out << fmt::format("{:>5} tensors  {}  ({})", group.tensors, name, bytes_text(group.bytes));
    if (group.rms_max >= 0) out << fmt::format(", largest relative rms {:.3e}", group.rms_max);
    out << '\n';
  }
}

}  // namespace

Json conversion_json(const ConversionPlan& plan) {
  Json json;
  Json tensors = Json::array();
  for (const TensorPlan& tensor : plan.tensors) tensors.push_back(tensor_json(plan, tensor));
  for (const UnsupportedTensor* module : plan.described) tensors.push_back(described_json(*module));
  json["tensors"] = std::move(tensors);
  json["worst_verdict"] = verdict_name(plan.worst());
  json["bytes"] = plan.bytes;
  json["not_carried"] = plan.not_carried;
  if (!plan.calibration.is_null()) json["calibration"] = plan.calibration;
  if (!plan.certificate.empty()) json["certificate"] = plan.certificate.string();
  json["peak_memory_predicted"] = plan.peak_memory_predicted;
  return json;
}

void print_conversion(std::ostream& out, const ConversionPlan& plan, bool all) {
  if (!all) print_groups(out, plan);
  for (const TensorPlan& tensor : plan.tensors)
    if (all || tensor.plan.verdict == Verdict::kRefused) out << tensor_line(plan, tensor) << '\n';
  for (const UnsupportedTensor* module : plan.described)
    if (all)
      out << fmt::format("{:<56} {} -> copied: same_bytes\n", line_text(module->name),
                         line_text(module->detail));
  for (const std::string& name : plan.not_carried)
    out << "not carried: " << line_text(name) << '\n';
  if (!plan.certificate.empty())
    out << "certificate: " << line_text(plan.certificate.string()) << '\n';
  out << fmt::format("worst verdict {}; {} of weights, {} bytes\n", verdict_name(plan.worst()),
                     bytes_text(plan.bytes), plan.bytes);
}

Error refusal(std::string_view command, const ConversionPlan& plan) {
  std::string names;
  std::size_t count = 0;
  for (const TensorPlan& tensor : plan.tensors) {
    if (tensor.plan.verdict != Verdict::kRefused) continue;
    ++count;
    names += fmt::format("\n  {}: {}", tensor.source->name, tensor.plan.reason);
  }
  return fail(ErrorCode::kNotRepresentable, fmt::format("cli.{}", command),
              fmt::format("--to {}", plan.layout.name),
              fmt::format("{} tensors whose values would change", count), "an exact move for each",
              fmt::format("quantize changes values and says by how much:{}", names))
      .error();
}

}  // namespace packstone::cli
