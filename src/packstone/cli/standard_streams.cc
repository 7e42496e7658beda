#include "packstone/cli/standard_streams.h"

#include <fcntl.h>
#include <unistd.h>

namespace packstone::cli {

void reserve_standard_streams() {
  for (int stream = STDIN_FILENO; stream <= STDERR_FILENO; ++stream) {
    if (::fcntl(stream, F_GETFD) != -1) continue;
    // open gives the lowest free number, which is this one; its mode is the one nobody uses.
    if (::open("/dev/null", stream == STDIN_FILENO ? O_WRONLY : O_RDONLY) < 0) return;
  }
}

}  // namespace packstone::cli
