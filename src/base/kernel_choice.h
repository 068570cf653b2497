// Which code kernels run: instructions up to a level, and implementations forced by name. A value that Par
// and ThreadPool carry; a process has no such setting.
//
//   KernelChoice kernels;                                 // the best of this machine
//   kernels.cap(Isa::kAvx2).force("attention", "ref");
//   ThreadPool pool(2, kernels);                          // or Par().with(kernels)
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/cpu.h"

namespace braid {

class KernelChoice {
 public:
  KernelChoice& cap(Isa isa);  // no instructions above it, unless an implementation is forced
  // The last one for an op counts. What the op has not, or the machine cannot run, has no effect.
  KernelChoice& force(std::string_view op, std::string_view implementation);

  Isa isa() const { return isa_; }                     // at most detected_isa()
  std::string_view forced(std::string_view op) const;  // empty: none
  bool is_default() const { return forced_.empty() && isa_ == detected_isa(); }

 private:
  Isa isa_ = detected_isa();
  std::vector<std::pair<std::string, std::string>> forced_;  // op, implementation
};

}  // namespace braid
