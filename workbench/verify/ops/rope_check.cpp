#include <fmt/format.h>

#include <cmath>
#include <memory>

#include "verify/ops.h"
#include "kernels/rope/rope.h"
#include "kernels/rope/rope_ref.h"

namespace braid {
namespace {

struct Case {
  size_t rows, heads, dh, rot;
  double theta;
};
constexpr Case kCases[] = {{1, 1, 2, 2, 1e4},   {3, 2, 6, 6, 1e4},     {5, 3, 10, 4, 1e4},
                           {4, 2, 64, 64, 1e7}, {33, 2, 128, 32, 1e7}, {2, 4, 70, 66, 1e4},
                           {70, 1, 32, 32, 1e4}};

void check_case(const Case& c, std::vector<CheckRow>& rows, Par par) {
  const size_t cols = c.heads * c.dh, stride = cols + 3, n = c.rows * cols, h = c.rot / 2;
  const std::vector<float> wide = random_vector(c.rows * stride, 1), dy = random_vector(n, 2);
  const Mat<const float> x{wide.data(), c.rows, cols, stride};
  const std::string name = fmt::format("{}x{}x{} rot {}", c.rows, c.heads, c.dh, c.rot);
  RopeTable table(c.rot, c.theta);
  table.ensure(3), table.ensure(5000);  // grows in two steps
  std::vector<int32_t> positions(c.rows);
  for (size_t r = 0; r < c.rows; ++r) positions[r] = static_cast<int32_t>((r * 977 + 1) % 5000);
  std::vector<double> y_ref(n), dx_ref(n), cos(h), sin(h);
  const std::vector<double> dyd = to_double(dy);
  for (size_t r = 0; r < c.rows; ++r) {
    for (size_t i = 0; i < h; ++i) {
      const double angle = positions[r] / std::pow(c.theta, 2.0 * i / c.rot);
      cos[i] = std::cos(angle), sin[i] = std::sin(angle);
    }
    const std::vector<double> xd = to_double({x.row(r), cols});
    for (size_t at = 0; at < cols; at += c.dh) {
      ref::rope_fwd<double>(&xd[at], cos.data(), sin.data(), &y_ref[r * cols + at], c.rot, c.dh);
      ref::rope_bwd<double>(&dyd[r * cols + at], cos.data(), sin.data(), &dx_ref[r * cols + at], c.rot, c.dh);
    }
  }
  std::vector<float> y(n, NAN), dx(n, NAN);
  const auto row = [&](const char* what, const std::vector<float>& got, const std::vector<double>& want,
                       Tol tol) {
    rows.push_back({name + " " + what, compare<float, double>(got, want), tol});
  };
  RopeIn in{.x = x, .positions = positions.data(), .table = &table, .heads = c.heads};
  rope_fwd(in, {y.data(), c.rows, cols}, par);
  row("y", y, y_ref, kTolF32);
  in.x = {dy.data(), c.rows, cols};
  rope_bwd(in, {dx.data(), c.rows, cols}, Into::kOverwrite, par);
  row("dx", dx, dx_ref, kTolF32Grad);
  rope_bwd(in, {dx.data(), c.rows, cols}, Into::kAdd, par);
  for (double& v : dx_ref) v *= 2;
  row("dx added", dx, dx_ref, kTolF32Grad);
}

}  // namespace

std::vector<CheckRow> rope_check(Par par) {
  std::vector<CheckRow> rows;
  for (const Case& c : kCases) check_case(c, rows, par);
  return rows;
}

std::vector<BenchCase> rope_bench() {
  struct Data {
    std::vector<float> x, y;
    std::vector<int32_t> positions;
    RopeTable table{128, 1e4};
  };
  const size_t rows = 4096, heads = 8, dh = 128, cols = heads * dh, n = rows * cols;
  auto d = std::make_shared<Data>();
  d->x = random_vector(n, 1), d->y.resize(n), d->positions.resize(rows);
  d->table.ensure(rows);
  for (size_t r = 0; r < rows; ++r) d->positions[r] = static_cast<int32_t>(r);
  const RopeIn in{
      .x = {d->x.data(), rows, cols}, .positions = d->positions.data(), .table = &d->table, .heads = heads};
  const Mat<float> y{d->y.data(), rows, cols};
  const double bytes = 8.0 * n + 4.0 * rows * dh;
  return {
      {"rope fwd 4096x8x128", 0, bytes, [=, keep = d](Par par) { rope_fwd(in, y, par); }},
      {"rope bwd 4096x8x128", 0, bytes, [=, keep = d](Par par) { rope_bwd(in, y, Into::kOverwrite, par); }},
      {"rope fwd in place 4096x8x128", 0, bytes, [=, keep = d](Par par) {
         RopeIn same = in;
         same.x = y;
         rope_fwd(same, y, par);
       }}};
}

}  // namespace braid
