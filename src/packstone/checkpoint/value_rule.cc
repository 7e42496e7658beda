#include "packstone/checkpoint/value_rule.h"

#include <bit>

namespace packstone {

Status apply_value_rule(ValueRule from, ValueRule to, std::span<float> values,
                        std::string_view subject) {
  if (from == to) return {};
  if (to == ValueRule::kPlusOne) {
    for (float& value : values) value = 1.0f + value;
    return {};
  }
  for (std::size_t i = 0; i < values.size(); ++i)
    if (std::bit_cast<std::uint32_t>(1.0f + (values[i] - 1.0f)) !=
        std::bit_cast<std::uint32_t>(values[i]))
      return fail(ErrorCode::kNotRepresentable, "checkpoint.value_rule", subject,
                  fmt::format("{} at {}", values[i], i), "a float32 that is 1 plus another");
  for (float& value : values) value -= 1.0f;
  return {};
}

}  // namespace packstone
