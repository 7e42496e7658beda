// Commands called inside the test's process.
#pragma once

#include <atomic>
#include <sstream>
#include <string>
#include <vector>

#include "packstone/cli/app.h"
#include "packstone/cli/output.h"

namespace packstone::cli {

struct Called {
  int code = -1;
  std::string out, err;
  Json json() const { return Json::parse(out, nullptr, false); }
};

// One call of the program; `cancel` as an interrupt would set it.
inline Called call(std::vector<std::string> arguments, const std::atomic<bool>* cancel = nullptr) {
  static const std::atomic<bool> never{false};
  std::ostringstream out, err;
  const int code = run_cli(arguments, {out, err, false}, cancel ? *cancel : never);
  return {code, out.str(), err.str()};
}

}  // namespace packstone::cli
