#include "packstone/checkpoint/quantization_writer.h"

#include <algorithm>
#include <map>

#include "packstone/checkpoint/module_pattern.h"
#include "packstone/checkpoint/names.h"
#include "packstone/checkpoint/writers.h"

namespace packstone {
namespace {

using Json = nlohmann::ordered_json;

// What a config says of one packed module.
struct Setting {
  FormatId format{};
  FormatParams params;
  std::int64_t group = 0;  // kWholeRowGroup for a whole row

  bool operator==(const Setting& other) const {
    return format == other.format && group == other.group &&
           params.group_rows == other.params.group_rows;
  }
};

bool is_packed(const OutputTensor& tensor) {
  return format_info(tensor.format).scheme != SchemeKind::kFloat;
}

Shape shape_of(const OutputTensor& tensor) {
  return tensor.shape.size() == 2 ? Shape{tensor.shape[0], tensor.shape[1]}
                                  : Shape{1, tensor.shape[0]};
}

std::string module_of(const OutputTensor& tensor) {
  return tensor.name.substr(0, tensor.name.rfind('.'));
}

// The packed modules with their settings, the commonest setting, and the matrices of floats.
class Modules {
 public:
  explicit Modules(const std::vector<OutputTensor>& tensors) {
    for (const OutputTensor& tensor : tensors) {
      if (tensor.shape.size() != 2) continue;
      if (is_packed(tensor))
        packed_.push_back({module_of(tensor), setting_of(tensor)});
      else if (layer_of(tensor.name) || tensor.name == "lm_head.weight")
        floats_.push_back(module_of(tensor));
    }
    join_whole_rows();
    std::size_t most = 0;
    for (const auto& [name, setting] : packed_) {
      const auto count = static_cast<std::size_t>(
          std::ranges::count(packed_, setting, &std::pair<std::string, Setting>::second));
      if (count > most) {
        most = count;
        base_ = setting;
      }
      if (most * 2 > packed_.size()) break;
    }
  }

  const std::vector<std::pair<std::string, Setting>>& packed() const { return packed_; }
  const std::vector<std::string>& floats() const { return floats_; }
  const Setting& base() const { return base_; }
  bool has(std::string_view name) const {
    return std::ranges::find(packed_, name, &std::pair<std::string, Setting>::first) !=
           packed_.end();
  }
  bool act_order() const {
    return std::ranges::any_of(packed_, [](const auto& m) { return m.second.params.act_order; });
  }

 private:
  static Setting setting_of(const OutputTensor& tensor) {
    Setting setting{tensor.format, tensor.params, tensor.params.group_cols};
    if (setting.group == 0) setting.group = group_cols(tensor.format, tensor.params);
    if (setting.group == tensor.shape[1]) setting.group = kWholeRowGroup;
    return setting;
  }

  // A group that is the whole row of some modules and not of others is one number for all.
  void join_whole_rows() {
    std::map<std::int64_t, std::size_t> groups;
    for (const auto& [name, setting] : packed_)
      if (setting.group != kWholeRowGroup) ++groups[setting.group];
    for (auto& [name, setting] : packed_)
      if (setting.group == kWholeRowGroup && groups.contains(setting.params.group_cols))
        setting.group = setting.params.group_cols;
  }

  std::vector<std::pair<std::string, Setting>> packed_;
  std::vector<std::string> floats_;
  Setting base_;
};

int bits_of(const Setting& setting) {
  return format_info(setting.format).code_bits;
}

// The name as a pattern of a dynamic rule, anchored at both ends.
std::string exact_pattern(std::string_view module) {
  std::string pattern = "^";
  for (const char c : module) {
    if (c == '.') pattern += '\\';
    pattern += c;
  }
  return pattern + "$";
}

Json dynamic_rules(const Modules& modules) {
  Json rules = Json::object();
  for (const std::string& module : modules.floats())
    rules["-:" + exact_pattern(module)] = Json::object();
  for (const auto& [module, setting] : modules.packed())
    if (!(setting == modules.base()))
      rules["+:" + exact_pattern(module)] = {{"bits", bits_of(setting)},
                                             {"group_size", setting.group}};
  return rules;
}

Json named_method(std::string_view method, std::string_view format) {
  return {{"quant_method", method},
          {"method", method},
          {"format", format},
          {"checkpoint_format", format}};
}

Json gptq_block(const Modules& modules, bool symmetric) {
  const std::string_view layout = format_info(modules.base().format).layout;
  const bool bitblas = layout.starts_with("bitblas");
  Json block = named_method("gptq", bitblas ? "bitblas" : layout);
  block["bits"] = bits_of(modules.base());
  block["group_size"] = modules.base().group;
  block["desc_act"] = modules.act_order();
  block["sym"] = bitblas ? layout == "bitblas" : symmetric;
  block["lm_head"] = modules.has("lm_head");
  block["pack_dtype"] = "int32";
  // GPTQModel loads asymmetric version-1 zero points only where the file names it: versions from
  // 0.9.0 on store them as this layout does.
  Json names = Json::array({"packstone"});
  if (layout == "gptq" && !symmetric) names.push_back("gptqmodel:0.9.0");
  block["meta"] = {{"quantizer", std::move(names)}};
  const Json rules = dynamic_rules(modules);
  if (!rules.empty()) block["dynamic"] = rules;
  return block;
}

// Both marks: without is_marlin_format, format "marlin" is that of ordinary GPTQ tensors.
Json marlin_block(const Modules& modules) {
  Json block = named_method("gptq", "marlin");
  block["is_marlin_format"] = true;
  block["bits"] = bits_of(modules.base());
  block["group_size"] = modules.base().group;
  block["desc_act"] = false;
  block["sym"] = true;
  block["lm_head"] = modules.has("lm_head");
  const Json rules = dynamic_rules(modules);
  if (!rules.empty()) block["dynamic"] = rules;
  return block;
}

Json awq_block(const Modules& modules) {
  std::string_view version = format_info(modules.base().format).layout;
  if (version.starts_with("awq-")) version.remove_prefix(4);
  Json block = named_method("awq", version);
  block["version"] = version;
  block["bits"] = bits_of(modules.base());
  block["group_size"] = modules.base().group;
  block["zero_point"] = true;
  block["pack_dtype"] = version == "gemm" || version == "gemv" ? "int32" : "int16";
  block["modules_to_not_convert"] = modules.floats();
  const Json rules = dynamic_rules(modules);
  if (!rules.empty()) block["dynamic"] = rules;
  return block;
}

Json qqq_block(const Modules& modules) {
  Json block = named_method("qqq", "qqq");
  block["bits"] = block["wbits"] = 4;
  block["group_size"] = modules.base().group;
  block["desc_act"] = false;
  block["sym"] = true;
  block["lm_head"] = modules.has("lm_head");
  block["pack_dtype"] = "int32";
  const Json rules = dynamic_rules(modules);
  if (!rules.empty()) block["dynamic"] = rules;
  return block;
}

std::string float8_kind(const Setting& setting) {
  const std::string_view layout = format_info(setting.format).layout;
  for (const std::string_view kind : {"e5m2fnuz", "e4m3fnuz", "e5m2"})
    if (layout.find(kind) != std::string_view::npos) return std::string(kind);
  return "e4m3fn";
}

Json fp8_divisor_block(const Modules& modules) {
  const Setting& base = modules.base();
  Json block = named_method("fp8", "float8_" + float8_kind(base));
  block["bits"] = 8;
  if (base.group != kWholeRowGroup) {
    block["weight_scale_method"] = "block";
    block["weight_block_size"] = {base.params.group_rows, base.group};
  } else {
    block["weight_scale_method"] = base.params.group_rows == 1 ? "row" : "tensor";
  }
  block["weight_scale_semantics"] = "inverse";
  const Json rules = dynamic_rules(modules);
  if (!rules.empty()) block["dynamic"] = rules;
  return block;
}

Json fp8_block_block(const Modules& modules) {
  const Setting& base = modules.base();
  Json block = {{"quant_method", "fp8"},
                {"activation_scheme", "dynamic"},
                {"fmt", float8_kind(base)},
                {"modules_to_not_convert", modules.floats()}};
  if (base.group != kWholeRowGroup)
    block["weight_block_size"] = {base.params.group_rows, base.group};
  return block;
}

Json bitsandbytes_block(const Modules& modules) {
  const std::string_view layout = format_info(modules.base().format).layout;
  const bool int8 = layout == "bnb-int8";
  Json block = {{"quant_method", "bitsandbytes"},
                {"load_in_4bit", !int8},
                {"load_in_8bit", int8},
                {"llm_int8_skip_modules", modules.floats()}};
  if (int8) return block;
  block["bnb_4bit_quant_type"] = layout.substr(4, 3);
  block["bnb_4bit_use_double_quant"] = layout.ends_with("-nested");
  block["bnb_4bit_compute_dtype"] = "float16";
  block["bnb_4bit_quant_storage"] = "uint8";
  return block;
}

std::string ct_format(const Setting& setting) {
  const std::string_view layout = format_info(setting.format).layout;
  if (layout == "ct-nvfp4") return "nvfp4-pack-quantized";
  return layout.starts_with("fp8") ? "float-quantized" : "pack-quantized";
}

Json ct_weights(const Setting& setting) {
  const std::string format = ct_format(setting);
  const bool one = setting.group == kWholeRowGroup && setting.params.group_rows != 1;
  const std::string_view strategy = format == "nvfp4-pack-quantized"  ? "tensor_group"
                                    : one                             ? "tensor"
                                    : setting.group == kWholeRowGroup ? "channel"
                                                                      : "group";
  Json weights = {{"num_bits", bits_of(setting)},
                  {"type", format == "pack-quantized" ? "int" : "float"},
                  {"symmetric", format_info(setting.format).layout != "ct-pack-asym"},
                  {"strategy", strategy},
                  {"group_size", nullptr},
                  {"dynamic", false},
                  {"actorder", nullptr},
                  {"block_structure", nullptr},
                  {"observer", "minmax"},
                  {"observer_kwargs", Json::object()}};
  if (setting.group != kWholeRowGroup) weights["group_size"] = setting.group;
  return weights;
}

Json ct_block(const Modules& modules) {
  Json ignore = modules.floats();
  if (!modules.has("lm_head") && std::ranges::find(ignore, "lm_head") == ignore.end())
    ignore.push_back("lm_head");
  // One group of the class, and one of names for each other setting and for what is no Linear.
  std::vector<std::pair<Setting, Json>> groups = {{modules.base(), Json::array({"Linear"})}};
  for (const auto& [module, setting] : modules.packed()) {
    if (setting == modules.base() && module != "model.embed_tokens") continue;
    auto group = std::find_if(groups.begin() + 1, groups.end(),
                              [&](const auto& g) { return g.first == setting; });
    if (group == groups.end()) group = groups.insert(group, {setting, Json::array()});
    group->second.push_back(module);
  }
  const bool mixed = std::ranges::any_of(groups, [&](const auto& group) {
    return ct_format(group.first) != ct_format(modules.base());
  });
  Json config_groups = Json::object();
  for (std::size_t i = 0; i < groups.size(); ++i) {
    Json group = {{"targets", groups[i].second},
                  {"weights", ct_weights(groups[i].first)},
                  {"input_activations", nullptr},
                  {"output_activations", nullptr}};
    if (mixed) group["format"] = ct_format(groups[i].first);
    config_groups[fmt::format("group_{}", i)] = std::move(group);
  }
  return {{"quant_method", "compressed-tensors"},
          {"format", mixed ? "mixed-precision" : ct_format(modules.base())},
          {"quantization_status", "compressed"},
          {"global_compression_ratio", nullptr},
          {"config_groups", std::move(config_groups)},
          {"ignore", std::move(ignore)},
          {"kv_cache_scheme", nullptr}};
}

Json modelopt_block(const Modules& modules) {
  Json ignore = modules.floats();
  if (!modules.has("lm_head") && std::ranges::find(ignore, "lm_head") == ignore.end())
    ignore.push_back("lm_head");
  return {{"quant_method", "modelopt"},
          {"quant_algo", "NVFP4"},
          {"group_size", 16},
          {"ignore", std::move(ignore)},
          {"producer", {{"name", "packstone"}}}};
}

Json mlx_entry(const Setting& setting) {
  std::string_view mode = format_info(setting.format).layout;
  if (mode.starts_with("mlx-")) mode.remove_prefix(4);
  const std::int64_t group =
      setting.group == kWholeRowGroup ? setting.params.group_cols : setting.group;
  return {{"group_size", group != 0 ? group : group_cols(setting.format, setting.params)},
          {"bits", bits_of(setting)},
          {"mode", mode}};
}

Json mlx_block(const Modules& modules) {
  Json block = mlx_entry(modules.base());
  for (const auto& [module, setting] : modules.packed())
    if (mlx_entry(setting) != mlx_entry(modules.base())) block[module] = mlx_entry(setting);
  return block;
}

// Whether the config of a family can hold both layouts.
bool may_mix(FolderFamily family, std::string_view a, std::string_view b) {
  return a == b || family == FolderFamily::kMlx || family == FolderFamily::kCompressedTensors;
}

// Families whose config has one setting for all modules.
bool has_one_setting(FolderFamily family) {
  return family == FolderFamily::kFp8Divisor || family == FolderFamily::kFp8Blocks;
}

}  // namespace

Result<std::optional<FolderFamily>> common_family(const std::vector<OutputTensor>& tensors,
                                                  std::string_view where) {
  std::vector<std::string> homeless;
  std::string_view missing;
  std::optional<FolderFamily> family;
  const OutputTensor* first = nullptr;
  for (const OutputTensor& tensor : tensors) {
    if (!is_packed(tensor)) continue;
    const auto own = folder_family(tensor.format, shape_of(tensor), tensor.params);
    if (!own || tensor.shape.size() != 2) {
      if (homeless.empty()) missing = missing_family(tensor.format);
      homeless.push_back(fmt::format("{} ({})", tensor.name, format_info(tensor.format).layout));
      continue;
    }
    const std::string_view layout = format_info(tensor.format).layout;
    if (first == nullptr) {
      first = &tensor;
      family = own;
    }
    const bool same_blocks = first->params.group_rows == tensor.params.group_rows &&
                             first->params.group_cols == tensor.params.group_cols;
    const bool whole_rows =
        first->params.group_cols == first->shape[1] && tensor.params.group_cols == tensor.shape[1];
    if (own == family && may_mix(*own, format_info(first->format).layout, layout) &&
        (!has_one_setting(*own) || same_blocks || whole_rows))
      continue;
    return fail(ErrorCode::kUnsupported, where,
                fmt::format("'{}' and '{}'", first->name, tensor.name),
                fmt::format("{} and {} in one folder", format_info(first->format).layout, layout),
                "layouts that one config can describe");
  }
  if (homeless.empty()) return family;
  return fail(ErrorCode::kUnsupported, where, name_list(homeless),
              "formats that safetensors folders have no names for", missing);
}

Json quantization_keys(const std::vector<OutputTensor>& tensors, bool symmetric) {
  Json keys = Json::object();
  const Modules modules(tensors);
  if (modules.packed().empty()) return keys;
  const OutputTensor& first = *std::ranges::find_if(tensors, is_packed);
  const auto family = folder_family(first.format, shape_of(first), first.params);
  if (!family) return keys;
  Json& block = keys["quantization_config"];
  switch (*family) {
    case FolderFamily::kMlx:
      keys = Json::object();
      keys["quantization"] = keys["quantization_config"] = mlx_block(modules);
      break;
    case FolderFamily::kGptq:
      block = gptq_block(modules, symmetric);
      break;
    case FolderFamily::kMarlin:
      block = marlin_block(modules);
      break;
    case FolderFamily::kAwq:
      block = awq_block(modules);
      break;
    case FolderFamily::kQqq:
      block = qqq_block(modules);
      break;
    case FolderFamily::kFp8Divisor:
      block = fp8_divisor_block(modules);
      break;
    case FolderFamily::kFp8Blocks:
      block = fp8_block_block(modules);
      break;
    case FolderFamily::kBitsandbytes:
      block = bitsandbytes_block(modules);
      break;
    case FolderFamily::kCompressedTensors:
      block = ct_block(modules);
      break;
    case FolderFamily::kModelOpt:
      block = modelopt_block(modules);
      break;
  }
  return keys;
}

}  // namespace packstone
