#include "packstone/text/pre_rules.h"

#include <array>

namespace packstone::text {
namespace {

constexpr std::string_view kLlama3Pattern =
    "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1,3}| ?"
    "[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+";
constexpr std::string_view kQwen2Pattern =
    "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}| "
    "?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|"
    "\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+";
constexpr std::string_view kQwen35Pattern =
    "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?[\\p{L}\\p{M}]+|\\p{N}| ?"
    "[^\\s\\p{L}\\p{M}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+";
constexpr std::string_view kTekkenPattern =
    "[^\\r\\n\\p{L}\\p{N}]?[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]*[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]+|"
    "[^\\r\\n\\p{L}\\p{N}]?[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]+[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]*|\\p{"
    "N}|"
    " ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+";
constexpr std::string_view kGpt4oPattern =
    "[^\\r\\n\\p{L}\\p{N}]?[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]*[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]+"
    "(?i:'s|'t|'re|'ve|'m|'ll|'d)?|"
    "[^\\r\\n\\p{L}\\p{N}]?[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]+[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]*"
    "(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\\p{N}{1,3}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]*|\\s*[\\r\\n]+|"
    "\\s+(?!\\S)|\\s+";

Json byte_level(bool use_regex) {
  return {{"type", "ByteLevel"},
          {"add_prefix_space", false},
          {"trim_offsets", true},
          {"use_regex", use_regex}};
}

Json digits(bool individual) {
  return {{"type", "Digits"}, {"individual_digits", individual}};
}

Json split(std::string_view pattern) {
  return {{"type", "Split"},
          {"pattern", {{"Regex", std::string(pattern)}}},
          {"behavior", "Isolated"},
          {"invert", false}};
}

Json sequence(std::initializer_list<Json> steps) {
  Json list = Json::array();
  for (const Json& step : steps) list.push_back(step);
  return {{"type", "Sequence"}, {"pretokenizers", std::move(list)}};
}

Json split_then_bytes(std::string_view pattern) {
  return sequence({split(pattern), byte_level(false)});
}

constexpr std::array<PreRules, 9> kRules = {{
    {"smollm", "starcoder refact codeshell", false, false, false,
     [] { return sequence({digits(true), byte_level(true)}); }},
    {"command-r", "", true, false, false,
     [] { return sequence({digits(true), byte_level(true)}); }},
    {"gpt-2", "phi-2 exaone4 gigachat mellum", false, false, false,
     [] { return byte_level(true); }},
    {"qwen2", "deepseek-r1-qwen", true, false, false,
     [] { return split_then_bytes(kQwen2Pattern); }},
    {"qwen35", "", true, false, false, [] { return split_then_bytes(kQwen35Pattern); }},
    {"llama-bpe", "llama3 llama-v3 falcon3 pixtral", false, true, true,
     [] { return split_then_bytes(kLlama3Pattern); }},
    {"tekken", "", false, true, true, [] { return split_then_bytes(kTekkenPattern); }},
    {"gpt-4o", "llama4", false, false, false, [] { return split_then_bytes(kGpt4oPattern); }},
    {"falcon", "", false, false, false,
     [] {
       return sequence({{{"type", "Punctuation"}, {"behavior", "Contiguous"}},
                        byte_level(true),
                        digits(false),
                        split("[0-9][0-9][0-9]")});
     }},
}};

// A rule without what does not touch ids, so that equal rules compare equal.
Json plain(const Json& rule) {
  if (!rule.is_object()) return rule;
  const Json* type = member(rule, "type");
  if (type == nullptr) return rule;
  if (*type == "Sequence") {
    Json steps = Json::array();
    for (const std::string_view key : {"pretokenizers", "normalizers"}) {
      const Json* list = member(rule, key);
      if (list == nullptr || !list->is_array()) continue;
      for (const Json& item : *list) {
        if (item.is_null()) continue;
        Json step = plain(item);
        if (step.is_array()) {
          for (Json& inner : step) steps.push_back(std::move(inner));
        } else {
          steps.push_back(std::move(step));
        }
      }
    }
    return steps.size() == 1 ? steps[0] : steps;
  }
  Json result = Json::object();
  for (const std::string_view key :
       {"type", "pattern", "behavior", "invert", "individual_digits"}) {
    if (const Json* value = member(rule, key)) result[std::string(key)] = *value;
  }
  if (*type == "ByteLevel") {
    const Json* use_regex = member(rule, "use_regex");
    result["use_regex"] = use_regex == nullptr ? Json(true) : *use_regex;
    const Json* prefix = member(rule, "add_prefix_space");
    result["add_prefix_space"] = prefix == nullptr ? Json(true) : *prefix;
  }
  return result;
}

}  // namespace

std::span<const PreRules> pre_rules() {
  return kRules;
}

const PreRules* find_pre_rules(std::string_view name) {
  if (name.empty() || name.find(' ') != std::string_view::npos) return nullptr;
  for (const PreRules& rules : kRules) {
    if (rules.name == name) return &rules;
    if (fmt::format(" {} ", rules.alias).find(fmt::format(" {} ", name)) != std::string::npos) {
      return &rules;
    }
  }
  return nullptr;
}

const PreRules* match_pre_rules(const Json& normalizer, const Json& pre_tokenizer,
                                bool ignore_merges) {
  const Json wanted = plain(pre_tokenizer);
  const Json form = plain(normalizer);
  const bool nfc = form == Json{{"type", "NFC"}};
  if (!nfc && !(form.is_null() || (form.is_array() && form.empty()))) return nullptr;
  for (const PreRules& rules : kRules) {
    if (rules.nfc == nfc && rules.ignore_merges == ignore_merges &&
        plain(rules.pre_tokenizer()) == wanted) {
      return &rules;
    }
  }
  return nullptr;
}

}  // namespace packstone::text
