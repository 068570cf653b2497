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

double measure_read_bandwidth(ThreadPool& pool);  // bytes per second, from memory, all threads of the pool
double measure_fma_peak(ThreadPool& pool);        // flop/s, all threads together

}  // namespace braid
