// A full disk, a place that cannot be written, and interrupts end with their exit code and leave
// nothing behind.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <functional>
#include <iostream>

#include "packstone/cli/interrupt.h"
#include "packstone/cli/standard_streams.h"
#include "packstone/cli/test_call.h"
#include "tests/support/tiny_checkpoint.h"

namespace packstone::cli {
namespace {

// Names in a folder, temporary ones included.
std::vector<std::string> names_in(const std::filesystem::path& folder) {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(folder))
    names.push_back(entry.path().filename().string());
  return names;
}

// The exit code of a child process that runs `work`; `parent` sees its id.
int in_child(const std::function<int()>& work, const std::function<void(pid_t)>& parent = {}) {
  const pid_t child = fork();
  if (child == 0) _exit(work());
  if (parent) parent(child);
  int status = 0;
  waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
}

class Faults : public ::testing::Test {
 protected:
  void SetUp() override {
    ASSERT_TRUE(tiny::write(folder_ / "model.gguf", tiny::gguf("llama")).has_value());
    std::filesystem::create_directories(folder_ / "out");
  }
  std::string path(std::string_view name) const { return (folder_ / name).string(); }
  std::vector<std::string> convert(std::string_view target) const {
    return {"convert", path("model.gguf"), path(target), "--to",
            target.ends_with(".gguf") ? "gguf:F32" : "float32"};
  }
  tiny::TemporaryFolder folder_;
};

TEST_F(Faults, AFullDiskIsSixAndLeavesNothing) {
  for (const char* target : {"out/x", "out/x.gguf"}) {
    const int code = in_child([&] {
      std::signal(SIGXFSZ, SIG_IGN);
      const rlimit limit{16384, 16384};
      setrlimit(RLIMIT_FSIZE, &limit);
      return call(convert(target)).code;
    });
    EXPECT_EQ(code, 6) << target;
    EXPECT_TRUE(names_in(folder_ / "out").empty()) << target;
  }
}

TEST_F(Faults, APlaceThatCannotBeWrittenIsTwo) {
  for (const char* target : {"/proc/packstone/x", "/proc/packstone.gguf"})
    EXPECT_EQ(call({"convert", path("model.gguf"), target, "--to", "gguf:F32"}).code, 2) << target;
}

// A file that takes the number of a closed stream would get the progress lines into its bytes.
TEST_F(Faults, ClosedStreamsWriteIntoNoOutput) {
  for (const int closed : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) {
    const int code = in_child([&] {
      close(closed);
      reserve_standard_streams();
      const int file = open(path("file").c_str(), O_WRONLY | O_CREAT, 0600);
      const bool apart = file > STDERR_FILENO;
      const bool fails = closed == STDIN_FILENO || write(closed, "x", 1) < 0;
      return apart && fails ? 0 : 1;
    });
    EXPECT_EQ(code, 0) << closed;
  }
}

// An error stream that sets the flag of an interrupt when a word passes.
class CancelAt : public std::stringbuf {
 public:
  CancelAt(std::string word, std::atomic<bool>& flag) : word_(std::move(word)), flag_(flag) {}

 protected:
  std::streamsize xsputn(const char* data, std::streamsize count) override {
    seen_.append(data, static_cast<std::size_t>(count));
    if (seen_.find(word_) != std::string::npos) flag_ = true;
    return count;
  }

 private:
  std::string word_, seen_;
  std::atomic<bool>& flag_;
};

// While the weights are written, and while the certificate is made.
TEST_F(Faults, AnInterruptWhileWritingLeavesNothing) {
  for (const char* word : {"predicted peak memory", "writing: done", "hashing"})
    for (const char* target : {"out/x", "out/x.gguf"}) {
      std::atomic<bool> cancel{false};
      CancelAt buffer(word, cancel);
      std::ostream err(&buffer);
      std::ostringstream out;
      const std::vector<std::string> words = convert(target);
      EXPECT_EQ(run_cli(words, {out, err, false}, cancel), 130) << word << target;
      EXPECT_TRUE(cancel);
      EXPECT_TRUE(names_in(folder_ / "out").empty()) << word << target;
    }
}

TEST_F(Faults, SignalsEndWith130) {
  for (const int signal : {SIGINT, SIGTERM}) {
    int ready[2];
    ASSERT_EQ(pipe(ready), 0);
    const int code = in_child(
        [&] {
          const std::atomic<bool>& cancel = watch_interrupts();
          if (write(ready[1], "r", 1) != 1) return 1;
          return call({"bench", "model", path("model.gguf"), "--repeats", "1000", "--prefill", "64",
                       "--decode", "100"},
                      &cancel)
              .code;
        },
        [&](pid_t child) {
          char byte = 0;
          EXPECT_EQ(read(ready[0], &byte, 1), 1);
          usleep(100'000);
          kill(child, signal);
        });
    EXPECT_EQ(code, 130) << signal;
    close(ready[0]);
    close(ready[1]);
  }
}

}  // namespace
}  // namespace packstone::cli
