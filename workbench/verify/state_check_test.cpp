// Every architecture and every mixer that is registered.
#include "io/json.h"
#include "model/config_json.h"
#include "verify/state_check.h"

#include <gtest/gtest.h>

#include "support/lively_model.h"
#include "support/test_kernels.h"
#include "model/presets.h"

namespace braid {
namespace {

void expect_all(Model& model, const std::string& name, Par par = {}) {
  for (const StateCheck& c : check_states(model, par))
    for (const std::string& w : c.wrong) ADD_FAILURE() << name << ": " << c.what << ": " << w;
}

TEST(States, HoldTheirPromisesInEveryArchitecture) {
  ThreadPool pool(2, test_kernels());
  for (const Preset& p : all_presets()) {
    Json json = *preset_config(std::string(p.name), "tiny", 61);
    for (Json& layer : json["pattern"])
      if (Json& mixer = layer["mixer"]; mixer.contains("window") || mixer["type"] == "hqlt")
        mixer["window"] = 7;
    const std::unique_ptr<Model> model = lively_model(json, std::string(p.name));
    expect_all(*model, std::string(p.name), Par(pool));
  }
}

// Paths that tiny presets do not take: windows of several pages, grouped queries, heads large enough for
// chunks of the fast-weight kernel, several writes per token.
TEST(States, HoldTheirPromisesInOtherSettings) {
  const auto of = [](const char* arch, const std::vector<std::string>& overrides) {
    Json json = *preset_config(arch, "tiny", 61);
    for (const std::string& o : overrides) EXPECT_TRUE(apply_override(json, o)) << o;
    return lively_model(json, arch);
  };
  const std::unique_ptr<Model> models[] = {
      of("transformer", {"pattern.*.mixer.kv_heads=1", "pattern.*.mixer.qk_norm=head"}),
      of("transformer", {"pattern.*.mixer.window=130"}),
      of("gated-deltanet",
         {"pattern.*.mixer.heads=1", "pattern.*.mixer.head_dim=128", "pattern.*.mixer.value_dim=128"}),
      of("gated-deltanet", {"pattern.*.mixer.heads=2", "pattern.*.mixer.head_dim=24",
                            "pattern.*.mixer.value_dim=40", "pattern.*.mixer.conv=0"}),
      of("gated-deltaproduct", {"pattern.*.mixer.steps=3"}),
      of("hqlt-delayed-stream", {"pattern.*.mixer.rule=gated_deltaproduct", "pattern.*.mixer.window=9"}),
      of("hqlt-delayed-chunk", {"pattern.*.mixer.rule=gated_deltaproduct", "pattern.*.mixer.window=9"})};
  for (const auto& m : models) expect_all(*m, to_json(m->config())["pattern"][0]["mixer"].dump());
}

// A mixer that writes to its memory without recording it is refused instead of rolled back wrongly.
TEST(States, WhatIsNotRecordedIsNotRolledBack) {
  const std::unique_ptr<Model> model =
      lively_model(*preset_config("gated-deltanet", "tiny", 61), "gated-deltanet");
  State state = model->new_state();
  state.undo = 4;
  Arena arena;
  Exec exec({.arena = &arena, .params = &model->params()});
  const int32_t tokens[] = {1, 2, 3};
  const uint32_t offsets[] = {0, 3};
  State* states[] = {&state};
  model->hidden(exec, {.tokens = tokens, .offsets = offsets, .states = states}, {});
  state.layers[1].trail.back()[0].rows.clear();
  const State before = state;
  const Status s = model->rollback(exec, state, 1);
  ASSERT_FALSE(s);
  EXPECT_NE(s.error().what.find("'fast'"), std::string::npos) << s.error().what;
  EXPECT_TRUE(state == before);
}

TEST(States, NarrowedOnesTakeHalfAndComeBackRounded) {
  const std::unique_ptr<Model> model =
      lively_model(*preset_config("gated-deltanet", "tiny", 61), "gated-deltanet");
  State state = model->new_state();
  float* x = state.layers[0].fast.write(4);
  x[0] = 1.0f, x[1] = 1.0f + 1.0f / 512, x[2] = -3.0e38f, x[3] = 0.1f;
  State kept = state;
  kept.narrow();
  EXPECT_EQ(kept.bytes() * 2, state.bytes());
  const float* back = kept.layers[0].fast.write(4);
  EXPECT_EQ(back[0], 1.0f);
  EXPECT_EQ(back[1], 1.0f);
  EXPECT_NEAR(back[3], 0.1f, 0.1f / 256);
  EXPECT_EQ(x[1], 1.0f + 1.0f / 512);  // the other copy is as it was
}

}  // namespace
}  // namespace braid
