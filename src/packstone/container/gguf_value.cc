#include <cstring>
#include <type_traits>

#include "packstone/container/gguf.h"
#include "packstone/container/names.h"

namespace packstone {
namespace {

// Names of the value types in the order of their numbers, which is the order of GgufValue.
constexpr std::string_view kTypeNames[] = {"u8",   "i8",     "u16",   "i16", "u32", "i32", "f32",
                                           "bool", "string", "array", "u64", "i64", "f64"};
static_assert(std::size(kTypeNames) == std::variant_size_v<GgufValue>);

std::unexpected<Error> fail_type(std::string_view key, const GgufValue& value,
                                 std::string_view need) {
  return fail(ErrorCode::kCorruptData, "container.GgufFile", "key " + shown(key),
              fmt::format("a value of type {}", kTypeNames[value.index()]), need);
}

template <class T>
constexpr bool kIsInteger = std::is_integral_v<T> && !std::is_same_v<T, bool>;

template <class T>
bool same_item(const T& a, const T& b) {
  if constexpr (std::is_floating_point_v<T>) {
    return std::memcmp(&a, &b, sizeof(T)) == 0;
  } else if constexpr (std::is_same_v<T, GgufArray>) {
    if (a.items.index() != b.items.index()) return false;
    return std::visit(
        [&b]<class Items>(const Items& items) {
          const auto& others = std::get<Items>(b.items);
          if (items.size() != others.size()) return false;
          for (std::size_t i = 0; i < items.size(); ++i)
            if (!same_item<typename Items::value_type>(items[i], others[i])) return false;
          return true;
        },
        a.items);
  } else {
    return a == b;
  }
}

}  // namespace

bool same_value(const GgufValue& a, const GgufValue& b) {
  if (a.index() != b.index()) return false;
  return std::visit([&b]<class T>(const T& item) { return same_item(item, std::get<T>(b)); }, a);
}

const GgufValue* GgufFile::find(std::string_view key) const {
  for (const GgufKey& entry : keys)
    if (entry.name == key) return &entry.value;
  return nullptr;
}

Result<std::optional<std::int64_t>> GgufFile::integer(std::string_view key) const {
  const GgufValue* value = find(key);
  if (value == nullptr) return std::nullopt;
  return std::visit(
      [&]<class T>(const T& item) -> Result<std::optional<std::int64_t>> {
        if constexpr (std::is_same_v<T, std::uint64_t>) {
          if (item > static_cast<std::uint64_t>(INT64_MAX))
            return fail(ErrorCode::kCorruptData, "container.GgufFile", "key " + shown(key),
                        fmt::format("{}", item), "a number below 2^63");
        }
        if constexpr (kIsInteger<T>) return static_cast<std::int64_t>(item);
        return fail_type(key, *value, "an integer");
      },
      *value);
}

Result<std::optional<double>> GgufFile::number(std::string_view key) const {
  const GgufValue* value = find(key);
  if (value == nullptr) return std::nullopt;
  return std::visit(
      [&]<class T>(const T& item) -> Result<std::optional<double>> {
        if constexpr (kIsInteger<T> || std::is_floating_point_v<T>)
          return static_cast<double>(item);
        else
          return fail_type(key, *value, "a number");
      },
      *value);
}

Result<std::optional<std::string>> GgufFile::text(std::string_view key) const {
  const GgufValue* value = find(key);
  if (value == nullptr) return std::nullopt;
  if (const auto* item = std::get_if<std::string>(value)) return *item;
  return fail_type(key, *value, "a string");
}

Result<std::optional<bool>> GgufFile::boolean(std::string_view key) const {
  const GgufValue* value = find(key);
  if (value == nullptr) return std::nullopt;
  if (const auto* item = std::get_if<bool>(value)) return *item;
  return fail_type(key, *value, "a bool");
}

}  // namespace packstone
