// Near-orthogonal keys: more unit vectors than there are dimensions, with small inner products.
#pragma once

#include <cstdint>

#include "tensor/tensor.h"

namespace braid {

// [count, width], rows of length 1, a function of the seed. Orthonormal if count <= width. Otherwise inner
// products are pushed towards 1.2 times the least possible maximum (Welch's bound); of 512 keys in 128
// dimensions they end below 1/8, which random ones do not. Takes time with count^2 width: 1.4 s for 512 on a
// Zen 3 core.
Tensor near_orthogonal_keys(size_t count, size_t width, uint64_t seed);

float coherence(Mat<const float> keys);  // the largest inner product of two rows, without its sign

}  // namespace braid
