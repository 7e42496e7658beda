// The three streams a program is started with, of which a caller may have closed some.
#pragma once

namespace packstone::cli {

// Fills the numbers of closed standard streams, so that no file the program opens gets one of them
// and the text meant for the stream; reading or writing such a stream fails. Before any file is
// opened.
void reserve_standard_streams();

}  // namespace packstone::cli
