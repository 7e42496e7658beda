#include "packstone/checkpoint/content_hash.h"

#include <fcntl.h>
#include <openssl/evp.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <memory>
#include <numeric>

#include "packstone/container/folder_files.h"
#include "packstone/container/names.h"

namespace packstone {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kWhere = "checkpoint.content_hash";
constexpr std::size_t kBufferBytes = std::size_t{256} << 10;
constexpr std::size_t kDigestBytes = 32;
// The largest folders hold a few hundred files.
constexpr std::size_t kFilesMax = 100'000;

using Digest = std::array<unsigned char, kDigestBytes>;

std::string hex(const Digest& digest) {
  std::string text;
  for (const unsigned char byte : digest) text += fmt::format("{:02x}", byte);
  return text;
}

// One running sum. OpenSSL allocates: every step may fail.
class Sum {
 public:
  Sum() : context_(EVP_MD_CTX_new()) {}
  ~Sum() { EVP_MD_CTX_free(context_); }
  Sum(const Sum&) = delete;
  Sum& operator=(const Sum&) = delete;
  bool start() {
    return context_ != nullptr && EVP_DigestInit_ex(context_, EVP_sha256(), nullptr) == 1;
  }
  bool add(const void* data, std::size_t size) {
    return EVP_DigestUpdate(context_, data, size) == 1;
  }
  bool end(Digest& digest) { return EVP_DigestFinal_ex(context_, digest.data(), nullptr) == 1; }

 private:
  EVP_MD_CTX* context_;
};

enum class Outcome : std::uint8_t { kOk, kErrno, kSpecial, kChanged, kMemory, kCancelled };

// What one range came to; no allocation, so that it can be filled in a task.
struct Job {
  Outcome outcome = Outcome::kOk;
  int error = 0;
  Digest digest{};
};

class Descriptor {
 public:
  explicit Descriptor(const fs::path& path)
      : fd_(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK)) {}
  ~Descriptor() {
    if (fd_ >= 0) ::close(fd_);
  }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  int get() const { return fd_; }

 private:
  int fd_;
};

// Reads ranges into one buffer; one of these a thread.
class RangeReader {
 public:
  RangeReader(const std::atomic<bool>* cancel, std::atomic<std::uint64_t>& done)
      : cancel_(cancel), done_(done), buffer_(kBufferBytes) {}

  // `tick` is called after every piece.
  template <class Tick>
  void read(const FileRange& range, Job& job, const Tick& tick) {
    if (cancel_ != nullptr && cancel_->load(std::memory_order_relaxed)) {
      job.outcome = Outcome::kCancelled;
      return;
    }
    const Descriptor file(range.path);
    struct stat status{};
    if (file.get() < 0 || ::fstat(file.get(), &status) != 0) {
      job = {Outcome::kErrno, errno, {}};
      return;
    }
    if (!S_ISREG(status.st_mode)) {
      job.outcome = Outcome::kSpecial;
      return;
    }
    job.outcome = sum_.start() ? Outcome::kOk : Outcome::kMemory;
    std::uint64_t left = range.bytes;
    while (left > 0 && job.outcome == Outcome::kOk) {
      const auto want = static_cast<std::size_t>(std::min<std::uint64_t>(left, buffer_.size()));
      read_piece(file.get(), range.offset + (range.bytes - left), want, job);
      left -= want;
      done_.fetch_add(want, std::memory_order_relaxed);
      tick();
      if (cancel_ != nullptr && cancel_->load(std::memory_order_relaxed))
        job.outcome = Outcome::kCancelled;
    }
    if (job.outcome != Outcome::kOk) return;
    char rest = 0;
    if (range.whole && ::pread(file.get(), &rest, 1, static_cast<off_t>(range.bytes)) != 0)
      job.outcome = Outcome::kChanged;
    else if (!sum_.end(job.digest))
      job.outcome = Outcome::kMemory;
  }

 private:
  void read_piece(int fd, std::uint64_t offset, std::size_t want, Job& job) {
    std::size_t have = 0;
    while (have < want) {
      const ssize_t count =
          ::pread(fd, buffer_.data() + have, want - have, static_cast<off_t>(offset + have));
      if (count < 0 && errno == EINTR) continue;
      if (count < 0) {
        job = {Outcome::kErrno, errno, {}};
        return;
      }
      if (count == 0) {
        job.outcome = Outcome::kChanged;
        return;
      }
      have += static_cast<std::size_t>(count);
    }
    if (!sum_.add(buffer_.data(), want)) job.outcome = Outcome::kMemory;
  }

  const std::atomic<bool>* cancel_;
  std::atomic<std::uint64_t>& done_;
  std::vector<unsigned char> buffer_;
  Sum sum_;
};

Status job_status(const Job& job, const FileRange& range) {
  const std::string subject = shown_path(range.path);
  switch (job.outcome) {
    case Outcome::kOk:
      return {};
    case Outcome::kErrno:
      return fail(job.error == ENOENT ? ErrorCode::kNotFound : ErrorCode::kIo, kWhere, subject,
                  std::strerror(job.error), "a readable file");
    case Outcome::kSpecial:
      return fail(ErrorCode::kIo, kWhere, subject, "a folder or special file", "a regular file");
    case Outcome::kChanged:
      return fail(ErrorCode::kIo, kWhere, subject, "another size than when it was opened",
                  "a file that stays as it is");
    case Outcome::kMemory:
      return fail(ErrorCode::kExhausted, kWhere, subject, "too little memory", "memory for a sum");
    case Outcome::kCancelled:
      return fail(ErrorCode::kCancelled, kWhere, subject, "an interrupt", "");
  }
  return {};
}

bool holds_weights(const Checkpoint& checkpoint, std::string_view name) {
  return std::ranges::any_of(checkpoint.weight_files(),
                             [&](const fs::path& file) { return file.filename() == name; });
}

Result<std::vector<CheckpointFile>> folder_files(const Checkpoint& checkpoint,
                                                 std::string_view leave_out) {
  const fs::path& folder = checkpoint.path;
  std::vector<CheckpointFile> files;
  std::error_code error;
  fs::directory_iterator it(folder, error);
  for (const fs::directory_iterator end; !error && it != end; it.increment(error)) {
    const std::string name = it->path().filename().string();
    if (name == leave_out || (name.starts_with('.') && !holds_weights(checkpoint, name))) continue;
    const Result<fs::path> path = internal::sibling_file(kWhere, shown_path(folder), folder, name);
    std::error_code code;
    if (!path || !fs::is_regular_file(*path, code)) continue;
    const std::uint64_t bytes = fs::file_size(*path, code);
    if (code)
      return fail(ErrorCode::kIo, kWhere, shown_path(*path), code.message(), "a readable file");
    if (files.size() == kFilesMax)
      return fail(ErrorCode::kExhausted, kWhere, shown_path(folder), "more files",
                  fmt::format("at most {}", kFilesMax));
    files.push_back({name, *path, bytes});
  }
  if (error)
    return fail(ErrorCode::kIo, kWhere, shown_path(folder), error.message(), "a readable folder");
  std::ranges::sort(files, {}, &CheckpointFile::name);
  return files;
}

}  // namespace

std::string sha256_text(std::string_view bytes) {
  Digest digest{};
  if (EVP_Digest(bytes.data(), bytes.size(), digest.data(), nullptr, EVP_sha256(), nullptr) != 1)
    return {};
  return hex(digest);
}

Result<std::vector<std::string>> sha256_ranges(std::span<const FileRange> ranges, ThreadPool& pool,
                                               const HashWatch& watch) {
  // Long ranges first, so that the threads end together.
  std::vector<std::size_t> order(ranges.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::ranges::stable_sort(order, std::greater{}, [&](std::size_t i) { return ranges[i].bytes; });
  std::vector<Job> jobs(ranges.size());
  std::atomic<std::uint64_t> done{0};
  std::atomic<std::size_t> next{0};
  std::vector<std::unique_ptr<RangeReader>> readers;
  for (int i = 0; i < pool.size(); ++i)
    readers.push_back(std::make_unique<RangeReader>(watch.cancel, done));
  std::uint64_t told = 0;
  auto work = [&](std::int64_t begin, std::int64_t end, int worker) {
    const auto tick = [&] {
      if (worker != 0 || !watch.advanced) return;
      const std::uint64_t now = done.load(std::memory_order_relaxed);
      watch.advanced(now - told);
      told = now;
    };
    for (std::int64_t unit = begin; unit < end; ++unit)
      for (std::size_t i = next.fetch_add(1); i < order.size(); i = next.fetch_add(1))
        readers[static_cast<std::size_t>(worker)]->read(ranges[order[i]], jobs[order[i]], tick);
  };
  pool.parallel(pool.size(), 1, work);
  if (watch.advanced) watch.advanced(done.load() - told);
  std::vector<std::string> sums;
  for (std::size_t i = 0; i < jobs.size(); ++i) {
    PACKSTONE_CHECK_OK(job_status(jobs[i], ranges[i]));
    sums.push_back(hex(jobs[i].digest));
  }
  return sums;
}

Result<std::vector<CheckpointFile>> checkpoint_files(const Checkpoint& checkpoint,
                                                     std::string_view leave_out) {
  if (checkpoint.container == ContainerKind::kFolder) return folder_files(checkpoint, leave_out);
  std::vector<CheckpointFile> files;
  for (const fs::path& path : checkpoint.gguf.files) {
    std::error_code error;
    const std::uint64_t bytes = fs::file_size(path, error);
    if (error)
      return fail(ErrorCode::kIo, kWhere, shown_path(path), error.message(), "a readable file");
    files.push_back({std::to_string(files.size() + 1), path, bytes});
  }
  return files;
}

}  // namespace packstone
