#include <fmt/format.h>

#include <cmath>
#include <memory>

#include "verify/ops.h"
#include "kernels/swiglu/swiglu.h"
#include "kernels/swiglu/swiglu_ref.h"

namespace braid {
namespace {

struct Case {
  size_t rows, cols;
  float scale;  // of g: 30 reaches the flat ends of the sigmoid
};
constexpr Case kCases[] = {{1, 1, 1}, {3, 7, 1}, {5, 16, 30}, {33, 33, 2}, {17, 64, 1}, {2, 1000, 5}};

void check_case(const Case& c, Gate gate, std::vector<CheckRow>& rows, Par par) {
  const size_t n = c.rows * c.cols;
  const std::string name =
      fmt::format("{} {}x{} g~{}", gate == Gate::kSilu ? "silu" : "sigmoid", c.rows, c.cols, c.scale);
  // g and u are the two halves of one buffer.
  std::vector<float> gu = random_vector(2 * n, 1);
  const Mat<float> both{gu.data(), c.rows, 2 * c.cols}, g = both.col_range(0, c.cols),
                                                        u = both.col_range(c.cols, 2 * c.cols);
  const std::vector<float> dy = random_vector(n, 2);
  std::vector<double> y_ref(n), dgu_ref(2 * n);
  for (size_t r = 0; r < c.rows; ++r) {
    for (size_t i = 0; i < c.cols; ++i) g.row(r)[i] *= c.scale;
    const std::vector<double> gd = to_double({g.row(r), c.cols}), ud = to_double({u.row(r), c.cols}),
                              dyd = to_double({&dy[r * c.cols], c.cols});
    ref::swiglu_fwd<double>(gate, gd.data(), ud.data(), &y_ref[r * c.cols], c.cols);
    ref::swiglu_bwd<double>(gate, gd.data(), ud.data(), dyd.data(), &dgu_ref[r * 2 * c.cols],
                            &dgu_ref[r * 2 * c.cols + c.cols], nullptr, c.cols);
  }
  std::vector<float> y(n, NAN), again(n, NAN);
  swiglu_fwd({.g = g, .u = u, .gate = gate}, {y.data(), c.rows, c.cols}, par);
  rows.push_back({name + " y", compare<float, double>(y, y_ref), kTolF32});
  // In place: the gradients go where g and u were.
  swiglu_bwd({.g = g, .u = u, .gate = gate}, {dy.data(), c.rows, c.cols},
             {.dg = g, .du = u, .y = {again.data(), c.rows, c.cols}}, par);
  rows.push_back({name + " dg, du", compare<float, double>(gu, dgu_ref), kTolF32Grad});
  rows.push_back({name + " y again, same bits", compare<float, float>(again, y), {0, 0}});
}

}  // namespace

std::vector<CheckRow> swiglu_check(Par par) {
  std::vector<CheckRow> rows;
  for (const Gate gate : {Gate::kSilu, Gate::kSigmoid})
    for (const Case& c : kCases) check_case(c, gate, rows, par);
  return rows;
}

std::vector<BenchCase> swiglu_bench() {
  struct Data {
    std::vector<float> gu, y, dy, dgu;
  };
  const size_t rows = 2048, cols = 2048, n = rows * cols;
  auto d = std::make_shared<Data>(
      Data{random_vector(2 * n, 1), std::vector<float>(n), random_vector(n, 2), std::vector<float>(2 * n)});
  const Mat<const float> gu{d->gu.data(), rows, 2 * cols};
  const Mat<float> dgu{d->dgu.data(), rows, 2 * cols};
  const SwigluIn in{.g = gu.col_range(0, cols), .u = gu.col_range(cols, 2 * cols)};
  const SwigluGrad out{.dg = dgu.col_range(0, cols), .du = dgu.col_range(cols, 2 * cols)};
  return {{"swiglu fwd 2048x2048", 0, 12.0 * n,
           [=](Par par) {
             swiglu_fwd(in, {d->y.data(), rows, cols}, par);
           }},
          {"swiglu bwd 2048x2048", 0, 20.0 * n, [=](Par par) {
             swiglu_bwd(in, {d->dy.data(), rows, cols}, out, par);
           }}};
}

}  // namespace braid
