// Folders of tokens with weights, and the order in which samples are drawn from them.
//
// The order is a list of set numbers that repeats: sample i comes from set order[i mod order.size()]. It is
// spread evenly, computed once and saved with the mixture, so that it never changes.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/error.h"

namespace braid {

struct WeightedSet {
  std::string path;  // a folder of tokens
  double weight = 1;
};

struct Mixture {
  std::vector<WeightedSet> sets;
  std::vector<uint32_t> order = {};
};

// The shares of the sets in the order are those of the weights to a thousandth; each has at least one sample.
Result<Mixture> make_mixture(std::vector<WeightedSet> sets);

Status save_mixture(const Mixture& mixture, const std::string& path);
Result<Mixture> load_mixture(const std::string& path);  // relative paths of sets begin at its folder

// What the words of a command line name: folders with or without ":WEIGHT", or one mixture's file.
Result<Mixture> parse_mixture(const std::vector<std::string>& words, const std::string& option);

}  // namespace braid
