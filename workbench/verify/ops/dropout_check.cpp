#include <fmt/format.h>

#include <cmath>
#include <memory>

#include "verify/ops.h"
#include "kernels/dropout/dropout.h"
#include "kernels/dropout/dropout_ref.h"

namespace braid {
namespace {

struct Case {
  size_t rows, cols;
  float p;
};
// Widths that start rows in the middle of a block of four, and beyond the chunk of 256.
constexpr Case kCases[] = {{1, 1, 0.5f},   {7, 3, 0.1f},   {5, 17, 0.25f},
                           {33, 64, 0.1f}, {3, 515, 0.9f}, {2, 260, 0}};

void check_case(const Case& c, std::vector<CheckRow>& rows, Par par) {
  const size_t stride = c.cols + 3, n = c.rows * c.cols;
  const std::vector<float> wide = random_vector(c.rows * stride, 1);
  const Mat<const float> x{wide.data(), c.rows, c.cols, stride};
  const DropoutMask mask{Rng(3, "dropout"), 11, c.p};
  std::vector<double> y_ref(n);
  for (size_t r = 0; r < c.rows; ++r)
    ref::dropout<double>(mask.rng, mask.index, c.p, r * c.cols, to_double({x.row(r), c.cols}).data(),
                         &y_ref[r * c.cols], c.cols);
  std::vector<float> y(n, NAN);
  dropout(mask, x, {y.data(), c.rows, c.cols}, par);
  rows.push_back({fmt::format("{}x{} p {}", c.rows, c.cols, c.p), compare<float, double>(y, y_ref), kTolF32});
}

}  // namespace

std::vector<CheckRow> dropout_check(Par par) {
  std::vector<CheckRow> rows;
  for (const Case& c : kCases) check_case(c, rows, par);
  return rows;
}

std::vector<BenchCase> dropout_bench() {
  struct Data {
    std::vector<float> x, y;
  };
  const size_t rows = 4096, cols = 512, n = rows * cols;
  auto d = std::make_shared<Data>(Data{random_vector(n, 1), std::vector<float>(n)});
  return {{"dropout 4096x512", 0, 8.0 * n, [=](Par par) {
             dropout({Rng(1, "dropout"), 0, 0.1f}, {d->x.data(), rows, cols}, {d->y.data(), rows, cols}, par);
           }}};
}

}  // namespace braid
