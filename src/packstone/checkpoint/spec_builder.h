// The parsers of the dialects: statements of config files to a QuantizationSpec.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "packstone/checkpoint/quantization_statements.h"

namespace packstone {

class SpecBuilder {
 public:
  SpecBuilder(const QuantizationStatements& statements, QuantizationSpec& spec,
              std::vector<std::string>& problems)
      : statements_(statements), spec_(spec), problems_(problems) {}

  // build() fills base, rules and head of the spec. Errors: those of QuantizationSpec::parse.
  Status build();

 private:
  using Json = nlohmann::ordered_json;

  Status gptq();
  Status awq();
  Status qqq();
  Status paroquant();
  Status exl3();
  Status gguf();
  Status fp8();
  Status bitsandbytes();
  Status compressed_tensors();
  Status modelopt();
  Status mxfp4();

  // Reads shared by several dialects.
  Status read_group(std::int64_t absent);
  Status read_bits(std::int64_t low, std::int64_t high, std::optional<std::int64_t> absent);
  Status read_symmetry(std::optional<bool> absent);
  Result<std::string> read_format(std::string_view absent,
                                  const std::vector<std::string_view>& known);
  Status set_zeros(ModuleQuantization& says) const;
  Status read_dynamic();
  Status add_dynamic(const Statement& statement, std::string_view pattern, const Json& value);
  Status read_blocks_to_quantize();
  Status add_stored(const std::string& module, const Json& entry, const std::string& key);

  // Compressed-tensors and ModelOpt.
  Status check_sparsity_and_transforms();
  Result<ModuleQuantization> scheme_of(const JsonReader& weights, std::string_view format) const;
  Status read_group_of_targets(const JsonReader& group, std::string_view format);
  Result<ModuleQuantization> algorithm(std::string_view name, std::int64_t group,
                                       const Statement& statement) const;

  // Skip lists under this key, before all other rules.
  Status skip(std::string_view key);
  Status add_rule(ModulePattern pattern, ModuleQuantization says);
  ModuleQuantization floats(std::string key) const;  // "these modules are floats, as key says"
  Status flag_must_be(std::string_view key, bool wanted, ErrorCode code) const;

  const QuantizationStatements& statements_;
  QuantizationSpec& spec_;
  std::vector<std::string>& problems_;
  std::size_t regexes_ = 0;
};

}  // namespace packstone
