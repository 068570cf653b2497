#include "io/folder.h"

#include <filesystem>

#include "io/file.h"
#include "io/strict_json.h"
#include "support/test_dir.h"

namespace braid {
namespace {

namespace fs = std::filesystem;
using Names = std::vector<std::string>;

TEST(Folder, IsTakenOverOnlyIfItIsEmptyOrMarked) {
  TestDir dir;
  const std::string d = dir / "d";
  EXPECT_TRUE(check_folder("--run", d, FolderKind::kRun));
  EXPECT_FALSE(fs::exists(d));
  EXPECT_TRUE(claim_folder("--run", d, FolderKind::kRun));
  ASSERT_TRUE(*read_mark(d));
  EXPECT_EQ((**read_mark(d)).kind, FolderKind::kRun);
  put(d + "/more", "x");
  EXPECT_TRUE(claim_folder("--run", d, FolderKind::kRun));  // it is ours now
  EXPECT_TRUE(
      has(what(check_folder("--out", d, FolderKind::kModel)), "--out " + d + ": holds a training run"));

  ASSERT_TRUE(make_dirs(dir / "letters"));
  put(dir / "letters/a", "x");
  EXPECT_TRUE(has(what(claim_folder("--run", dir / "letters", FolderKind::kRun)),
                  "--run " + (dir / "letters") + ": has files that Braid did not write"));
  EXPECT_TRUE(check_folder("--run", dir / "letters", FolderKind::kRun, /*known=*/true));
  EXPECT_TRUE(has(what(claim_folder("--run", dir / "letters/a", FolderKind::kRun)), "is not a folder"));
  EXPECT_EQ(dir.files(), (Names{"d", "letters"}));
}

TEST(Folder, ADamagedMarkIsNoMark) {
  TestDir dir;
  for (const auto& [text, part] : {std::pair{"null", "not a JSON object"},
                                   {"{", ".braid"},
                                   {R"({"kind": "run", "version": 2})", "version 2 is not known"},
                                   {R"({"kind": "run", "version": null})", "version is null"},
                                   {R"({"kind": "ruin", "version": 1})", "kind is \"ruin\""},
                                   {R"({"version": 1})", "kind is missing"},
                                   {R"({"kind": "model", "version": 1, "files": [1]})", "files is [1]"}}) {
    put(dir / ".braid", text);
    EXPECT_TRUE(has(what(check_folder("--run", dir.path(), FolderKind::kRun)), part)) << text;
  }
}

TEST(Folder, OneAtATimeIsAtWorkInIt) {
  TestDir dir;
  {
    const Result<FolderLock> first = FolderLock::take("--run", dir.path());
    ASSERT_TRUE(first) << what(first);
    const Result<FolderLock> second = FolderLock::take("--run", dir.path());
    EXPECT_TRUE(has(what(second), "--run " + dir.path() +
                                      ": another process is at work in this folder, number " +
                                      std::to_string(getpid())));
  }
  EXPECT_TRUE(FolderLock::take("--run", dir.path()));  // the file is there still, the lock is not
}

void make_model(const std::string& d, const std::string& text, const Names& files) {
  ASSERT_TRUE(make_dirs(d));
  for (const std::string& f : files) put(d + "/" + f, text);
  ASSERT_TRUE(write_mark(d, {.kind = FolderKind::kModel, .files = files}));
}

TEST(CommitModelFolder, ReplacesWhatBraidWroteAndNothingElse) {
  TestDir dir;
  const std::string out = dir / "out";
  make_model(out, "old", {"config.json", "model.safetensors", "vocab.json"});
  put(out + "/letter", "mine");
  ASSERT_TRUE(make_dirs(out + "/photos"));
  put(out + "/photos/a", "mine");
  EXPECT_TRUE(check_replaceable("--out", out));
  make_model(dir / "new", "new", {"config.json", "model.safetensors"});
  EXPECT_TRUE(commit_model_folder(dir / "new", out));
  EXPECT_EQ(dir.files(), Names{"out"});
  EXPECT_EQ(get(out + "/config.json"), "new");
  EXPECT_EQ(get(out + "/letter") + get(out + "/photos/a"), "minemine");
  EXPECT_FALSE(fs::exists(out + "/vocab.json"));
  EXPECT_EQ((**read_mark(out)).files, (Names{"config.json", "model.safetensors"}));
  // A file that a new model might replace, but that Braid did not write.
  put(out + "/tokenizer.json", "mine");
  EXPECT_TRUE(has(what(check_replaceable("--out", out)), "\"tokenizer.json\" was not written by Braid"));
  // Should it come between, nothing is lost.
  make_model(dir / "new", "new", {"config.json", "tokenizer.json"});
  const Status s = commit_model_folder(dir / "new", out);
  EXPECT_TRUE(has(what(s), "move them from " + (dir / "new")));
  EXPECT_EQ(get(dir / "new/tokenizer.json"), "mine");
}

TEST(CheckOutput, RefusesAnInputByWhateverName) {
  TestDir dir;
  put(dir / "book", "x");
  fs::create_symlink(dir / "book", dir / "link");
  fs::create_hard_link(dir / "book", dir / "twin");
  for (const std::string& out : {dir / "book", dir / "link", dir / "twin", dir / "x/../book"})
    EXPECT_TRUE(has(what(check_output({"--out", out}, {{"--load-state", ""}, {"--text", dir / "book"}})),
                    "--out " + out + ": is the same file as --text " + (dir / "book")))
        << out;
  EXPECT_TRUE(check_output({"--out", dir / "other"}, {{"--text", dir / "book"}}));
  EXPECT_TRUE(check_output({"--out", ""}, {{"--text", dir / "book"}}));

  const std::string m = dir / "m";
  ASSERT_TRUE(make_dirs(m + "/state/step-00000001"));
  put(m + "/model.safetensors", "x");
  fs::create_hard_link(m + "/model.safetensors", m + "/state/step-00000001/model.safetensors");
  for (const std::string name : {"model.safetensors", "config.json", "tokenizer.json", "run.json", ".braid",
                                 "state/step-00000001/model.safetensors", "state/x", ""})
    EXPECT_FALSE(check_output({"--out", m + "/" + name}, {{"--model", m}})) << name;
  EXPECT_FALSE(check_output({"--out", m + "/model.safetensors"}, {{"--model", m + "/state/step-00000001"}}));
  for (const std::string name : {"logits.safetensors", "said/config.json", "../config.json"})
    EXPECT_TRUE(check_output({"--out", m + "/" + name}, {{"--model", m}})) << name;
}

TEST(StrictJson, NamesFileAndField) {
  const Json j{{"b", true}, {"i", -1}, {"u", 1}, {"d", 0.5}, {"s", "x"}, {"l", {"x", "y"}}, {"n", nullptr}};
  bool b;
  int64_t i;
  uint64_t u;
  double d;
  std::string s;
  std::vector<std::string> l;
  EXPECT_TRUE(read_field(j, "b", b, "f") && read_field(j, "i", i, "f") && read_field(j, "u", u, "f") &&
              read_field(j, "d", d, "f") && read_field(j, "s", s, "f") && read_field(j, "l", l, "f"));
  EXPECT_EQ(l, (Names{"x", "y"}));
  EXPECT_TRUE(read_field(j, "u", d, "f"));
  const auto refuses = [&](auto& to, const Names& names) {
    for (const std::string& n : names) {
      const Status status = read_field(j, n, to, "file", "in.");
      EXPECT_TRUE(has(what(status), "file: in." + n)) << n;
    }
  };
  refuses(b, {"i", "s", "n", "l", "none"});
  refuses(i, {"b", "d", "s", "n", "none"});
  refuses(u, {"b", "i", "d", "s", "n"});
  refuses(d, {"b", "s", "n", "l"});
  refuses(s, {"b", "i", "n", "l"});
  refuses(l, {"b", "i", "s", "n"});
}

}  // namespace
}  // namespace braid
