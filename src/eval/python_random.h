// Draws of Python's random.Random(seed): the few-shot examples and bootstrapped errors of lm-eval depend on
// them.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace braid {

class PythonRandom {
 public:
  explicit PythonRandom(uint64_t seed);

  uint64_t bits(int count);                        // getrandbits, count from 1 to 64
  double uniform();                                // random(): [0, 1), 53 bits
  uint64_t below(uint64_t n);                      // _randbelow
  size_t choice(size_t n);                         // an index as choices() draws it
  std::vector<size_t> sample(size_t n, size_t k);  // indices of sample(range(n), k)

 private:
  uint32_t next();  // MT19937

  std::array<uint32_t, 624> state_;
  size_t at_ = 624;
};

}  // namespace braid
