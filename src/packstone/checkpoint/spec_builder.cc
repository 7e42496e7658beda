#include "packstone/checkpoint/spec_builder.h"

namespace packstone {
namespace {

constexpr std::string_view kWhere = "checkpoint.quantization";
// Published mixture-of-experts configs list every expert; the rest is for hostile files: matching
// costs rules times modules.
constexpr std::size_t kRulesMax = 1 << 15;
constexpr std::size_t kRegexesMax = 1'024;

}  // namespace

ModuleQuantization SpecBuilder::floats(std::string key) const {
  ModuleQuantization says;
  says.packed = false;
  says.key = std::move(key);
  return says;
}

Status SpecBuilder::add_rule(ModulePattern pattern, ModuleQuantization says) {
  regexes_ += pattern.is_regex();
  if (spec_.rules_.size() >= kRulesMax || regexes_ > kRegexesMax)
    return fail(
        ErrorCode::kCorruptData, kWhere, says.key,
        fmt::format("{} rules, {} of them regular expressions", spec_.rules_.size() + 1, regexes_),
        fmt::format("at most {} and {}", kRulesMax, kRegexesMax));
  spec_.rules_.push_back({std::move(pattern), std::move(says)});
  return {};
}

Status SpecBuilder::skip(std::string_view key) {
  PACKSTONE_TRY(const std::vector<std::string> entries, statements_.texts(key));
  for (std::size_t i = 0; i < entries.size(); ++i) {
    const std::string subject =
        fmt::format("{}[{}] '{}'", statements_.find(key)->subject(), i, entries[i]);
    if (entries[i].empty())
      return fail(ErrorCode::kCorruptData, kWhere, subject, "an empty name", "a module");
    if (entries[i].starts_with("re:")) {
      PACKSTONE_TRY(
          ModulePattern names,
          ModulePattern::start_regex(std::string_view(entries[i]).substr(3), false, subject));
      PACKSTONE_CHECK_OK(add_rule(std::move(names), floats(subject)));
    } else {
      PACKSTONE_CHECK_OK(add_rule(ModulePattern::skip_entry(entries[i]), floats(subject)));
    }
  }
  return {};
}

Status SpecBuilder::flag_must_be(std::string_view key, bool wanted, ErrorCode code) const {
  PACKSTONE_TRY(const auto flag, statements_.boolean(key));
  if (!flag || *flag == wanted) return {};
  return statements_.find(key)->error(code, wanted ? "true" : "false");
}

Status SpecBuilder::build() {
  spec_.base_.key = spec_.key_;
  switch (spec_.dialect_) {
    case QuantizationDialect::kGptq:
      return gptq();
    case QuantizationDialect::kAwq:
      return awq();
    case QuantizationDialect::kQqq:
      return qqq();
    case QuantizationDialect::kParoQuant:
      return paroquant();
    case QuantizationDialect::kExl3:
      return exl3();
    case QuantizationDialect::kGguf:
      return gguf();
    case QuantizationDialect::kFp8:
      return fp8();
    case QuantizationDialect::kBitsandbytes:
      return bitsandbytes();
    case QuantizationDialect::kCompressedTensors:
      return compressed_tensors();
    case QuantizationDialect::kModelOpt:
      return modelopt();
    case QuantizationDialect::kMxfp4:
      return mxfp4();
    case QuantizationDialect::kNone:
    case QuantizationDialect::kMlx:
      break;
  }
  return {};
}

}  // namespace packstone
