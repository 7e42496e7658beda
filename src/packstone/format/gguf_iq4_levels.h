// The 16 levels of ggml's IQ4 types (ggml-common.h kvalues_iq4nl). Device-safe.
#pragma once

#include <cstdint>
#include <string_view>

#include "packstone/format/scheme.h"

namespace packstone {

struct Iq4Scheme {
  static constexpr SchemeKind kKind = SchemeKind::kTable;
  static constexpr std::string_view kTableName = "iq4_nl";
  static constexpr float kUnit = 1.0f;
  static constexpr std::int32_t integer_level(std::uint32_t code) {
    constexpr std::int8_t kLevels[16] = {-127, -104, -83, -65, -49, -35, -22, -10,
                                         1,    13,   25,  38,  53,  69,  89,  113};
    return kLevels[code & 15u];
  }
  static constexpr float level(std::uint32_t code, std::int32_t) {
    return static_cast<float>(integer_level(code));
  }
};

}  // namespace packstone
