// The definition of embedding, on any number type. Backward is below forward.
#pragma once

#include <cstddef>
#include <cstdint>

namespace braid::ref {

// table: [vocabulary, cols], y: [n, cols], all contiguous.
template <class T>
void embedding_fwd(const int32_t* ids, const T* table, T* y, size_t n, size_t cols) {
  for (size_t i = 0; i < n; ++i)
    for (size_t j = 0; j < cols; ++j) y[i * cols + j] = table[ids[i] * cols + j];
}

template <class T>
void embedding_bwd(const int32_t* ids, const T* dy, T* dtable, size_t n, size_t cols) {
  for (size_t i = 0; i < n; ++i)
    for (size_t j = 0; j < cols; ++j) dtable[ids[i] * cols + j] += dy[i * cols + j];
}

}  // namespace braid::ref
