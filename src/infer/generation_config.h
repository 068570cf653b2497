// Recommended sampling of a released model: generation_config.json, else the token ids of config.json.
//
//   Result<GenerationConfig> g = load_generation_config("model-folder");
//   Sampler sampler(g->sampling());
//
// What neither file says stays off: no filter, no limit, no token that ends. (transformers would take top_k
// = 50.)
#pragma once

#include <string>
#include <vector>

#include "base/error.h"
#include "infer/sampler.h"

namespace braid {

struct GenerationConfig {
  bool do_sample = false;
  bool says_how = false;        // whether generation_config.json has do_sample or any setting of a sampler
  SamplerOptions sampler = {};  // as given; sampling() is what follows from it
  std::vector<int32_t> eos;     // each of them ends a text; sorted
  int64_t max_new_tokens = 0;   // 0: no limit given
  std::vector<std::string>
      ignored;  // settings that would change what is chosen, but Braid's sampler does not have

  // The filters in transformers' order; the likeliest token is taken if do_sample is false, or nothing is
  // said.
  SamplerOptions sampling() const;
};

// Neither file need be there. Every problem is in the error.
Result<GenerationConfig> load_generation_config(const std::string& dir);

}  // namespace braid
