#include <unistd.h>

#include <iostream>
#include <string>
#include <vector>

#include "packstone/cli/app.h"
#include "packstone/cli/interrupt.h"
#include "packstone/cli/standard_streams.h"

int main(int argc, char** argv) {
  packstone::cli::reserve_standard_streams();
  const std::atomic<bool>& cancel = packstone::cli::watch_interrupts();
  std::ios::sync_with_stdio(false);
  const std::vector<std::string> arguments(argv + (argc > 0 ? 1 : 0), argv + argc);
  return packstone::cli::run_cli(arguments, {std::cout, std::cerr, isatty(STDERR_FILENO) == 1},
                                 cancel);
}
