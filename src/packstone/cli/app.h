// The program as a function: arguments in, exit code out.
#pragma once

#include <atomic>
#include <ostream>
#include <span>
#include <string>

#include "packstone/base/result.h"

namespace packstone::cli {

struct Streams {
  std::ostream& out;
  std::ostream& err;
  bool terminal = false;  // err is a terminal
};

// run_cli(arguments, streams, cancel) runs one command; `arguments` are those after the program's
// name. Every error is printed once on err as `room.function: subject: got X, need Y; hint`; with
// --json also as {"error": {"code", "message"}} on out.
// Returns the exit code: 0 done, 2 the call is wrong, 3 a value would change, 4 damaged input,
// 5 not supported, 6 out of a limit, 130 interrupted, 1 a defect of the program.
// Threads: one call at a time; `cancel` may be set from any thread.
int run_cli(std::span<const std::string> arguments, const Streams& streams,
            const std::atomic<bool>& cancel);

// The exit code of an error.
int exit_code(ErrorCode code);

// "invalid_input", "not_found", ...: the name of a code in JSON.
std::string_view error_code_name(ErrorCode code);

}  // namespace packstone::cli
