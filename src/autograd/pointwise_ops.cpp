#include "autograd/exact.h"
#include "autograd/ops.h"
#include "autograd/overwrite.h"
#include "kernels/delta_gates/delta_gates.h"
#include "kernels/l2norm/l2norm.h"

namespace braid {

Var map(Exec& e, Var x, Map f, float scale, int bias) {
  const OpTimer timer(e.profile(), "map", false);
  const Var y = e.result_like(x, x.v.cols);
  const MapIn in{.x = x.v, .map = f, .scale = scale, .bias = bias < 0 ? nullptr : e.weight(bias).data};
  map_fwd(in, y.v, e.par());
  if (Exact* exact = e.exact()) exact->map_fwd(in, y.v);
  if (e.recording())
    e.tape().record("map", y.slot, [e, in, x, y, bias] {
      const auto [dx, into] = e.tape().target(x.slot);
      map_bwd(in, e.tape().grad(y.slot),
              {.dx = dx, .dx_mode = into, .dbias = bias < 0 ? nullptr : e.weight_grad(bias).data}, e.par());
    });
  return y;
}

namespace {

Var scaled(Exec& e, Var x, Var s, bool divide, float eps) {
  common_rows(e, {&x, &s});
  const OpTimer timer(e.profile(), "scale heads", false);
  const Var y = e.result_like(x, x.v.cols);
  const ScaleHeadsIn in{.x = x.v, .s = s.v, .divide = divide, .eps = eps};
  scale_heads_fwd(in, y.v, e.par());
  if (Exact* exact = e.exact()) exact->scale_heads_fwd(in, y.v);
  if (e.recording())
    e.tape().record("scale heads", y.slot, [e, in, x, s, y] {
      Tape& t = e.tape();
      const auto [dx, dx_into] = t.target(x.slot);
      const auto [ds, ds_into] = t.target(s.slot);
      scale_heads_bwd(in, t.grad(y.slot), {.dx = dx, .dx_mode = dx_into, .ds = ds, .ds_mode = ds_into},
                      e.par());
    });
  return y;
}

}  // namespace

Var scale_heads(Exec& e, Var x, Var s) { return scaled(e, x, s, false, 0); }
Var divide_heads(Exec& e, Var x, Var s, float eps) { return scaled(e, x, s, true, eps); }

Var scale_heads_by(Exec& e, Var x, size_t w) {
  const OpTimer timer(e.profile(), "scale heads", false);
  const Var y = e.result_like(x, x.v.cols);
  const Mat<const float> s = e.weight(w);
  const ScaleHeadsIn in{.x = x.v, .s = {s.data, x.v.rows, s.count(), 0}};  // every row is the parameter
  scale_heads_fwd(in, y.v, e.par());
  if (Exact* exact = e.exact()) exact->scale_heads_fwd(in, y.v);
  if (e.recording())
    e.tape().record("scale heads", y.slot, [e, in, x, y, w] {
      Tape& t = e.tape();
      const auto [dx, into] = t.target(x.slot);
      const Mat<float> ds = t.take(in.s.rows, in.s.cols);
      scale_heads_bwd(in, t.grad(y.slot), {.dx = dx, .dx_mode = into, .ds = ds}, e.par());
      map_bwd({.x = ds}, ds, {.dbias = e.weight_grad(w).data}, e.par());  // the sum over rows
      t.put(ds);
    });
  return y;
}

Var blend(Exec& e, Var a, Var b, Var z) {
  common_rows(e, {&a, &b, &z});
  const OpTimer timer(e.profile(), "blend", false);
  const Var y = e.result_like(a, a.v.cols);
  const BlendIn in{.a = a.v, .b = b.v, .z = z.v};
  blend_fwd(in, y.v, e.par());
  if (Exact* exact = e.exact()) exact->blend_fwd(in, y.v);
  if (e.recording())
    e.tape().record("blend", y.slot, [e, in, a, b, z, y] {
      Tape& t = e.tape();
      const Overwrite da(t, a), db(t, b), dz(t, z);
      blend_bwd(in, t.grad(y.slot), {.da = da, .db = db, .dz = dz}, e.par());
    });
  return y;
}

Var decay(Exec& e, Var dt, size_t a_log) {
  const OpTimer timer(e.profile(), "decay", false);
  const Var g = e.result_like(dt, dt.v.cols);
  const DecayIn in{.dt = dt.v, .a_log = e.weight(a_log).data, .heads = e.weight(a_log).count()};
  decay_fwd(in, g.v, e.par());
  if (Exact* exact = e.exact()) exact->decay_fwd(in, g.v);
  if (e.recording())
    e.tape().record("decay", g.slot, [e, in, dt, g, a_log] {
      const auto [ddt, into] = e.tape().target(dt.slot);
      decay_bwd(in, e.tape().grad(g.slot),
                {.ddt = ddt, .ddt_mode = into, .da_log = e.weight_grad(a_log).data}, e.par());
    });
  return g;
}

Var delta_gates(Exec& e, Var a, Var b, size_t a_log, size_t dt_bias, float beta_max) {
  common_rows(e, {&a, &b});
  const OpTimer timer(e.profile(), "delta gates", false);
  const size_t n = a.v.cols;
  const DeltaGatesIn in{.a = a.v,
                        .b = b.v,
                        .A_log = e.weight(a_log).data,
                        .dt_bias = e.weight(dt_bias).data,
                        .beta_max = beta_max};
  const Var y = e.result_like(a, 2 * n);
  delta_gates_fwd(in, y.v.col_range(0, n), y.v.col_range(n, 2 * n), e.par());
  if (Exact* exact = e.exact()) exact->delta_gates_fwd(in, y.v.col_range(0, n), y.v.col_range(n, 2 * n));
  if (e.recording())
    e.tape().record("delta gates", y.slot, [e, in, a, b, y, a_log, dt_bias, n] {
      Tape& t = e.tape();
      const Mat<float> d = t.grad(y.slot);
      const Overwrite da(t, a), db(t, b);
      const Arena::Mark mark = e.arena().mark();
      const std::span<float> scratch = e.arena().take<float>(delta_gates_bwd_scratch(d.rows, n));
      delta_gates_bwd(
          in, d.col_range(0, n), d.col_range(n, 2 * n),
          {.da = da, .db = db, .dA_log = e.weight_grad(a_log).data, .ddt_bias = e.weight_grad(dt_bias).data},
          scratch, e.par());
      e.arena().release(mark);
    });
  return y;
}

Var forget(Exec& e, Var x, size_t bounds, size_t layer) {
  const OpTimer timer(e.profile(), "forget", false);
  const size_t n = x.v.cols;
  float* low = e.arena().take<float>(n).data();
  lower_bound_fwd(e.weight(bounds), layer, low);
  const Var gk = e.result_like(x, 2 * n);
  const ForgetIn in{.x = x.v, .low = low};
  forget_fwd(in, gk.v.col_range(0, n), gk.v.col_range(n, 2 * n), e.par());
  if (Exact* exact = e.exact()) {
    exact->lower_bound_fwd(e.weight(bounds), layer, low);
    exact->forget_fwd(in, gk.v.col_range(0, n), gk.v.col_range(n, 2 * n));
  }
  if (e.recording())
    e.tape().record("forget", gk.slot, [e, in, x, gk, bounds, layer, n] {
      Tape& t = e.tape();
      const auto [dx, into] = t.target(x.slot);
      const Mat<float> d = t.grad(gk.slot), dlow = t.take(1, n);
      std::fill_n(dlow.data, n, 0.0f);
      forget_bwd(in, d.col_range(0, n), d.col_range(n, 2 * n), {.dx = dx, .dx_mode = into, .dlow = dlow.data},
                 e.par());
      lower_bound_bwd(e.weight(bounds), layer, dlow.data, e.weight_grad(bounds));
      t.put(dlow);
    });
  return gk;
}

Var l2norm(Exec& e, Var x, size_t heads) {
  const OpTimer timer(e.profile(), "l2norm", false);
  const Var y = e.result_like(x, x.v.cols);
  float* rstd = e.recording() ? e.arena().take<float>(x.v.rows * heads).data() : nullptr;
  const L2NormIn in{.x = x.v, .groups = heads};
  l2norm_fwd(in, y.v, rstd, e.par());
  if (Exact* exact = e.exact()) exact->l2norm_fwd(in, y.v);
  if (e.recording())
    e.tape().record("l2norm", y.slot, [e, in, rstd, x, y] {
      if (const auto [dx, into] = e.tape().target(x.slot); dx.data)
        l2norm_bwd(in, {rstd}, e.tape().grad(y.slot), dx, into, e.par());
    });
  return y;
}

Var l1norm(Exec& e, Var x, size_t heads) {
  const OpTimer timer(e.profile(), "l1norm", false);
  const Var y = e.result_like(x, x.v.cols);
  const L1NormIn in{.x = x.v, .heads = heads};
  l1norm_fwd(in, y.v, e.par());
  if (Exact* exact = e.exact()) exact->l1norm_fwd(in, y.v);
  if (e.recording())
    e.tape().record("l1norm", y.slot, [e, in, x, y] {
      if (const auto [dx, into] = e.tape().target(x.slot); dx.data)
        l1norm_bwd(in, e.tape().grad(y.slot), dx, into, e.par());
    });
  return y;
}

Var gated(Exec& e, Var u, Var g, Gate gate) {
  common_rows(e, {&u, &g});
  const OpTimer timer(e.profile(), "gate", false);
  const SwigluIn in{.g = g.v, .u = u.v, .gate = gate};
  const Var y = e.recording() ? e.result_like(u, u.v.cols) : u;
  swiglu_fwd(in, y.v, e.par());
  if (Exact* exact = e.exact()) exact->swiglu_fwd(in, y.v);
  if (e.recording())
    e.tape().record("gate", y.slot, [e, in, u, g, y] {
      Tape& t = e.tape();
      const Mat<float> dy = t.grad(y.slot);
      {
        const Overwrite dg(t, g);
        swiglu_bwd(in, dy, {.dg = dg, .du = dy}, e.par());
      }
      t.give(y.slot, u.slot);
    });
  return y;
}

}  // namespace braid
