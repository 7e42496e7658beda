#include "packstone/container/file_map.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <string>

#include "packstone/container/names.h"

namespace packstone {
namespace {

class FileDescriptor {
 public:
  explicit FileDescriptor(int fd) : fd_(fd) {}
  ~FileDescriptor() {
    if (fd_ >= 0) ::close(fd_);
  }
  FileDescriptor(const FileDescriptor&) = delete;
  FileDescriptor& operator=(const FileDescriptor&) = delete;
  int get() const { return fd_; }

 private:
  int fd_;
};

std::unexpected<Error> fail_errno(std::string_view where, const std::filesystem::path& path) {
  const int error = errno;
  const bool absent = error == ENOENT || error == ENOTDIR;
  return fail(absent ? ErrorCode::kNotFound : ErrorCode::kIo, where, shown_path(path),
              absent ? "no such file" : std::strerror(error), "a readable file");
}

// The size of an open regular file.
Result<std::uint64_t> regular_size(std::string_view where, int fd,
                                   const std::filesystem::path& path) {
  struct stat status{};
  if (fd < 0 || ::fstat(fd, &status) != 0) return fail_errno(where, path);
  if (!S_ISREG(status.st_mode))
    return fail(ErrorCode::kIo, where, shown_path(path),
                S_ISDIR(status.st_mode) ? "a folder" : "a special file", "a regular file");
  return static_cast<std::uint64_t>(status.st_size);
}

// O_NONBLOCK: opening a named pipe must not wait for a writer.
int open_for_reading(const std::filesystem::path& path) {
  return ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
}

}  // namespace

Result<std::shared_ptr<const FileMap>> FileMap::open(const std::filesystem::path& path) {
  constexpr std::string_view kWhere = "container.FileMap.open";
  const FileDescriptor file(open_for_reading(path));
  PACKSTONE_TRY(const std::uint64_t size, regular_size(kWhere, file.get(), path));
  const auto map = std::make_shared<FileMap>(Private{});
  map->path_ = path;
  if (size > 0) {
    void* address = ::mmap(nullptr, size, PROT_READ, MAP_PRIVATE, file.get(), 0);
    if (address == MAP_FAILED) return fail_errno(kWhere, path);
    map->bytes_ = ByteSpan(static_cast<const std::byte*>(address), size);
  }
  return map;
}

FileMap::~FileMap() {
  if (!bytes_.empty()) ::munmap(const_cast<std::byte*>(bytes_.data()), bytes_.size());
}

Result<std::string> read_text(const std::filesystem::path& path, std::uint64_t bytes_max) {
  constexpr std::string_view kWhere = "container.read_text";
  const FileDescriptor file(open_for_reading(path));
  PACKSTONE_TRY(const std::uint64_t size, regular_size(kWhere, file.get(), path));
  if (size > bytes_max)
    return fail(ErrorCode::kExhausted, kWhere, shown_path(path), fmt::format("{} bytes", size),
                fmt::format("at most {}", bytes_max));
  std::string text(size, '\0');
  std::size_t have = 0;
  while (have < text.size()) {
    const ssize_t count = ::read(file.get(), text.data() + have, text.size() - have);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return fail_errno(kWhere, path);
    if (count == 0) break;  // the file became shorter while it was read
    have += static_cast<std::size_t>(count);
  }
  text.resize(have);
  return text;
}

}  // namespace packstone
