// Output that is whole or absent: written under a temporary name beside its target, renamed at the
// end, removed on any other way out.
#pragma once

#include <filesystem>
#include <memory>
#include <string>

#include "packstone/base/bytes.h"
#include "packstone/base/result.h"

namespace packstone {

// A file under construction. Destroying it without commit removes it.
class OutputFile {
 public:
  // create(path) opens `.path.tmp-<pid>` beside path. Errors: kIo.
  static Result<OutputFile> create(const std::filesystem::path& path);
  OutputFile(OutputFile&&) noexcept;
  OutputFile& operator=(OutputFile&&) noexcept;
  ~OutputFile();

  // Appends. Errors: kExhausted when the disk is full, kIo otherwise.
  Status write(ByteSpan bytes);
  std::uint64_t size() const;
  // Where the bytes are until commit.
  const std::filesystem::path& path() const;
  // Flushes to the disk: what path() holds is whole, and nothing is written any more. Errors: kIo,
  // kExhausted.
  Status finish();
  // finish, if it was not called, and the rename to the target. Errors: kIo, kExhausted.
  Status commit();

 private:
  struct State;
  explicit OutputFile(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

// A folder under construction: files are written into `path()`; commit renames it to its target.
// With `replace`, an existing target is moved aside and removed only after the rename.
class OutputFolder {
 public:
  static Result<OutputFolder> create(const std::filesystem::path& target, bool replace);
  OutputFolder(OutputFolder&&) noexcept;
  OutputFolder& operator=(OutputFolder&&) noexcept;
  ~OutputFolder();

  const std::filesystem::path& path() const;
  Status write_text(std::string_view name, std::string_view text);
  Status commit();

 private:
  struct State;
  explicit OutputFolder(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

// Removes every temporary file and folder of this process; async-signal-unsafe, called by the
// command line when it stops on a signal after the worker has returned, and at exit.
void remove_unfinished_outputs();

}  // namespace packstone
