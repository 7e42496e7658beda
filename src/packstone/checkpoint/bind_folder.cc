#include <algorithm>
#include <unordered_map>
#include <unordered_set>

#include "packstone/checkpoint/bind_module.h"
#include "packstone/checkpoint/binder.h"
#include "packstone/checkpoint/describe_module.h"
#include "packstone/checkpoint/quantization_spec.h"

namespace packstone {
namespace {

constexpr std::string_view kWhere = "checkpoint.bind_folder";

// The name without the prefix of a multimodal wrapper, in both spellings of transformers.
std::string text_name(std::string_view stored) {
  constexpr std::string_view kOuter = "language_model.";
  constexpr std::string_view kInner = "model.language_model.";
  if (stored.starts_with(kInner)) return "model." + std::string(stored.substr(kInner.size()));
  if (stored.starts_with(kOuter)) stored.remove_prefix(kOuter.size());
  return std::string(stored);
}

// Tensors by the name without a wrapper's prefix.
using ViewMap = std::unordered_map<std::string, const TensorView*>;

std::optional<FloatType> float_type(const StorageType& type) {
  if (type.name == "F32") return FloatType::kF32;
  if (type.name == "F16") return FloatType::kF16;
  if (type.name == "BF16") return FloatType::kBF16;
  return std::nullopt;
}

// What a folder's tensors are, by the module that they belong to.
struct Module {
  std::string stored;  // the module's name in the file
  std::vector<ModuleTensor> tensors;
};

class FolderBinder {
 public:
  FolderBinder(Binder& binder, const QuantizationSpec& spec, std::string_view file)
      : binder_(binder), spec_(spec), file_(file) {}

  Status map_names(const SafetensorsSet& set) {
    for (const ExpectedTensor& expected : binder_.expected())
      if (is_matrix(expected)) modules_.emplace(module_of(expected), Module());
    for (const TensorView& view : set.tensors) {
      const std::string name = text_name(view.name);
      const auto [it, added] = views_.emplace(name, &view);
      if (!added)
        return fail(ErrorCode::kCorruptData, kWhere, binder_.subject(view.name),
                    fmt::format("the same tensor as '{}'", it->second->name), "one of them");
      add_to_module(name, view);
    }
    return {};
  }

  Status bind_all() {
    for (std::size_t i = 0; i < binder_.expected().size(); ++i) PACKSTONE_CHECK_OK(bind(i));
    return {};
  }

  Status leave_rest(const SafetensorsSet& set) {
    for (const TensorView& view : set.tensors)
      if (!used_.contains(&view))
        PACKSTONE_CHECK_OK(binder_.add_unbound(text_name(view.name), view.name));
    return {};
  }

  // MLX overrides must name modules of the file; a config without a packed tensor is worth a word.
  Status check_rules(std::vector<std::string>& problems) const {
    std::unordered_set<std::string> modules;
    for (const auto& [name, view] : views_) {
      const std::size_t dot = name.rfind('.');
      if (dot != std::string::npos) modules.emplace(module_key(name.substr(0, dot)));
    }
    std::unordered_set<std::string> known = modules;
    for (const ExpectedTensor& expected : binder_.expected())
      known.emplace(module_key(module_of(expected)));
    const QuantizationBlock& block = spec_.mlx();
    for (const auto& [module, entry] : block.overrides) {
      if (modules.contains(module) || (entry.excluded && known.contains(module))) continue;
      return fail(ErrorCode::kCorruptData, kWhere,
                  fmt::format("{}: '{}.{}'", file_, block.key, entry.key),
                  "an override for a module without tensors", "the path of a module");
    }
    if (spec_.present() && packed_ == 0)
      problems.push_back(fmt::format("{} is there, but no tensor is packed", spec_.key()));
    return {};
  }

 private:
  static bool is_matrix(const ExpectedTensor& expected) {
    return !expected.vector && expected.name.ends_with(".weight");
  }
  static std::string module_of(const ExpectedTensor& expected) {
    return expected.name.substr(0, expected.name.rfind('.'));
  }

  // Parts of a module are named by its name and a suffix of up to three parts.
  void add_to_module(const std::string& name, const TensorView& view) {
    std::size_t end = name.size();
    for (const std::string_view stacked : {"_blocks", "_scales"})
      if (name.ends_with(stacked)) end = name.size() - stacked.size() + 1;
    for (int part = 0; part < 4 && end != std::string::npos; ++part) {
      end = part == 0 && end < name.size() ? end - 1 : name.rfind('.', end - 1);
      if (end == std::string::npos || end == 0) return;
      const auto it = modules_.find(name.substr(0, end));
      if (it == modules_.end()) continue;
      const std::size_t suffix = name.size() - end;
      it->second.tensors.push_back({name.substr(end), &view});
      it->second.stored = view.name.substr(0, view.name.size() - suffix);
      return;
    }
  }

  const TensorView* find(const std::string& name) const {
    const auto it = views_.find(name);
    return it == views_.end() ? nullptr : it->second;
  }

  Status bind(std::size_t index) {
    const ExpectedTensor& expected = binder_.expected()[index];
    if (is_matrix(expected)) return bind_matrix(index, modules_.at(module_of(expected)));
    const TensorView* view = find(expected.name);
    if (view == nullptr) return {};
    used_.insert(view);
    if (view->type->name == "U32")
      return fail(ErrorCode::kCorruptData, kWhere, binder_.subject(view->name),
                  "packed codes (U32)", "a vector of floats");
    return binder_.add_view(index, *view, RowOrder::kSame, ValueRule::kSame);
  }

  // The parts of a packed weight among the module's tensors; its bias and what no layout knows
  // stay out.
  static std::vector<ModuleTensor> packed_parts(const Module& module) {
    std::vector<ModuleTensor> parts;
    bool more = false;
    for (const ModuleTensor& tensor : module.tensors) {
      if (!is_packed_suffix(tensor.suffix)) continue;
      more = more || tensor.suffix != ".weight" || !float_type(*tensor.view->type);
      parts.push_back(tensor);
    }
    return more ? parts : std::vector<ModuleTensor>();
  }

  static std::vector<StoredPart> all_parts(const std::vector<ModuleTensor>& parts) {
    std::vector<StoredPart> all;
    for (const ModuleTensor& part : parts) all.push_back({part.suffix, *part.view, -1});
    return all;
  }

  Status bind_matrix(std::size_t index, const Module& module) {
    const std::string name = module_of(binder_.expected()[index]);
    PACKSTONE_TRY(const ModuleQuantization says, spec_.module({module.stored, name}));
    const std::vector<ModuleTensor> parts = packed_parts(module);
    // A lone weight of an odd type, without a config, is a type without a format.
    const bool lone = parts.size() == 1 && parts[0].suffix == ".weight" && !spec_.present() &&
                      parts[0].view->type->name != "U32";
    if (parts.empty() || lone) {
      const TensorView* view = find(name + ".weight");
      if (view == nullptr) return {};
      used_.insert(view);
      if (says.packed == true)
        return fail(ErrorCode::kCorruptData, kWhere, binder_.subject(view->name),
                    fmt::format("floats ({})", view->type->name),
                    fmt::format("a packed weight ({}), as {} says", says.layout, says.key));
      return binder_.add_view(index, *view, RowOrder::kSame, ValueRule::kSame);
    }
    ++packed_;
    for (const ModuleTensor& part : parts) used_.insert(part.view);
    const ModuleTensor& first = parts.front();
    const std::string subject = binder_.subject(first.view->name);
    if (!spec_.present())
      return fail(ErrorCode::kCorruptData, kWhere, subject,
                  fmt::format("packed codes ({}) and a config without 'quantization_config'",
                              first.view->type->name),
                  "a 'quantization_config' (MLX: 'quantization') that says how to read them");
    if (says.packed == false)
      return fail(ErrorCode::kCorruptData, kWhere, subject,
                  fmt::format("packed codes ({})", first.view->type->name),
                  fmt::format("floats, as {} says", says.key));
    const ExpectedTensor& expected = binder_.expected()[index];
    const PackedModule packed{binder_.file(), module.stored, expected.shape, parts, says};
    PACKSTONE_CHECK_OK(check_parts(packed));
    PACKSTONE_TRY(std::optional<BoundModule> bound, bind_parts(packed));
    const std::vector<std::int64_t> shape = {expected.shape.rows, expected.shape.cols};
    if (bound) {
      binder_.add(index, {.name = expected.name,
                          .stored_name = first.view->name,
                          .shape = shape,
                          .weight = std::move(bound->weight),
                          .row_order = RowOrder::kSame,
                          .order_head_dim = 0,
                          .value_rule = ValueRule::kSame,
                          .parts = std::move(bound->parts)});
      return {};
    }
    PACKSTONE_TRY(ModuleDescription description, describe_module(packed));
    binder_.add_unsupported(index, {.name = expected.name,
                                    .stored_name = first.view->name,
                                    .type = says.layout,
                                    .shape = shape,
                                    .bytes = total_bytes(parts),
                                    .detail = std::move(description.text),
                                    .bits = description.bits,
                                    .parts = all_parts(parts)});
    return {};
  }

  Binder& binder_;
  const QuantizationSpec& spec_;
  std::string file_;
  ViewMap views_;
  std::unordered_map<std::string, Module> modules_;  // of all expected matrices
  std::unordered_set<const TensorView*> used_;
  std::size_t packed_ = 0;
};

}  // namespace

Result<Checkpoint> bind_folder(SafetensorsSet set, nlohmann::ordered_json config,
                               nlohmann::ordered_json generation_config, std::string_view file,
                               const std::vector<QuantizationFile>& quantization_files) {
  Checkpoint checkpoint;
  checkpoint.container = ContainerKind::kFolder;
  const std::string config_file = fmt::format("{}/config.json", file);
  PACKSTONE_TRY(const ParsedConfig parsed,
                config_from_json(config, generation_config, config_file, checkpoint.problems));
  checkpoint.config = parsed.config;
  PACKSTONE_TRY(
      const QuantizationSpec spec,
      QuantizationSpec::parse({config_file, config}, quantization_files, checkpoint.problems));
  Binder binder(checkpoint, parsed, kWhere, file);
  FolderBinder folder(binder, spec, config_file);
  PACKSTONE_CHECK_OK(folder.map_names(set));
  PACKSTONE_CHECK_OK(folder.bind_all());
  PACKSTONE_CHECK_OK(folder.leave_rest(set));
  PACKSTONE_CHECK_OK(binder.finish());
  PACKSTONE_CHECK_OK(folder.check_rules(checkpoint.problems));
  checkpoint.config_json = std::move(config);
  checkpoint.generation_config_json = std::move(generation_config);
  checkpoint.safetensors_metadata = std::move(set.metadata);
  checkpoint.quantization_files = quantization_files;
  checkpoint.safetensors = std::move(set);
  return checkpoint;
}

}  // namespace packstone
