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
  constexpr size_t kRowBlock = 8, kRowsPerThread = 256;
  const size_t n = x.v.rows, k = routing.weights.v.cols, all = n * k, width = x.v.cols,
               inner = e.param(experts[0].gate).rows();
  const Var y = e.result(n, width);
  const Arena::Mark mark = e.arena().mark();
  // Choices by expert: order[p] is the choice in place p. Those of a row, by expert: sorted[r k], ...
  const std::span<uint32_t> starts = e.arena().take<uint32_t>(experts.size() + 1),
                            next = e.arena().take<uint32_t>(experts.size()),
                            order = e.arena().take<uint32_t>(all), place = e.arena().take<uint32_t>(all),
                            sorted = e.arena().take<uint32_t>(all);
  std::fill(starts.begin(), starts.end(), 0u);
  for (const int32_t c : routing.chosen) ++starts[static_cast<size_t>(c) + 1];
  for (size_t i = 0; i < experts.size(); ++i) starts[i + 1] += starts[i], next[i] = starts[i];
  for (size_t j = 0; j < all; ++j) {
    sorted[j] = static_cast<uint32_t>(j);
    place[j] = next[static_cast<size_t>(routing.chosen[j])]++;
    order[place[j]] = static_cast<uint32_t>(j);
  }
  for (size_t r = 0; r < n; ++r)
    std::sort(sorted.begin() + static_cast<ptrdiff_t>(r * k),
              sorted.begin() + static_cast<ptrdiff_t>((r + 1) * k),
              [&](uint32_t a, uint32_t b) { return place[a] < place[b]; });
  std::fill_n(y.v.data, y.v.count(), 0.0f);

  const std::span<WeightProduct> products = e.arena().take<WeightProduct>(2 * experts.size());
  const auto run = [&](size_t count) {
    const OpTimer timer(e.profile(), "linear", false);
    const Arena::Mark before = e.arena().mark();
    const std::span<const WeightProduct> list(products.data(), count);
    const size_t scratch = weight_matmul_scratch(list, e.activations(), e.par());
    weight_matmul(list, Into::kOverwrite, e.activations(), e.arena().take<float>(scratch), e.par());
    e.arena().release(before);
  };
  // Experts in groups, so that a prompt does not need room for all of its choices. A row adds up its experts
  // in their order, whatever the groups are.
  const size_t most = kRowsPerThread * static_cast<size_t>(e.par().threads());
  for (size_t first = 0, last; first < experts.size(); first = last) {
    for (last = first + 1; last < experts.size() && starts[last + 1] - starts[first] <= most;) ++last;
    const size_t begin = starts[first], rows = starts[last] - begin;
    if (rows == 0) continue;
    const Arena::Mark before = e.arena().mark();
    const Mat<float> in = e.arena().mat(rows, width), gu = e.arena().mat(rows, 2 * inner);
    const Mat<float> gate = gu.col_range(0, inner), up = gu.col_range(inner, 2 * inner), out = in;
    const auto of = [&](const Mat<float>& m, size_t i) {
      return m.row_range(starts[i] - begin, starts[i + 1] - begin);
    };
    {
      const OpTimer timer(e.profile(), "experts", false);
      e.par().blocks(rows, kRowBlock, [&](size_t from, size_t to) {
        for (size_t p = from; p < to; ++p) std::copy_n(x.v.row(order[begin + p] / k), width, in.row(p));
      });
    }
    size_t count = 0;
    for (size_t i = first; i < last; ++i) {
      if (starts[i] == starts[i + 1]) continue;
      products[count++] = {of(in, i), *e.stored(experts[i].gate), of(gate, i)};
      products[count++] = {of(in, i), *e.stored(experts[i].up), of(up, i)};
    }
    run(count);
    {
      const OpTimer timer(e.profile(), "swiglu", false);
      swiglu_fwd({gate, up}, gate, e.par());
    }
    count = 0;
    for (size_t i = first; i < last; ++i)
      if (starts[i] < starts[i + 1])
        products[count++] = {of(gate, i), *e.stored(experts[i].down), of(out, i)};
    run(count);
    {
      const OpTimer timer(e.profile(), "experts", false);
      e.par().blocks(n, kRowBlock, [&](size_t from_row, size_t to_row) {
        for (size_t r = from_row; r < to_row; ++r)
          for (size_t s = r * k; s < (r + 1) * k; ++s) {
            const size_t j = sorted[s], p = place[j] - begin;
            if (place[j] < begin || p >= rows) continue;
            const float w = routing.weights.v.row(r)[j - r * k];
            const float* from = out.row(p);
            float* to = y.v.row(r);
            for (size_t c = 0; c < width; ++c) to[c] += w * from[c];
          }
      });
    }
    e.arena().release(before);
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
      add_to(from, to, e.par().alone());
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
