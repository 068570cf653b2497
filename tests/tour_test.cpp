// docs/tour.md, followed by copying: every command runs in one folder and prints what the page shows.
#include <gtest/gtest.h>

#include <sys/wait.h>

#include <cstdlib>
#include <filesystem>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

#include "process.h"

namespace braid::test {
namespace {

constexpr std::string_view kAny = "...";  // anything within a line; alone: any number of lines

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream in(text);
  for (std::string line; std::getline(in, line);) {
    line.erase(line.find_last_not_of(" \r") + 1);
    lines.push_back(line);
  }
  return lines;
}

bool line_matches(std::string_view shown, std::string_view printed) {
  const size_t at = shown.find(kAny);
  if (at == shown.npos) return shown == printed;
  if (!printed.starts_with(shown.substr(0, at))) return false;
  shown.remove_prefix(at + kAny.size());
  printed.remove_prefix(at);
  for (size_t skip = 0; skip <= printed.size(); ++skip)
    if (line_matches(shown, printed.substr(skip))) return true;
  return false;
}

using Lines = std::vector<std::string>;

bool lines_match(const Lines& shown, const Lines& printed, size_t s = 0, size_t p = 0) {
  if (s == shown.size()) return p == printed.size();
  if (shown[s] != kAny)
    return p < printed.size() && line_matches(shown[s], printed[p]) &&
           lines_match(shown, printed, s + 1, p + 1);
  for (; p <= printed.size(); ++p)
    if (lines_match(shown, printed, s + 1, p)) return true;
  return false;
}

struct Step {
  std::string command;
  Lines shown;
};

// The commands of all ```console blocks, each with the lines below it.
std::vector<Step> steps_of(const std::string& page) {
  std::vector<Step> steps;
  bool inside = false;
  for (const std::string& line : lines_of(page)) {
    if (line.starts_with("```"))
      inside = !inside && line == "```console";
    else if (inside && line.starts_with("$ "))
      steps.push_back({line.substr(2), {}});
    else if (inside && !steps.empty())
      steps.back().shown.push_back(line);
  }
  return steps;
}

TEST(Tour, TheComparisonSeesDifferences) {
  EXPECT_TRUE(lines_match({"a ... c", "...", "d"}, {"a b c", "x", "y", "d"}));
  EXPECT_TRUE(lines_match({"a", "...", "d"}, {"a", "d"}));
  EXPECT_TRUE(lines_match({"loss 1.7...,"}, {"loss 1.7807,"}));
  EXPECT_FALSE(lines_match({"loss 1.7...,"}, {"loss 1.8807,"}));
  EXPECT_FALSE(lines_match({"a ... c"}, {"a b d"}));
  EXPECT_FALSE(lines_match({"a"}, {"a", "b"}));
  EXPECT_FALSE(lines_match({"a", "...", "d"}, {"a", "b"}));
  EXPECT_FALSE(lines_match({"a", "b"}, {"a"}));
}

TEST(Tour, EveryCommandPrintsWhatThePageShows) {
  const TempDir dir;
  std::filesystem::create_directory(dir / "build");
  std::filesystem::create_symlink(BRAID_BINARY, dir / "build/braid");
  int commands = 0;
  for (const Step& step : steps_of(slurp(BRAID_SOURCE "/docs/tour.md"))) {
    if (step.command.starts_with("make ")) continue;
    ASSERT_TRUE(step.command.starts_with("build/braid ")) << step.command;
    ASSERT_FALSE(step.shown.empty()) << step.command << ": the page shows no output";
    const std::string in_folder = "cd '" + dir / "" + "' && " + step.command + " >printed 2>&1 </dev/null";
    const int status = std::system(in_folder.c_str());
    const std::string printed = slurp(dir / "printed");
    ASSERT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << step.command << "\n" << printed;
    std::string shown;
    for (const std::string& line : step.shown) shown += line + "\n";
    EXPECT_TRUE(lines_match(step.shown, lines_of(printed))) << step.command << "\n--- docs/tour.md shows\n"
                                                            << shown << "--- printed\n"
                                                            << printed;
    ++commands;
  }
  EXPECT_GE(commands, 10);
}

}  // namespace
}  // namespace braid::test
