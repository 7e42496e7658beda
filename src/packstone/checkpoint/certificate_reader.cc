#include <algorithm>
#include <array>
#include <set>

#include "packstone/checkpoint/certificate.h"
#include "packstone/checkpoint/json_reader.h"
#include "packstone/container/json_events.h"
#include "packstone/container/names.h"

namespace packstone {
namespace {

using Json = nlohmann::ordered_json;
constexpr std::string_view kWhere = "checkpoint.parse_certificate";
// A tensor has about 60 values; the largest checkpoints have under 200,000 tensors.
constexpr std::uint64_t kValuesMax = 20'000'000;

// No member twice, bounded depth and size: what the tree that is built after it relies on.
class UniqueMembers : public internal::JsonEvents {
 public:
  bool null() { return value(); }
  bool boolean(bool) { return value(); }
  bool number_integer(number_integer_t) { return value(); }
  bool number_unsigned(number_unsigned_t) { return value(); }
  bool number_float(number_float_t, const string_t&) { return value(); }
  bool string(string_t&) { return value(); }
  bool binary(binary_t&) { return value(); }
  bool start_object(std::size_t) {
    members_.emplace_back();
    return value() && enter();
  }
  bool start_array(std::size_t) { return value() && enter(); }
  bool end_object() {
    members_.pop_back();
    return leave();
  }
  bool end_array() { return leave(); }
  bool key(string_t& name) {
    if (members_.back().insert(name).second) return true;
    return refuse(fmt::format("member {} twice", shown(name)), "each member once");
  }

 private:
  bool value() {
    if (++values_ <= kValuesMax) return true;
    return refuse("more values", fmt::format("at most {}", kValuesMax));
  }

  std::vector<std::set<std::string>> members_;
  std::uint64_t values_ = 0;
};

// Where a checker stands: the file, and the path of the member in it.
struct Place {
  std::string_view file;
  std::string path;

  Place at(std::string_view member) const {
    return {file, path.empty() ? std::string(member) : fmt::format("{}.{}", path, member)};
  }
  Place at(std::size_t index) const { return {file, fmt::format("{}[{}]", path, index)}; }
  std::unexpected<Error> error(std::string_view got, std::string_view need) const {
    return fail(ErrorCode::kCorruptData, kWhere, fmt::format("{}: '{}'", file, path), got, need);
  }
};

using Check = Status (*)(const Json& value, const Place& place);

struct Member {
  std::string_view name;
  Check check;
  bool optional = false;
};

// An object of exactly these members.
Status check_members(const Json& value, const Place& place, std::span<const Member> members) {
  if (!value.is_object()) return place.error(json_excerpt(value), "an object");
  std::size_t known = 0;
  for (const Member& member : members) {
    const auto found = value.find(std::string(member.name));
    if (found == value.end() && member.optional) continue;
    if (found == value.end()) return place.at(member.name).error("nothing", "a value");
    ++known;
    PACKSTONE_CHECK_OK(member.check(*found, place.at(member.name)));
  }
  if (known == value.size()) return {};
  for (const auto& [name, unused] : value.items())
    if (std::ranges::find(members, std::string_view(name), &Member::name) == members.end())
      return place.at(printable(name, 100)).error("a value", "no such member");
  return {};
}

template <Check check_item>
Status check_array(const Json& value, const Place& place) {
  if (!value.is_array()) return place.error(json_excerpt(value), "an array");
  for (std::size_t i = 0; i < value.size(); ++i)
    PACKSTONE_CHECK_OK(check_item(value[i], place.at(i)));
  return {};
}

Status check_text(const Json& value, const Place& place) {
  if (value.is_string()) return {};
  return place.error(json_excerpt(value), "a string");
}

Status check_count(const Json& value, const Place& place) {
  if (value.is_number_unsigned()) return {};
  return place.error(json_excerpt(value), "a whole number from 0 to 2^64 - 1");
}

Status check_flag(const Json& value, const Place& place) {
  if (value.is_boolean()) return {};
  return place.error(json_excerpt(value), "true or false");
}

Status check_sum(const Json& value, const Place& place) {
  const auto digit = [](char c) { return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f'); };
  const std::string* text = value.get_ptr<const std::string*>();
  if (text != nullptr && text->size() == 64 && std::ranges::all_of(*text, digit)) return {};
  return place.error(json_excerpt(value), "64 hexadecimal digits, a to f small");
}

// One of a few words.
Status check_word(const Json& value, const Place& place, std::span<const std::string_view> words) {
  const std::string* text = value.get_ptr<const std::string*>();
  if (text != nullptr && std::ranges::find(words, *text) != words.end()) return {};
  std::string need = "one of";
  for (const std::string_view word : words) need += fmt::format(" {}", word);
  return place.error(json_excerpt(value), need);
}

Status check_container(const Json& value, const Place& place) {
  return check_word(value, place, std::array<std::string_view, 2>{"gguf", "folder"});
}

Status check_verdict(const Json& value, const Place& place) {
  return check_word(
      value, place,
      std::array<std::string_view, 3>{"same_bytes", "same_values", "same_values_more_bytes"});
}

Status check_row_order(const Json& value, const Place& place) {
  return check_word(value, place, std::array<std::string_view, 2>{"same", "paired_heads"});
}

Status check_value_rule(const Json& value, const Place& place) {
  return check_word(value, place, std::array<std::string_view, 2>{"same", "plus_one"});
}

Status check_metadata(const Json& value, const Place& place) {
  return check_word(value, place,
                    std::array<std::string_view, 3>{"float32", "float16", "bfloat16"});
}

Status check_file(const Json& value, const Place& place) {
  constexpr Member kMembers[] = {
      {"name", check_text}, {"bytes", check_count}, {"sha256", check_sum}};
  return check_members(value, place, kMembers);
}

Status check_stored(const Json& value, const Place& place) {
  constexpr Member kMembers[] = {
      {"name", check_text}, {"type", check_text},    {"shape", check_array<check_count>},
      {"file", check_text}, {"offset", check_count}, {"bytes", check_count},
      {"sha256", check_sum}};
  return check_members(value, place, kMembers);
}

Status check_side(const Json& value, const Place& place) {
  constexpr Member kMembers[] = {{"container", check_container},
                                 {"architecture", check_text},
                                 {"sha256", check_sum},
                                 {"files", check_array<check_file>},
                                 {"stored", check_array<check_stored>}};
  return check_members(value, place, kMembers);
}

Status check_parameters(const Json& value, const Place& place) {
  constexpr Member kMembers[] = {{"group_size", check_count, true},
                                 {"group_rows", check_count, true},
                                 {"metadata", check_metadata, true},
                                 {"act_order", check_flag, true},
                                 {"constant", check_count, true}};
  return check_members(value, place, kMembers);
}

Status check_weight(const Json& value, const Place& place) {
  constexpr Member kMembers[] = {{"stored", check_array<check_text>},
                                 {"format", check_text},
                                 {"layout", check_text},
                                 {"bits", check_count},
                                 {"parameters", check_parameters},
                                 {"row_order", check_row_order},
                                 {"head_dim", check_count},
                                 {"value_rule", check_value_rule}};
  return check_members(value, place, kMembers);
}

Status check_pair(const Json& value, const Place& place) {
  constexpr Member kMembers[] = {
      {"name", check_text},       {"shape", check_array<check_count>},
      {"verdict", check_verdict}, {"conditions", check_array<check_text>},
      {"source", check_weight},   {"target", check_weight}};
  return check_members(value, place, kMembers);
}

Status accept(const Json&, const Place&) {
  return {};
}

// The two members that say how to read the others.
Status check_version(const Json& document, const Place& place) {
  if (!document.is_object()) return place.error(json_excerpt(document), "an object");
  const auto format = document.find("format");
  if (format == document.end() || *format != "packstone.certificate")
    return place.at("format").error(format == document.end() ? "nothing" : json_excerpt(*format),
                                    "\"packstone.certificate\"");
  const auto version = document.find("version");
  if (version == document.end() || !version->is_number_unsigned())
    return place.at("version").error(version == document.end() ? "nothing" : json_excerpt(*version),
                                     "a whole number");
  if (*version == 1) return {};
  return fail(ErrorCode::kUnsupported, kWhere, fmt::format("{}: 'version'", place.file),
              json_excerpt(*version), "1", "another Packstone wrote it");
}

}  // namespace

Result<Json> parse_certificate(std::string_view text, std::string_view file) {
  UniqueMembers events;
  if (!internal::read_json(text, events))
    return fail(ErrorCode::kCorruptData, kWhere, file, events.got, events.need);
  PACKSTONE_TRY(Json document, parse_json(text, kWhere, file));
  const Place place{file, {}};
  PACKSTONE_CHECK_OK(check_version(document, place));
  constexpr Member kMembers[] = {{"format", accept},
                                 {"version", accept},
                                 {"source", check_side},
                                 {"target", check_side},
                                 {"worst_verdict", check_verdict},
                                 {"tensors", check_array<check_pair>},
                                 {"not_carried", check_array<check_text>}};
  PACKSTONE_CHECK_OK(check_members(document, place, kMembers));
  return document;
}

}  // namespace packstone
