#include <unordered_map>
#include <unordered_set>

#include "packstone/checkpoint/binder.h"
#include "packstone/checkpoint/quantization_block.h"

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

class FolderBinder {
 public:
  FolderBinder(Binder& binder, const QuantizationBlock& block, std::string_view file)
      : binder_(binder), block_(block), file_(file) {}

  Status map_names(const SafetensorsSet& set) {
    for (const TensorView& view : set.tensors) {
      const auto [it, added] = views_.emplace(text_name(view.name), &view);
      if (!added)
        return fail(ErrorCode::kCorruptData, kWhere, binder_.subject(view.name),
                    fmt::format("the same tensor as '{}'", it->second->name), "one of them");
    }
    return {};
  }

  Status bind_all() {
    for (std::size_t i = 0; i < binder_.expected().size(); ++i) PACKSTONE_CHECK_OK(bind(i));
    return {};
  }

  Status leave_rest(const SafetensorsSet& set) {
    for (const TensorView& view : set.tensors) {
      const std::string name = text_name(view.name);
      if (!used_.contains(name)) PACKSTONE_CHECK_OK(binder_.add_unbound(name, view.name));
    }
    return {};
  }

  // Overrides must name modules of the file; a block without a packed tensor is worth a word.
  Status check_block(std::vector<std::string>& problems) const {
    std::unordered_set<std::string> modules;
    for (const auto& [name, view] : views_) {
      const std::size_t dot = name.rfind('.');
      if (dot != std::string::npos) modules.emplace(module_key(name.substr(0, dot)));
    }
    std::unordered_set<std::string> known = modules;
    for (const ExpectedTensor& expected : binder_.expected())
      known.emplace(
          module_key(std::string_view(expected.name).substr(0, expected.name.rfind('.'))));
    for (const auto& [module, entry] : block_.overrides) {
      if (modules.contains(module) || (entry.excluded && known.contains(module))) continue;
      return fail(ErrorCode::kCorruptData, kWhere,
                  fmt::format("{}: '{}.{}'", file_, block_.key, entry.key),
                  "an override for a module without tensors", "the path of a module");
    }
    if (block_.present && packed_ == 0)
      problems.push_back(fmt::format("{}: has '{}', but no tensor is packed", file_, block_.key));
    return {};
  }

 private:
  const TensorView* find(const std::string& name) const {
    const auto it = views_.find(name);
    return it == views_.end() ? nullptr : it->second;
  }

  Status bind(std::size_t index) {
    const ExpectedTensor& expected = binder_.expected()[index];
    const TensorView* view = find(expected.name);
    if (view == nullptr) return {};
    used_.insert(expected.name);
    const std::string module = expected.name.substr(0, expected.name.rfind('.'));
    const bool is_weight = expected.name.ends_with(".weight");
    const TensorView* scales = is_weight ? find(module + ".scales") : nullptr;
    if (view->type->name != "U32") {
      const QuantizationEntry* entry = is_weight ? block_.find(module) : nullptr;
      if (scales != nullptr || (entry != nullptr && !entry->excluded))
        return fail(ErrorCode::kCorruptData, kWhere, binder_.subject(view->name),
                    fmt::format("type {}", view->type->name),
                    scales ? "U32, as it has '.scales'"
                           : fmt::format("U32 codes, as '{}.{}' says", block_.key, entry->key));
      return binder_.add_view(index, *view, RowOrder::kSame, ValueRule::kSame);
    }
    if (!block_.present)
      return fail(ErrorCode::kCorruptData, kWhere, binder_.subject(view->name),
                  "packed codes (U32) and a config without 'quantization'",
                  "a 'quantization' block that gives bits and group_size");
    if (expected.vector || scales == nullptr)
      return fail(ErrorCode::kCorruptData, kWhere, binder_.subject(view->name),
                  "packed codes (U32) without '.scales'", "a matrix with codes and scales");
    return bind_packed(index, *view, *scales, module);
  }

  Status bind_packed(std::size_t index, const TensorView& codes, const TensorView& scales,
                     const std::string& module) {
    ++packed_;
    const ExpectedTensor& expected = binder_.expected()[index];
    used_.insert(module + ".scales");
    const QuantizationEntry* entry = block_.find(module);
    const QuantizationSettings stated = entry ? entry->settings : block_.global;
    if (entry != nullptr && entry->excluded)
      return fail(ErrorCode::kCorruptData, kWhere, binder_.subject(codes.name),
                  "packed codes (U32)",
                  fmt::format("floats, as '{}.{}' is false", block_.key, entry->key));
    if (stated.mode != "affine")
      return fail(ErrorCode::kUnsupported, kWhere, binder_.subject(codes.name),
                  fmt::format("mode '{}'", stated.mode), "mode 'affine'");
    const TensorView* biases = find(module + ".biases");
    if (biases == nullptr)
      return fail(ErrorCode::kCorruptData, kWhere, binder_.subject(codes.name), "no '.biases'",
                  "the offsets of mode 'affine'");
    used_.insert(module + ".biases");
    const std::optional<FloatType> metadata = float_type(*scales.type);
    if (!metadata || biases->type != scales.type || biases->shape != scales.shape)
      return fail(ErrorCode::kCorruptData, kWhere, binder_.subject(biases->name),
                  fmt::format("{} {}", biases->type->name, shape_text(biases->shape)),
                  fmt::format("the float type and shape of '.scales', {} {}", scales.type->name,
                              shape_text(scales.shape)));
    const std::int64_t rows = expected.shape.rows;
    const std::int64_t cols = expected.shape.cols;
    if (codes.shape.size() != 2 || scales.shape.size() != 2 || codes.shape[0] != rows ||
        scales.shape[0] != rows || scales.shape[1] < 1 || cols % scales.shape[1] != 0 ||
        codes.shape[1] > cols || codes.shape[1] * 32 % cols != 0)
      return fail(
          ErrorCode::kCorruptData, kWhere, binder_.subject(codes.name),
          fmt::format("codes {} and scales {}", shape_text(codes.shape), shape_text(scales.shape)),
          fmt::format("codes and scales of a [{}, {}] matrix", rows, cols));
    const std::int64_t bits = codes.shape[1] * 32 / cols;
    const std::int64_t group = cols / scales.shape[1];
    if (bits != stated.bits || group != stated.group_cols)
      return fail(ErrorCode::kCorruptData, kWhere, binder_.subject(codes.name),
                  fmt::format("{} bits in groups of {} by its shapes", bits, group),
                  fmt::format("{} bits in groups of {}, as '{}' says", stated.bits,
                              stated.group_cols, block_.key),
                  entry ? "" : "the config has no override for this path");
    const std::optional<FormatId> format = find_format(fmt::format("mlx.affine.w{}", bits));
    if (!format)
      return fail(ErrorCode::kUnsupported, kWhere, binder_.subject(codes.name),
                  fmt::format("{} bits", bits), "2, 3, 4, 5, 6 or 8 bits");
    const FormatParams params{static_cast<std::int32_t>(group), *metadata};
    // Planes may lie in different shards: the weight keeps all of their mappings.
    auto owner = std::make_shared<const std::array<std::shared_ptr<const void>, 3>>(
        std::array{codes.owner, scales.owner, biases->owner});
    PACKSTONE_TRY(PackedWeight weight,
                  PackedWeight::bind(*format, expected.shape, params,
                                     {codes.bytes, scales.bytes, biases->bytes}, std::move(owner),
                                     binder_.subject(codes.name)));
    binder_.add(index, {.name = expected.name,
                        .stored_name = codes.name,
                        .shape = {rows, cols},
                        .weight = std::move(weight),
                        .row_order = RowOrder::kSame,
                        .order_head_dim = 0,
                        .value_rule = ValueRule::kSame});
    return {};
  }

  Binder& binder_;
  const QuantizationBlock& block_;
  std::string file_;
  ViewMap views_;
  std::unordered_set<std::string> used_;
  std::size_t packed_ = 0;
};

// text_config.quantization_config is lifted when the top level has none, as MLX-LM does.
const nlohmann::ordered_json& block_holder(const nlohmann::ordered_json& config) {
  for (const char* key : {"quantization", "quantization_config"})
    if (config.contains(key) && !config[key].is_null()) return config;
  return text_config_of(config);
}

}  // namespace

Result<Checkpoint> bind_folder(SafetensorsSet set, nlohmann::ordered_json config,
                               nlohmann::ordered_json generation_config, std::string_view file) {
  Checkpoint checkpoint;
  checkpoint.container = ContainerKind::kFolder;
  const std::string config_file = fmt::format("{}/config.json", file);
  PACKSTONE_TRY(const ParsedConfig parsed,
                config_from_json(config, generation_config, config_file, checkpoint.problems));
  checkpoint.config = parsed.config;
  PACKSTONE_TRY(const QuantizationBlock block,
                QuantizationBlock::parse(block_holder(config), config_file));
  Binder binder(checkpoint, parsed, kWhere, file);
  FolderBinder folder(binder, block, config_file);
  PACKSTONE_CHECK_OK(folder.map_names(set));
  PACKSTONE_CHECK_OK(folder.bind_all());
  PACKSTONE_CHECK_OK(folder.leave_rest(set));
  PACKSTONE_CHECK_OK(binder.finish());
  PACKSTONE_CHECK_OK(folder.check_block(checkpoint.problems));
  checkpoint.config_json = std::move(config);
  checkpoint.generation_config_json = std::move(generation_config);
  checkpoint.safetensors_metadata = std::move(set.metadata);
  return checkpoint;
}

}  // namespace packstone
