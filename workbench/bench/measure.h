// Timing: the median of several runs, with its spread, and the limits of the machine to compare with.
#pragma once

#include <functional>

#include "base/parallel.h"

namespace braid {

struct Timing {
  double seconds;  // median
  double spread;   // (third quartile - first quartile) / median
  int runs;
};

// Runs once to warm up, then at least `least` times and for `least_seconds`.
Timing measure(const std::function<void()>& run, int least = 5, double least_seconds = 0.3);

// Bytes per second, all threads of the pool together: memory that is read; memory that is read and written in
// place, counted twice. The second is the limit of whatever writes as much as it reads: writing elsewhere
// costs more, since a cache reads a line before it writes it.
double measure_read_bandwidth(ThreadPool& pool);
double measure_update_bandwidth(ThreadPool& pool);
double measure_fma_peak(ThreadPool& pool);  // flop/s, all threads together

}  // namespace braid
