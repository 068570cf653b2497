// What is checked by the tests and by `braid verify`, and what `braid bench` times.
#include <fmt/format.h>

#include <cmath>
#include <memory>

#include "verify/ops.h"
#include "kernels/matmul/matmul.h"
#include "kernels/matmul/matmul_ref.h"

namespace braid {
namespace {

struct Case {
  size_t m, n, k;
};
// Around the skinny limit, the panel and tile borders, and odd sizes.
constexpr Case kCases[] = {{1, 1, 1},     {1, 130, 70},  {7, 65, 33},  {9, 40, 17},
                           {33, 48, 129}, {257, 30, 64}, {3, 1030, 8}, {200, 10, 200}};
constexpr MatmulForm kForms[] = {MatmulForm::kNT, MatmulForm::kNN, MatmulForm::kTN};
constexpr const char* kFormNames[] = {"nt", "nn", "tn"};

template <class T>
std::vector<CheckRow> check_all(std::vector<T> (*make)(size_t, uint64_t), double (*wide)(T), Tol tol,
                                Par par) {
  std::vector<CheckRow> rows;
  for (const Case& c : kCases)
    for (const MatmulForm form : kForms)
      for (const Into into : {Into::kOverwrite, Into::kAdd}) {
        // Strides longer than the rows, to catch a stride taken for a width.
        const size_t ar = form == MatmulForm::kTN ? c.k : c.m, ac = form == MatmulForm::kTN ? c.m : c.k;
        const size_t br = form == MatmulForm::kNT ? c.n : c.k, bc = form == MatmulForm::kNT ? c.k : c.n;
        const size_t as = ac + 3, bs = bc + 1, cs = c.n + 2;
        const std::vector<T> a = make(ar * as, 1), b = make(br * bs, 2);
        std::vector<double> ad(a.size()), bd(b.size()), want(c.m * cs, 0);
        for (size_t i = 0; i < a.size(); ++i) ad[i] = wide(a[i]);
        for (size_t i = 0; i < b.size(); ++i) bd[i] = wide(b[i]);
        std::vector<float> got(c.m * cs, into == Into::kAdd ? 0.0f : NAN);
        if (into == Into::kAdd)
          for (size_t i = 0; i < c.m; ++i)
            for (size_t j = 0; j < c.n; ++j) got[i * cs + j] = want[i * cs + j] = static_cast<double>(i % 5);
        ref::matmul<double, double>(form, c.m, c.n, c.k, ad.data(), as, bd.data(), bs, want.data(), cs, into);
        matmul(form, Mat<const T>(a.data(), ar, ac, as), Mat<const T>(b.data(), br, bc, bs),
               {got.data(), c.m, c.n, cs}, into, par);
        for (size_t i = 0; i < c.m; ++i)  // the padding between rows must be untouched
          for (size_t j = c.n; j < cs; ++j)
            if (into == Into::kOverwrite && std::isnan(got[i * cs + j])) got[i * cs + j] = 0;
        rows.push_back({fmt::format("{} {}x{}x{}{}", kFormNames[static_cast<int>(form)], c.m, c.n, c.k,
                                    into == Into::kAdd ? " added" : ""),
                        compare<float, double>(got, want), tol});
      }
  return rows;
}

std::vector<float> make_f32(size_t n, uint64_t seed) { return random_vector(n, seed); }
std::vector<bf16> make_bf16(size_t n, uint64_t seed) {
  std::vector<bf16> out(n);
  const std::vector<float> x = random_vector(n, seed);
  for (size_t i = 0; i < n; ++i) out[i] = to_bf16(x[i]);
  return out;
}

// The shapes of a training step (tokens x width), of a large layer, and of decoding.
constexpr struct {
  MatmulForm form;
  size_t m, n, k;
} kShapes[] = {{MatmulForm::kNT, 4096, 4096, 1024}, {MatmulForm::kNT, 40960, 128, 128},
               {MatmulForm::kNN, 40960, 128, 128},  {MatmulForm::kNT, 40960, 512, 128},
               {MatmulForm::kNN, 40960, 128, 512},  {MatmulForm::kTN, 128, 128, 40960},
               {MatmulForm::kTN, 512, 128, 40960},  {MatmulForm::kNT, 512, 512, 128},
               {MatmulForm::kNN, 512, 128, 512},    {MatmulForm::kTN, 512, 128, 512},
               {MatmulForm::kNT, 1, 8192, 2048},    {MatmulForm::kNT, 4, 8192, 2048}};

template <class T>
std::vector<BenchCase> bench_all(const char* name, std::vector<T> (*make)(size_t, uint64_t)) {
  struct Data {
    std::vector<T> a, b;
    std::vector<float> c;
  };
  std::vector<BenchCase> cases;
  for (const auto& s : kShapes) {
    // Built on the first run: all shapes together would need gigabytes.
    auto d = std::make_shared<Data>();
    const size_t ar = s.form == MatmulForm::kTN ? s.k : s.m, ac = s.form == MatmulForm::kTN ? s.m : s.k;
    const size_t br = s.form == MatmulForm::kNT ? s.n : s.k, bc = s.form == MatmulForm::kNT ? s.k : s.n;
    cases.push_back({fmt::format("{} {} {}x{}x{}", name, kFormNames[static_cast<int>(s.form)], s.m, s.n, s.k),
                     2.0 * s.m * s.n * s.k, sizeof(T) * (1.0 * ar * ac + 1.0 * br * bc) + 4.0 * s.m * s.n,
                     [=](Par par) {
                       if (d->a.empty())
                         *d = {make(ar * ac, 1), make(br * bc, 2), std::vector<float>(s.m * s.n)};
                       matmul(s.form, Mat<const T>(d->a.data(), ar, ac), Mat<const T>(d->b.data(), br, bc),
                              {d->c.data(), s.m, s.n}, Into::kOverwrite, par);
                     }});
  }
  return cases;
}

}  // namespace

std::vector<CheckRow> matmul_check(Par par) {
  return check_all<float>(
      make_f32, [](float x) -> double { return x; }, kTolF32, par);
}
// The operands are bf16 already: what is left is the f32 sum.
std::vector<CheckRow> matmul_bf16_check(Par par) {
  return check_all<bf16>(
      make_bf16, [](bf16 x) -> double { return to_f32(x); }, kTolF32, par);
}
std::vector<BenchCase> matmul_bench() { return bench_all<float>("matmul", make_f32); }
std::vector<BenchCase> matmul_bf16_bench() { return bench_all<bf16>("matmul_bf16", make_bf16); }

}  // namespace braid
