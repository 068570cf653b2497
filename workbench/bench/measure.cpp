#include "bench/measure.h"

#include <algorithm>
#include <vector>

#include "base/clock.h"
#include "kernels/matmul/matmul.h"

namespace braid {

Timing measure(const std::function<void()>& run, int least, double least_seconds) {
  run();
  std::vector<double> times;
  const double start = seconds_now();
  while (static_cast<int>(times.size()) < least || seconds_now() - start < least_seconds) {
    const double t = seconds_now();
    run();
    times.push_back(seconds_now() - t);
  }
  std::sort(times.begin(), times.end());
  const size_t n = times.size();
  const double median = n % 2 ? times[n / 2] : 0.5 * (times[n / 2 - 1] + times[n / 2]);
  return {median, (times[3 * n / 4] - times[n / 4]) / median, static_cast<int>(n)};
}

namespace {

// 512 MB is beyond any last-level cache.
constexpr size_t kNumbers = size_t{64} << 20, kBlock = size_t{1} << 20;

}  // namespace

double measure_read_bandwidth(ThreadPool& pool) {
  std::vector<uint64_t> data(kNumbers, 1);
  std::vector<uint64_t> sums(kNumbers / kBlock);
  const Timing t = measure(
      [&] {
        Par(pool).blocks(kNumbers, kBlock, [&](size_t begin, size_t end) {
          uint64_t s[8] = {};  // eight chains, or the additions would be what is measured
          for (size_t i = begin; i < end; i += 8)
            for (size_t j = 0; j < 8; ++j) s[j] += data[i + j];
          sums[begin / kBlock] = s[0] + s[1] + s[2] + s[3] + s[4] + s[5] + s[6] + s[7];
        });
      },
      3, 0.2);
  return static_cast<double>(kNumbers * sizeof(uint64_t)) / t.seconds;
}

double measure_update_bandwidth(ThreadPool& pool) {
  std::vector<uint64_t> data(kNumbers, 1);
  const Timing t = measure(
      [&] {
        Par(pool).blocks(kNumbers, kBlock, [&](size_t begin, size_t end) {
          for (size_t i = begin; i < end; ++i) ++data[i];
        });
      },
      3, 0.2);
  return static_cast<double>(2 * kNumbers * sizeof(uint64_t)) / t.seconds;
}

double measure_fma_peak(ThreadPool& pool) {
  std::vector<double> each(pool.threads());
  pool.run(each.size(), [&](size_t i) { each[i] = measure_fma_peak(Par(pool).isa()); });
  double sum = 0;
  for (const double e : each) sum += e;
  return sum;
}

}  // namespace braid
