// Ops for mixtures of experts: rows go to a few experts each and come back weighted.
#include <algorithm>

#include "autograd/exact.h"
#include "autograd/ops.h"
#include "autograd/overwrite.h"
#include "kernels/router/router.h"

namespace braid {

Routing route(Exec& e, Var logits, size_t k) {
  const OpTimer timer(e.profile(), "route", false);
  const std::span<int32_t> chosen = e.arena().take<int32_t>(logits.v.rows * k);
  const Var w = e.result(logits.v.rows, k);
  router_fwd(logits.v, k, chosen.data(), w.v);
  if (Exact* exact = e.exact()) exact->router_weights(logits.v, chosen.data(), w.v);
  if (e.recording())
    e.tape().record("route", w.slot, [e, logits, chosen, w] {
      const Overwrite d(e.tape(), logits);
      router_bwd(w.v, chosen.data(), e.tape().grad(w.slot), d);
    });
  return {chosen, w};
}

Var pick(Exec& e, Var x, std::span<const uint32_t> which) {
  const Var y = e.result(which.size(), 1);
  const size_t cols = x.v.cols;
  for (size_t i = 0; i < which.size(); ++i) {
    const float* from = x.v.row(which[i] / cols) + which[i] % cols;
    y.v.data[i] = *from;
    if (Exact* exact = e.exact()) exact->copy({from, 1, 1}, y.v.row_range(i, i + 1));
  }
  if (e.recording())
    e.tape().record("pick", y.slot, [e, x, y, which, cols] {
      const Mat<float> dy = e.tape().grad(y.slot);
      const auto [dx, into] = e.tape().target(x.slot);
      if (!dx.data) return;
      for (size_t r = 0; into == Into::kOverwrite && r < dx.rows; ++r) std::fill_n(dx.row(r), dx.cols, 0.0f);
      for (size_t i = 0; i < which.size(); ++i) dx.row(which[i] / cols)[which[i] % cols] += dy.data[i];
    });
  return y;
}

Var sum_rows(Exec& e, std::span<const Var> parts, std::span<const std::span<const uint32_t>> which, size_t n,
             size_t cols) {
  const OpTimer timer(e.profile(), "sum rows", false);
  const Var y = e.result(n, cols);
  std::fill_n(y.v.data, y.v.count(), 0.0f);
  if (Exact* exact = e.exact()) exact->fill(y.v, 0);
  for (size_t p = 0; p < parts.size(); ++p)
    for (size_t i = 0; i < which[p].size(); ++i) {
      const Mat<float> from = parts[p].v.row_range(i, i + 1),
                       to = y.v.row_range(which[p][i], which[p][i] + 1);
      add_to(from, to);
      if (Exact* exact = e.exact()) exact->add(from, to, to);
    }
  if (e.recording())
    e.tape().record("sum rows", y.slot,
                    [e, y, parts = std::vector<Var>(parts.begin(), parts.end()),
                     which = std::vector<std::span<const uint32_t>>(which.begin(), which.end())] {
                      const Mat<float> dy = e.tape().grad(y.slot);
                      for (size_t p = 0; p < parts.size(); ++p) {
                        const Overwrite d(e.tape(), parts[p]);
                        for (size_t i = 0; i < which[p].size(); ++i)
                          std::copy_n(dy.row(which[p][i]), dy.cols, d.mat().row(i));
                      }
                    });
  return y;
}

}  // namespace braid
