#include "packstone/container/output_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <mutex>
#include <set>
#include <vector>

#include "packstone/container/names.h"
#include "packstone/container/output_file_internal.h"

namespace packstone {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kBufferBytes = 1 << 18;
constexpr int kTemporaryNamesMax = 1000;

// Every temporary file and folder of the process. Never destroyed, so that it outlives all outputs.
struct Registry {
  std::mutex mutex;
  std::set<fs::path> paths;
};

Registry& registry() {
  // tidy: allow new: lives until the process ends, whatever the order of destructors
  static Registry* const instance = new Registry();
  return *instance;
}

void register_output(const fs::path& path) {
  const std::lock_guard lock(registry().mutex);
  registry().paths.insert(path);
}

void forget_output(const fs::path& path) {
  const std::lock_guard lock(registry().mutex);
  registry().paths.erase(path);
}

void remove_quietly(const fs::path& path) {
  std::error_code ignored;
  fs::remove_all(path, ignored);
}

std::unexpected<Error> fail_errno(int error, std::string_view where, const fs::path& path,
                                  std::string_view need) {
  const bool full = error == ENOSPC || error == EDQUOT || error == EFBIG;
  return fail(full ? ErrorCode::kExhausted : ErrorCode::kIo, where, shown_path(path),
              std::strerror(error), need, full ? "free some space, then retry" : "");
}

// The absolute target with its folder; nothing when path names no file in a folder.
Result<fs::path> absolute_target(std::string_view where, const fs::path& path) {
  std::error_code error;
  fs::path target = fs::absolute(path, error).lexically_normal();
  if (!error && !target.has_filename()) target = target.parent_path();
  if (error || path.empty() || !target.has_filename() || path.filename() == "." ||
      path.filename() == "..")
    return fail(ErrorCode::kInvalidInput, where, shown_path(path), "no name of a target",
                "a path that ends in a name");
  return target;
}

// `.name.tmp-<pid>` beside target; from the second try on with a number, because a process that was
// killed may have left one of the same process id.
fs::path temporary_name(const fs::path& target, std::string_view tag, int attempt) {
  constexpr std::size_t kNameBytesMax = 200;  // file systems allow 255 with the rest
  std::string name = "." + target.filename().string().substr(0, kNameBytesMax);
  name += fmt::format(".{}-{}", tag, static_cast<long>(::getpid()));
  if (attempt > 0) name += fmt::format("-{}", attempt);
  return target.parent_path() / name;
}

// Makes the first free temporary name with make(path) == 0 or errno EEXIST.
template <class Make>
Result<fs::path> make_temporary(std::string_view where, const fs::path& target,
                                std::string_view tag, Make make) {
  for (int attempt = 0; attempt < kTemporaryNamesMax; ++attempt) {
    fs::path path = temporary_name(target, tag, attempt);
    if (make(path)) return path;
    if (errno != EEXIST) break;
  }
  return fail_errno(errno, where, target, "a folder that can be written to");
}

// A rename is on the disk only when its folder is.
Status sync_folder(std::string_view where, const fs::path& folder) {
  const int fd = ::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0) return fail_errno(errno, where, folder, "a folder that can be opened");
  const int error = ::fsync(fd) == 0 ? 0 : errno;
  ::close(fd);
  // Some file systems have no sync of folders; the rename stands there all the same.
  if (error != 0 && error != EINVAL && error != ENOTSUP && error != ENOSYS)
    return fail_errno(error, where, folder, "a folder that can be synced");
  return {};
}

}  // namespace

namespace internal {

Status write_fully(int fd, ByteSpan bytes, const fs::path& path) {
  constexpr std::size_t kPieceBytes = std::size_t{1} << 30;  // Linux writes at most 2 GiB at a time
  while (!bytes.empty()) {
    const ssize_t count = ::write(fd, bytes.data(), std::min(bytes.size(), kPieceBytes));
    if (count < 0 && errno == EINTR) continue;
    if (count < 0)
      return fail_errno(errno, "container.OutputFile.write", path, "room for the output");
    bytes = bytes.subspan(static_cast<std::size_t>(count));
  }
  return {};
}

std::size_t unfinished_outputs() {
  const std::lock_guard lock(registry().mutex);
  return registry().paths.size();
}

}  // namespace internal

struct OutputFile::State {
  fs::path target;
  fs::path temporary;
  int fd = -1;
  std::uint64_t size = 0;
  std::vector<std::byte> buffer;
  bool failed = false;  // after a failed write the file has a hole: nothing may commit it
  bool finished = false;

  ~State() {
    if (fd >= 0) ::close(fd);
    if (temporary.empty()) return;
    remove_quietly(temporary);
    forget_output(temporary);
  }

  Status put(ByteSpan bytes) {
    Status status = internal::write_fully(fd, bytes, target);
    failed = failed || !status;
    return status;
  }
};

OutputFile::OutputFile(std::unique_ptr<State> state) : state_(std::move(state)) {}
OutputFile::OutputFile(OutputFile&&) noexcept = default;
OutputFile& OutputFile::operator=(OutputFile&&) noexcept = default;
OutputFile::~OutputFile() = default;

Result<OutputFile> OutputFile::create(const fs::path& path) {
  constexpr std::string_view kWhere = "container.OutputFile.create";
  auto state = std::make_unique<State>();
  PACKSTONE_TRY(state->target, absolute_target(kWhere, path));
  const auto make = [&state](const fs::path& name) {
    state->fd = ::open(name.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    return state->fd >= 0;
  };
  PACKSTONE_TRY(state->temporary, make_temporary(kWhere, state->target, "tmp", make));
  register_output(state->temporary);
  state->buffer.reserve(kBufferBytes);
  return OutputFile(std::move(state));
}

Status OutputFile::write(ByteSpan bytes) {
  State& state = *state_;
  if (state.failed || state.fd < 0)
    return fail(ErrorCode::kIo, "container.OutputFile.write", shown_path(state.target),
                "a write after a failure or the end", "an open output");
  state.size += bytes.size();
  if (state.buffer.size() + bytes.size() > kBufferBytes) {
    PACKSTONE_CHECK_OK(state.put(state.buffer));
    state.buffer.clear();
  }
  if (bytes.size() >= kBufferBytes) return state.put(bytes);
  state.buffer.insert(state.buffer.end(), bytes.begin(), bytes.end());
  return {};
}

std::uint64_t OutputFile::size() const {
  return state_->size;
}

const fs::path& OutputFile::path() const {
  return state_->temporary;
}

Status OutputFile::finish() {
  constexpr std::string_view kWhere = "container.OutputFile.finish";
  State& state = *state_;
  if (state.failed || state.fd < 0)
    return fail(ErrorCode::kIo, kWhere, shown_path(state.target),
                "an output that failed or ended before", "an open output");
  PACKSTONE_CHECK_OK(state.put(state.buffer));
  state.buffer.clear();
  state.failed = true;  // until all went well
  if (::fsync(state.fd) != 0)
    return fail_errno(errno, kWhere, state.target, "an output that reaches the disk");
  const int fd = std::exchange(state.fd, -1);
  if (::close(fd) != 0)
    return fail_errno(errno, kWhere, state.target, "an output that reaches the disk");
  state.finished = true;
  return {};
}

Status OutputFile::commit() {
  constexpr std::string_view kWhere = "container.OutputFile.commit";
  State& state = *state_;
  if (!state.finished) PACKSTONE_CHECK_OK(finish());
  if (state.temporary.empty())
    return fail(ErrorCode::kIo, kWhere, shown_path(state.target), "a second commit",
                "an open output");
  if (::rename(state.temporary.c_str(), state.target.c_str()) != 0)
    return fail_errno(errno, kWhere, state.target, "a target that can be replaced");
  forget_output(std::exchange(state.temporary, {}));
  return sync_folder(kWhere, state.target.parent_path());
}

struct OutputFolder::State {
  fs::path target;
  fs::path temporary;
  bool replace = false;

  ~State() {
    if (temporary.empty()) return;
    remove_quietly(temporary);
    forget_output(temporary);
  }
};

OutputFolder::OutputFolder(std::unique_ptr<State> state) : state_(std::move(state)) {}
OutputFolder::OutputFolder(OutputFolder&&) noexcept = default;
OutputFolder& OutputFolder::operator=(OutputFolder&&) noexcept = default;
OutputFolder::~OutputFolder() = default;

namespace {

bool is_present(const fs::path& path) {
  struct stat status{};
  return ::lstat(path.c_str(), &status) == 0;
}

// Whether the process stands in path or below it; such a folder is not replaced.
bool holds_current_folder(const fs::path& path) {
  std::error_code error;
  const fs::path current = fs::current_path(error);
  const fs::path target = fs::weakly_canonical(path, error);
  if (error) return true;
  const auto [at, unused] =
      std::mismatch(target.begin(), target.end(), current.begin(), current.end());
  return at == target.end();
}

}  // namespace

Result<OutputFolder> OutputFolder::create(const fs::path& target, bool replace) {
  constexpr std::string_view kWhere = "container.OutputFolder.create";
  auto state = std::make_unique<State>();
  PACKSTONE_TRY(state->target, absolute_target(kWhere, target));
  state->replace = replace;
  if (is_present(state->target) && !replace)
    return fail(ErrorCode::kInvalidInput, kWhere, shown_path(target), "a target that exists",
                "a new name", "or ask to replace it");
  if (holds_current_folder(state->target))
    return fail(ErrorCode::kInvalidInput, kWhere, shown_path(target),
                "the current folder or one above it", "another target");
  const auto make = [](const fs::path& name) { return ::mkdir(name.c_str(), 0777) == 0; };
  PACKSTONE_TRY(state->temporary, make_temporary(kWhere, state->target, "tmp", make));
  register_output(state->temporary);
  return OutputFolder(std::move(state));
}

const fs::path& OutputFolder::path() const {
  return state_->temporary;
}

Status OutputFolder::write_text(std::string_view name, std::string_view text) {
  if (!is_plain_file_name(name))
    return fail(ErrorCode::kInvalidInput, "container.OutputFolder.write_text", shown(name),
                "a path", "a plain file name");
  PACKSTONE_TRY(OutputFile file, OutputFile::create(state_->temporary / name));
  PACKSTONE_CHECK_OK(file.write(std::as_bytes(std::span(text))));
  return file.commit();
}

Status OutputFolder::commit() {
  constexpr std::string_view kWhere = "container.OutputFolder.commit";
  State& state = *state_;
  if (state.temporary.empty())
    return fail(ErrorCode::kIo, kWhere, shown_path(state.target), "a second commit", "one");
  PACKSTONE_CHECK_OK(sync_folder(kWhere, state.temporary));
  fs::path aside;
  if (is_present(state.target)) {
    if (!state.replace)
      return fail(ErrorCode::kIo, kWhere, shown_path(state.target),
                  "a target that appeared meanwhile", "a free name");
    const auto move = [&state](const fs::path& name) {
      if (is_present(name)) {
        errno = EEXIST;
        return false;
      }
      return ::rename(state.target.c_str(), name.c_str()) == 0;
    };
    PACKSTONE_TRY(aside, make_temporary(kWhere, state.target, "old", move));
  }
  if (::rename(state.temporary.c_str(), state.target.c_str()) != 0) {
    const int error = errno;
    if (!aside.empty() && ::rename(aside.c_str(), state.target.c_str()) != 0)
      return fail_errno(error, kWhere, state.target,
                        "a target that can be replaced; what it held"
                        " is in " +
                            shown_path(aside));
    return fail_errno(error, kWhere, state.target, "a target that can be replaced");
  }
  forget_output(std::exchange(state.temporary, {}));
  PACKSTONE_CHECK_OK(sync_folder(kWhere, state.target.parent_path()));
  if (!aside.empty()) remove_quietly(aside);
  return {};
}

void remove_unfinished_outputs() {
  std::set<fs::path> paths;
  {
    const std::lock_guard lock(registry().mutex);
    paths.swap(registry().paths);
  }
  for (const fs::path& path : paths) remove_quietly(path);
}

}  // namespace packstone
