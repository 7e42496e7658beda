// Changing norms between the two stored forms: the weight w, and w + 1 (Gemma in GGUF).
#pragma once

#include <span>
#include <string_view>

#include "packstone/base/result.h"
#include "packstone/checkpoint/checkpoint.h"

namespace packstone {

// apply_value_rule(from, to, values, subject) changes stored values in place.
// Exact: same_value on what the model multiplies by, the binary32 number fl(1 + w): it is the same
//        before and after. Adding 1 rounds as the model itself would; subtracting is refused where
//        no binary32 w gives the stored number back.
// Errors: kNotRepresentable naming subject and the first such value; the values are then unchanged.
Status apply_value_rule(ValueRule from, ValueRule to, std::span<float> values,
                        std::string_view subject);

}  // namespace packstone
