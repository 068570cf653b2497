// The definition of rope, on any number type. Backward is below forward.
#pragma once

#include <cstddef>

namespace braid::ref {

// One head: x, y [dh]; cos, sin [rot / 2]. y may be x.
template <class T>
void rope_fwd(const T* x, const T* cos, const T* sin, T* y, size_t rot, size_t dh) {
  const size_t h = rot / 2;
  for (size_t i = 0; i < h; ++i) {
    const T a = x[i], b = x[i + h];
    y[i] = a * cos[i] - b * sin[i];
    y[i + h] = b * cos[i] + a * sin[i];
  }
  for (size_t i = rot; i < dh; ++i) y[i] = x[i];
}

// A rotation's transpose is the rotation by the negative angle.
template <class T>
void rope_bwd(const T* dy, const T* cos, const T* sin, T* dx, size_t rot, size_t dh) {
  const size_t h = rot / 2;
  for (size_t i = 0; i < h; ++i) {
    const T a = dy[i], b = dy[i + h];
    dx[i] = a * cos[i] + b * sin[i];
    dx[i + h] = b * cos[i] - a * sin[i];
  }
  for (size_t i = rot; i < dh; ++i) dx[i] = dy[i];
}

}  // namespace braid::ref
