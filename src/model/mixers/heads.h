// What every mixer with heads checks of its settings.
#pragma once

#include "model/config.h"

namespace braid {

// Numbers per head: as set, or with 0 what follows from the model's width. What cannot be is reported.
int64_t check_head_dim(int64_t heads, int64_t head_dim, const std::string& where, const ModelConfig& model,
                       std::vector<Problem>& problems);
void check_rotated(int64_t head_dim, double rope_theta, const std::string& where,
                   std::vector<Problem>& problems);

}  // namespace braid
