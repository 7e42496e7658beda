#include "packstone/checkpoint/writer.h"

#include <algorithm>
#include <set>
#include <unordered_map>

#include "packstone/checkpoint/metadata.h"
#include "packstone/checkpoint/module_tensors.h"
#include "packstone/checkpoint/writers.h"

namespace packstone {
namespace {
constexpr std::string_view kWhere = "checkpoint.write";
}  // namespace

std::string name_list(const std::vector<std::string>& names) {
  constexpr std::size_t kShown = 20;
  std::string list;
  for (std::size_t i = 0; i < names.size() && i < kShown; ++i)
    list += fmt::format("{}'{}'", i == 0 ? "" : ", ", names[i]);
  if (names.size() > kShown) list += fmt::format(" and {} more", names.size() - kShown);
  return list;
}

namespace {

Status check_packed_names(const Checkpoint& source, std::string_view where) {
  if (source.unbound.empty()) return {};
  std::vector<std::string> packed;
  for (const TensorView& view : source.stored_tensors())
    if (is_code_tensor(view.name, *view.type) &&
        std::ranges::find(source.unbound, view.name) != source.unbound.end())
      packed.push_back(view.name);
  if (packed.empty()) return {};
  return fail(ErrorCode::kUnsupported, where, name_list(packed),
              "packed weights that the architecture does not name",
              fmt::format("weights of {}", architecture_name(source.config.architecture)),
              "without them the output would be another model");
}

}  // namespace

Result<std::vector<PlannedTensor>> plan_output(const Checkpoint& source,
                                               std::vector<OutputTensor> tensors,
                                               std::string_view where) {
  PACKSTONE_CHECK_OK(check_packed_names(source, where));
  std::unordered_map<std::string, ExpectedTensor> rules;
  for (ExpectedTensor& expected : expected_tensors(source.config))
    rules.emplace(expected.name, std::move(expected));
  std::vector<PlannedTensor> planned;
  std::vector<std::string> unknown;
  std::set<std::string> seen;
  for (OutputTensor& tensor : tensors) {
    if (!seen.insert(tensor.name).second)
      return fail(ErrorCode::kInvalidInput, where, fmt::format("'{}'", tensor.name),
                  "the name twice", "each tensor once");
    const auto it = rules.find(tensor.name);
    if (it == rules.end()) {
      unknown.push_back(tensor.name);
      continue;
    }
    const ExpectedTensor& expected = it->second;
    std::vector<std::int64_t> shape = {expected.shape.cols};
    if (!expected.vector) shape.insert(shape.begin(), expected.shape.rows);
    if (tensor.shape != shape)
      return fail(ErrorCode::kInvalidInput, where, fmt::format("'{}'", tensor.name),
                  "another shape", "the shape that the config gives");
    if (const char* rule = layout_rule(tensor.format, expected.shape, tensor.params))
      return fail(ErrorCode::kInvalidInput, where, fmt::format("'{}'", tensor.name),
                  fmt::format("{} of [{}, {}]", format_info(tensor.format).name,
                              expected.shape.rows, expected.shape.cols),
                  rule);
    planned.push_back({std::move(tensor), expected, expected.shape});
  }
  if (!unknown.empty())
    return fail(ErrorCode::kUnsupported, where, name_list(unknown), "names without a rule",
                fmt::format("tensors of {}", architecture_name(source.config.architecture)));
  return planned;
}

Status check_planes(const PlannedTensor& tensor, const std::vector<ByteSpan>& planes,
                    std::string_view where) {
  const FormatInfo& info = format_info(tensor.output.format);
  bool good = planes.size() == static_cast<std::size_t>(info.plane_count);
  for (int i = 0; good && i < info.plane_count; ++i)
    good = planes[static_cast<std::size_t>(i)].size() ==
           plane_bytes(tensor.output.format, i, tensor.bound, tensor.output.params);
  if (good) return {};
  return fail(ErrorCode::kInvalidInput, where, fmt::format("'{}'", tensor.output.name),
              "planes of other sizes", fmt::format("those of {}", info.name));
}

std::vector<OutputTensor> outputs_of(const std::vector<PlannedTensor>& tensors) {
  std::vector<OutputTensor> outputs;
  for (const PlannedTensor& tensor : tensors) outputs.push_back(tensor.output);
  return outputs;
}

bool has_head(const std::vector<PlannedTensor>& tensors) {
  return std::ranges::any_of(
      tensors, [](const PlannedTensor& tensor) { return tensor.expected.need == Need::kHead; });
}

Result<bool> lacks_tokenizer(const Checkpoint& source, MetadataReport& report) {
  if (source.container == ContainerKind::kFolder) return false;
  PACKSTONE_TRY(const auto model, source.gguf.text("tokenizer.ggml.model"));
  const bool lacks = !model || *model == "none" || *model == "no_vocab";
  if (lacks) report.not_carried.emplace_back("tokenizer (the source has none)");
  return lacks;
}

Result<MetadataReport> CheckpointWriter::report(ContainerKind kind, const Checkpoint& source,
                                                std::vector<OutputTensor> tensors,
                                                const WriteOptions& options) {
  PACKSTONE_TRY(const std::vector<PlannedTensor> planned,
                plan_output(source, std::move(tensors), kWhere));
  if (kind == ContainerKind::kFolder) return folder_report(source, planned, options);
  const std::vector<OutputTensor> outputs = outputs_of(planned);
  OutputFacts facts;
  facts.head = has_head(planned);
  facts.tensors = &outputs;
  MetadataReport report;
  PACKSTONE_CHECK_OK(gguf_keys(source, facts, report));
  return report;
}

Result<std::unique_ptr<CheckpointWriter>> CheckpointWriter::create(
    const std::filesystem::path& target, ContainerKind kind, const Checkpoint& source,
    std::vector<OutputTensor> tensors, const WriteOptions& options) {
  std::error_code code;
  if (std::filesystem::exists(std::filesystem::symlink_status(target, code)) && !options.force)
    return fail(ErrorCode::kInvalidInput, kWhere, target.string(), "a target that exists",
                "a new name", "force replaces it");
  PACKSTONE_TRY(std::vector<PlannedTensor> planned,
                plan_output(source, std::move(tensors), kWhere));
  if (kind == ContainerKind::kFolder)
    return create_folder_writer(target, source, std::move(planned), options);
  return create_gguf_writer(target, source, std::move(planned));
}

}  // namespace packstone
