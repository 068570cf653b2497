// The second half of a layer: what works on each token by itself.
#pragma once

#include <memory>
#include <string_view>
#include <vector>

#include "model/mixers/mixer.h"
#include "model/mlp_config.h"

namespace braid {

class Mlp {
 public:
  virtual ~Mlp() = default;
  virtual Var forward(Exec& e, Var x, Var residual) const = 0;  // residual + mlp(x)
};

std::unique_ptr<Mlp> make_mlp(const MlpConfig& config, const ModelConfig& model,
                              Declare declare);  // none: null

// Kinds and their settings, for `braid archs`.
struct MlpDoc {
  std::string_view name, summary, paper;
  std::vector<FieldDoc> fields;
};
std::vector<MlpDoc> all_mlps();

}  // namespace braid
