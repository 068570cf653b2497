// What is checked by the tests and by `braid verify`, and what `braid bench` times.
#include <fmt/format.h>

#include <cmath>
#include <memory>

#include "verify/ops.h"
#include "verify/ops/stored_sample.h"
#include "kernels/weight_matmul/weight_matmul_ref.h"

namespace braid {
namespace {

constexpr WeightFormat kFormats[] = {WeightFormat::kF32, WeightFormat::kBf16, WeightFormat::kQ8,
                                     WeightFormat::kQ4};

struct Case {
  size_t m, n, k;
};
// One to many rows of X, around the borders of groups, blocks and panels; widths that are no whole blocks.
constexpr Case kCases[] = {{1, 1, 32},   {1, 70, 96},    {2, 5, 64},    {3, 9, 40},
                           {5, 65, 33},  {8, 66, 160},   {9, 30, 64},   {32, 20, 160},
                           {33, 40, 96}, {70, 261, 160}, {515, 20, 40}, {4, 130, 7}};

// With activations of bf16 the definition has X rounded where its bf16 part alone is used.
void check_products(Activations a, std::vector<CheckRow>& rows, Par par) {
  const bool high = a == Activations::kBf16;
  for (const WeightFormat f : kFormats)
    for (const Case& c : kCases)
      for (const Into into : {Into::kOverwrite, Into::kAdd}) {
        if (!weight_fits(f, c.k)) continue;
        // The second product has the same X and a matrix in two parts; strides are longer than rows.
        const StoredSample w1(f, c.n, c.k, 1), w2(f, c.n + 3, c.k, 2, c.n / 2);
        const size_t xs = c.k + 3, ys = 2 * c.n + 3 + 2;
        const std::vector<float> x = random_vector(c.m * xs, 3);
        std::vector<double> xd = to_double(x);
        if (high && c.m > kFewRows && f == WeightFormat::kBf16)
          for (double& v : xd) v = to_f32(to_bf16(static_cast<float>(v)));
        std::vector<float> got(c.m * ys, into == Into::kAdd ? 0.5f : NAN);
        std::vector<double> want(c.m * ys, into == Into::kAdd ? 0.5 : 0);
        ref::weight_matmul<double>(xd.data(), xs, c.m, w1.matrix(), want.data(), ys, into);
        ref::weight_matmul<double>(xd.data(), xs, c.m, w2.matrix(), want.data() + c.n, ys, into);
        const Mat<float> y(got.data(), c.m, ys, ys);
        const WeightProduct products[] = {
            {{x.data(), c.m, c.k, xs}, w1.matrix(), y.col_range(0, c.n)},
            {{x.data(), c.m, c.k, xs}, w2.matrix(), y.col_range(c.n, 2 * c.n + 3)}};
        std::vector<float> scratch(weight_matmul_scratch(products, a, par));
        weight_matmul(products, into, a, scratch, par);
        for (size_t i = 0; i < c.m; ++i)  // the padding between rows must be untouched
          for (size_t j = ys - 2; j < ys; ++j)
            if (into == Into::kOverwrite && std::isnan(got[i * ys + j])) got[i * ys + j] = 0;
        // Where X is split, its low part is left out with q8 and q4, too: as much as bf16 loses.
        const bool loses = high && c.m > kFewRows && has_scales(f) && weight_matmul_impls().use(par).splits;
        rows.push_back({fmt::format("{} {}x{}x{}{}{}", weight_format_name(f), c.m, c.n, c.k,
                                    into == Into::kAdd ? " added" : "", high ? ", X in bf16" : ""),
                        compare<float, double>(got, want), loses ? kTolBf16 : kTolF32});
      }
}

}  // namespace

std::vector<CheckRow> weight_matmul_check(Par par) {
  std::vector<CheckRow> rows;
  check_products(Activations::kF32, rows, par);
  check_products(Activations::kBf16, rows, par);
  for (const WeightFormat f : kFormats) {
    const StoredSample w(f, 40, 96, 4, 17);
    const int32_t ids[] = {39, 0, 16, 17, 17};
    std::vector<float> got(5 * 96);
    std::vector<double> want;
    weight_rows(w.matrix(), ids, {got.data(), 5, 96}, par);
    for (const int32_t id : ids)
      for (size_t k = 0; k < 96; ++k) want.push_back(w.number(id, k));
    rows.push_back(
        {fmt::format("{} rows", weight_format_name(f)), compare<float, double>(got, want), kTolF32});
  }
  return rows;
}

// Layers of a model with a width of 1024, a head, and a layer of a larger one: a token, eight sequences, a
// prompt.
std::vector<BenchCase> weight_matmul_bench() {
  constexpr Case kShapes[] = {{1, 7168, 1024},  {1, 1024, 3584},  {1, 65536, 1024},  {1, 22016, 3840},
                              {8, 65536, 1024}, {8, 22016, 3840}, {512, 7168, 1024}, {512, 1024, 3584}};
  struct Data {
    std::unique_ptr<StoredSample> w;
    Tensor x, y;
    std::vector<float> scratch;
  };
  std::vector<BenchCase> cases;
  for (const WeightFormat f : kFormats)
    for (const Case& s : kShapes) {
      auto d = std::make_shared<Data>();
      const auto bytes = static_cast<double>(StoredMatrix{f, s.n, s.k, {}}.bytes());
      cases.push_back(
          {fmt::format("weight_matmul {} {}x{}x{}", weight_format_name(f), s.m, s.n, s.k),
           s.m > kFewRows ? 2.0 * static_cast<double>(s.m * s.n * s.k) : 0, s.m > kFewRows ? 0 : bytes,
           [=](Par par) {
             if (!d->w) {
               d->w = std::make_unique<StoredSample>(f, s.n, s.k, 1);
               d->x = bench_tensor(s.m * s.k), d->y = bench_tensor(s.m * s.n);
             }
             const WeightProduct p{
                 {d->x.as<float>().data(), s.m, s.k}, d->w->matrix(), {d->y.as<float>().data(), s.m, s.n}};
             d->scratch.resize(weight_matmul_scratch({&p, 1}, Activations::kF32, par));
             weight_matmul({&p, 1}, Into::kOverwrite, Activations::kF32, d->scratch, par);
           },
           s.m == 1   ? "token"
           : s.m == 8 ? "eight tokens"
                      : "prompt",
           BenchTraffic::kRead});
    }
  return cases;
}

}  // namespace braid
