#include <fmt/format.h>

#include <cmath>
#include <memory>

#include "verify/ops.h"
#include "kernels/l2norm/l2norm.h"
#include "kernels/l2norm/l2norm_ref.h"

namespace braid {
namespace {

struct Case {
  size_t rows, groups, width;
  float scale;  // of x: at 1e-4 eps decides
};
// (Width 1 has no gradient to compare: y = sign(x).)
constexpr Case kCases[] = {{1, 1, 3, 1},   {3, 2, 7, 1},    {5, 2, 16, 1},    {70, 1, 128, 1},
                           {33, 4, 32, 1}, {2, 3, 100, 10}, {9, 2, 65, 1e-4f}};

void check_case(const Case& c, std::vector<CheckRow>& rows, Par par) {
  // x is a column range of a wider matrix, as after a fused projection.
  const size_t cols = c.groups * c.width, stride = cols + 5, n = c.rows * cols, groups = c.rows * c.groups;
  const std::vector<float> wide = random_vector(c.rows * stride, 1, c.scale), dy = random_vector(n, 2);
  const Mat<const float> x{wide.data(), c.rows, cols, stride};
  const std::string name = fmt::format("{}x{}x{} x~{}", c.rows, c.groups, c.width, c.scale);
  std::vector<double> y_ref(n), rstd_ref(groups), dx_ref(n);
  const std::vector<double> dyd = to_double(dy);
  for (size_t g = 0; g < groups; ++g) {
    const size_t at = g * c.width;
    const std::vector<double> xd = to_double({x.row(g / c.groups) + (g % c.groups) * c.width, c.width});
    ref::l2norm_fwd<double>(xd.data(), &y_ref[at], &rstd_ref[g], c.width, 1e-6);
    ref::l2norm_bwd<double>(xd.data(), rstd_ref[g], &dyd[at], &dx_ref[at], c.width, false);
  }
  std::vector<float> y(n, NAN), rstd(groups, NAN), dx(n, NAN);
  const L2NormIn in{.x = x, .groups = c.groups};
  const Mat<float> dx_mat{dx.data(), c.rows, cols};
  const auto row = [&](const char* what, const std::vector<float>& got, const std::vector<double>& want,
                       Tol tol) {
    rows.push_back({name + " " + what, compare<float, double>(got, want), tol});
  };
  l2norm_fwd(in, {y.data(), c.rows, cols}, rstd.data(), par);
  row("y", y, y_ref, kTolF32);
  row("rstd", rstd, rstd_ref, kTolF32);
  l2norm_bwd(in, {rstd.data()}, {dy.data(), c.rows, cols}, dx_mat, Into::kOverwrite, par);
  row("dx", dx, dx_ref, kTolF32Grad);
  l2norm_bwd(in, {rstd.data()}, {dy.data(), c.rows, cols}, dx_mat, Into::kAdd, par);
  for (double& v : dx_ref) v *= 2;
  row("dx added", dx, dx_ref, kTolF32Grad);
}

}  // namespace

std::vector<CheckRow> l2norm_check(Par par) {
  std::vector<CheckRow> rows;
  for (const Case& c : kCases) check_case(c, rows, par);
  return rows;
}

std::vector<BenchCase> l2norm_bench() {
  struct Data {
    std::vector<float> x, y, rstd, dy, dx;
  };
  const size_t rows = 4096, heads = 8, cols = 1024, n = rows * cols;
  auto d = std::make_shared<Data>(Data{random_vector(n, 1), std::vector<float>(n),
                                       std::vector<float>(rows * heads), random_vector(n, 2),
                                       std::vector<float>(n)});
  const L2NormIn in{.x = {d->x.data(), rows, cols}, .groups = heads};
  l2norm_fwd(in, {d->y.data(), rows, cols}, d->rstd.data());  // backward may be timed alone
  return {{"l2norm fwd 4096x8x128", 0, 8.0 * n,
           [=](Par par) {
             l2norm_fwd(in, {d->y.data(), rows, cols}, d->rstd.data(), par);
           }},
          {"l2norm bwd 4096x8x128", 0, 12.0 * n, [=](Par par) {
             l2norm_bwd(in, {d->rstd.data()}, {d->dy.data(), rows, cols}, {d->dx.data(), rows, cols},
                        Into::kOverwrite, par);
           }}};
}

}  // namespace braid
