// What is checked by the tests and by `braid verify`, and what `braid bench kernels` times.
#include <fmt/format.h>

#include <memory>

#include "verify/ops.h"
#include "kernels/rmsnorm/rmsnorm.h"
#include "kernels/rmsnorm/rmsnorm_ref.h"

namespace braid {
namespace {

struct Case {
  size_t rows, groups, width;
  bool gated;
  float offset;
  RmsNormGate gate = RmsNormGate::kSilu;
  RmsNormOrder order = RmsNormOrder::kNormFirst;
  bool own = false;  // a weight per group
};
constexpr auto kSilu = RmsNormGate::kSilu, kSigmoid = RmsNormGate::kSigmoid;
constexpr auto kNormFirst = RmsNormOrder::kNormFirst, kGateFirst = RmsNormOrder::kGateFirst;
// Widths around the vector lengths 4, 8, 16 and their multiples. (Width 1 has no gradient to compare: y =
// sign(x) w.)
constexpr Case kCases[] = {{1, 1, 3, false, 0},
                           {3, 1, 7, false, 1},
                           {5, 2, 16, true, 0},
                           {70, 1, 128, false, 0},
                           {33, 4, 32, true, 1},
                           {2, 3, 100, true, 0},
                           {65, 1, 257, false, 1},
                           {33, 4, 32, true, 0, kSigmoid, kNormFirst},
                           {3, 2, 21, true, 1, kSigmoid, kNormFirst},
                           {34, 1, 257, true, 0, kSilu, kGateFirst},
                           {5, 3, 19, true, 1, kSilu, kGateFirst},
                           {2, 4, 64, true, 0, kSigmoid, kGateFirst},
                           {4, 2, 16, false, 0, kSilu, kGateFirst},
                           {35, 3, 37, true, 0, kSilu, kGateFirst, true},
                           {7, 2, 16, false, 1, kSilu, kNormFirst, true}};

void check_case(const Case& c, std::vector<CheckRow>& rows, Par par) {
  const size_t cols = c.groups * c.width, n = c.rows * cols;
  const size_t weights = c.own ? cols : c.width;
  const std::vector<float> x = random_vector(n, 1), w = random_vector(weights, 2),
                           z = random_vector(n, 3, 2.0f), dy = random_vector(n, 4);
  const std::string name =
      fmt::format("{}x{}x{}{}{}{}{}{}", c.rows, c.groups, c.width, c.gated ? " gated" : "",
                  c.gate == kSigmoid ? " sigmoid" : "", c.order == kGateFirst ? " gate first" : "",
                  c.offset != 0 ? " zero-centred" : "", c.own ? " weight per group" : "");
  const ref::RmsNormGating gating{c.gate, c.order};
  // Expected, in double.
  const std::vector<double> xd = to_double(x), wd = to_double(w), zd = to_double(z), dyd = to_double(dy);
  std::vector<double> y_ref(n), rstd_ref(c.rows * c.groups), dx_ref(n), dw_ref(weights), dz_ref(n);
  for (size_t g = 0; g < c.rows * c.groups; ++g) {
    const size_t at = g * c.width, own = c.own ? g % c.groups * c.width : 0;
    const double* zp = c.gated ? &zd[at] : nullptr;
    ref::rmsnorm_fwd<double>(&xd[at], &wd[own], zp, &y_ref[at], &rstd_ref[g], c.width, 1e-6, c.offset,
                             gating);
    ref::rmsnorm_bwd<double>(&xd[at], &wd[own], zp, rstd_ref[g], &dyd[at], &dx_ref[at], &dw_ref[own],
                             &dz_ref[at], c.width, c.offset, gating);
  }
  // Measured.
  std::vector<float> y(n, NAN), rstd(c.rows * c.groups, NAN), dx(n, NAN), dw(weights, 0), dz(n, NAN);
  RmsNormIn in{.x = {x.data(), c.rows, cols},
               .w = w.data(),
               .groups = c.groups,
               .weight_per_group = c.own,
               .offset = c.offset,
               .gate = c.gate,
               .order = c.order};
  if (c.gated) in.z = {z.data(), c.rows, cols};
  rmsnorm_fwd(in, {y.data(), c.rows, cols}, rstd.data(), par);
  RmsNormGrad out{.dx = {dx.data(), c.rows, cols}, .dw = dw.data()};
  if (c.gated) out.dz = {dz.data(), c.rows, cols};
  rmsnorm_bwd(in, {rstd.data()}, {dy.data(), c.rows, cols}, out, par);
  const auto row = [&](const char* what, const std::vector<float>& got, const std::vector<double>& want,
                       Tol tol) {
    rows.push_back({name + " " + what, compare<float, double>(got, want), tol});
  };
  row("y", y, y_ref, kTolF32);
  std::vector<float> over = x;  // y may be x
  RmsNormIn same = in;
  same.x = {over.data(), c.rows, cols};
  rmsnorm_fwd(same, {over.data(), c.rows, cols}, nullptr, par);
  row("y over x", over, y_ref, kTolF32);
  row("dx", dx, dx_ref, kTolF32Grad);
  row("dw", dw, dw_ref, kTolF32Grad);
  if (c.gated) row("dz", dz, dz_ref, kTolF32Grad);
  // Added to what is there.
  std::vector<float> twice = dx;
  out = {.dx = {twice.data(), c.rows, cols}, .dx_mode = Into::kAdd};
  rmsnorm_bwd(in, {rstd.data()}, {dy.data(), c.rows, cols}, out, par);
  for (double& v : dx_ref) v *= 2;
  row("dx added", twice, dx_ref, kTolF32Grad);
}

}  // namespace

std::vector<CheckRow> rmsnorm_check(Par par) {
  std::vector<CheckRow> rows;
  for (const Case& c : kCases) check_case(c, rows, par);
  return rows;
}

std::vector<BenchCase> rmsnorm_bench() {
  struct Data {
    std::vector<float> x, w, y, rstd, dy, dx, dw, z, dz;
  };
  const size_t rows = 4096, cols = 1024, n = rows * cols, heads = 8;
  auto d = std::make_shared<Data>();
  d->x = random_vector(n, 1), d->w = random_vector(cols, 2), d->dy = random_vector(n, 3);
  d->z = random_vector(n, 4), d->rstd.assign(rows * heads, 1.0f);
  d->y.resize(n), d->dx.resize(n), d->dz.resize(n), d->dw.resize(cols);
  const auto mat = [=](std::vector<float>& x) { return Mat<float>(x.data(), rows, cols); };
  std::vector<BenchCase> out;
  const auto add = [&](const std::string& name, const RmsNormIn& in, double fwd_bytes, double bwd_bytes) {
    out.push_back({"rmsnorm fwd " + name, 0, fwd_bytes * n,
                   [=](Par par) { rmsnorm_fwd(in, mat(d->y), d->rstd.data(), par); }});
    out.push_back({"rmsnorm bwd " + name, 0, bwd_bytes * n, [=](Par par) {
                     rmsnorm_bwd(
                         in, {d->rstd.data()}, mat(d->dy),
                         {.dx = mat(d->dx), .dw = d->dw.data(), .dz = in.z.data ? mat(d->dz) : Mat<float>()},
                         par);
                   }});
  };
  RmsNormIn in{.x = mat(d->x), .w = d->w.data()};
  add("4096x1024", in, 8, 20);  // backward: x and dy twice, dx
  in.z = mat(d->z), in.groups = heads;
  add("4096x8x128 silu gate", in, 12, 32);  // x, dy and z twice, dx and dz
  in.order = RmsNormOrder::kGateFirst, in.groups = 1;
  add("4096x1024 silu gate first", in, 12, 32);
  return out;
}

}  // namespace braid
