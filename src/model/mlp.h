// The second half of a layer: what works on each token by itself.
#pragma once

#include <memory>

#include "model/mixers/mixer.h"

namespace braid {

class Mlp {
 public:
  virtual ~Mlp() = default;
  virtual Var forward(Exec& e, Var x, Var residual) const = 0;  // residual + mlp(x)
};

void validate_mlp(const Json& settings, const std::string& where, std::vector<Problem>& problems);
Json complete_mlp(const Json& settings);  // type and every setting, defaults filled in
std::unique_ptr<Mlp> make_mlp(const Json& settings, const ModelConfig& model, Declare declare);  // none: null

// Kinds and their settings, for `braid archs`.
struct MlpDoc {
  std::string_view name, summary;
  std::vector<FieldDoc> fields;
};
std::vector<MlpDoc> all_mlps();

}  // namespace braid
