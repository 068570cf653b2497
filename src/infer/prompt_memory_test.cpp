#include "infer/prompt_memory.h"

#include <gtest/gtest.h>

#include "infer/generate.h"
#include "model/presets.h"

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
  ThreadPool pool_{1};
  std::unique_ptr<Model> model_;
};

TEST_F(PromptMemoryTest, GoesOnFromTheLongestBeginning) {
  const std::vector<int32_t> all{5, 9, 2, 44, 3, 17, 8};
  Session s(*model_, pool_);
  PromptMemory memory;
  EXPECT_EQ(memory.recall(s, all), 0u);
  s.feed(std::span(all).first(2));
  memory.keep(std::span(all).first(2), s.state());
  s.feed(std::span(all).subspan(2, 3));
  memory.keep(std::span(all).first(5), s.state());
  const std::vector<float> want = logits(s, std::span(all).subspan(5));
  s.feed({{1, 2, 3}});  // elsewhere
  EXPECT_EQ(memory.recall(s, all), 5u);
  EXPECT_EQ(logits(s, std::span(all).subspan(5)), want);
  EXPECT_EQ(memory.recall(s, std::span(all).first(5)), 2u);  // one token must be left to read
  EXPECT_EQ(memory.recall(s, {{5, 9, 2, 44, 4, 17}}), 2u);   // differs behind it
  EXPECT_EQ(memory.recall(s, {{6, 9, 2}}), 0u);
  EXPECT_EQ(s.state().position, 0);
}

TEST_F(PromptMemoryTest, TheOldestIsForgotten) {
  Session s(*model_, pool_);
  PromptMemory memory(2);
  const std::vector<std::vector<int32_t>> prompts{{1, 2}, {3, 4}, {5, 6}};
  for (const auto& p : prompts) {
    s.restart();
    s.feed(p);
    memory.keep(p, s.state());
  }
  EXPECT_EQ(memory.recall(s, {{1, 2, 3}}), 0u);
  EXPECT_EQ(memory.recall(s, {{3, 4, 3}}), 2u);
  EXPECT_EQ(memory.recall(s, {{5, 6, 3}}), 2u);
}

TEST_F(PromptMemoryTest, GenerationEndsAtAnEndTokenAndSaysWhatWasRead) {
  const std::vector<int32_t> prompt{5, 9, 2};
  const auto text_of = [](std::optional<int32_t> id) { return id ? std::to_string(*id) + "," : "!"; };
  std::string shown;
  const auto show = [&](std::string_view s) { shown += s; };
  Session s(*model_, pool_);
  const Generated all = *generate(s, prompt, {.sampler = {.temperature = 0}, .max_tokens = 6}, text_of, show);
  EXPECT_EQ(all.why, "length");
  EXPECT_EQ(all.read, 8u);  // the last token is not fed
  EXPECT_EQ(s.state().position, 8);
  EXPECT_TRUE(shown.ends_with("!")) << shown;
  // The same with its first token as an end token, going on from a state that has read a part of the prompt.
  shown.clear(), s.restart();
  s.feed({{5, 9}});
  const Generated end = *generate(
      s, prompt, {.sampler = {.temperature = 0}, .max_tokens = 6, .known = 2, .end_tokens = {all.tokens[0]}},
      text_of, show);
  EXPECT_EQ(end.why, "end");
  EXPECT_EQ(end.tokens, std::vector<int32_t>{all.tokens[0]});
  EXPECT_EQ(end.read, 3u);
  EXPECT_EQ(shown, "!");
}

}  // namespace
}  // namespace braid
