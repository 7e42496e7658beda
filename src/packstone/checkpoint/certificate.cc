#include "packstone/checkpoint/certificate.h"

#include <algorithm>
#include <map>

namespace packstone {
namespace {

using Json = nlohmann::ordered_json;

std::string_view container_name(ContainerKind kind) {
  return kind == ContainerKind::kGguf ? "gguf" : "folder";
}

// Finds the stored tensor that holds an address.
class StoredIndex {
 public:
  explicit StoredIndex(const Checkpoint& checkpoint) {
    for (const TensorView& view : checkpoint.stored_tensors())
      if (!view.bytes.empty()) starts_.emplace(view.bytes.data(), &view);
  }

  // The names of the stored tensors of a weight, companions included; without a list of parts those
  // that its planes lie in.
  std::vector<std::string> names(const CheckpointTensor& tensor) const {
    std::vector<std::string> names;
    for (const StoredPart& part : tensor.parts) names.push_back(part.view.name);
    if (!names.empty()) return names;
    for (int plane = 0; plane < tensor.weight.plane_count(); ++plane) {
      const ByteSpan bytes = tensor.weight.plane(plane);
      auto after = starts_.upper_bound(bytes.data());
      if (bytes.empty() || after == starts_.begin()) continue;
      const TensorView& view = *(--after)->second;
      if (bytes.data() + bytes.size() > view.bytes.data() + view.bytes.size()) continue;
      if (std::ranges::find(names, view.name) == names.end()) names.push_back(view.name);
    }
    if (names.empty()) names.push_back(tensor.stored_name);
    return names;
  }

 private:
  std::map<const std::byte*, const TensorView*> starts_;
};

Json side_json(const CertificateSide& side) {
  Json json;
  json["container"] = container_name(side.container);
  json["architecture"] = architecture_name(side.architecture);
  json["sha256"] = content_sum(side);
  Json files = Json::array();
  for (std::size_t i = 0; i < side.files.size(); ++i) {
    Json file;
    file["name"] = side.files[i].name;
    file["bytes"] = side.files[i].bytes;
    file["sha256"] = side.file_sums[i];
    files.push_back(std::move(file));
  }
  json["files"] = std::move(files);
  Json tensors = Json::array();
  for (std::size_t i = 0; i < side.tensors.size(); ++i) {
    const TensorView& view = side.tensors[i];
    Json tensor;
    tensor["name"] = view.name;
    tensor["type"] = view.type->name;
    tensor["shape"] = view.shape;
    tensor["file"] = side.files[side.tensor_files[i]].name;
    tensor["offset"] = view.offset;
    tensor["bytes"] = view.bytes.size();
    tensor["sha256"] = side.tensor_sums[i];
    tensors.push_back(std::move(tensor));
  }
  json["stored"] = std::move(tensors);
  return json;
}

bool has_metadata_type(const FormatInfo& info) {
  return std::ranges::any_of(
             info.params,
             [](const ParamSpec& spec) { return spec.coding == ParamCoding::kMetadata; }) ||
         std::ranges::find(info.plane_type, kMetadataType) != info.plane_type.end();
}

// The parameters that the format leaves open; those at their usual value are left out.
Json params_json(FormatId id, const FormatParams& params) {
  Json json = Json::object();
  const FormatInfo& info = format_info(id);
  if (info.params.empty()) return json;
  json["group_size"] = group_cols(id, params);
  if (params.group_rows != 1) json["group_rows"] = params.group_rows;
  if (has_metadata_type(info)) json["metadata"] = float_name(params.metadata);
  if (params.act_order) json["act_order"] = true;
  if (params.constant != 0) json["constant"] = params.constant;
  return json;
}

Json weight_json(const CheckpointTensor& tensor, const StoredIndex& index) {
  Json json;
  const FormatInfo& info = tensor.weight.format();
  json["stored"] = index.names(tensor);
  json["format"] = info.name;
  json["layout"] = info.layout;
  json["bits"] = info.code_bits;
  json["parameters"] = params_json(tensor.weight.id(), tensor.weight.params());
  const bool paired = tensor.row_order == RowOrder::kPairedHeads;
  json["row_order"] = paired ? "paired_heads" : "same";
  json["head_dim"] = tensor.order_head_dim;
  json["value_rule"] = tensor.value_rule == ValueRule::kPlusOne ? "plus_one" : "same";
  return json;
}

Json described_json(const UnsupportedTensor& module) {
  Json json;
  Json stored = Json::array();
  for (const StoredPart& part : module.parts) stored.push_back(part.view.name);
  json["stored"] = std::move(stored);
  json["format"] = module.type;
  json["layout"] = module.type;
  json["bits"] = module.bits;
  json["parameters"] = Json::object();
  json["row_order"] = "same";
  json["head_dim"] = 0;
  json["value_rule"] = "same";
  return json;
}

// Whole files first, then the tensors in them.
std::vector<FileRange> ranges_of(const CertificateSide& side) {
  std::vector<FileRange> ranges;
  for (const CheckpointFile& file : side.files) ranges.push_back({file.path, 0, file.bytes, true});
  for (std::size_t i = 0; i < side.tensors.size(); ++i)
    ranges.push_back({side.files[side.tensor_files[i]].path, side.tensors[i].offset,
                      side.tensors[i].bytes.size(), false});
  return ranges;
}

// Everything of a side but its sums.
Result<CertificateSide> unsummed_side(const Checkpoint& checkpoint, std::string_view leave_out) {
  CertificateSide side;
  side.container = checkpoint.container;
  side.architecture = checkpoint.config.architecture;
  PACKSTONE_TRY(side.files, checkpoint_files(checkpoint, leave_out));
  side.tensors = checkpoint.stored_tensors();
  std::vector<std::size_t> places;
  for (const std::filesystem::path& path : checkpoint.weight_files()) {
    const auto found = std::ranges::find_if(side.files, [&](const CheckpointFile& file) {
      return file.path.filename() == path.filename();
    });
    if (found == side.files.end())
      return fail(ErrorCode::kIo, "checkpoint.certificate_side", path.string(),
                  "no such file any more", "the files that were opened");
    places.push_back(static_cast<std::size_t>(found - side.files.begin()));
  }
  for (const TensorView& view : side.tensors) side.tensor_files.push_back(places[view.file_index]);
  return side;
}

}  // namespace

std::filesystem::path certificate_path(const std::filesystem::path& target, ContainerKind kind) {
  if (kind == ContainerKind::kFolder) return target / kCertificateName;
  std::filesystem::path path = target;
  path += ".certificate.json";
  return path;
}

Result<CertificateSide> certificate_side(const Checkpoint& checkpoint, std::string_view leave_out,
                                         ThreadPool& pool, const HashWatch& watch) {
  PACKSTONE_TRY(CertificateSide side, unsummed_side(checkpoint, leave_out));
  const std::vector<FileRange> ranges = ranges_of(side);
  PACKSTONE_TRY(std::vector<std::string> sums, sha256_ranges(ranges, pool, watch));
  const auto middle = sums.begin() + static_cast<std::ptrdiff_t>(side.files.size());
  side.file_sums.assign(sums.begin(), middle);
  side.tensor_sums.assign(middle, sums.end());
  return side;
}

Result<std::uint64_t> certificate_side_bytes(const Checkpoint& checkpoint,
                                             std::string_view leave_out) {
  PACKSTONE_TRY(const CertificateSide side, unsummed_side(checkpoint, leave_out));
  std::uint64_t total = 0;
  for (const FileRange& range : ranges_of(side)) total += range.bytes;
  return total;
}

std::string content_sum(const CertificateSide& side) {
  std::string lines;
  for (std::size_t i = 0; i < side.files.size(); ++i)
    lines += fmt::format("{}  {}\n", side.file_sums[i], side.files[i].name);
  return sha256_text(lines);
}

Json certificate_json(const Certificate& certificate) {
  Json json;
  json["format"] = "packstone.certificate";
  json["version"] = 1;
  json["source"] = side_json(certificate.source);
  json["target"] = side_json(certificate.target);
  json["worst_verdict"] = certificate.worst_verdict;
  const StoredIndex source(*certificate.source_checkpoint);
  const StoredIndex target(*certificate.target_checkpoint);
  Json pairs = Json::array();
  for (const CertificatePair& pair : certificate.tensors) {
    Json one;
    one["name"] = pair.source->name;
    one["shape"] = pair.source->shape;
    one["verdict"] = pair.verdict;
    one["conditions"] = pair.conditions;
    one["source"] = weight_json(*pair.source, source);
    one["target"] = weight_json(*pair.target, target);
    pairs.push_back(std::move(one));
  }
  for (const DescribedPair& pair : certificate.described) {
    Json one;
    one["name"] = pair.source->name;
    one["shape"] = pair.source->shape;
    one["verdict"] = "same_bytes";
    one["conditions"] = Json::array();
    one["source"] = described_json(*pair.source);
    one["target"] = described_json(*pair.target);
    pairs.push_back(std::move(one));
  }
  json["tensors"] = std::move(pairs);
  json["not_carried"] = certificate.not_carried;
  return json;
}

std::string certificate_text(const Json& document) {
  return document.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace packstone
