// The handle of a format inside the process. What a format is, is in registry.h for code that works
// on formats at compile time, and in packed_weight.h for all other.
#pragma once

#include <cstdint>

namespace packstone {

// Position in AllFormats (registry.h). Lives only inside the process; on disk and in messages a
// format is its name.
enum class FormatId : std::uint16_t {};

// The floats, which stand first in the list (registry.h checks it).
inline constexpr FormatId kFloat32{0};
inline constexpr FormatId kFloat16{1};
inline constexpr FormatId kBFloat16{2};

}  // namespace packstone
