// What kernels on ragged batches share: the longest sequence, tasks that threads take by turns, and dense
// copies for references.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <span>
#include <vector>

#include "base/parallel.h"
#include "tensor/tensor.h"

namespace braid {

inline size_t longest_sequence(std::span<const uint32_t> offsets) {
  size_t n = 0;
  for (size_t i = 1; i < offsets.size(); ++i) n = std::max<size_t>(n, offsets[i] - offsets[i - 1]);
  return n;
}

// run(task, worker) for every task below total; a thread takes the next `step` of them when it is free, as
// sequences differ in length. Tasks write to disjoint places, so who takes which changes nothing.
template <class Run>
void take_turns(size_t total, size_t step, Par par, const Run& run) {
  std::atomic<size_t> next{0};
  par.tasks(std::min(total, static_cast<size_t>(par.threads())), [&](size_t worker) {
    for (size_t first; (first = next.fetch_add(step, std::memory_order_relaxed)) < total;)
      for (size_t i = first; i < std::min(total, first + step); ++i) run(i, worker);
  });
}

// Row stride of a copied matrix: an odd number of cache lines, so that rows spread over all sets of a cache.
constexpr size_t spread_stride(size_t width) { return (width + 31) / 32 * 32 + 16; }

// Rows without gaps, and back.
inline std::vector<float> dense(Mat<const float> m) {
  std::vector<float> to;
  for (size_t r = 0; r < m.rows; ++r) to.insert(to.end(), m.row(r), m.row(r) + m.cols);
  return to;
}
inline void scatter(const std::vector<float>& from, Mat<float> to) {
  for (size_t r = 0; r < to.rows; ++r) std::copy_n(from.data() + r * to.cols, to.cols, to.row(r));
}
// The same for a part of m; nothing if there is no m.
inline std::vector<float> dense(Mat<const float> m, size_t row, size_t rows, size_t begin, size_t width) {
  return m.data ? dense(m.row_range(row, row + rows).col_range(begin, begin + width)) : std::vector<float>();
}
inline void scatter(const std::vector<float>& from, Mat<float> m, size_t row, size_t rows, size_t begin,
                    size_t width) {
  if (m.data) scatter(from, m.row_range(row, row + rows).col_range(begin, begin + width));
}

}  // namespace braid
