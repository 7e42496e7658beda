// Proves that outputs are whole or absent: on success, on every way out, when the disk is full, and
// when an existing folder is replaced.
#include "packstone/container/output_file.h"

#include <fcntl.h>
#include <sys/resource.h>
#include <unistd.h>

#include <csignal>

#include "packstone/container/file_map.h"
#include "packstone/container/output_file_internal.h"
#include "packstone/container/test_files.h"

namespace packstone {
namespace {

using namespace testing_files;
namespace fs = std::filesystem;

ByteSpan bytes_of(std::string_view text) {
  return std::as_bytes(std::span(text));
}

std::string content(const fs::path& path) {
  return read_text(path, 1 << 30).value_or("unreadable");
}

using Names = std::vector<std::string>;

TEST(OutputFile, AppearsAtCommitAndNotBefore) {
  const ScratchFolder folder;
  const auto path = folder.file("out", "before");
  auto file = OutputFile::create(path);
  PACKSTONE_ASSERT_OK(file);
  std::string written;
  for (const std::size_t piece : {0, 1, 262'143, 1, 262'144, 262'145, 5}) {
    const std::string text(piece, static_cast<char>('a' + piece % 26));
    PACKSTONE_ASSERT_OK(file->write(bytes_of(text)));
    written += text;
    EXPECT_EQ(file->size(), written.size());
  }
  EXPECT_EQ(content(path), "before");
  EXPECT_EQ(folder.names(), (Names{fmt::format(".out.tmp-{}", ::getpid()), "out"}));
  EXPECT_EQ(internal::unfinished_outputs(), 1u);
  PACKSTONE_ASSERT_OK(file->commit());
  EXPECT_EQ(internal::unfinished_outputs(), 0u);
  EXPECT_EQ(folder.names(), Names{"out"});
  EXPECT_EQ(content(path), written);
  expect_refused(file->commit(), ErrorCode::kIo, {"an open output"});
  expect_refused(file->write(bytes_of("x")), ErrorCode::kIo, {"an open output"});
}

TEST(OutputFile, IsRemovedOnAnyOtherWayOut) {
  const ScratchFolder folder;
  {
    auto a = OutputFile::create(folder.path() / "a");
    PACKSTONE_ASSERT_OK(a);
    auto b = OutputFile::create(folder.path() / "b");
    PACKSTONE_ASSERT_OK(b);
    *a = std::move(*b);  // drops a's file
    EXPECT_EQ(folder.names().size(), 1u);
  }
  EXPECT_TRUE(folder.names().empty());
  EXPECT_EQ(internal::unfinished_outputs(), 0u);
}

TEST(OutputFile, TwoOfOneTargetAndLeftoversDoNotMeet) {
  const ScratchFolder folder;
  folder.file(fmt::format(".out.tmp-{}", ::getpid()), "left by a process of the same id");
  auto a = OutputFile::create(folder.path() / "out");
  auto b = OutputFile::create(folder.path() / "out");
  PACKSTONE_ASSERT_OK(a);
  PACKSTONE_ASSERT_OK(b);
  PACKSTONE_ASSERT_OK(a->write(bytes_of("first")));
  PACKSTONE_ASSERT_OK(b->write(bytes_of("second")));
  PACKSTONE_ASSERT_OK(b->commit());
  PACKSTONE_ASSERT_OK(a->commit());
  EXPECT_EQ(content(folder.path() / "out"), "first");
}

TEST(OutputFile, BadTargetsAreRefused) {
  const ScratchFolder folder;
  expect_refused(OutputFile::create(folder.path() / "none" / "out"), ErrorCode::kIo, {"out"});
  expect_refused(OutputFile::create(""), ErrorCode::kInvalidInput);
  expect_refused(OutputFile::create("/"), ErrorCode::kInvalidInput);
  expect_refused(OutputFile::create(folder.path() / ".."), ErrorCode::kInvalidInput);
  fs::create_directories(folder.path() / "sub" / "full");
  {
    auto file = OutputFile::create(folder.path() / "sub");
    PACKSTONE_ASSERT_OK(file);
    expect_refused(file->commit(), ErrorCode::kIo, {"sub"});
  }
  EXPECT_EQ(folder.names(), Names{"sub"});
  PACKSTONE_ASSERT_OK(OutputFile::create(folder.path() / std::string(255, 'n')));
}

TEST(OutputFile, FullDiskIsExhausted) {
  const int fd = ::open("/dev/full", O_WRONLY | O_CLOEXEC);
  ASSERT_GE(fd, 0);
  expect_refused(internal::write_fully(fd, bytes_of("x"), "out"), ErrorCode::kExhausted,
                 {" out: ", "free some space"});
  ::close(fd);
}

TEST(OutputFile, FileSizeLimitIsExhaustedAndLeavesNothing) {
  const ScratchFolder folder;
  auto file = OutputFile::create(folder.path() / "out");
  PACKSTONE_ASSERT_OK(file);
  const auto old_handler = std::signal(SIGXFSZ, SIG_IGN);
  rlimit old_limit{};
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &old_limit), 0);
  const rlimit small{.rlim_cur = 1 << 20, .rlim_max = old_limit.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &small), 0);
  const std::string text((1 << 20) + 1, 'x');
  const Status status = file->write(bytes_of(text));
  const Status after = file->commit();
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &old_limit), 0);
  std::signal(SIGXFSZ, old_handler);
  expect_refused(status, ErrorCode::kExhausted, {"out"});
  expect_refused(after, ErrorCode::kIo, {"failed"});
  file = OutputFile::create(folder.path() / "out");
  EXPECT_EQ(folder.names().size(), 1u);
}

TEST(OutputFolder, AppearsWholeAtCommit) {
  const ScratchFolder scratch;
  const auto target = scratch.path() / "model";
  {
    auto folder = OutputFolder::create(target, false);
    PACKSTONE_ASSERT_OK(folder);
    PACKSTONE_ASSERT_OK(folder->write_text("config.json", "{}"));
    auto file = OutputFile::create(folder->path() / "model.safetensors");
    PACKSTONE_ASSERT_OK(file);
    PACKSTONE_ASSERT_OK(file->write(bytes_of("w")));
    PACKSTONE_ASSERT_OK(file->commit());
    EXPECT_FALSE(fs::exists(target));
    expect_refused(folder->write_text("../escape", ""), ErrorCode::kInvalidInput, {"plain file"});
    PACKSTONE_ASSERT_OK(folder->commit());
    expect_refused(folder->commit(), ErrorCode::kIo, {"second commit"});
  }
  EXPECT_EQ(scratch.names(), Names{"model"});
  EXPECT_EQ(content(target / "config.json"), "{}");
  EXPECT_EQ(content(target / "model.safetensors"), "w");
}

TEST(OutputFolder, ReplacesOnlyWhenAsked) {
  const ScratchFolder scratch;
  const auto target = scratch.path() / "model";
  fs::create_directories(target / "old");
  expect_refused(OutputFolder::create(target, false), ErrorCode::kInvalidInput, {"exists"});
  expect_refused(OutputFolder::create(target / "", false), ErrorCode::kInvalidInput, {"exists"});
  {
    auto folder = OutputFolder::create(target, true);
    PACKSTONE_ASSERT_OK(folder);
    PACKSTONE_ASSERT_OK(folder->write_text("new", "x"));
    EXPECT_TRUE(fs::exists(target / "old"));
  }
  EXPECT_TRUE(fs::exists(target / "old"));  // given up: the old one stays
  auto folder = OutputFolder::create(target / "", true);
  PACKSTONE_ASSERT_OK(folder);
  PACKSTONE_ASSERT_OK(folder->write_text("new", "x"));
  PACKSTONE_ASSERT_OK(folder->commit());
  EXPECT_FALSE(fs::exists(target / "old"));
  EXPECT_EQ(content(target / "new"), "x");
  EXPECT_EQ(scratch.names(), Names{"model"});
}

TEST(OutputFolder, KeepsATargetThatAppearedMeanwhile) {
  const ScratchFolder scratch;
  const auto target = scratch.path() / "model";
  {
    auto folder = OutputFolder::create(target, false);
    PACKSTONE_ASSERT_OK(folder);
    fs::create_directories(target);
    expect_refused(folder->commit(), ErrorCode::kIo, {"appeared meanwhile"});
  }
  EXPECT_EQ(scratch.names(), Names{"model"});
}

TEST(OutputFolder, NeverReplacesTheCurrentFolderOrOneAbove) {
  for (const fs::path& path : {fs::current_path(), fs::current_path().parent_path()})
    expect_refused(OutputFolder::create(path, true), ErrorCode::kInvalidInput);
  expect_refused(OutputFolder::create("/", true), ErrorCode::kInvalidInput);
  expect_refused(OutputFolder::create(".", true), ErrorCode::kInvalidInput);
}

TEST(Outputs, RemoveUnfinishedOutputsRemovesAll) {
  const ScratchFolder scratch;
  auto file = OutputFile::create(scratch.path() / "a");
  PACKSTONE_ASSERT_OK(file);
  auto folder = OutputFolder::create(scratch.path() / "b", false);
  PACKSTONE_ASSERT_OK(folder);
  PACKSTONE_ASSERT_OK(folder->write_text("x", "y"));
  EXPECT_EQ(internal::unfinished_outputs(), 2u);
  remove_unfinished_outputs();
  EXPECT_TRUE(scratch.names().empty());
  EXPECT_EQ(internal::unfinished_outputs(), 0u);
  expect_refused(file->commit(), ErrorCode::kIo);
  expect_refused(folder->commit(), ErrorCode::kIo);
}

}  // namespace
}  // namespace packstone
