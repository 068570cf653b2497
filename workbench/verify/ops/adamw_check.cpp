#include <fmt/format.h>

#include <cmath>
#include <memory>

#include "verify/ops.h"
#include "kernels/adamw/adamw.h"
#include "kernels/adamw/adamw_ref.h"

namespace braid {
namespace {

constexpr int kSteps = 6;

void check_case(size_t n, double weight_decay, double grad_scale, std::vector<CheckRow>& rows, Par par) {
  const std::vector<float> start = random_vector(n, 1);
  std::vector<float> p = start, m(n), v(n);
  std::vector<double> p_ref = to_double(p), m_ref(n), v_ref(n);
  // A large rate, so that the way travelled is comparable with p and errors in it cannot hide.
  AdamWIn in{.lr = 0.1, .beta2 = 0.95, .weight_decay = weight_decay, .grad_scale = grad_scale};
  for (in.step = 1; in.step <= kSteps; ++in.step) {
    const std::vector<float> g = random_vector(n, 10 + in.step);
    ref::adamw<double>(in, p_ref.data(), to_double(g).data(), m_ref.data(), v_ref.data(), n);
    adamw(in, {.p = p, .g = g, .m = m, .v = v}, par);
  }
  const std::string name = fmt::format("{} decay {} scale {}", n, weight_decay, grad_scale);
  std::vector<double> way(n), way_ref(n);
  for (size_t i = 0; i < n; ++i) way[i] = double{p[i]} - start[i], way_ref[i] = p_ref[i] - start[i];
  rows.push_back({name + " p", compare<float, double>(p, p_ref), kTolF32});
  rows.push_back({name + " p - start", compare<double, double>(way, way_ref), kTolF32});
  rows.push_back({name + " m", compare<float, double>(m, m_ref), kTolF32});
  rows.push_back({name + " v", compare<float, double>(v, v_ref), kTolF32});
}

}  // namespace

std::vector<CheckRow> adamw_check(Par par) {
  std::vector<CheckRow> rows;
  for (const size_t n : {1u, 7u, 16u, 100u, 20001u})
    for (const double decay : {0.0, 0.1}) check_case(n, decay, n % 2 ? 1 : 0.37, rows, par);
  return rows;
}

std::vector<BenchCase> adamw_bench() {
  struct Data {
    std::vector<float> p, g, m, v;
  };
  const size_t n = 1 << 22;
  auto d = std::make_shared<Data>(
      Data{random_vector(n, 1), random_vector(n, 2), std::vector<float>(n), std::vector<float>(n)});
  return {{"adamw 4194304", 0, 28.0 * n,
           [=](Par par) {
             adamw({.lr = 1e-4, .weight_decay = 0.1, .step = 100},
                   {.p = d->p, .g = d->g, .m = d->m, .v = d->v}, par);
           },
           "update"}};
}

}  // namespace braid
