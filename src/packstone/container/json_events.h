// JSON read as events: no tree, no recursion, no exceptions, depth bounded.
#pragma once

#include <fmt/format.h>

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>

#include "packstone/base/limits.h"

namespace packstone::internal {

// Base of a handler for nlohmann::json::sax_parse (which keeps its own stack on the heap and throws
// nothing while the handler does not). A handler says no by `return refuse(...)`; the words land in
// `got` and `need`. Derived classes hide the events they want.
class JsonEvents {
 public:
  using number_integer_t = nlohmann::json::number_integer_t;
  using number_unsigned_t = nlohmann::json::number_unsigned_t;
  using number_float_t = nlohmann::json::number_float_t;
  using string_t = nlohmann::json::string_t;
  using binary_t = nlohmann::json::binary_t;

  std::string got;
  std::string need;
  std::string subject;  // what inside the file, when it is known

  bool parse_error(std::size_t position, const std::string&, const nlohmann::detail::exception&) {
    return refuse(fmt::format("no JSON at byte {}", position), "one JSON object");
  }

 protected:
  bool refuse(std::string got_text, std::string need_text, std::string subject_text = {}) {
    got = std::move(got_text);
    need = std::move(need_text);
    subject = std::move(subject_text);
    return false;
  }

  bool enter() {
    if (++depth_ <= limits::kJsonDepthMax) return true;
    return refuse("deeper nesting", fmt::format("at most {} levels", limits::kJsonDepthMax));
  }

  bool leave() {
    --depth_;
    return true;
  }

  int depth_ = 0;  // open objects and arrays
};

// Runs `handler` over text. False when it refused or the text is no JSON.
template <class Handler>
bool read_json(std::string_view text, Handler& handler) {
  return nlohmann::json::sax_parse(text.begin(), text.end(), &handler);
}

}  // namespace packstone::internal
