// The hostile walk: every verb with every option and bad values, bad files of every format, limits, full and
// closed streams, kills. Whatever happens, the program ends by itself, soon, with 0, 1 or 2 and a short
// message.
//
//   walk BRAID SOURCE [--short] [--only TEXT] [--jobs N] [--list]
//
// --short: a fixed sample that takes seconds. --only: cases with TEXT in their names. Needs no network.
#include <stdlib.h>

#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <map>
#include <mutex>
#include <thread>

#include "base/cpu.h"
#include "walk/cases.h"

namespace braid::walk {
namespace {

namespace fs = std::filesystem;

struct Settings {
  std::string program, source, only;
  bool brief = false, list = false;
  int jobs = 0;
};

// One of so many of each group in the short form.
size_t stride(const std::string& group) {
  static const std::map<std::string, size_t> kStrides{
      {"option", 97}, {"file", 61}, {"limit", 37}, {"output", 7}, {"kill", 9}};
  const auto at = kStrides.find(group);
  return at == kStrides.end() ? 1 : at->second;
}

std::vector<Case> chosen(std::vector<Case> all, const Settings& s) {
  std::erase_if(all,
                [&](const Case& c) { return (c.group + " " + c.name).find(s.only) == std::string::npos; });
  if (!s.brief) return all;
  std::vector<Case> some;
  std::map<std::string, size_t> seen;
  for (Case& c : all) {
    // What takes seconds by itself is left to the whole walk.
    const bool slow =
        c.args[0] == "demo" || c.args[0] == "bench" || c.args[0] == "verify" || c.args[0] == "lab";
    if (!slow && !c.may_be_long && seen[c.group]++ % stride(c.group) == 0) some.push_back(std::move(c));
  }
  return some;
}

struct Tally {
  size_t cases = 0, failed = 0;
  double seconds = 0;
};

int walk(const Settings& s) {
  std::string scratch = (fs::temp_directory_path() / "braid-walk-XXXXXX").string();
  if (!mkdtemp(scratch.data())) return std::perror("no temporary folder"), 1;
  Fixtures fixtures;
  if (const std::string wrong = fixtures.make(s.program, s.source, scratch + "/fixtures"); !wrong.empty())
    return std::fprintf(stderr, "the fixtures cannot be made: %s\n", wrong.c_str()), 1;
  const Verdict list =
      run_case(s.program, scratch, {.group = "list", .name = "list", .args = {"--markdown"}});
  std::vector<Case> all = good_cases(fixtures);
  for (auto&& cases : {option_cases(listed_options(list.out), fixtures), file_cases(fixtures),
                       limit_cases(fixtures), output_cases(fixtures), kill_cases(fixtures)})
    all.insert(all.end(), cases.begin(), cases.end());
  all = chosen(std::move(all), s);
  if (s.list) {
    for (const Case& c : all) std::printf("%s %s\n", c.group.c_str(), c.name.c_str());
    std::printf("%zu cases\n", all.size());
    return fs::remove_all(scratch), 0;
  }

  std::map<std::string, Tally> tallies;
  std::mutex mutex;
  std::atomic<size_t> next = 0;
  const auto start = std::chrono::steady_clock::now();
  const auto work = [&] {
    for (size_t i; (i = next++) < all.size();) {
      const Case& c = all[i];
      Verdict v = run_case(s.program, scratch, c);
      if (v.wrong.empty() && c.group == "good" && !c.must_fail && v.code != 0) v.wrong = "should end with 0";
      const std::lock_guard lock(mutex);
      Tally& t = tallies[c.group];
      ++t.cases, t.seconds += v.seconds, t.failed += !v.wrong.empty();
      if (!v.wrong.empty())
        std::printf("FAILED %s %s: %s\n  %s\n  %s\n", c.group.c_str(), c.name.c_str(), v.wrong.c_str(),
                    command_of(s.program, c).c_str(), v.err.substr(0, 600).c_str());
      std::fflush(stdout);
    }
  };
  std::vector<std::thread> threads;
  for (int i = 0; i < s.jobs; ++i) threads.emplace_back(work);
  for (std::thread& t : threads) t.join();

  size_t failed = 0;
  for (const auto& [group, t] : tallies) {
    std::printf("%-8s %6zu cases %4zu failed %8.1f s\n", group.c_str(), t.cases, t.failed, t.seconds);
    failed += t.failed;
  }
  std::printf("%zu cases, %zu failed, %.0f s\n", all.size(), failed,
              std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
  std::error_code ignored;
  fs::remove_all(scratch, ignored);
  return failed ? 1 : 0;
}

}  // namespace
}  // namespace braid::walk

int main(int argc, char** argv) {
  braid::walk::Settings s;
  s.jobs = braid::cpu_count();
  for (int i = 1; i < argc; ++i) {
    const std::string arg = argv[i];
    if (arg == "--short")
      s.brief = true;
    else if (arg == "--list")
      s.list = true;
    else if (arg == "--only" && i + 1 < argc)
      s.only = argv[++i];
    else if (arg == "--jobs" && i + 1 < argc)
      s.jobs = std::max(1, std::atoi(argv[++i]));
    else
      (s.program.empty() ? s.program : s.source) = arg;
  }
  if (s.source.empty())
    return std::fprintf(stderr, "usage: walk BRAID SOURCE [--short] [--only TEXT] [--jobs N]\n"), 2;
  s.program = std::filesystem::absolute(s.program).string();
  return braid::walk::walk(s);
}
