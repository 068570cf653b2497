#include "infer/prompt_memory.h"

#include <gtest/gtest.h>

#include "io/json.h"
#include "infer/generate.h"
#include "model/config_json.h"
#include "model/model.h"
#include "model/presets.h"
#include "support/test_kernels.h"

namespace braid {
namespace {

class PromptMemoryTest : public testing::Test {
 protected:
  PromptMemoryTest() {
    model_ = Model::create(*parse_config(*preset_config("gdn-h1", "tiny", 61), ""));
    model_->init(1);
  }
  std::vector<float> logits(Session& s, std::span<const int32_t> tokens) {
    const std::span<const float> l = s.feed(tokens);
    return {l.begin(), l.end()};
  }
  Context context_{{.threads = 1, .kernels = test_kernels()}};
  std::unique_ptr<Model> model_;
};

TEST_F(PromptMemoryTest, GoesOnFromTheLongestBeginning) {
  const std::vector<int32_t> all{5, 9, 2, 44, 3, 17, 8};
  Session s(*model_, context_);
  PromptMemory memory;
  EXPECT_EQ(memory.recall(s, all).cached, 0u);
  s.feed(std::span(all).first(2));
  memory.keep(all, 2, s.state(), "a place");
  s.feed(std::span(all).subspan(2, 3));
  memory.keep(all, 5, s.state(), "another");
  const std::vector<float> want = logits(s, std::span(all).subspan(5));
  s.feed({{1, 2, 3}});  // elsewhere
  const Recalled r = memory.recall(s, all);
  EXPECT_EQ(r.cached, 5u);
  EXPECT_EQ(r.replayed, 2u);
  EXPECT_EQ(r.computed, 0u);
  EXPECT_NE(r.why.find("another"), std::string::npos) << r.why;
  EXPECT_EQ(logits(s, std::span(all).subspan(5)), want);
  EXPECT_EQ(memory.recall(s, std::span(all).first(5)).cached, 2u);   // one token must be left to read
  const Recalled parted = memory.recall(s, {{5, 9, 2, 44, 4, 17}});  // differs behind it
  EXPECT_EQ(parted.cached, 2u);
  EXPECT_EQ(parted.replayed, 2u);
  EXPECT_EQ(parted.computed, 2u);
  EXPECT_NE(parted.why.find("differs from token 4 on"), std::string::npos) << parted.why;
  const Recalled none = memory.recall(s, {{6, 9, 2}});
  EXPECT_EQ(none.cached, 0u);
  EXPECT_EQ(none.computed, 3u);
  EXPECT_EQ(s.state().position, 0);
}

TEST_F(PromptMemoryTest, TheBudgetIsOfBytesAndWhatWasUsedLongestAgoGoes) {
  const std::unique_ptr<Model> recurrent =
      Model::create(*parse_config(*preset_config("gated-deltanet", "tiny", 61), ""));
  recurrent->init(1);
  Session s(*recurrent, context_);  // no pages, which are not narrowed
  const std::vector<std::vector<int32_t>> prompts{{1, 2}, {3, 4}, {5, 6}};
  s.feed(prompts[0]);
  const size_t each = s.state().bytes();
  for (const bool narrow : {false, true}) {
    PromptMemory memory({.bytes = 2 * each + each / 2, .grid = 512, .narrow = narrow});
    for (const auto& p : prompts) {
      s.restart();
      s.feed(p);
      memory.keep(p, 2, s.state(), "p");
      memory.recall(s, {{1, 2, 3}});
    }
    EXPECT_EQ(memory.size(), narrow ? 3u : 2u);
    EXPECT_LE(memory.bytes(), 2 * each + each / 2);
    EXPECT_EQ(memory.recall(s, {{1, 2, 3}}).cached, 2u);
    const Recalled r = memory.recall(s, {{3, 4, 3}});
    EXPECT_EQ(r.cached, narrow ? 2u : 0u);
    EXPECT_EQ(r.why.find("dropped so far: 1") != std::string::npos, !narrow) << r.why;
    EXPECT_EQ(memory.recall(s, {{5, 6, 3}}).cached, 2u);
  }
}

// A long prompt, then one that parts from it: from the nearest place on the grid, with the numbers of reading
// it all.
TEST_F(PromptMemoryTest, APromptThatPartsIsReadFromTheLastPlaceBefore) {
  std::vector<int32_t> prompt(300);
  for (size_t i = 0; i < prompt.size(); ++i) prompt[i] = static_cast<int32_t>((i * i + 7 * i) % 61);
  const auto text_of = [](std::optional<int32_t>) { return std::string(); };
  const auto show = [](std::string_view) {};
  Session s(*model_, context_);
  PromptMemory memory({.bytes = size_t{1} << 30, .grid = 64, .narrow = false});
  const auto read = [&](std::span<const int32_t> tokens) {
    const Recalled r = memory.recall(s, tokens);
    const size_t points[] = {100};
    GenerateOptions g{.sampler = {.temperature = 0}, .max_tokens = 4, .known = r.cached};
    g.snapshots_at = memory.places(tokens, r.cached, points);
    g.snapshot = [&](size_t n, State state) { memory.keep(tokens, n, std::move(state), "a place"); };
    EXPECT_TRUE(generate(s, tokens, text_of, show, g));
    return r;
  };
  read(prompt);
  EXPECT_EQ(memory.size(), 5u);  // 64, 96, 128, 192, 256
  std::vector<int32_t> other = prompt;
  other[120] = (other[120] + 1) % 61;
  other.resize(200);
  const Recalled r = read(other);
  EXPECT_EQ(r.cached, 96u);
  EXPECT_EQ(r.replayed, 24u);
  EXPECT_EQ(r.computed, 80u);
  const State got = s.state();
  // The same passes without a memory.
  s.restart();
  s.feed(std::span(other).first(96));
  EXPECT_TRUE(
      generate(s, other, text_of, show, {.sampler = {.temperature = 0}, .max_tokens = 4, .known = 96}));
  EXPECT_TRUE(s.state() == got);
}

TEST_F(PromptMemoryTest, GenerationEndsAtAnEndTokenAndSaysWhatWasRead) {
  const std::vector<int32_t> prompt{5, 9, 2};
  const auto text_of = [](std::optional<int32_t> id) { return id ? std::to_string(*id) + "," : "!"; };
  std::string shown;
  const auto show = [&](std::string_view s) { shown += s; };
  Session s(*model_, context_);
  const Generated all = *generate(s, prompt, text_of, show, {.sampler = {.temperature = 0}, .max_tokens = 6});
  EXPECT_EQ(all.why, "length");
  EXPECT_EQ(all.read, 8u);  // the last token is not fed
  EXPECT_EQ(s.state().position, 8);
  EXPECT_TRUE(shown.ends_with("!")) << shown;
  // The same with its first token as an end token, going on from a state that has read a part of the prompt.
  shown.clear(), s.restart();
  s.feed({{5, 9}});
  const Generated end =
      *generate(s, prompt, text_of, show,
                {.sampler = {.temperature = 0}, .max_tokens = 6, .known = 2, .end_tokens = {all.tokens[0]}});
  EXPECT_EQ(end.why, "end");
  EXPECT_EQ(end.tokens, std::vector<int32_t>{all.tokens[0]});
  EXPECT_EQ(end.read, 3u);
  EXPECT_EQ(shown, "!");
}

}  // namespace
}  // namespace braid
