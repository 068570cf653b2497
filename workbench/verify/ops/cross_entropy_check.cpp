#include <fmt/format.h>

#include <cmath>
#include <memory>

#include "verify/ops.h"
#include "kernels/cross_entropy/cross_entropy.h"
#include "kernels/cross_entropy/cross_entropy_ref.h"

namespace braid {
namespace {

struct Case {
  size_t rows, vocabulary;
  float scale, shift;  // logits ~ shift + scale * normal
};
constexpr Case kCases[] = {{1, 1, 1, 0},      {3, 2, 1, 0},      {5, 7, 10, 0},  {9, 33, 1, 1e4f},
                           {4, 64, 1, -1e4f}, {3, 100, 1e4f, 0}, {2, 5003, 3, 0}};

constexpr float kZ = 1e-4f;

void check_case(const Case& c, std::vector<CheckRow>& rows, Par par) {
  const size_t n = c.rows * c.vocabulary;
  const std::string name = fmt::format("{}x{} {}+-{}", c.rows, c.vocabulary, c.shift, c.scale);
  std::vector<float> x = random_vector(n, 1, c.scale), weight = random_vector(c.rows, 2);
  for (float& v : x) v += c.shift;
  std::vector<int32_t> target(c.rows);
  for (size_t r = 0; r < c.rows; ++r) {
    target[r] = static_cast<int32_t>((r * 31 + 5) % c.vocabulary);
    if (r % 2 && c.vocabulary > 2) {  // the same maximum twice
      float* row = &x[r * c.vocabulary];
      const size_t best = ref::first_maximum(row, c.vocabulary);
      row[c.vocabulary - 1] = row[c.vocabulary / 2] = row[best];
    }
  }
  std::vector<double> loss_ref(c.rows), argmax_ref(c.rows), dx_ref(n), dz_ref(n);
  const std::vector<double> xd = to_double(x);
  for (size_t r = 0; r < c.rows; ++r) {
    const double* row = &xd[r * c.vocabulary];
    loss_ref[r] = ref::cross_entropy_loss<double>(row, target[r], c.vocabulary);
    argmax_ref[r] = static_cast<double>(ref::first_maximum(row, c.vocabulary));
    ref::cross_entropy_grad<double>(row, target[r], weight[r], 0, &dx_ref[r * c.vocabulary], c.vocabulary);
    ref::cross_entropy_grad<double>(row, target[r], weight[r], kZ, &dz_ref[r * c.vocabulary], c.vocabulary);
  }
  std::vector<float> loss(c.rows, NAN), dx(n, NAN);
  std::vector<int32_t> argmax(c.rows, -1);
  const CrossEntropyIn in{
      .logits = {x.data(), c.rows, c.vocabulary}, .target = target.data(), .weight = weight.data()};
  cross_entropy(
      in, {.loss = loss.data(), .argmax = argmax.data(), .dlogits = {dx.data(), c.rows, c.vocabulary}}, par);
  rows.push_back({name + " loss", compare<float, double>(loss, loss_ref), kTolF32});
  rows.push_back({name + " argmax, exact",
                  compare<float, double>(std::vector<float>(argmax.begin(), argmax.end()), argmax_ref),
                  {0, 0}});
  rows.push_back({name + " dlogits", compare<float, double>(dx, dx_ref), kTolF32Grad});
  CrossEntropyIn with_z = in;
  with_z.z = kZ;
  std::vector<float> dz(n, NAN);
  cross_entropy(with_z, {.dlogits = {dz.data(), c.rows, c.vocabulary}}, par);
  rows.push_back({name + " dlogits, z-loss", compare<float, double>(dz, dz_ref), kTolF32Grad});
  cross_entropy(in, {.dlogits = {x.data(), c.rows, c.vocabulary}}, par);
  rows.push_back({name + " in place, same bits", compare<float, float>(x, dx), {0, 0}});
}

}  // namespace

std::vector<CheckRow> cross_entropy_check(Par par) {
  std::vector<CheckRow> rows;
  for (const Case& c : kCases) check_case(c, rows, par);
  return rows;
}

std::vector<BenchCase> cross_entropy_bench() {
  struct Data {
    std::vector<float> x, dx, loss;
    std::vector<int32_t> target, argmax;
  };
  const size_t rows = 256, vocabulary = 32768, n = rows * vocabulary;
  auto d =
      std::make_shared<Data>(Data{random_vector(n, 1, 3.0f), std::vector<float>(n), std::vector<float>(rows),
                                  std::vector<int32_t>(rows), std::vector<int32_t>(rows)});
  for (size_t r = 0; r < rows; ++r) d->target[r] = static_cast<int32_t>(r * 997 % vocabulary);
  const CrossEntropyIn in{.logits = {d->x.data(), rows, vocabulary}, .target = d->target.data()};
  return {{"cross_entropy loss 256x32768",
           0,
           4.0 * n,
           [=](Par par) { cross_entropy(in, {.loss = d->loss.data()}, par); },
           {},
           BenchTraffic::kRead},
          {"cross_entropy loss argmax dlogits 256x32768", 0, 8.0 * n,
           [=](Par par) {
             cross_entropy(in,
                           {.loss = d->loss.data(),
                            .argmax = d->argmax.data(),
                            .dlogits = {d->dx.data(), rows, vocabulary}},
                           par);
           },
           "forward+backward"}};
}

}  // namespace braid
