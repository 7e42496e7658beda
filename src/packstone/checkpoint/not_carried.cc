#include "packstone/checkpoint/not_carried.h"

#include <algorithm>
#include <array>
#include <set>

#include "packstone/checkpoint/certificate.h"
#include "packstone/checkpoint/config.h"
#include "packstone/checkpoint/content_hash.h"
#include "packstone/checkpoint/quantization_statements.h"

namespace packstone {
namespace {

using Json = nlohmann::ordered_json;

struct Reason {
  std::string_view end;  // of the tensor's name; with a trailing '*' a part of it
  std::string_view text;
};

constexpr std::string_view kActivations =
    "a scale of activations, which the target does not quantize";
constexpr std::string_view kCache = "of the key-value cache, which the target does not quantize";
constexpr std::string_view kSorted = "the group of every column, by which the target's are sorted";
constexpr std::array kReasons = {
    Reason{".input_scale", kActivations},
    Reason{".input_global_scale", kActivations},
    Reason{".input_scale_ub", kActivations},
    Reason{".input_zero_point", kActivations},
    Reason{"k_proj.output_scale", kCache},
    Reason{"v_proj.output_scale", kCache},
    Reason{".output_scale", kActivations},
    Reason{".output_zero_point", kActivations},
    Reason{".activation_scale", kActivations},
    Reason{".q_scale", kCache},
    Reason{".k_scale", kCache},
    Reason{".v_scale", kCache},
    Reason{".kv_scale", kCache},
    Reason{".weight_shape", "rows and columns, which the target's tensors have"},
    Reason{"quant_map", "the levels of the codes, which belong to the layout"},
    Reason{"quant_state*", "block size and shape, which are the target's own"},
    Reason{".weight_format", "0, for plain rows"},
    Reason{"g_idx", "column / group for every column, the order of the target's groups"},
};

std::string_view reason_of(std::string_view name, std::string_view otherwise) {
  for (const Reason& reason : kReasons) {
    const bool part = reason.end.ends_with('*');
    if (part ? name.find(reason.end.substr(0, reason.end.size() - 1)) != std::string_view::npos
             : name.ends_with(reason.end))
      return reason.text;
  }
  return otherwise;
}

// Whether the output holds the part: a plane, as its values do, or a companion of the same bytes.
bool is_held(const StoredPart& part, const CheckpointTensor& tensor, const OutputTensor& output,
             const WrittenCompanions& written) {
  const auto it = written.find(part.view.name);
  if (it != written.end() && std::ranges::equal(it->second, part.view.bytes)) return true;
  if (part.plane < 0) return false;
  return part.plane != tensor.weight.format().index_plane ||
         format_info(output.format).index_plane >= 0;
}

// Keys of a block that say nothing by themselves, or say what tensors are.
bool speaks_of_tensors(std::string_view key) {
  constexpr std::array<std::string_view, 4> kElsewhere = {"kv_cache_scheme", "kv_cache_quant_algo",
                                                          "config_groups", "quantization_status"};
  if (std::ranges::find(kElsewhere, key) != kElsewhere.end()) return false;
  return QuantizationStatements::is_known(key) || key == "mode" || key == "quantization";
}

bool is_empty(const Json& value) {
  return value.is_null() || ((value.is_object() || value.is_array()) && value.empty());
}

std::string_view key_reason(std::string_view key) {
  if (key.find("kv_cache") != std::string_view::npos) return kCache;
  if (key.find("activation") != std::string_view::npos || key.starts_with("act_"))
    return "of activations, which the target does not quantize";
  return "a note of the program that quantized the source";
}

class BlockRest {
 public:
  BlockRest(const Json& written, MetadataReport& report) : written_(written), report_(report) {}

  void list(std::string_view where, const Json& block) {
    if (!block.is_object()) return;
    const bool mlx = !block.contains("quant_method") && block.contains("group_size");
    for (const auto& [key, value] : block.items()) {
      if (key == "config_groups" && value.is_object()) list_groups(where, value);
      const bool path = mlx && (value.is_object() || value.is_boolean());
      if (is_empty(value) || speaks_of_tensors(key) || path || key == "config_groups") continue;
      if (written_.is_object() && written_.contains(key) && written_[key] == value) continue;
      add(where, key, key_reason(key));
    }
  }

 private:
  void list_groups(std::string_view where, const Json& groups) {
    for (const auto& [name, group] : groups.items())
      for (const std::string_view key : {"input_activations", "output_activations"})
        if (group.is_object() && group.contains(key) && !is_empty(group[std::string(key)]))
          add(where, fmt::format("config_groups.{}.{}", name, key), key_reason(key));
  }

  // Files repeat each other's keys: once is enough.
  void add(std::string_view where, const std::string& key, std::string_view reason) {
    if (seen_.insert(key).second)
      report_.not_carried.push_back(fmt::format("{}{}: {}", where, key, reason));
  }

  const Json& written_;
  MetadataReport& report_;
  std::set<std::string> seen_;
};

}  // namespace

void list_stored_rest(const Checkpoint& source, const std::vector<OutputTensor>& tensors,
                      const WrittenCompanions& written, MetadataReport& report) {
  const auto add = [&](std::string_view name, std::string_view otherwise) {
    report.not_carried.push_back(fmt::format("tensor {}: {}", name, reason_of(name, otherwise)));
  };
  for (const OutputTensor& output : tensors) {
    const CheckpointTensor* tensor = source.find(output.name);
    if (tensor == nullptr) continue;
    for (const StoredPart& part : tensor->parts)
      if (part.plane >= 0 && tensor->weight.params().act_order &&
          !is_held(part, *tensor, output, written))
        report.not_carried.push_back(fmt::format("tensor {}: {}", part.view.name, kSorted));
      else if (!is_held(part, *tensor, output, written))
        add(part.view.name, "beside the weight, with no place in the target's layout");
  }
  for (const std::string& name : source.unbound) add(name, "no rule of the architecture names it");
}

void list_quantization_rest(const Checkpoint& source, const Json& written, MetadataReport& report) {
  if (source.container != ContainerKind::kFolder) return;
  BlockRest rest(written, report);
  const Json& text = text_config_of(source.config_json);
  for (const char* key : {"quantization_config", "compression_config", "quantization"}) {
    if (source.config_json.contains(key))
      rest.list(fmt::format("config.json: {}.", key), source.config_json[key]);
    if (&text != &source.config_json && text.contains(key))
      rest.list(fmt::format("config.json: text_config.{}.", key), text[key]);
  }
  for (const QuantizationFile& file : source.quantization_files) {
    const std::string name = std::filesystem::path(file.name).filename().string();
    rest.list(fmt::format("{}: ", name), file.json);
    if (file.json.is_object() && file.json.contains("quantization"))
      rest.list(fmt::format("{}: quantization.", name), file.json["quantization"]);
  }
}

Status list_files_rest(const Checkpoint& source, ContainerKind kind, MetadataReport& report) {
  if (source.container != ContainerKind::kFolder || source.path.empty()) return {};
  // What the config, the tokenizer and the tensors are read from.
  constexpr std::array<std::string_view, 7> kRead = {
      "config.json",           "generation_config.json", "tokenizer.json",
      "tokenizer_config.json", "chat_template.jinja",    "model.safetensors.index.json",
      kCertificateName};
  PACKSTONE_TRY(const std::vector<CheckpointFile> files, checkpoint_files(source, {}));
  for (const CheckpointFile& file : files) {
    const auto is_name = [&](const std::filesystem::path& path) {
      return path.filename().string() == file.name;
    };
    const bool read =
        std::ranges::find(kRead, file.name) != kRead.end() ||
        std::ranges::any_of(source.weight_files(), is_name) ||
        std::ranges::any_of(source.quantization_files,
                            [&](const QuantizationFile& known) { return is_name(known.name); });
    if (read || (kind == ContainerKind::kFolder && is_tokenizer_file(file.name))) continue;
    report.not_carried.push_back(fmt::format(
        "file {}: {}", file.name,
        is_tokenizer_file(file.name) ? "another form of the tokenizer, which the target keeps"
                                     : "no part of the model that is read"));
  }
  return {};
}

}  // namespace packstone
