// Ops for mixtures of experts: rows go to a few experts each and come back weighted.
#include <algorithm>

#include "autograd/exact.h"
#include "autograd/experts.h"
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

Var routed_experts(Exec& e, Var x, const Routing& routing, std::span<const ExpertWeights> experts) {
  check(!e.recording() && !e.exact(), "routed_experts is for inference");
  constexpr size_t kRowBlock = 8;
  const size_t n = x.v.rows, k = routing.weights.v.cols, all = n * k, width = x.v.cols,
               inner = e.param(experts[0].gate).rows();
  const Var y = e.result(n, width);
  const Arena::Mark mark = e.arena().mark();
  // Row p of what follows belongs to choice order[p]; place[j] is where choice j went.
  const std::span<uint32_t> starts = e.arena().take<uint32_t>(experts.size() + 1),
                            order = e.arena().take<uint32_t>(all), place = e.arena().take<uint32_t>(all),
                            next = e.arena().take<uint32_t>(experts.size());
  std::fill(starts.begin(), starts.end(), 0u);
  for (const int32_t c : routing.chosen) ++starts[static_cast<size_t>(c) + 1];
  for (size_t i = 0; i < experts.size(); ++i) starts[i + 1] += starts[i], next[i] = starts[i];
  for (size_t j = 0; j < all; ++j) {
    place[j] = next[static_cast<size_t>(routing.chosen[j])]++;
    order[place[j]] = static_cast<uint32_t>(j);
  }
  const Mat<float> gathered = e.arena().mat(all, width), gu = e.arena().mat(all, 2 * inner),
                   h = e.arena().mat(all, inner), out = e.arena().mat(all, width);
  const std::span<WeightProduct> products = e.arena().take<WeightProduct>(2 * experts.size());
  const auto run = [&](size_t count) {
    const OpTimer timer(e.profile(), "linear", false);
    const std::span<const WeightProduct> list(products.data(), count);
    weight_matmul(list, Into::kOverwrite, e.arena().take<float>(weight_matmul_scratch(list)), e.par());
  };
  size_t count = 0;
  {
    const OpTimer timer(e.profile(), "experts", false);
    e.par().blocks(all, kRowBlock, [&](size_t begin, size_t end) {
      for (size_t p = begin; p < end; ++p) std::copy_n(x.v.row(order[p] / k), width, gathered.row(p));
    });
  }
  for (size_t i = 0; i < experts.size(); ++i) {
    if (starts[i] == starts[i + 1]) continue;
    const Mat<float> to = gu.row_range(starts[i], starts[i + 1]);
    const Mat<const float> from = gathered.row_range(starts[i], starts[i + 1]);
    products[count++] = {from, *e.stored(experts[i].gate), to.col_range(0, inner)};
    products[count++] = {from, *e.stored(experts[i].up), to.col_range(inner, 2 * inner)};
  }
  run(count);
  {
    const OpTimer timer(e.profile(), "swiglu", false);
    swiglu_fwd({gu.col_range(0, inner), gu.col_range(inner, 2 * inner)}, h, e.par());
  }
  count = 0;
  for (size_t i = 0; i < experts.size(); ++i)
    if (starts[i] < starts[i + 1])
      products[count++] = {h.row_range(starts[i], starts[i + 1]), *e.stored(experts[i].down),
                           out.row_range(starts[i], starts[i + 1])};
  run(count);
  {
    const OpTimer timer(e.profile(), "experts", false);
    e.par().blocks(n, kRowBlock, [&](size_t begin, size_t end) {
      for (size_t r = begin; r < end; ++r) {
        float* to = y.v.row(r);
        std::fill_n(to, width, 0.0f);
        for (size_t j = r * k; j < (r + 1) * k; ++j) {
          const float w = routing.weights.v.row(r)[j - r * k];
          const float* from = out.row(place[j]);
          for (size_t c = 0; c < width; ++c) to[c] += w * from[c];
        }
      }
    });
  }
  e.arena().release(mark);
  return y;
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
