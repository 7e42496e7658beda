// Folders made in memory, opened from a disk, for tests.
#pragma once

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "packstone/checkpoint/checkpoint.h"
#include "tests/support/tiny_checkpoint.h"

namespace packstone {

// Writes the folder and opens it.
inline Result<Checkpoint> reopen(const tiny::Folder& made) {
  const tiny::TemporaryFolder folder;
  const Status written = tiny::write(folder / "model", made);
  EXPECT_TRUE(written) << written.error().message;
  return open_checkpoint(folder / "model");
}

// The folder does not open; the error has this code and mentions all parts.
inline void expect_refused(const tiny::Folder& made, ErrorCode code,
                           const std::vector<std::string>& parts) {
  const Result<Checkpoint> checkpoint = reopen(made);
  ASSERT_FALSE(checkpoint) << "opened; expected an error about " << parts[0];
  EXPECT_EQ(checkpoint.error().code, code) << checkpoint.error().message;
  for (const std::string& part : parts)
    EXPECT_NE(checkpoint.error().message.find(part), std::string::npos)
        << checkpoint.error().message << " does not mention " << part;
}

}  // namespace packstone
