#include <gtest/gtest.h>

#include <unistd.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <set>

#include "base/rng.h"
#include "data/text.h"
#include "tokenizer/tokenizer.h"
#include "tokenizer/train.h"

namespace braid {
namespace {

std::string random_text(size_t n) {
  Rng rng(1, "text");
  std::string text(n, '\0');
  for (char& c : text) c = static_cast<char>(rng.below(256));
  return text;
}

std::unique_ptr<TextSource> make(const std::string& text, TextOptions options) {
  return *TextSource::from_text(text, "test", options);
}

// The bytes a sequence was cut from: its tokens and its last target.
std::string bytes_of(const Batch& batch, size_t i) {
  const BatchView view = batch.view();
  std::string bytes;
  for (const int32_t t : view.tokens_of(i)) bytes += static_cast<char>(t);
  return bytes + static_cast<char>(view.targets_of(i).back());
}

TEST(Batch, AppendsAndSlicesWithoutCopies) {
  Batch b;
  EXPECT_EQ(b.sequences(), 0u);
  EXPECT_EQ(b.view().sequences(), 0u);
  b.append(std::vector<int32_t>{1, 2}, std::vector<int32_t>{-1, 3});
  b.append(std::vector<int32_t>{4}, std::vector<int32_t>{0});
  b.append(std::vector<int32_t>{5, 6, 7}, std::vector<int32_t>{-1, -1, -1});
  EXPECT_EQ(b.offsets, (std::vector<uint32_t>{0, 2, 3, 6}));
  EXPECT_EQ(b.sequences(), 3u);
  EXPECT_EQ(b.supervised(), 2u);

  const BatchView v = b.slice(1, 3);
  EXPECT_EQ(v.sequences(), 2u);
  EXPECT_EQ(v.supervised(), 1u);
  EXPECT_EQ(v.tokens.data(), b.tokens.data() + 2);
  EXPECT_EQ(v.base(), 2u);
  EXPECT_EQ(v.begin(1), 1u);
  EXPECT_EQ(v.length(1), 3u);
  EXPECT_EQ(v.tokens_of(1)[0], 5);
  EXPECT_EQ(b.slice(2, 2).tokens.size(), 0u);
}

TEST(Text, TargetsAreTheNextBytes) {
  const auto source = make(random_text(1000), {.length = 7});
  for (const Batch& b : {source->batch(3, 20), source->validation(0, source->validation_size())}) {
    for (size_t i = 0; i < b.sequences(); ++i) {
      const auto tokens = b.view().tokens_of(i), targets = b.view().targets_of(i);
      ASSERT_EQ(tokens.size(), 7u);
      for (size_t t = 0; t + 1 < 7; ++t) EXPECT_EQ(targets[t], tokens[t + 1]);
    }
    EXPECT_EQ(b.supervised(), b.tokens.size());
  }
}

// Random bytes make every window findable in the text, so the cut is seen from outside.
TEST(Text, AnEpochVisitsEveryWindowOnceWithoutOverlap) {
  for (const size_t size : {16, 17, 23, 24, 31, 32, 200, 1003}) {
    const std::string text = random_text(size);
    const auto source = make(text, {.length = 7, .seed = 5});
    const uint64_t n = source->windows(), train = source->train_tokens();
    EXPECT_GT((n + 2) * 8, train) << size;  // less than two windows are left out
    std::set<size_t> offsets, last_bytes;
    for (uint64_t epoch = 0; epoch < 200; ++epoch) {
      const Batch b = source->batch(epoch * n, n);
      std::set<size_t> starts;
      for (size_t i = 0; i < n; ++i) starts.insert(text.find(bytes_of(b, i)));
      ASSERT_EQ(starts.size(), n);
      for (auto it = starts.begin(); std::next(it) != starts.end(); ++it) ASSERT_EQ(*std::next(it) - *it, 8u);
      ASSERT_LE(*starts.rbegin() + 8, train);
      offsets.insert(*starts.begin());
      last_bytes.insert(*starts.rbegin() + 7);
    }
    EXPECT_EQ(*offsets.begin(), 0u) << size;
    EXPECT_EQ(*last_bytes.rbegin(), train - 1) << size;  // both ends of the text are used
    EXPECT_GE(offsets.size(), std::min<size_t>(8, train - 7)) << size;
  }
}

TEST(Text, EpochsShuffleDifferently) {
  const std::string text = random_text(4000);
  const auto source = make(text, {.length = 7});
  const uint64_t n = source->windows();
  const auto order = [&](uint64_t epoch) {
    const Batch b = source->batch(epoch * n, n);
    std::vector<size_t> rank;
    for (size_t i = 0; i < n; ++i) rank.push_back(text.find(bytes_of(b, i)) / 8);
    return rank;
  };
  EXPECT_NE(order(0), order(1));
}

TEST(Text, ValidationIsTheEndOfTheText) {
  const std::string text = random_text(2000);
  const auto source = make(text, {.length = 9, .validation_share = 0.1});
  EXPECT_EQ(source->train_tokens(), 1800u);
  ASSERT_EQ(source->validation_size(), 20u);
  const Batch v = source->validation(0, 20);
  for (size_t i = 0; i < 20; ++i) EXPECT_EQ(bytes_of(v, i), text.substr(1800 + 10 * i, 10));
  EXPECT_EQ(bytes_of(source->validation(3, 4), 0), bytes_of(v, 3));
}

TEST(Text, ASampleDependsOnlyOnSeedAndIndex) {
  const std::string text = random_text(3000);
  const auto a = make(text, {.length = 16, .seed = 1}), b = make(text, {.length = 16, .seed = 2});
  const Batch whole = a->batch(100, 50);
  for (size_t i = 0; i < 50; ++i) EXPECT_EQ(bytes_of(a->batch(100 + i, 1), 0), bytes_of(whole, i));
  EXPECT_EQ(whole.tokens, make(text, {.length = 16, .seed = 1})->batch(100, 50).tokens);
  EXPECT_NE(whole.tokens, b->batch(100, 50).tokens);
  EXPECT_EQ(a->batch(~uint64_t{0} - 3, 3).sequences(), 3u);  // any position is valid
}

TEST(Text, TheFingerprintSeesContentAndSettings) {
  const std::string text = random_text(500);
  std::string other = text;
  other[7] ^= 1;
  const std::set<std::string> seen{
      make(text, {.length = 8})->fingerprint(), make(other, {.length = 8})->fingerprint(),
      make(text, {.length = 9})->fingerprint(), make(text, {.length = 8, .seed = 1})->fingerprint(),
      make(text, {.length = 8, .validation_share = 0.2})->fingerprint()};
  EXPECT_EQ(seen.size(), 5u);
  EXPECT_EQ(make(text, {.length = 8})->fingerprint(), make(text, {.length = 8})->fingerprint());
}

TEST(Text, ExtremeSharesKeepOneSequenceOnEachSide) {
  for (const double share : {0.0, 0.5, 0.999999}) {
    const auto source = make(random_text(16), {.length = 7, .validation_share = share});
    EXPECT_EQ(source->windows(), 1u);
    EXPECT_EQ(source->validation_size(), 1u);
  }
}

TEST(Text, TooShortSaysBothLengthsAndWhatToDo) {
  const auto tiny = TextSource::from_text(random_text(15), "tiny", {.length = 7});
  ASSERT_FALSE(tiny);
  EXPECT_NE(tiny.error().what.find("15 bytes"), std::string::npos);
  EXPECT_NE(tiny.error().what.find("7 tokens"), std::string::npos);
  EXPECT_NE(tiny.error().fix.find("at most 6"), std::string::npos);
  EXPECT_TRUE(TextSource::from_text(random_text(15), "tiny", {.length = 6}));
  EXPECT_FALSE(TextSource::from_text("", "empty", {.length = 1}));
  EXPECT_FALSE(TextSource::from_text("abc", "abc", {.length = 1}));
  EXPECT_FALSE(TextSource::from_text("abcdef", "huge", {.length = ~size_t{0}}));
}

TEST(Text, WrongOptionsAreAllReported) {
  const auto bad = TextSource::from_text("abcdef", "x", {.length = 0, .validation_share = -1});
  ASSERT_FALSE(bad);
  EXPECT_NE(bad.error().what.find("length"), std::string::npos);
  EXPECT_NE(bad.error().what.find("validation_share"), std::string::npos);
  EXPECT_FALSE(TextSource::from_text("abcdef", "x", {.length = 1, .validation_share = 1}));
  EXPECT_FALSE(TextSource::from_text("abcdef", "x", {.length = 1, .validation_share = std::nan("")}));
}

class TextFile : public testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = testing::TempDir() + "braid_text_XXXXXX";
    ASSERT_NE(mkdtemp(pattern.data()), nullptr);
    folder_ = pattern;
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }
  static std::string error_of(const std::string& path) {
    const auto source = TextSource::from_file(path, {.length = 4});
    return source ? "" : source.error().what;
  }
  std::string folder_;
};

TEST_F(TextFile, ReadsBytesAsTheyAre) {
  const std::string path = folder_ + "/a.bin", text = random_text(300);
  std::ofstream(path, std::ios::binary) << text;
  const auto source = TextSource::from_file(path, {.length = 8});
  ASSERT_TRUE(source);
  EXPECT_EQ((*source)->fingerprint(), make(text, {.length = 8})->fingerprint());
}

TEST_F(TextFile, TokensOfATokenizerCoverTheTextAndGoAlong) {
  std::string text;
  for (int i = 0; i < 300; ++i) text += "the cat sat on mat " + std::to_string(i) + "\n";
  const auto trained = train_bpe(text, {.vocab = 300, .pattern = {}, .special = {}});
  ASSERT_TRUE(trained);
  const std::string file = folder_ + "/mine.json";
  std::ofstream(file) << trained->json;
  const Tokenizer tokenizer = *Tokenizer::load(file);
  const std::vector<int32_t> ids = *tokenizer.encode(text, {.add_special = false});
  ASSERT_LT(ids.size(), text.size() / 2);

  const auto source = make(text, {.length = 16, .tokenizer = file});
  EXPECT_EQ(source->vocab_size(), static_cast<size_t>(tokenizer.vocab_size()));
  EXPECT_NE(source->fingerprint(), make(text, {.length = 16})->fingerprint());
  const auto held = source->validation(0, source->validation_size());
  for (size_t s = 0; s < held.sequences(); ++s)
    for (size_t i = 0; i < 16; ++i) {
      const size_t at = source->train_tokens() + 17 * s + i;
      EXPECT_EQ(held.view().tokens_of(s)[i], ids[at]);
      EXPECT_EQ(held.view().targets_of(s)[i], ids[at + 1]);
    }

  const std::string run = folder_ + "/run";
  std::filesystem::create_directory(run);
  ASSERT_TRUE(source->save_companions(run));
  EXPECT_EQ(*Tokenizer::load(run)->encode(text), *tokenizer.encode(text));
  EXPECT_EQ(make(text, {.length = 16, .tokenizer = run})->fingerprint(), source->fingerprint());
  ASSERT_TRUE(make(text, {.length = 16})->save_companions(folder_));
  EXPECT_FALSE(std::filesystem::exists(folder_ + "/tokenizer.json"));

  const auto too_short = TextSource::from_text("the cat sat", "x", {.length = 16, .tokenizer = file});
  ASSERT_FALSE(too_short);
  EXPECT_NE(too_short.error().what.find(" tokens are too few"), std::string::npos) << too_short.error().what;
  EXPECT_FALSE(TextSource::from_text(text, "x", {.length = 16, .tokenizer = folder_ + "/none.json"}));
}

TEST_F(TextFile, UnreadableFilesAreErrors) {
  EXPECT_NE(error_of(folder_ + "/missing").find("No such file"), std::string::npos);
  EXPECT_NE(error_of(folder_).find("directory"), std::string::npos);
  EXPECT_NE(error_of("/dev/zero").find("not a regular file"), std::string::npos);
  EXPECT_NE(error_of(std::string(5000, 'x')), "");
  EXPECT_NE(error_of(""), "");
  const std::string path = folder_ + "/empty";
  std::ofstream(path).flush();
  EXPECT_NE(error_of(path).find("0 bytes"), std::string::npos);
}

TEST_F(TextFile, NoPermissionIsAnError) {
  const std::string path = folder_ + "/locked";
  std::ofstream(path) << "some text that is long enough";
  std::filesystem::permissions(path, std::filesystem::perms::none);
  std::filesystem::permissions(folder_, static_cast<std::filesystem::perms>(0755));
  const uid_t user = geteuid();
  const bool changed = user == 0 && seteuid(65534) == 0;  // root reads everything: be somebody else here
  const std::string error = error_of(path);
  if (changed) {
    ASSERT_EQ(seteuid(user), 0);
  }
  EXPECT_NE(error.find("Permission denied"), std::string::npos) << error;
}

}  // namespace
}  // namespace braid
