// What is checked by the tests and by `braid verify`, and what `braid bench kernels` times.
#include <fmt/format.h>

#include <cmath>
#include <memory>

#include "verify/ops.h"
#include "kernels/delta_gates/delta_gates.h"
#include "kernels/delta_gates/delta_gates_ref.h"

namespace braid {
namespace {

struct Case {
  size_t rows, heads;
  float beta_max, spread;  // of a and b: 15 reaches past 20 and to the flat ends
};
constexpr Case kCases[] = {{1, 1, 1, 1},     {5, 3, 2, 1},    {255, 8, 1, 4},
                           {256, 16, 2, 15}, {600, 21, 1, 1}, {0, 4, 1, 1}};

// a and b beside each other in rows with something before and after, as a joint projection gives them.
void check_case(const Case& c, std::vector<CheckRow>& rows, Par par) {
  const size_t n = c.rows, H = c.heads, wide = 2 * H + 5;
  const std::vector<float> ab = random_vector(n * wide, 1, c.spread), dg = random_vector(n * H, 2),
                           dbeta = random_vector(n * H, 3), A_log = random_vector(H, 4),
                           dt_bias = random_vector(H, 5);
  std::vector<double> g(n * H), beta(n * H), da(n * H), db(n * H), dA_log(H, 0.5), ddt_bias(H, 0.25);
  for (size_t r = 0; r < n; ++r)
    for (size_t h = 0; h < H; ++h) {
      const size_t i = r * H + h;
      const double a = ab[r * wide + 2 + h], b = ab[r * wide + 2 + H + h];
      ref::delta_gates_fwd<double>(a, b, A_log[h], dt_bias[h], c.beta_max, &g[i], &beta[i]);
      ref::delta_gates_bwd<double>(a, b, A_log[h], dt_bias[h], c.beta_max, dg[i], dbeta[i], &da[i], &db[i],
                                   &dA_log[h], &ddt_bias[h]);
    }
  const Mat<const float> all{ab.data(), n, wide};
  const DeltaGatesIn in{.a = all.col_range(2, 2 + H),
                        .b = all.col_range(2 + H, 2 + 2 * H),
                        .A_log = A_log.data(),
                        .dt_bias = dt_bias.data(),
                        .beta_max = c.beta_max};
  std::vector<float> got_g(n * H, NAN), got_beta(n * H, NAN), got_da(n * H, NAN), got_db(n * H, NAN),
      got_A(H, 0.5f), got_bias(H, 0.25f), scratch(delta_gates_bwd_scratch(n, H), NAN);
  delta_gates_fwd(in, {got_g.data(), n, H}, {got_beta.data(), n, H}, par);
  delta_gates_bwd(in, {dg.data(), n, H}, {dbeta.data(), n, H},
                  {.da = {got_da.data(), n, H},
                   .db = {got_db.data(), n, H},
                   .dA_log = got_A.data(),
                   .ddt_bias = got_bias.data()},
                  scratch, par);
  const std::string name = fmt::format("{}x{} beta<{} spread {} ", n, H, c.beta_max, c.spread);
  const auto row = [&](const char* what, const std::vector<float>& got, const std::vector<double>& want,
                       Tol tol) {
    rows.push_back({name + what, compare<float, double>(got, want), tol});
  };
  row("g", got_g, g, kTolF32);
  row("beta", got_beta, beta, kTolF32);
  row("da", got_da, da, kTolF32Grad);
  row("db", got_db, db, kTolF32Grad);
  row("dA_log", got_A, dA_log, kTolF32Grad);
  row("ddt_bias", got_bias, ddt_bias, kTolF32Grad);
  // Gradients over what they come from, and none of the parameters'.
  std::vector<float> over_dg = dg, over_dbeta = dbeta;
  const Mat<float> da_place{over_dg.data(), n, H}, db_place{over_dbeta.data(), n, H};
  delta_gates_bwd(in, da_place, db_place, {.da = da_place, .db = db_place}, scratch, par);
  row("da over dg", over_dg, da, kTolF32Grad);
  row("db over dbeta", over_dbeta, db, kTolF32Grad);
}

}  // namespace

std::vector<CheckRow> delta_gates_check(Par par) {
  std::vector<CheckRow> rows;
  for (const Case& c : kCases) check_case(c, rows, par);
  return rows;
}

std::vector<BenchCase> delta_gates_bench() {
  struct Data {
    std::vector<float> a, b, A_log, dt_bias, g, beta, dg, dbeta, da, db, dA_log, ddt_bias, scratch;
  };
  const size_t rows = 1 << 18, H = 16, n = rows * H;
  auto d = std::make_shared<Data>();
  d->a = random_vector(n, 1), d->b = random_vector(n, 2), d->dg = d->b, d->dbeta = d->a;
  d->A_log = random_vector(H, 3), d->dt_bias = random_vector(H, 4);
  d->g.resize(n), d->beta.resize(n), d->da.resize(n), d->db.resize(n), d->dA_log.resize(H),
      d->ddt_bias.resize(H);
  d->scratch.resize(delta_gates_bwd_scratch(rows, H));
  const auto mat = [=](std::vector<float>& x) { return Mat<float>(x.data(), rows, H); };
  const DeltaGatesIn in{
      .a = mat(d->a), .b = mat(d->b), .A_log = d->A_log.data(), .dt_bias = d->dt_bias.data()};
  return {
      {"delta_gates fwd 262144x16", 0, 16.0 * n,
       [=](Par par) { delta_gates_fwd(in, mat(d->g), mat(d->beta), par); }},
      {"delta_gates bwd 262144x16", 0, 24.0 * n, [=](Par par) {
         delta_gates_bwd(
             in, mat(d->dg), mat(d->dbeta),
             {.da = mat(d->da), .db = mat(d->db), .dA_log = d->dA_log.data(), .ddt_bias = d->ddt_bias.data()},
             d->scratch, par);
       }}};
}

}  // namespace braid
