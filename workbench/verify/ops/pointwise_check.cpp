// What is checked by the tests and by `braid verify`, and what `braid bench kernels` times.
#include <fmt/format.h>

#include <cmath>
#include <memory>

#include "verify/ops.h"
#include "kernels/pointwise/pointwise.h"
#include "kernels/pointwise/pointwise_ref.h"

namespace braid {
namespace {

struct Case {
  size_t rows, heads, width;
};
constexpr Case kCases[] = {{1, 1, 3}, {5, 3, 7}, {33, 2, 16}, {70, 4, 25}, {3, 20, 1}};
constexpr Map kMaps[] = {Map::kIdentity, Map::kSilu,     Map::kSigmoid,    Map::kRelu,
                         Map::kElu1,     Map::kSoftplus, Map::kLogSigmoid, Map::kGelu};

// Inputs lie in rows with a gap between them.
constexpr size_t kGap = 3;

struct Checker {
  Case c;
  std::vector<CheckRow>& rows;
  Par par;
  size_t cols = c.heads * c.width, n = c.rows * cols, stride = cols + kGap;

  Mat<const float> strided(const std::vector<float>& x) const { return {x.data(), c.rows, cols, stride}; }
  std::vector<double> dense(const std::vector<float>& x) const {
    std::vector<double> d(n);
    for (size_t i = 0; i < n; ++i) d[i] = x[i / cols * stride + i % cols];
    return d;
  }
  Mat<float> mat(std::vector<float>& y) const { return {y.data(), c.rows, y.size() / c.rows}; }
  void row(const std::string& what, const std::vector<float>& got, const std::vector<double>& want, Tol tol) {
    rows.push_back(
        {fmt::format("{} {}x{}x{}", what, c.rows, c.heads, c.width), compare<float, double>(got, want), tol});
  }
  // One result and what was added to it: what is there must stay.
  void row_added(const std::string& what, std::vector<float> got, std::vector<double> want) {
    for (double& w : want) w += 0.5;
    row(what + " added", got, want, kTolF32Grad);
  }

  const std::vector<float> x = random_vector(c.rows * stride, 1, 2.0f), a = random_vector(c.rows * stride, 2),
                           z = random_vector(c.rows * stride, 3, 2.0f),
                           up = random_vector(c.rows * stride, 4), vec = random_vector(cols, 5);
  const std::vector<double> xd = dense(x), ad = dense(a), zd = dense(z), upd = dense(up),
                            vecd = to_double(vec);

  void map(Map m) {
    const MapIn in{.x = strided(x), .map = m, .scale = 0.7f, .bias = vec.data()};
    std::vector<float> y(n, NAN), dx(n, NAN), more(n, 0.5f), dbias(cols, 0);
    std::vector<double> wy(n), wdx(n), wdb(cols, 0);
    for (size_t i = 0; i < n; ++i) {
      const double v = xd[i] + vecd[i % cols];
      wy[i] = static_cast<double>(0.7f) * ref::map(m, v);
      wdx[i] = static_cast<double>(0.7f) * upd[i] * ref::map_slope(m, v);
      wdb[i % cols] += wdx[i];
    }
    map_fwd(in, mat(y), par);
    map_bwd(in, strided(up), {.dx = mat(dx), .dbias = dbias.data()}, par);
    map_bwd(in, strided(up), {.dx = mat(more), .dx_mode = Into::kAdd}, par);
    const std::string name = fmt::format("map {}", static_cast<int>(m));
    row(name + " y", y, wy, kTolF32), row(name + " dx", dx, wdx, kTolF32Grad);
    row(name + " dbias", dbias, wdb, kTolF32Grad), row_added(name + " dx", more, wdx);
  }

  void scale_heads(bool divide) {
    std::vector<float> s = random_vector(c.rows * c.heads, 6);
    if (divide)
      for (float& v : s) v = 0.5f + std::fabs(v);
    const float eps = divide ? 0.125f : 0;
    const ScaleHeadsIn in{.x = strided(x), .s = {s.data(), c.rows, c.heads}, .divide = divide, .eps = eps};
    std::vector<float> y(n, NAN), dx(n, NAN), ds(s.size(), NAN), more(n, 0.5f), more_s(s.size(), 0.5f);
    std::vector<double> wy(n), wdx(n), wds(s.size());
    for (size_t g = 0; g < s.size(); ++g) {
      ref::scale_head_fwd<double>(&xd[g * c.width], s[g], divide, eps, &wy[g * c.width], c.width);
      ref::scale_head_bwd<double>(&xd[g * c.width], s[g], divide, eps, &upd[g * c.width], &wdx[g * c.width],
                                  &wds[g], c.width);
    }
    scale_heads_fwd(in, mat(y), par);
    scale_heads_bwd(in, strided(up), {.dx = mat(dx), .ds = mat(ds)}, par);
    scale_heads_bwd(in, strided(up),
                    {.dx = mat(more), .dx_mode = Into::kAdd, .ds = mat(more_s), .ds_mode = Into::kAdd}, par);
    const std::string name = divide ? "divide_heads" : "scale_heads";
    row(name + " y", y, wy, kTolF32), row(name + " dx", dx, wdx, kTolF32Grad);
    row(name + " ds", ds, wds, kTolF32Grad);
    row_added(name + " dx", more, wdx), row_added(name + " ds", more_s, wds);
  }

  void blend() {
    const BlendIn in{.a = strided(a), .b = strided(x), .z = strided(z)};
    std::vector<float> y(n, NAN), da(n, NAN), db(n, NAN), dz(n, NAN);
    std::vector<double> wy(n), wda(n), wdb(n), wdz(n);
    for (size_t i = 0; i < n; ++i) {
      wy[i] = ref::blend(ad[i], xd[i], zd[i]);
      ref::blend_bwd(ad[i], xd[i], zd[i], upd[i], &wda[i], &wdb[i], &wdz[i]);
    }
    blend_fwd(in, mat(y), par);
    blend_bwd(in, strided(up), {.da = mat(da), .db = mat(db), .dz = mat(dz)}, par);
    row("blend y", y, wy, kTolF32), row("blend da", da, wda, kTolF32Grad);
    row("blend db", db, wdb, kTolF32Grad), row("blend dz", dz, wdz, kTolF32Grad);
  }

  void decay() {
    const DecayIn in{.dt = strided(x), .a_log = vec.data(), .heads = c.heads};
    std::vector<float> g(n, NAN), ddt(n, NAN), more(n, 0.5f), da(c.heads, 0);
    std::vector<double> wg(n), wddt(n), wda(c.heads, 0);
    for (size_t i = 0; i < n; ++i) {
      const size_t h = i % cols / c.width;
      wg[i] = ref::decay(vecd[h], xd[i]);
      wddt[i] = ref::decay(vecd[h], upd[i]);
      wda[h] += upd[i] * wg[i];
    }
    decay_fwd(in, mat(g), par);
    decay_bwd(in, strided(up), {.ddt = mat(ddt), .da_log = da.data()}, par);
    decay_bwd(in, strided(up), {.ddt = mat(more), .ddt_mode = Into::kAdd}, par);
    row("decay g", g, wg, kTolF32), row("decay ddt", ddt, wddt, kTolF32Grad);
    row("decay da_log", da, wda, kTolF32Grad), row_added("decay ddt", more, wddt);
  }

  void forget(bool bounded) {
    std::vector<float> low(cols, 0);
    if (bounded)
      for (size_t i = 0; i < cols; ++i) low[i] = 0.9f * static_cast<float>(i) / static_cast<float>(cols);
    const ForgetIn in{.x = strided(x), .low = low.data()};
    std::vector<float> g(n, NAN), k(n, NAN), dx(n, NAN), more(n, 0.5f), dlow(cols, 0);
    std::vector<double> wg(n), wk(n), wdx(n), wdlow(cols, 0);
    for (size_t i = 0; i < n; ++i) {
      double one;
      ref::forget<double>(xd[i], low[i % cols], &wg[i], &wk[i]);
      ref::forget_bwd<double>(xd[i], low[i % cols], upd[i], ad[i], &wdx[i], &one);
      wdlow[i % cols] += one;
    }
    forget_fwd(in, mat(g), mat(k), par);
    forget_bwd(in, strided(up), strided(a), {.dx = mat(dx), .dlow = dlow.data()}, par);
    forget_bwd(in, strided(up), strided(a), {.dx = mat(more), .dx_mode = Into::kAdd}, par);
    row("forget g", g, wg, kTolF32), row("forget k", k, wk, kTolF32), row("forget dx", dx, wdx, kTolF32Grad);
    row("forget dlow", dlow, wdlow, kTolF32Grad), row_added("forget dx", more, wdx);
  }

  void l1norm(float eps) {
    const L1NormIn in{.x = strided(x), .heads = c.heads, .eps = eps};
    std::vector<float> y(n, NAN), dx(n, NAN), more(n, 0.5f);
    std::vector<double> wy(n), wdx(n);
    for (size_t at = 0; at < n; at += c.width) {
      ref::l1norm_fwd<double>(&xd[at], eps, &wy[at], c.width);
      ref::l1norm_bwd<double>(&xd[at], eps, &upd[at], &wdx[at], c.width);
    }
    l1norm_fwd(in, mat(y), par);
    l1norm_bwd(in, strided(up), mat(dx), Into::kOverwrite, par);
    l1norm_bwd(in, strided(up), mat(more), Into::kAdd, par);
    row("l1norm y", y, wy, kTolF32), row("l1norm dx", dx, wdx, kTolF32Grad),
        row_added("l1norm dx", more, wdx);
  }
};

}  // namespace

std::vector<CheckRow> pointwise_check(Par par) {
  std::vector<CheckRow> rows;
  for (const Case& c : kCases) {
    Checker check{c, rows, par};
    for (const Map m : kMaps) check.map(m);
    check.scale_heads(false), check.scale_heads(true);
    check.blend();
    check.decay();
    check.forget(false), check.forget(true);
    check.l1norm(0.25f), check.l1norm(1e4f);
  }
  return rows;
}

std::vector<BenchCase> pointwise_bench() {
  struct Data {
    std::vector<float> x, z, dy, y, dx, dz;
  };
  const size_t rows = 4096, cols = 1024, n = rows * cols;
  auto d = std::make_shared<Data>(Data{random_vector(n, 1), random_vector(n, 2), random_vector(n, 3),
                                       std::vector<float>(n), std::vector<float>(n), std::vector<float>(n)});
  const Mat<const float> x{d->x.data(), rows, cols}, z{d->z.data(), rows, cols}, dy{d->dy.data(), rows, cols};
  const Mat<float> y{d->y.data(), rows, cols}, dx{d->dx.data(), rows, cols}, dz{d->dz.data(), rows, cols};
  const MapIn silu{.x = x, .map = Map::kSilu};
  const BlendIn blend{.a = x, .b = dy, .z = z};
  return {{"silu fwd 4096x1024", 0, 8.0 * n, [=, keep = d](Par par) { map_fwd(silu, y, par); }},
          {"silu bwd 4096x1024", 0, 12.0 * n, [=, keep = d](Par par) { map_bwd(silu, dy, {.dx = dx}, par); }},
          {"blend fwd 4096x1024", 0, 16.0 * n, [=, keep = d](Par par) { blend_fwd(blend, y, par); }},
          {"blend bwd 4096x1024", 0, 28.0 * n,
           [=, keep = d](Par par) { blend_bwd(blend, dy, {.da = y, .db = dx, .dz = dz}, par); }}};
}

}  // namespace braid
