// packstone inspect: what a model is, tensor by tensor, and everything that looks wrong.
#include <algorithm>
#include <map>

#include "packstone/cli/arguments.h"
#include "packstone/cli/finite.h"
#include "packstone/cli/layouts.h"
#include "packstone/cli/output.h"
#include "packstone/cli/progress.h"

namespace packstone::cli {
namespace {

namespace fs = std::filesystem;

// What is known of a model; from a checkpoint, or from its container alone where no rule of an
// architecture applies.
struct Inspection {
  std::string architecture;
  struct Row {
    std::string name, layout, detail;
    std::vector<std::int64_t> shape;
    std::uint64_t bytes = 0;
    double elements = 0;
  };
  std::vector<Row> rows;
  std::vector<std::string> problems;
};

double element_count(const std::vector<std::int64_t>& shape) {
  double count = 1;
  for (std::int64_t axis : shape) count *= static_cast<double>(axis);
  return count;
}

Inspection from_checkpoint(const Checkpoint& checkpoint) {
  Inspection result;
  result.architecture = architecture_name(checkpoint.config.architecture);
  for (const CheckpointTensor& tensor : checkpoint.tensors)
    result.rows.push_back({tensor.name, std::string(tensor.weight.format().layout),
                           layout_text(tensor.weight.id(), tensor.weight.params()), tensor.shape,
                           tensor.weight.bytes(), element_count(tensor.shape)});
  result.problems = checkpoint.problems;
  for (const UnsupportedTensor& tensor : checkpoint.unsupported) {
    result.rows.push_back({tensor.name, tensor.type, tensor.detail, tensor.shape, tensor.bytes,
                           element_count(tensor.shape)});
    result.problems.push_back(
        is_described_layout(tensor.type)
            ? fmt::format("{}: layout {} is described and copied, not run", tensor.name,
                          tensor.type)
            : fmt::format("{}: type {} has no format in this build", tensor.name, tensor.type));
  }
  for (const std::string& name : checkpoint.unbound)
    result.problems.push_back(
        fmt::format("{}: no rule of the architecture names this tensor", name));
  return result;
}

Inspection from_views(const std::vector<TensorView>& views, std::string architecture,
                      const Error& why) {
  Inspection result;
  result.architecture = std::move(architecture);
  for (const TensorView& view : views)
    result.rows.push_back({view.name, std::string(view.type->name), std::string(view.type->name),
                           view.shape, view.bytes.size(), element_count(view.shape)});
  result.problems.push_back(why.message);
  return result;
}

std::string raw_architecture(const RawCheckpoint& raw) {
  if (raw.container == ContainerKind::kGguf) {
    const Result<std::optional<std::string>> name = raw.gguf.text("general.architecture");
    return name && *name ? **name : "unknown";
  }
  if (!raw.config_json.is_object()) return "unknown";
  const auto type = raw.config_json.find("model_type");
  return type != raw.config_json.end() && type->is_string() ? type->get<std::string>() : "unknown";
}

Status look_for_nonfinite(const Checkpoint& checkpoint, Context& context,
                          std::vector<std::string>& problems) {
  Progress progress(context, "checking that values are finite", checkpoint.bytes());
  for (const CheckpointTensor& tensor : checkpoint.tensors) {
    PACKSTONE_CHECK_OK(context.check_cancel("inspect"));
    if (std::optional<std::string> problem = nonfinite_problem(tensor, context.pool()))
      problems.push_back(*std::move(problem));
    progress.add(tensor.weight.bytes());
  }
  return {};
}

// A model that no architecture of this build fits is shown as its container has it; why it does not
// fit is its problem.
Result<Inspection> inspect(const fs::path& path, Context& context) {
  Result<Checkpoint> checkpoint = open_checkpoint(path);
  if (checkpoint) {
    Inspection result = from_checkpoint(*checkpoint);
    PACKSTONE_CHECK_OK(look_for_nonfinite(*checkpoint, context, result.problems));
    return result;
  }
  const Error& why = checkpoint.error();
  std::error_code error;
  if (path.extension() == ".safetensors" && fs::is_regular_file(path, error)) {
    PACKSTONE_TRY(const SafetensorsSet set, open_safetensors(path));
    return from_views(set.tensors, "unknown", why);
  }
  const bool other_model = why.code == ErrorCode::kUnsupported || why.code == ErrorCode::kNotFound;
  if (!other_model || !fs::exists(path, error)) return std::unexpected(why);
  PACKSTONE_TRY(const RawCheckpoint raw, open_raw(path));
  return from_views(raw.tensors, raw_architecture(raw), why);
}

// The layout that holds most of the packed bytes; of a model without packed tensors, most of all.
std::string main_layout(const Inspection& inspection) {
  std::map<std::string, std::uint64_t> packed, all;
  for (const Inspection::Row& row : inspection.rows) {
    all[row.layout] += row.bytes;
    if (row.layout.find(':') != std::string::npos || row.layout.find('-') != std::string::npos)
      packed[row.layout] += row.bytes;
  }
  const auto& counts = packed.empty() ? all : packed;
  if (counts.empty()) return "none";
  return std::ranges::max_element(counts, {}, [](const auto& c) { return c.second; })->first;
}

Json inspection_json(const Inspection& inspection) {
  double elements = 0;
  std::uint64_t bytes = 0;
  Json tensors = Json::array();
  for (const Inspection::Row& row : inspection.rows) {
    elements += row.elements;
    bytes += row.bytes;
    Json tensor;
    tensor["name"] = row.name;
    tensor["layout"] = row.layout;
    tensor["shape"] = row.shape;
    tensor["bytes"] = row.bytes;
    tensor["bits_per_weight"] =
        row.elements > 0 ? 8 * static_cast<double>(row.bytes) / row.elements : 0.0;
    tensor["detail"] = row.detail;
    tensors.push_back(std::move(tensor));
  }
  Json result;
  result["architecture"] = inspection.architecture;
  result["layout"] = main_layout(inspection);
  result["parameters"] = static_cast<std::uint64_t>(elements);
  result["bytes"] = bytes;
  result["bits_per_weight"] = elements > 0 ? 8 * static_cast<double>(bytes) / elements : 0.0;
  result["tensors"] = std::move(tensors);
  result["problems"] = inspection.problems;
  return result;
}

void print_inspection(std::ostream& out, const Json& json) {
  out << fmt::format(
      "architecture     {}\nlayout           {}\nparameters       {}\nbytes            {} ({})\n"
      "bits per weight  {:.3f}\n\n",
      line_text(json["architecture"].get_ref<const std::string&>()),
      line_text(json["layout"].get_ref<const std::string&>()),
      json["parameters"].get<std::uint64_t>(), json["bytes"].get<std::uint64_t>(),
      bytes_text(json["bytes"].get<std::uint64_t>()), json["bits_per_weight"].get<double>());
  for (const Json& tensor : json["tensors"])
    out << fmt::format("{:<56} {:<30} {:<18} {:>12} {:>7.3f}\n",
                       line_text(tensor["name"].get_ref<const std::string&>()),
                       tensor["detail"].get<std::string>(), json_line(tensor["shape"]),
                       tensor["bytes"].get<std::uint64_t>(),
                       tensor["bits_per_weight"].get<double>());
  out << fmt::format("\n{} problems\n", json["problems"].size());
  for (const Json& problem : json["problems"])
    out << "  " << line_text(problem.get_ref<const std::string&>()) << '\n';
}

}  // namespace

Result<int> run_inspect(Arguments arguments, Context& context) {
  Options app("inspect",
              "What a model is: architecture, size, and every tensor with layout, shape, bytes and "
              "bits per "
              "weight; then all problems found, scales, offsets and values that are not finite "
              "among them. A damaged container is exit 4.");
  std::string path;
  app.positional("PATH", path, "GGUF file, or folder in Hugging Face or MLX layout");
  PACKSTONE_TRY(const Parsed parsed, app.parse(arguments, context));
  if (parsed == Parsed::kHelpShown) return 0;
  PACKSTONE_TRY(const Inspection inspection, inspect(path, context));
  const Json json = inspection_json(inspection);
  if (context.json)
    print_json(context.out, json);
  else
    print_inspection(context.out, json);
  return 0;
}

}  // namespace packstone::cli
