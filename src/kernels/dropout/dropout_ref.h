// The definition of dropout, on any number type. It is its own backward.
#pragma once

#include <cstddef>

#include "base/rng.h"

namespace braid::ref {

// x, y: [n], the elements first .. first + n - 1.
template <class T>
void dropout(const Rng& rng, uint64_t index, float p, size_t first, const T* x, T* y, size_t n) {
  for (size_t i = 0; i < n; ++i) {
    const uint64_t e = first + i;
    const float u = (rng.block(index, e / 4)[e % 4] >> 8) * 0x1p-24f;
    y[i] = x[i] * (u >= p ? T(1) / (T(1) - T(p)) : T(0));
  }
}

}  // namespace braid::ref
