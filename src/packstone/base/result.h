// The error value of the house: every function that can fail on outside data returns Result<T>.
#pragma once

#include <fmt/format.h>

#include <expected>
#include <string>
#include <string_view>
#include <utility>

namespace packstone {

// What the caller can do about it. The program's exit codes and the server's status codes are
// functions of this value alone.
enum class ErrorCode {
  kInvalidInput,      // fix the call
  kNotFound,          // use another name
  kCorruptData,       // get a good file
  kUnsupported,       // use another format, kernel or build
  kNotRepresentable,  // quantize instead of transcode: a value would change
  kExhausted,         // wait, or raise the limit
  kIo,                // check the disk or the network, then retry
  kDevice,            // restart the device context
  kCancelled,         // nothing
};

struct Error {
  ErrorCode code = ErrorCode::kInvalidInput;
  std::string message;
};

template <class T>
using Result = std::expected<T, Error>;
using Status = Result<void>;

// Builds the one message form of the house: `room.function: subject: got X, need Y; hint`.
// `where` is `room.function`; an empty `need` or `hint` leaves its part out.
inline std::unexpected<Error> fail(ErrorCode code, std::string_view where, std::string_view subject,
                                   std::string_view got, std::string_view need,
                                   std::string_view hint = {}) {
  std::string message = fmt::format("{}: {}: got {}", where, subject, got);
  if (!need.empty()) message += fmt::format(", need {}", need);
  if (!hint.empty()) message += fmt::format("; {}", hint);
  return std::unexpected(Error{code, std::move(message)});
}

}  // namespace packstone

#define PACKSTONE_CONCAT_INNER(a, b) a##b
#define PACKSTONE_CONCAT(a, b) PACKSTONE_CONCAT_INNER(a, b)

// PACKSTONE_TRY(auto x, f()) declares x from f()'s value, or returns f()'s error.
#define PACKSTONE_TRY(declaration, expression)                                   \
  auto PACKSTONE_CONCAT(result_, __LINE__) = (expression);                       \
  if (!PACKSTONE_CONCAT(result_, __LINE__))                                      \
    return std::unexpected(std::move(PACKSTONE_CONCAT(result_, __LINE__)).error()); \
  declaration = *std::move(PACKSTONE_CONCAT(result_, __LINE__))

// PACKSTONE_CHECK_OK(f()) returns f()'s error, if any, and drops its value.
#define PACKSTONE_CHECK_OK(expression)                                           \
  do {                                                                           \
    if (auto status_ = (expression); !status_)                                   \
      return std::unexpected(std::move(status_).error());                        \
  } while (false)
