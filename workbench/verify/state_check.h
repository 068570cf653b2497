// The promises of states, checked bit for bit on a whole model: for the tests and `braid verify`.
#pragma once

#include <string>
#include <vector>

#include "model/model.h"

namespace braid {

struct StateCheck {
  std::string what;
  size_t checks = 0;
  std::vector<std::string> wrong;  // what did not hold
};

// a few tokens together = one by one; rolled back = never read; sequences together = each alone, also when
// some leave and others join; snapshots on the way = passes that end there, and they change nothing.
std::vector<StateCheck> check_states(const Model& model, Par par = {});

}  // namespace braid
