// For tests: a model whose parts all have an effect.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <string>

#include "model/config_json.h"
#include "model/model.h"

namespace braid {

// Matrices four times as large as at first: with smaller ones a mistake in a part may not show.
inline std::unique_ptr<Model> lively_model(const Json& json, const std::string& name) {
  const Result<ModelConfig> config = parse_config(json, name);
  EXPECT_TRUE(config) << name << ": " << (config ? "" : config.error().what);
  std::unique_ptr<Model> model = Model::create(*config);
  model->init(3);
  for (const Param& p : model->params().all())
    if (p.decay && !p.name.ends_with("conv1d.weight") && !p.name.ends_with("dt_proj.weight"))
      for (float& w : model->params().block().subspan(p.offset, p.count())) w *= 4;
  return model;
}

}  // namespace braid
