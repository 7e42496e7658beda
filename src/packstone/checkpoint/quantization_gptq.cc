// The dialects of GPTQModel's family: GPTQ, AWQ, QQQ, ParoQuant, EXL3 and GGUF rows.
// Source: formats.md 1.2 to 1.4 and the sections of each layout.
#include <algorithm>

#include "packstone/checkpoint/spec_builder.h"

namespace packstone {
namespace {

constexpr std::string_view kWhere = "checkpoint.quantization";
constexpr std::int64_t kDefaultGroup = 128;    // GPTQModel, AutoGPTQ, AutoAWQ
constexpr std::int64_t kDefaultRotations = 8;  // ParoQuant krot

std::string joined(const std::vector<std::string_view>& names) {
  std::string list;
  for (const std::string_view name : names) {
    if (!list.empty()) list += ", ";
    list += name;
  }
  return list;
}

// "q_k_m" or "q4_k_m" with 4 bits is the type Q4_K; nothing for a name that is no type of the
// width.
std::string gguf_layout(std::int64_t bits, std::string_view format) {
  if (format.starts_with("q_")) {
    format.remove_prefix(1);
  } else if (format.starts_with(fmt::format("q{}_", bits))) {
    format.remove_prefix(2);
  } else {
    return "";
  }
  if (format == "_0_g128") return bits == 1 ? "gguf:Q1_0" : "";
  for (const std::string_view mix : {"_k_s", "_k_m"})
    if (format == mix) format = "_k";
  if (format != "_0" && format != "_1" && format != "_k") return "";
  return fmt::format("gguf:Q{}{}", bits, format == "_k" ? "_K" : format);
}

bool is_planar_width(std::int64_t bits) {
  return bits == 5 || bits == 6 || bits == 7;
}

}  // namespace

Status SpecBuilder::read_bits(std::int64_t low, std::int64_t high,
                              std::optional<std::int64_t> absent) {
  PACKSTONE_TRY(auto bits, statements_.integer("bits", low, high));
  if (!bits) bits = absent;
  if (!bits)
    return fail(ErrorCode::kCorruptData, kWhere, spec_.key_, "no 'bits'", "the bits of a code");
  spec_.base_.bits = *bits;
  return {};
}

Status SpecBuilder::read_group(std::int64_t absent) {
  PACKSTONE_TRY(const auto group, statements_.integer("group_size", kWholeRowGroup, 1 << 24));
  if (group == 0)
    return statements_.find("group_size")
        ->error(ErrorCode::kCorruptData, "a positive number, or -1 for the whole row");
  spec_.base_.group_cols = group.value_or(absent);
  if (spec_.base_.group_cols == kWholeRowGroup) spec_.base_.scales = ScaleGranularity::kRow;
  return {};
}

Status SpecBuilder::read_symmetry(std::optional<bool> absent) {
  PACKSTONE_TRY(spec_.base_.symmetric, statements_.boolean("sym"));
  if (!spec_.base_.symmetric) spec_.base_.symmetric = absent;
  return {};
}

Result<std::string> SpecBuilder::read_format(std::string_view absent,
                                             const std::vector<std::string_view>& known) {
  PACKSTONE_TRY(auto format, statements_.text("format"));
  if (!format) format = std::string(absent);
  if (std::ranges::find(known, *format) == known.end())
    return statements_.find("format")->error(ErrorCode::kUnsupported, joined(known));
  spec_.base_.format = *format;
  PACKSTONE_TRY(const auto words, statements_.text("pack_dtype"));
  if (words) {
    const std::string type = words->starts_with("torch.") ? words->substr(6) : *words;
    if (type != "int8" && type != "int16" && type != "int32" && type != "int64")
      return statements_.find("pack_dtype")
          ->error(ErrorCode::kUnsupported, "int8, int16, int32 or int64");
    spec_.base_.pack_type = type;
  }
  return *format;
}

Status SpecBuilder::set_zeros(ModuleQuantization& says) const {
  if (says.format == "gptq") {
    says.zeros = ZeroConvention::kMinusOneWords;
  } else if (says.format == "marlin" && spec_.dialect_ == QuantizationDialect::kGptq) {
    says.zeros = ZeroConvention::kMidpoint;
    const bool width = says.bits == 4 || says.bits == 8;
    if (says.symmetric == false || !width || says.act_order)
      return fail(ErrorCode::kCorruptData, kWhere, says.key,
                  fmt::format("format marlin with {} bits, sym {}, desc_act {}", says.bits,
                              says.symmetric != false, says.act_order),
                  "4 or 8 bits, symmetric, without desc_act");
  } else if (says.format == "bitblas" && spec_.dialect_ == QuantizationDialect::kGptq &&
             says.symmetric != false) {
    says.zeros = ZeroConvention::kNone;
  } else if (says.format == "gemv_fast" || says.format == "llm-awq") {
    says.zeros = ZeroConvention::kScaled;
  } else {
    says.zeros = ZeroConvention::kRaw;
  }
  return {};
}

Status SpecBuilder::gptq() {
  PACKSTONE_TRY(const std::string format,
                read_format("gptq", {"gptq", "gptq_v2", "gptq_p", "marlin", "bitblas"}));
  PACKSTONE_CHECK_OK(read_bits(2, 8, std::nullopt));
  PACKSTONE_CHECK_OK(read_group(kDefaultGroup));
  PACKSTONE_CHECK_OK(read_symmetry(std::nullopt));
  if (!spec_.base_.symmetric)
    problems_.push_back(fmt::format("{}: no 'sym': the stored zero points count", spec_.key_));
  PACKSTONE_TRY(const auto act_order, statements_.boolean("desc_act"));
  spec_.base_.act_order = act_order.value_or(false);
  PACKSTONE_TRY(spec_.head_, statements_.boolean("lm_head"));
  if (const Statement* rotation = statements_.find("rotation"))
    return rotation->error(ErrorCode::kUnsupported, "none",
                           "inputs would have to be transformed at run time");
  // The file of format "marlin" holds ordinary GPTQ tensors; that of is_marlin_format its tiles.
  spec_.base_.layout = format == "marlin" ? "gptq" : format;
  PACKSTONE_TRY(const auto tiles, statements_.boolean("is_marlin_format"));
  PACKSTONE_CHECK_OK(set_zeros(spec_.base_));
  if (tiles == true) {
    spec_.base_.layout = "marlin";
    spec_.base_.zeros = ZeroConvention::kNone;
  }
  PACKSTONE_CHECK_OK(skip("modules_to_not_convert"));
  PACKSTONE_CHECK_OK(read_dynamic());
  PACKSTONE_CHECK_OK(read_blocks_to_quantize());
  // One 5, 6 or 7-bit rule makes the whole checkpoint planar with raw zeros (formats.md 1.4).
  bool planar = is_planar_width(spec_.base_.bits);
  for (const ModuleRule& rule : spec_.rules_)
    planar = planar || (rule.says.packed != false && is_planar_width(rule.says.bits));
  const auto make_planar = [](ModuleQuantization& says) {
    if (says.layout != "gptq" && says.layout != "gptq_v2") return;
    says.layout = "gptq_p";
    says.zeros = ZeroConvention::kRaw;
  };
  if (!planar) return {};
  make_planar(spec_.base_);
  for (ModuleRule& rule : spec_.rules_) make_planar(rule.says);
  return {};
}

Status SpecBuilder::awq() {
  PACKSTONE_TRY(const auto backend, statements_.text("backend"));
  const std::string_view absent = backend == "llm-awq" ? "llm-awq" : "gemm";
  PACKSTONE_TRY(std::string format, read_format(absent, {"gemm", "gemv", "gemv_fast", "llm-awq",
                                                         "marlin", "bitblas", "exllama", "ipex"}));
  // Names of kernels for the same files.
  if (format == "exllama" || format == "ipex") format = spec_.base_.format = "gemm";
  PACKSTONE_CHECK_OK(read_bits(2, 8, std::nullopt));
  PACKSTONE_CHECK_OK(read_group(kDefaultGroup));
  PACKSTONE_CHECK_OK(read_symmetry(std::nullopt));
  PACKSTONE_TRY(spec_.head_, statements_.boolean("lm_head"));
  PACKSTONE_TRY(const auto act_order, statements_.boolean("desc_act"));
  if (act_order == true)
    return statements_.find("desc_act")->error(ErrorCode::kUnsupported, "false with AWQ");
  if (format == "llm-awq" || format == "bitblas") {
    spec_.base_.layout = format;
  } else if (format == "marlin") {  // the file holds ordinary AWQ GEMM tensors (formats.md 3.1)
    spec_.base_.layout = "awq-gemm";
  } else {
    spec_.base_.layout = "awq-" + format;
  }
  PACKSTONE_CHECK_OK(set_zeros(spec_.base_));
  PACKSTONE_CHECK_OK(skip("modules_to_not_convert"));
  return read_dynamic();
}

Status SpecBuilder::qqq() {
  PACKSTONE_CHECK_OK(read_format("qqq", {"qqq"}));
  PACKSTONE_CHECK_OK(read_bits(4, 4, 4));
  PACKSTONE_CHECK_OK(read_group(kDefaultGroup));
  if (spec_.base_.group_cols != kWholeRowGroup && spec_.base_.group_cols != 128)
    return statements_.find("group_size")
        ->error(ErrorCode::kUnsupported, "-1 or 128, the groups of QQQ");
  PACKSTONE_CHECK_OK(read_symmetry(true));
  PACKSTONE_CHECK_OK(flag_must_be("sym", true, ErrorCode::kUnsupported));
  PACKSTONE_CHECK_OK(flag_must_be("desc_act", false, ErrorCode::kUnsupported));
  PACKSTONE_TRY(spec_.head_, statements_.boolean("lm_head"));
  spec_.base_.layout = "qqq";
  PACKSTONE_CHECK_OK(skip("modules_to_not_convert"));
  return read_dynamic();
}

Status SpecBuilder::paroquant() {
  PACKSTONE_CHECK_OK(read_format("paroquant", {"paroquant"}));
  PACKSTONE_CHECK_OK(read_bits(4, 4, 4));
  PACKSTONE_CHECK_OK(read_group(kDefaultGroup));
  PACKSTONE_CHECK_OK(read_symmetry(std::nullopt));
  PACKSTONE_TRY(const auto rotations, statements_.integer("krot", 1, 1024));
  spec_.base_.rotations = rotations.value_or(kDefaultRotations);
  spec_.base_.layout = "paroquant";
  spec_.base_.zeros = ZeroConvention::kRaw;
  PACKSTONE_CHECK_OK(skip("modules_to_not_convert"));
  return read_dynamic();
}

// exllamav3 lists every module, GPTQModel the packed ones.
Status SpecBuilder::add_stored(const std::string& module, const Json& entry,
                               const std::string& key) {
  if (!entry.is_object())
    return fail(ErrorCode::kUnsupported, kWhere, key, json_excerpt(entry),
                "a module of format exl3");
  const auto format = entry.find("quant_format");
  if (format != entry.end() && *format != "exl3")
    return fail(ErrorCode::kUnsupported, kWhere, key, json_excerpt(*format),
                "a module of format exl3");
  const auto tensors = entry.find("stored_tensors");
  const bool lists_tensors = tensors != entry.end() && tensors->is_object();
  if (format == entry.end() && lists_tensors && !tensors->contains(module + ".trellis"))
    return add_rule(ModulePattern::exact(module), floats(key));
  ModuleQuantization says = spec_.base_;
  says.packed = true;
  says.key = key;
  const JsonReader json(entry, kWhere, key);
  PACKSTONE_TRY(const auto bits, json.number("bits_per_weight", 1, 8));
  if (bits) says.bits = static_cast<std::int64_t>(*bits);
  if (bits && static_cast<double>(says.bits) != *bits)
    return json.error(ErrorCode::kCorruptData, "bits_per_weight", fmt::format("{}", *bits),
                      "a whole number");
  for (const std::string_view marker : {"mul1", "mcg"})
    if (entry.contains(fmt::format("{}_multiplier", marker))) says.code_type = marker;
  return add_rule(ModulePattern::exact(module), std::move(says));
}

Status SpecBuilder::exl3() {
  PACKSTONE_CHECK_OK(read_format("exl3", {"exl3"}));
  PACKSTONE_TRY(const auto codebook, statements_.text("codebook"));
  if (codebook && *codebook != "mcg" && *codebook != "mul1" && *codebook != "3inst")
    return statements_.find("codebook")->error(ErrorCode::kUnsupported, "mcg, mul1 or 3inst");
  spec_.base_.code_type = codebook.value_or("");
  spec_.base_.layout = "exl3";  // the bits of a module follow from its trellis
  if (const Statement* storage = statements_.find("tensor_storage")) {
    if (!storage->value().is_object())
      return storage->error(ErrorCode::kCorruptData, "an object of modules");
    for (const auto& [module, entry] : storage->value().items()) {
      const std::string key = fmt::format("{}.'{}'", storage->subject(), module);
      PACKSTONE_CHECK_OK(add_stored(module, entry, key));
    }
    spec_.only_rules_ = !spec_.rules_.empty();
  }
  return {};
}

Status SpecBuilder::gguf() {
  PACKSTONE_CHECK_OK(read_bits(1, 8, std::nullopt));
  PACKSTONE_TRY(auto format, statements_.text("format"));
  constexpr std::string_view kDefaults[] = {"", "_0", "_0", "", "_0", "_k_m", "_k", "", "_0"};
  const std::int64_t bits = spec_.base_.bits;
  if (!format) format = fmt::format("q{}", kDefaults[bits]);
  spec_.base_.format = *format;
  PACKSTONE_CHECK_OK(skip("modules_to_not_convert"));
  PACKSTONE_CHECK_OK(read_dynamic());
  const auto name_layout = [](ModuleQuantization& says) -> Status {
    says.layout = gguf_layout(says.bits, says.format);
    if (!says.layout.empty() || says.packed == false) return {};
    return fail(ErrorCode::kUnsupported, kWhere, says.key,
                fmt::format("format '{}' with {} bits", says.format, says.bits),
                "a block type of ggml, as 'q_0' or 'q4_k_m' with 4 bits");
  };
  for (ModuleRule& rule : spec_.rules_) PACKSTONE_CHECK_OK(name_layout(rule.says));
  return name_layout(spec_.base_);
}

Status SpecBuilder::read_dynamic() {
  const Statement* dynamic = statements_.find("dynamic");
  if (dynamic == nullptr) return {};
  if (!dynamic->value().is_object())
    return dynamic->error(ErrorCode::kCorruptData, "an object of patterns");
  // Rules that exclude come first, whatever their place in the file (formats.md 1.4).
  for (const bool exclusions : {true, false})
    for (const auto& [pattern, value] : dynamic->value().items())
      if (pattern.starts_with("-:") == exclusions)
        PACKSTONE_CHECK_OK(add_dynamic(*dynamic, pattern, value));
  return {};
}

Status SpecBuilder::add_dynamic(const Statement& statement, std::string_view pattern,
                                const Json& value) {
  const std::string key = fmt::format("{}.'{}'", statement.subject(), pattern);
  const bool excludes = pattern.starts_with("-:");
  if (excludes || pattern.starts_with("+:")) pattern.remove_prefix(2);
  PACKSTONE_TRY(ModulePattern names, ModulePattern::start_regex(pattern, excludes, key));
  if (excludes) return add_rule(std::move(names), floats(key));
  if (!value.is_object())
    return fail(ErrorCode::kCorruptData, kWhere, key, json_excerpt(value), "an object");
  QuantizationStatements stated(spec_.dialect_);
  PACKSTONE_CHECK_OK(stated.add(value, statement.subject(), pattern));
  ModuleQuantization says = spec_.base_;
  says.key = key;
  PACKSTONE_TRY(const auto bits, stated.integer("bits", 1, 8));
  PACKSTONE_TRY(const auto group, stated.integer("group_size", kWholeRowGroup, 1 << 24));
  PACKSTONE_TRY(const auto symmetric, stated.boolean("sym"));
  PACKSTONE_TRY(const auto act_order, stated.boolean("desc_act"));
  PACKSTONE_TRY(const auto format, stated.text("format"));
  if (group == 0)
    return stated.find("group_size")
        ->error(ErrorCode::kCorruptData, "a positive number, or -1 for the whole row");
  if (format && *format != says.format) {
    if (spec_.dialect_ != QuantizationDialect::kGguf)
      return stated.find("format")->error(ErrorCode::kUnsupported,
                                          fmt::format("{}, the format of the file", says.format));
    says.format = *format;
  }
  says.bits = bits.value_or(says.bits);
  says.group_cols = group.value_or(says.group_cols);
  if (symmetric) says.symmetric = symmetric;
  says.act_order = act_order.value_or(says.act_order);
  if (says.zeros != ZeroConvention::kNone || says.format == "bitblas")
    PACKSTONE_CHECK_OK(set_zeros(says));
  return add_rule(std::move(names), std::move(says));
}

Status SpecBuilder::read_blocks_to_quantize() {
  const Statement* blocks = statements_.find("modules_in_block_to_quantize");
  if (blocks == nullptr) return {};
  std::vector<std::string> names;
  const auto take = [&](const Json& item) {
    if (item.is_string()) names.push_back(item.get<std::string>());
    return item.is_string();
  };
  bool good = blocks->value().is_array();
  if (good)
    for (const Json& item : blocks->value()) {
      if (item.is_array()) {
        for (const Json& name : item) good = good && take(name);
      } else {
        good = good && take(item);
      }
    }
  if (!good) return blocks->error(ErrorCode::kCorruptData, "an array of lists of names");
  for (const std::string& name : names) {
    ModuleQuantization says = spec_.base_;
    says.key = blocks->subject();
    PACKSTONE_CHECK_OK(add_rule(ModulePattern::skip_entry(name), std::move(says)));
  }
  return add_rule(ModulePattern::layers(), floats(blocks->subject()));
}

}  // namespace packstone
