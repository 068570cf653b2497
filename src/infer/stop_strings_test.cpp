#include "infer/stop_strings.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "base/rng.h"

namespace braid {
namespace {

struct Shown {
  std::string text, match;
  bool operator==(const Shown&) const = default;
};

// Feeds pieces, checks after each that nothing unsafe was shown, and returns all that was.
Shown run(const std::vector<std::string>& stops, const std::vector<std::string>& pieces) {
  StopStrings s = *StopStrings::make(stops);
  std::string shown;
  for (const std::string& piece : pieces) shown += s.feed(piece);
  if (!s.stopped()) shown += s.finish();
  EXPECT_EQ(s.finish(), "");
  return {shown, s.match()};
}

// By definition: the shortest prefix of the text that ends with a stop string.
Shown brute(const std::vector<std::string>& stops, const std::string& text) {
  for (size_t n = 1; n <= text.size(); ++n) {
    std::string best;
    for (const std::string& s : stops)
      if (text.substr(0, n).ends_with(s) && s.size() > best.size()) best = s;
    if (!best.empty()) return {text.substr(0, n - best.size()), best};
  }
  return {text, ""};
}

TEST(StopStrings, HoldsBackWhatMayBecomeAStop) {
  StopStrings s = *StopStrings::make({"</s>"});
  EXPECT_EQ(s.feed("hello <"), "hello ");
  EXPECT_EQ(s.feed("/"), "");
  EXPECT_EQ(s.feed("b> "), "</b> ");
  EXPECT_EQ(s.feed("bye</"), "bye");
  EXPECT_EQ(s.feed("s> never shown"), "");
  EXPECT_TRUE(s.stopped());
  EXPECT_EQ(s.match(), "</s>");
  EXPECT_EQ(s.feed("more"), "");
  EXPECT_EQ(s.finish(), "");
}

TEST(StopStrings, FinishReturnsTheRest) {
  StopStrings s = *StopStrings::make({"stop"});
  EXPECT_EQ(s.feed("a sto"), "a ");
  EXPECT_EQ(s.finish(), "sto");
  EXPECT_FALSE(s.stopped());
}

TEST(StopStrings, TheFirstCompleteOneWinsThenTheLongest) {
  EXPECT_EQ(run({"abcd", "bc"}, {"xabcd"}), (Shown{"xa", "bc"}));
  EXPECT_EQ(run({"c", "abc"}, {"xabc"}), (Shown{"x", "abc"}));
  EXPECT_EQ(run({"aab"}, {"aaab"}), (Shown{"a", "aab"}));  // the held prefix may shift
}

TEST(StopStrings, EveryCutGivesTheSame) {
  const std::vector<std::string> stops{"abab", "bba", "\xC3\xA9!", "aaaa"};
  Rng rng(3, "cuts");
  const std::vector<std::string> letters{"a", "b", "a", "b", "\xC3\xA9", "!", "\xE2\x82\xAC"};
  for (int round = 0; round < 3000; ++round) {
    std::string text;
    for (uint64_t n = rng.below(14); n > 0; --n) text += letters[rng.below(letters.size())];
    std::vector<std::string> pieces{""};
    for (const char c : text) {
      pieces.back() += c;
      if (rng.below(2)) pieces.emplace_back();
    }
    ASSERT_EQ(run(stops, pieces), brute(stops, text)) << text;
  }
}

TEST(StopStrings, ShowsOnlyWholeCharacters) {
  StopStrings s = *StopStrings::make({"!"});
  const std::string face = "\xF0\x9F\x98\x80";
  EXPECT_EQ(s.feed("a" + face.substr(0, 1)), "a");
  EXPECT_EQ(s.feed(face.substr(1, 2)), "");
  EXPECT_EQ(s.feed(face.substr(3)), face);
  EXPECT_EQ(s.feed("\xE2\x82"), "");
  EXPECT_EQ(s.finish(), "\xE2\x82");  // cut off for good
  StopStrings none = *StopStrings::make({});
  EXPECT_EQ(none.feed("ab\xC3"), "ab");
  EXPECT_EQ(none.feed("\xA9"), "\xC3\xA9");
}

TEST(StopStrings, BytesThatAreNoTextPass) {
  StopStrings s = *StopStrings::make({"stop"});
  EXPECT_EQ(s.feed("\x80\x80\x80\x80\x80"), "\x80\x80\x80\x80\x80");
  EXPECT_EQ(s.feed("\xFF"), "\xFF");
  EXPECT_EQ(s.feed("\xC3stop"), "\xC3");
  EXPECT_EQ(s.match(), "stop");
  StopStrings zero = *StopStrings::make({std::string(2, '\0')});
  EXPECT_EQ(zero.feed(std::string("a\0", 2)), "a");
  EXPECT_EQ(zero.feed(std::string("\0", 1)), "");
  EXPECT_TRUE(zero.stopped());
}

TEST(StopStrings, AnEmptyOneIsAnError) { EXPECT_FALSE(StopStrings::make({"a", ""})); }

}  // namespace
}  // namespace braid
