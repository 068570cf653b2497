#include "io/file.h"

#include <errno.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <stdio.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <string_view>

#include "io/cut_files.h"
#include "support/test_dir.h"

// Stands in for the C library in this program: one named call fails with `err` as long as a Fault lives.
namespace {
struct Fault {
  static inline std::string_view call;
  static inline int err = 0;
  Fault(std::string_view c, int e) { call = c, err = e; }
  ~Fault() { call = {}; }
  static bool hits(std::string_view c) { return c == call && (errno = err, true); }
};
}  // namespace

extern "C" {
ssize_t write(int fd, const void* p, size_t n) {
  return Fault::hits("write") ? -1 : syscall(SYS_write, fd, p, n);
}
int fsync(int fd) { return Fault::hits("fsync") ? -1 : static_cast<int>(syscall(SYS_fsync, fd)); }
int linkat(int a, const char* from, int b, const char* to, int flags) noexcept {
  return Fault::hits("linkat") ? -1 : static_cast<int>(syscall(SYS_linkat, a, from, b, to, flags));
}
int renameat2(int a, const char* from, int b, const char* to, unsigned flags) noexcept {
  return Fault::hits("renameat2") ? -1 : static_cast<int>(syscall(SYS_renameat2, a, from, b, to, flags));
}
}

namespace braid {
namespace {

using Names = std::vector<std::string>;

TEST(MappedFile, ShowsTheBytesOfAFileAndSurvivesAMove) {
  TestDir dir;
  put(dir / "a", "hello");
  auto file = MappedFile::open(dir / "a");
  ASSERT_TRUE(file) << what(file);
  MappedFile moved = *std::move(file);
  EXPECT_EQ(moved.bytes().size(), 5u);
  EXPECT_EQ(static_cast<char>(moved.bytes()[4]), 'o');
  put(dir / "empty", "");
  auto empty = MappedFile::open(dir / "empty");
  ASSERT_TRUE(empty) << what(empty);
  EXPECT_TRUE(empty->bytes().empty());
  moved = *std::move(empty);
  EXPECT_TRUE(moved.bytes().empty());
}

TEST(MappedFile, NamesThePathAndTheReasonOfAFailure) {
  TestDir dir;
  EXPECT_TRUE(has(what(MappedFile::open(dir / "none")), (dir / "none") + ": cannot be opened: No such file"));
  EXPECT_TRUE(has(what(MappedFile::open(dir.path())), dir.path() + ": is a directory"));
  EXPECT_TRUE(has(what(MappedFile::open("/dev/null")), "/dev/null: is not a regular file"));
  ASSERT_EQ(mkfifo((dir / "pipe").c_str(), 0600), 0);
  EXPECT_TRUE(
      has(what(MappedFile::open(dir / "pipe")), "not a regular file"));  // and does not wait for a writer
}

TEST(ReadText, ReadsUpToItsLimit) {
  TestDir dir;
  const std::string text(100000, 'x');
  put(dir / "a", text);
  EXPECT_EQ(*read_text(dir / "a"), text);
  EXPECT_EQ(*read_text(dir / "a", 100000), text);
  EXPECT_TRUE(has(what(read_text(dir / "a", 99999)), "longer than the limit of 99999 bytes"));
  EXPECT_TRUE(has(what(read_text("/dev/zero", 1000)), "longer than the limit"));
  EXPECT_TRUE(has(what(read_text(dir / "none")), "No such file"));
  EXPECT_TRUE(has(what(read_text(dir.path())), "Is a directory"));
}

TEST(AtomicFile, ReplacesTheFileOnlyOnCommit) {
  TestDir dir;
  put(dir / "a", "old");
  {
    auto file = AtomicFile::open(dir / "a");
    ASSERT_TRUE(file) << what(file);
    EXPECT_TRUE(file->write("new "));
    EXPECT_TRUE(file->write("text"));
    EXPECT_EQ(get(dir / "a"), "old");
    EXPECT_TRUE(file->commit());
    EXPECT_EQ(get(dir / "a"), "new text");
  }
  EXPECT_EQ(get(dir / "a"), "new text");
  EXPECT_EQ(dir.files(), Names{"a"});
}

TEST(AtomicFile, WithoutCommitLeavesNoTrace) {
  TestDir dir;
  put(dir / "a", "old");
  {
    auto file = AtomicFile::open(dir / "a");
    ASSERT_TRUE(file) << what(file);
    EXPECT_TRUE(file->write("new"));
    AtomicFile moved = *std::move(file);
    EXPECT_TRUE(moved.write("er"));
    EXPECT_EQ(dir.files().size(), 2u);
  }
  EXPECT_EQ(get(dir / "a"), "old");
  EXPECT_EQ(dir.files(), Names{"a"});
}

TEST(AtomicFile, AFullDiskKeepsTheOldFileAndSaysSo) {
  TestDir dir;
  put(dir / "a", "old");
  for (const std::string_view call : {"write", "fsync"}) {
    Status s;
    {
      const Fault fault(call, ENOSPC);
      s = write_atomic(dir / "a", "new");
    }
    EXPECT_TRUE(has(what(s), (dir / "a") + ": cannot be written: No space left on device"));
    EXPECT_TRUE(
        has(what(s), "free some space or choose another folder; an earlier file of this name is unchanged"));
    EXPECT_EQ(get(dir / "a"), "old");
    EXPECT_EQ(dir.files(), Names{"a"});
  }
}

TEST(AtomicFile, AWriteThatFailsHalfwayCannotBeCommitted) {
  TestDir dir;
  put(dir / "a", "old");
  rlimit before;
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &before), 0);
  const auto handler = signal(SIGXFSZ, SIG_IGN);
  const rlimit small{4096, before.rlim_max};
  auto file = AtomicFile::open(dir / "a");
  ASSERT_TRUE(file) << what(file);
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &small), 0);
  const Status written = file->write(std::string(100000, 'x'));  // the first 4096 bytes get through
  setrlimit(RLIMIT_FSIZE, &before);
  signal(SIGXFSZ, handler);
  EXPECT_TRUE(has(what(written), "File too large"));
  EXPECT_TRUE(has(what(written), "ulimit -f"));
  EXPECT_EQ(what(file->write("more")), what(written));
  EXPECT_EQ(what(file->commit()), what(written));
  EXPECT_EQ(get(dir / "a"), "old");
  EXPECT_EQ(dir.files(), Names{"a"});
}

TEST(AtomicFile, RefusesTargetsThatARenameWouldHarm) {
  TestDir dir;
  EXPECT_TRUE(has(what(write_atomic(dir.path(), "x")), "is a directory"));
  EXPECT_TRUE(has(what(write_atomic(dir.path() + "/", "x")), "not the name of a file"));
  EXPECT_TRUE(has(what(write_atomic("", "x")), "not the name of a file"));
  ASSERT_EQ(mkfifo((dir / "pipe").c_str(), 0600), 0);
  EXPECT_TRUE(has(what(write_atomic(dir / "pipe", "x")), "not a regular file"));
  EXPECT_TRUE(has(what(write_atomic(dir / "no/a", "x")), "there is no folder " + (dir / "no")));
  put(dir / "file", "");
  EXPECT_TRUE(has(what(write_atomic(dir / "file/a", "x")), "Not a directory"));
}

TEST(AtomicFile, WritesNamesAsLongAsTheFileSystemAllows) {
  TestDir dir;
  const std::string name(255, 'n');
  EXPECT_TRUE(write_atomic(dir / name, "x"));
  EXPECT_EQ(get(dir / name), "x");
}

TEST(Dirs, AreMadeWithParentsAndRemovedWithContents) {
  TestDir dir;
  EXPECT_TRUE(make_dirs(dir / "a/b/c"));
  EXPECT_TRUE(make_dirs(dir / "a/b/c/"));
  put(dir / "a/b/f", "x");
  put(dir / "kept", "x");
  std::filesystem::create_symlink(dir / "kept", dir / "a/link");
  EXPECT_TRUE(has(what(make_dirs(dir / "a/b/f")), (dir / "a/b/f") + ": cannot be created"));
  EXPECT_TRUE(has(what(make_dirs(dir / "a/b/f/g")), "Not a directory"));
  EXPECT_TRUE(remove_tree(dir / "a/"));
  EXPECT_TRUE(remove_tree(dir / "a"));
  EXPECT_EQ(dir.files(), Names{"kept"});
  for (const char* bad : {"", "/", "//", ".", "..", "x/../..", "./"})
    EXPECT_TRUE(has(what(remove_tree(bad)), "is not removed")) << bad;
}

TEST(CommitDir, MovesAFinishedFolderIntoPlace) {
  TestDir dir;
  ASSERT_TRUE(make_dirs(dir / "tmp/sub"));
  put(dir / "tmp/sub/f", "new");
  EXPECT_TRUE(commit_dir(dir / "tmp/", dir / "final"));
  EXPECT_EQ(dir.files(), Names{"final"});
  EXPECT_EQ(get(dir / "final/sub/f"), "new");
}

TEST(CommitDir, ReplacesAnOldFolderWithAndWithoutSwapping) {
  for (const bool swaps : {true, false}) {
    TestDir dir;
    ASSERT_TRUE(make_dirs(dir / "tmp") && make_dirs(dir / "final"));
    put(dir / "tmp/f", "new");
    put(dir / "final/f", "old");
    put(dir / "final/g", "old");
    const Fault fault(swaps ? "" : "renameat2", EINVAL);
    EXPECT_TRUE(commit_dir(dir / "tmp", dir / "final"));
    EXPECT_EQ(dir.files(), Names{"final"});
    EXPECT_EQ(get(dir / "final/f"), "new");
    EXPECT_FALSE(std::filesystem::exists(dir / "final/g"));
  }
}

TEST(CommitDir, AFailureKeepsBothFolders) {
  TestDir dir;
  ASSERT_TRUE(make_dirs(dir / "tmp") && make_dirs(dir / "final"));
  put(dir / "tmp/f", "new");
  put(dir / "final/f", "old");
  for (const std::string_view call : {"fsync", "renameat2"}) {
    const Fault fault(call, EIO);
    EXPECT_TRUE(has(what(commit_dir(dir / "tmp", dir / "final")), "Input/output error"));
    EXPECT_EQ(get(dir / "tmp/f") + get(dir / "final/f"), "newold");
  }
  EXPECT_TRUE(has(what(commit_dir(dir / "none", dir / "final")), "No such file"));
  EXPECT_TRUE(has(what(commit_dir(dir / "tmp/f", dir / "final")), "Not a directory"));
  EXPECT_TRUE(has(what(commit_dir(dir / "tmp", dir / "final/f")), "Not a directory"));
  EXPECT_EQ(get(dir / "tmp/f") + get(dir / "final/f"), "newold");
}

TEST(LinkOrCopy, LinksWhereItCanAndCopiesElsewhere) {
  for (const bool links : {true, false}) {
    TestDir dir;
    put(dir / "from", "new");
    put(dir / "to", "old");
    const Fault fault(links ? "" : "linkat", EPERM);
    EXPECT_TRUE(link_or_copy_atomic(dir / "from", dir / "to"));
    EXPECT_TRUE(link_or_copy_atomic(dir / "from", dir / "to"));  // again, onto itself
    EXPECT_EQ(get(dir / "to"), "new");
    EXPECT_EQ(std::filesystem::equivalent(dir / "from", dir / "to"), links);
    EXPECT_EQ(dir.files(), (Names{"from", "to"}));
  }
}

TEST(LinkOrCopy, AFailureKeepsTheOldFile) {
  TestDir dir;
  put(dir / "to", "old");
  EXPECT_TRUE(has(what(link_or_copy_atomic(dir / "from", dir / "to")),
                  (dir / "from") + ": cannot be opened: No such file"));
  EXPECT_TRUE(has(what(link_or_copy_atomic(dir.path(), dir / "to")), "is a directory"));
  EXPECT_TRUE(has(what(link_or_copy_atomic(dir / "to", dir.path())), "is a directory"));
  EXPECT_EQ(get(dir / "to"), "old");
  EXPECT_EQ(dir.files(), Names{"to"});
}

TEST(LinkOrCopy, FollowsALinkToItsFile) {
  TestDir dir;
  put(dir / "file", "x");
  std::filesystem::create_symlink("file", dir / "link");
  EXPECT_TRUE(link_or_copy_atomic(dir / "link", dir / "to"));
  EXPECT_FALSE(std::filesystem::is_symlink(dir / "to"));
  EXPECT_EQ(get(dir / "to"), "x");
}

TEST(Paths, WhatCannotBeLookedAtIsNotThere) {
  TestDir dir;
  std::filesystem::create_symlink("loop", dir / "loop");
  put(dir / "b", "");
  put(dir / "a", "");
  EXPECT_TRUE(path_exists(dir / "a"));
  for (const std::string& path :
       {dir / "loop", dir / std::string(300, 'x'), dir / "a/b", std::string(10'000, 'y')}) {
    EXPECT_FALSE(path_exists(path));
    EXPECT_TRUE(names_in(path).empty());
  }
  EXPECT_EQ(names_in(dir.path()), (std::vector<std::string>{"a", "b", "loop"}));
}

// Another program cuts a file that is mapped: a message with its name, and an end with 1.
TEST(CutFilesDeathTest, AreNamedAndEndTheProgram) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  TestDir dir;
  put(dir / "other", std::string(100'000, 'x'));
  put(dir / "model.safetensors", std::string(100'000, 'x'));
  EXPECT_EXIT(
      {
        report_cut_files();
        const auto other = MappedFile::open(dir / "other");
        auto first = MappedFile::open(dir / "model.safetensors");
        const MappedFile moved = *std::move(first);
        if (truncate((dir / "model.safetensors").c_str(), 4096) != 0) _exit(2);
        const volatile std::byte* bytes = moved.bytes().data();
        (void)bytes[100];  // is still there
        (void)bytes[90'000];
        _exit(3);
      },
      testing::ExitedWithCode(1), "braid: .*model.safetensors: was cut short");
}

}  // namespace
}  // namespace braid
