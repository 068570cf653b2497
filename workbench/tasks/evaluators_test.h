// For the tests: every task's answers found again, from the tokens alone and in another way than the
// generator's; and what a plausible mistake in the generator would have given.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "tasks/task.h"

namespace braid {

struct Expect {
  const char* name;
  std::vector<std::string> settings;
  std::function<std::string(const Sample&)> wrong;  // "" if the sample is right, else what is not
  std::function<void(Sample&)> mistake;             // rewrites the targets by a wrong rule
  size_t train_min, train_max, test_min, test_max;  // in tokens
  size_t vocab;
  double chance;
  const char* golden;  // fingerprint of the first samples
};
const std::vector<Expect>& all_expected();

}  // namespace braid
