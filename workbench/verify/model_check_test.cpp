#include "verify/model_check.h"

#include <gtest/gtest.h>

#include "model/presets.h"
#include "support/lively_model.h"
#include "verify/exact_check.h"

namespace braid {
namespace {

void expect_all(Model& model) {
  const std::vector<ModelCheckRow> rows = check_model(model);
  EXPECT_GE(rows.size(), 10u);
  for (const ModelCheckRow& r : rows) EXPECT_EQ(r.wrong, 0u) << r.what << ": " << r.detail;
}

TEST(ModelCheck, EveryPromiseHolds) {
  const std::unique_ptr<Model> model = lively_model(*preset_config("gdn-h1", "tiny", 61), "gdn-h1");
  expect_all(*model);
}

// Targets are drawn from the tokens that can be answers, not from the vocabulary.
TEST(ModelCheck, FewerAnswersThanTokens) {
  for (const int outputs : {1, 3}) {
    Json json = *preset_config("transformer", "tiny", 61);
    json["outputs"] = outputs;
    const std::unique_ptr<Model> model = lively_model(json, "transformer");
    ASSERT_EQ(model->config().answers(), outputs);
    expect_all(*model);
  }
}

TEST(ModelCheckDeathTest, ATargetThatCannotBeAnAnswerIsAMistakeOfTheCaller) {
  Json json = *preset_config("transformer", "tiny", 61);
  json["outputs"] = 3;
  const std::unique_ptr<Model> model = lively_model(json, "transformer");
  const int32_t tokens[] = {1, 2}, targets[] = {2, 3};
  const uint32_t offsets[] = {0, 2};
  EXPECT_DEATH(ExactCheck(*model, {tokens, offsets, targets}), "answer");
}

}  // namespace
}  // namespace braid
