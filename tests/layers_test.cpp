// A room may include only what DESIGN's arrows allow.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <map>
#include <set>
#include <sstream>
#include <string>
#include <vector>

namespace {

namespace fs = std::filesystem;

// The library: a room and what it may include.
const std::map<std::string, std::set<std::string>> kLibrary{
    {"base", {}},
    {"tensor", {"base"}},
    {"kernels", {"base", "tensor"}},
    {"autograd", {"base", "tensor", "kernels"}},
    {"io", {"base", "tensor"}},
    {"tokenizer", {"base", "io"}},
    {"chat", {"base", "io"}},
    {"data", {"base", "tensor", "io", "tokenizer"}},
    {"model", {"base", "tensor", "kernels", "autograd", "io"}},
    {"comm", {"base"}},
    {"train", {"base", "tensor", "kernels", "autograd", "io", "data", "model", "comm"}},
    {"infer", {"base", "tensor", "kernels", "io", "model", "tokenizer", "chat"}},
    {"ops", {"base", "tensor", "kernels", "io"}},
    {"capi", {"base", "tensor", "kernels", "io", "model", "tokenizer", "infer", "ops"}},
    {"eval", {"base", "tensor", "io", "data", "model", "tokenizer", "infer"}},
    {"serve", {"base", "tensor", "io", "model", "tokenizer", "chat", "infer"}},
};
// The workbench: beside the whole library, which rooms of its own a room may include.
const std::map<std::string, std::set<std::string>> kWorkbench{
    {"tasks", {}},
    {"report", {}},
    {"verify", {}},
    {"bench", {"verify"}},
    {"theory", {"tasks"}},
    {"rl", {"tasks", "report"}},
    {"lab", {"tasks", "theory", "report", "rl"}},
};

bool is_room(const std::string& name) {
  return kLibrary.contains(name) || kWorkbench.contains(name) || name == "cli";
}

bool allowed(const std::string& from, const std::string& to) {
  if (from == to || from == "cli") return true;
  if (kLibrary.contains(from)) return kLibrary.at(from).contains(to);
  return kLibrary.contains(to) || (kWorkbench.contains(from) && kWorkbench.at(from).contains(to));
}

// The room of a line `#include "room/..."`, or empty.
std::string included_room(const std::string& line) {
  constexpr std::string_view kStart = "#include \"";
  if (!line.starts_with(kStart)) return "";
  const size_t slash = line.find('/', kStart.size());
  return slash == std::string::npos ? "" : line.substr(kStart.size(), slash - kStart.size());
}

std::vector<std::string> violations(const std::string& room, const std::string& file, std::istream& text) {
  std::vector<std::string> found;
  for (std::string line; std::getline(text, line);)
    if (const std::string other = included_room(line); is_room(other) && !allowed(room, other))
      found.push_back(file + ": " + room + " must not include " + other);
  return found;
}

TEST(Layers, NoRoomIncludesAgainstTheArrows) {
  int files = 0;
  const auto look = [&](const std::string& room, const fs::path& folder) {
    for (const auto& f : fs::recursive_directory_iterator(folder)) {
      const std::string name = f.path().filename();
      if (f.path().extension() != ".h" && f.path().extension() != ".cpp") continue;
      if (name.ends_with("_test.cpp")) continue;  // tests may also use workbench/verify and tests/support
      ++files;
      std::ifstream in(f.path());
      for (const std::string& v : violations(room, f.path(), in)) ADD_FAILURE() << v;
    }
  };
  for (const auto& [tree, rooms] : {std::pair{"src", &kLibrary}, std::pair{"workbench", &kWorkbench}})
    for (const auto& room : fs::directory_iterator(fs::path(BRAID_SOURCE) / tree)) {
      ASSERT_TRUE(rooms->contains(room.path().filename())) << room.path() << " is not a room";
      look(room.path().filename(), room);
    }
  look("cli", BRAID_SOURCE "/cli");
  EXPECT_GT(files, 200);
}

// The installed headers: they show the library alone.
TEST(Layers, PublicHeadersShowTheLibrary) {
  int files = 0;
  for (const auto& f : fs::directory_iterator(BRAID_SOURCE "/include/braid")) {
    ++files;
    std::ifstream in(f.path());
    for (std::string line; std::getline(in, line);)
      if (const std::string room = included_room(line); is_room(room)) {
        EXPECT_TRUE(kLibrary.contains(room)) << f.path() << ": " << line;
      }
  }
  EXPECT_GE(files, 4);
}

// What they would cost everyone who includes a model: JSON and formatting are for .cpp files.
TEST(Layers, HeadersOfModelsNameJsonAtMost) {
  int files = 0;
  for (const char* room : {"model", "infer", "chat", "train"})
    for (const auto& f : fs::recursive_directory_iterator(fs::path(BRAID_SOURCE) / "src" / room)) {
      if (f.path().extension() != ".h") continue;
      const std::string name = f.path().filename();
      // They translate config.json to config.json, for the .cpp files beside them alone.
      if (name == "hf_config.h" || (name == "shared.h" && f.path().parent_path().filename() == "families"))
        continue;
      ++files;
      std::ifstream in(f.path());
      for (std::string line; std::getline(in, line);)
        for (const char* heavy : {"<nlohmann/json.hpp>", "\"io/json.h\"", "\"io/ordered_json.h\"", "<fmt/"})
          EXPECT_FALSE(line.starts_with("#include") && line.find(heavy) != std::string::npos)
              << f.path() << ": " << line;
    }
  EXPECT_GT(files, 40);
}

std::string text_of(const std::string& path) {
  std::ostringstream s;
  s << std::ifstream(path).rdbuf();
  return s.str();
}

TEST(Layers, EveryOpIsPublic) {
  const std::string all = text_of(BRAID_SOURCE "/include/braid/kernels.hpp");
  for (const auto& op : fs::directory_iterator(BRAID_SOURCE "/src/kernels")) {
    const std::string name = op.path().filename(), header = name + "/" + name + ".h";
    if (!fs::exists(op.path().parent_path() / header)) continue;
    EXPECT_NE(all.find("#include \"kernels/" + header + "\""), std::string::npos) << header;
  }
}

// All that a header includes of ours, itself among it.
std::set<std::string> closure(const std::string& path) {
  std::set<std::string> seen;
  for (std::vector<std::string> queue{path}; !queue.empty();) {
    const std::string next = queue.back();
    queue.pop_back();
    if (!seen.insert(next).second) continue;
    EXPECT_TRUE(fs::exists(next)) << next;
    std::ifstream in(next);
    for (std::string line; std::getline(in, line);) {
      constexpr std::string_view kStart = "#include \"";
      if (!line.starts_with(kStart)) continue;
      const std::string name = line.substr(kStart.size(), line.find('"', kStart.size()) - kStart.size());
      queue.push_back(
          (name.find('/') == std::string::npos ? BRAID_SOURCE "/include/braid/" : BRAID_SOURCE "/src/") +
          name);
    }
  }
  return seen;
}

// What users include needs none of the libraries that Braid is made with; braid.hpp and kernels.hpp hide the
// tape.
TEST(Layers, WhatUsersIncludeStandsAlone) {
  for (const char* header :
       {"braid.h", "braid.hpp", "kernels.hpp", "train.hpp", "eval.hpp", "extend.hpp", "version.hpp"})
    for (const std::string& file : closure(std::string(BRAID_SOURCE "/include/braid/") + header)) {
      const std::string text = text_of(file);
      for (const char* library : {"<nlohmann/", "<fmt/", "<hwy/", "<oneapi/", "<CLI/"})
        EXPECT_EQ(text.find(library), std::string::npos) << header << " reaches " << file;
    }
  for (const char* header : {"braid.h", "braid.hpp", "kernels.hpp", "version.hpp"})
    EXPECT_FALSE(closure(std::string(BRAID_SOURCE "/include/braid/") + header)
                     .contains(BRAID_SOURCE "/src/autograd/exec.h"))
        << header << " shows the tape";
  EXPECT_TRUE(
      closure(BRAID_SOURCE "/include/braid/extend.hpp").contains(BRAID_SOURCE "/src/autograd/exec.h"));
}

// As a user would: nothing but installed headers and the standard library.
TEST(Layers, ExamplesIncludeOnlyWhatIsInstalled) {
  for (const auto& f : fs::directory_iterator(BRAID_SOURCE "/examples"))
    EXPECT_EQ(text_of(f.path()).find("#include \""), std::string::npos) << f.path();
}

TEST(Layers, AViolationIsSeen) {
  std::istringstream bad("#include <vector>\n#include \"model/model.h\"\n");
  EXPECT_EQ(violations("kernels", "x.h", bad).size(), 1u);
  std::istringstream up("#include \"tasks/task.h\"\n#include \"cli/cli.h\"\n");
  EXPECT_EQ(violations("train", "x.h", up).size(), 2u);
  std::istringstream down("#include \"model/model.h\"\n#include \"cli/cli.h\"\n");
  EXPECT_EQ(violations("lab", "x.h", down).size(), 1u);
}

}  // namespace
