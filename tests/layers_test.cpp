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

const std::map<std::string, std::set<std::string>> kAllowed{
    {"base", {}},
    {"tensor", {"base"}},
    {"kernels", {"base", "tensor"}},
    {"autograd", {"base", "tensor", "kernels"}},
    {"io", {"base", "tensor"}},
    {"tokenizer", {"base", "io"}},
    {"chat", {"base", "io"}},
    {"data", {"base", "tensor", "io", "tokenizer"}},
    {"tasks", {"base", "tensor", "io", "data"}},
    {"model", {"base", "tensor", "kernels", "autograd", "io"}},
    {"theory", {"base", "tensor", "kernels", "io", "tasks", "model"}},
    {"train", {"base", "tensor", "kernels", "autograd", "io", "data", "tasks", "model"}},
    {"infer", {"base", "tensor", "io", "model", "tokenizer", "chat"}},
    {"serve", {"base", "tensor", "io", "model", "infer"}},
    {"eval", {"base", "tensor", "io", "data", "tasks", "model", "infer"}},
    {"lab", {"base", "tensor", "io", "data", "tasks", "model", "theory", "train", "infer", "eval"}},
    {"cli",
     {"base", "tensor", "kernels", "autograd", "io", "data", "tasks", "model", "train", "infer", "serve",
      "eval", "lab", "tokenizer", "chat"}},
};

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
    if (const std::string other = included_room(line);
        other != room && kAllowed.contains(other) && !kAllowed.at(room).contains(other))
      found.push_back(file + ": " + room + " must not include " + other);
  return found;
}

TEST(Layers, NoRoomIncludesAgainstTheArrows) {
  int files = 0;
  for (const auto& room : fs::directory_iterator(BRAID_SOURCE "/src")) {
    const std::string name = room.path().filename();
    ASSERT_TRUE(kAllowed.contains(name)) << "src/" << name << " is not a room";
    for (const auto& f : fs::recursive_directory_iterator(room)) {
      if (f.path().extension() != ".h" && f.path().extension() != ".cpp") continue;
      ++files;
      std::ifstream in(f.path());
      for (const std::string& v : violations(name, f.path(), in)) ADD_FAILURE() << v;
    }
  }
  EXPECT_GT(files, 50);
}

// The installed headers: each may show what its rooms see.
TEST(Layers, PublicHeadersShowTheRoomsTheyAreNamedAfter) {
  int files = 0;
  for (const auto& f : fs::directory_iterator(BRAID_SOURCE "/include/braid")) {
    const std::string room = f.path().stem();
    ASSERT_TRUE(kAllowed.contains(room)) << f.path();
    ++files;
    std::ifstream in(f.path());
    for (const std::string& v : violations(room, f.path(), in)) ADD_FAILURE() << v;
  }
  EXPECT_GE(files, 4);
}

std::string text_of(const std::string& path) {
  std::ostringstream s;
  s << std::ifstream(path).rdbuf();
  return s.str();
}

TEST(Layers, EveryOpIsPublic) {
  const std::string all = text_of(BRAID_SOURCE "/include/braid/kernels.h");
  for (const auto& op : fs::directory_iterator(BRAID_SOURCE "/src/kernels")) {
    const std::string name = op.path().filename(), header = name + "/" + name + ".h";
    if (!fs::exists(op.path().parent_path() / header)) continue;
    EXPECT_NE(all.find("#include \"kernels/" + header + "\""), std::string::npos) << header;
  }
}

// As a user would: nothing but installed headers and the standard library.
TEST(Layers, ExamplesIncludeOnlyWhatIsInstalled) {
  for (const auto& f : fs::directory_iterator(BRAID_SOURCE "/examples"))
    EXPECT_EQ(text_of(f.path()).find("#include \""), std::string::npos) << f.path();
}

TEST(Layers, AViolationIsSeen) {
  std::istringstream bad("#include <vector>\n#include \"model/model.h\"\n");
  EXPECT_EQ(violations("kernels", "x.h", bad).size(), 1u);
}

}  // namespace
