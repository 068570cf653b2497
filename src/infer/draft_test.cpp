#include "infer/draft.h"

#include <gtest/gtest.h>

#include <vector>

#include "io/json.h"
#include "infer/generate.h"
#include "model/config_json.h"
#include "model/model.h"
#include "model/presets.h"
#include "support/test_kernels.h"

namespace braid {
namespace {

std::vector<int32_t> guess(const std::vector<int32_t>& history, size_t most) {
  const std::span<const int32_t> g = look_up_draft(history, most);
  return {g.begin(), g.end()};
}

TEST(Draft, LooksForTheLongestAndLatestMatch) {
  using V = std::vector<int32_t>;
  EXPECT_EQ(guess({}, 4), V{});
  EXPECT_EQ(guess({1, 2, 3, 4}, 4), V{});
  EXPECT_EQ(guess({1, 1}, 4), V{});
  EXPECT_EQ(guess({1, 2, 7, 8, 1, 2}, 4), (V{7, 8, 1, 2}));
  EXPECT_EQ(guess({1, 2, 7, 8, 1, 2}, 2), (V{7, 8}));
  EXPECT_EQ(guess({1, 2, 7, 8, 1, 2}, 0), V{});
  EXPECT_EQ(guess({1, 2, 7, 1, 2, 9, 1, 2}, 1), V{9});        // the latest
  EXPECT_EQ(guess({3, 1, 2, 7, 1, 2, 9, 3, 1, 2}, 1), V{7});  // the longest
  EXPECT_EQ(guess({5, 5, 5}, 3), V{5});                       // one that runs into the end
  EXPECT_EQ(guess({2, 7, 8, 2}, 3), V{});                     // one token is no match
}

// The same tokens and the same state with and without guesses, in every architecture; also when sampled, when
// a text ends in the middle of a pass, and on texts that repeat themselves.
TEST(Draft, ChangesNoTokenAndNoBitOfTheState) {
  Context context({.threads = 1, .kernels = test_kernels()});
  size_t accepted = 0, rejected = 0;
  for (const Preset& p : all_presets()) {
    const std::unique_ptr<Model> model =
        Model::create(*parse_config(*preset_config(std::string(p.name), "tiny", 13), ""));
    model->init(1);
    const std::vector<int32_t> prompt{1, 2, 3, 4, 5, 1, 2, 3, 4, 5, 1, 2, 3};
    const auto run = [&](GenerateOptions g, int64_t draft, State& end) {
      Session s(*model, context);
      g.draft = draft;
      const Result<Generated> r = generate(
          s, prompt, [](std::optional<int32_t> id) { return id ? std::to_string(*id) + "," : "!"; },
          [](std::string_view) {}, g);
      EXPECT_TRUE(r) << p.name << ": " << r.error().what;
      s.feed({{1}});  // the state is what it should be
      end = s.state();
      if (r && draft) accepted += r->accepted, rejected += r->drafted - r->accepted;
      return *r;
    };
    for (const float temperature : {0.0f, 1.0f}) {
      GenerateOptions g{.sampler = {.temperature = temperature, .seed = 5}, .max_tokens = 40};
      State want, got;
      const Generated plain = run(g, 0, want);
      for (const int64_t draft : {1, 4, 7}) {
        const Generated fast = run(g, draft, got);
        EXPECT_EQ(fast.tokens, plain.tokens) << p.name;
        EXPECT_EQ(fast.read, plain.read);
        EXPECT_TRUE(got == want) << p.name << " " << draft;
        EXPECT_LE(fast.passes, plain.passes);
      }
      // An end in the middle.
      g.end_tokens = {plain.tokens[11]};
      const Generated ended = run(g, 0, want), fast = run(g, 7, got);
      EXPECT_EQ(fast.tokens, ended.tokens) << p.name;
      EXPECT_EQ(fast.read, ended.read);
      EXPECT_TRUE(got == want) << p.name;
    }
  }
  EXPECT_GT(accepted, 100u);  // both happen
  EXPECT_GT(rejected, 100u);
}

TEST(BatchDecoder, TwentyTogetherAreEachAlone) {
  Context context({.threads = 2, .kernels = test_kernels()});
  const std::unique_ptr<Model> model = Model::create(*parse_config(*preset_config("gdn-h1", "tiny", 61), ""));
  model->init(1);
  std::vector<State> together, alone;
  std::vector<State*> states;
  std::vector<int32_t> tokens;
  for (int32_t i = 0; i < 20; ++i) {
    Session s(*model, context);
    s.feed(std::vector<int32_t>(static_cast<size_t>(3 + i), i));
    together.push_back(s.state()), alone.push_back(s.state()), tokens.push_back(i);
  }
  for (State& s : together) states.push_back(&s);
  BatchDecoder batch(*model, context);
  for (int step = 0; step < 3; ++step) {
    const Mat<const float> got = batch.step(states, tokens);
    for (size_t i = 0; i < alone.size(); ++i) {
      Session s(*model, context);
      s.set_state(alone[i]);
      const std::span<const float> want = s.feed(std::span(tokens).subspan(i, 1));
      EXPECT_TRUE(std::equal(want.begin(), want.end(), got.row(i))) << i;
      alone[i] = s.state();
    }
    for (int32_t& t : tokens) t = (t + 1) % 61;
  }
}

}  // namespace
}  // namespace braid
