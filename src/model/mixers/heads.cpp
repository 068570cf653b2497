#include "model/mixers/heads.h"

#include <fmt/format.h>

namespace braid {

int64_t check_head_dim(int64_t heads, int64_t head_dim, const std::string& where, const ModelConfig& model,
                       std::vector<Problem>& problems) {
  if (head_dim == 0 && model.d_model % heads != 0)
    problems.push_back({where + ".heads", fmt::format("{} does not divide d_model {}", heads, model.d_model),
                        "give a divisor, or set head_dim"});
  const int64_t d = head_dim ? head_dim : model.d_model / heads;
  if (d < 1 || d > 512)
    problems.push_back(
        {where + ".head_dim", fmt::format("comes out at {}", d), "choose heads so that it is from 1 to 512"});
  return d;
}

void check_rotated(int64_t head_dim, double rope_theta, const std::string& where,
                   std::vector<Problem>& problems) {
  if (rope_theta > 0 && head_dim % 2 != 0)
    problems.push_back({where + ".rope_theta", fmt::format("needs an even head_dim, not {}", head_dim),
                        "change heads or head_dim"});
}

}  // namespace braid
