// What a person reads while a program works: bars, times, suggestions.
#include "base/progress.h"

#include <gtest/gtest.h>

#include "base/nearest.h"

namespace braid {
namespace {

TEST(Progress, EveryLineIsAsWide) {
  const size_t width = progress_line("train", 0, 20'000, 0, true).size();
  for (const uint64_t done : {1, 9, 10, 999, 10'000, 19'999, 20'000})
    for (const double rate : {0.0123, 0.5, 7.0, 99.99, 1234.0, 56'789.0, 1.5e6})
      EXPECT_EQ(progress_line("train", done, 20'000, rate, true).size(), width) << done << " at " << rate;
  EXPECT_EQ(progress_line("read", 50, 200, 12.5, true),
            "read [######..................]  25 %   50/200    12.5/s          12 s left");
  EXPECT_EQ(progress_line("read", 50, 200, 0, false), "read  25 %   50/200       0/s             ? left");
}

TEST(Progress, TimesReadWell) {
  EXPECT_EQ(human_time(0.25), "250 ms");
  EXPECT_EQ(human_time(12), "12 s");
  EXPECT_EQ(human_time(250), "4 min 10 s");
  EXPECT_EQ(human_time(3800), "1 h 03 min");
}

TEST(Nearest, NamesThatBeginWithTheTypedTextComeFirst) {
  const std::vector<std::string> known{"gla", "gdn-h1", "gdn-h2", "hgrn2"};
  EXPECT_EQ(suggest("gdn", known), "use one of: gdn-h1, gdn-h2");  // not gla, at distance 2
  EXPECT_EQ(suggest("hgr", known), "use 'hgrn2'");
  EXPECT_EQ(suggest("gdn-h3", known), "use 'gdn-h1'");
  EXPECT_EQ(suggest("softmax", known), "use one of: gla, gdn-h1, gdn-h2, hgrn2");
  EXPECT_EQ(suggest_with_all("gdn-h3", {"gla", "gdn-h1"}), "use 'gdn-h1'; known: gla, gdn-h1");
}

}  // namespace
}  // namespace braid
