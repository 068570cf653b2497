#include <fmt/format.h>

#include <cmath>
#include <memory>

#include "verify/ops.h"
#include "kernels/embedding/embedding.h"
#include "kernels/embedding/embedding_ref.h"

namespace braid {
namespace {

struct Case {
  size_t rows, vocabulary, cols;
};
constexpr Case kCases[] = {{1, 1, 1}, {5, 3, 7}, {40, 11, 33}, {100, 1000, 64}, {7, 5, 300}};

std::vector<int32_t> random_ids(size_t n, size_t vocabulary) {
  Rng rng(5, "ids");
  std::vector<int32_t> ids(n);
  for (int32_t& id : ids) id = static_cast<int32_t>(rng.below(vocabulary));
  return ids;
}

void check_case(const Case& c, std::vector<CheckRow>& rows, Par par) {
  const size_t n = c.rows * c.cols, size = c.vocabulary * c.cols;
  const std::vector<int32_t> ids = random_ids(c.rows, c.vocabulary);
  const std::vector<float> table = random_vector(size, 1), dy = random_vector(n, 2),
                           old = random_vector(size, 3);
  const std::string name = fmt::format("{} of {}x{}", c.rows, c.vocabulary, c.cols);
  const std::vector<double> table_d = to_double(table), dy_d = to_double(dy);
  std::vector<double> y_ref(n), dtable_ref = to_double(old);
  ref::embedding_fwd<double>(ids.data(), table_d.data(), y_ref.data(), c.rows, c.cols);
  ref::embedding_bwd<double>(ids.data(), dy_d.data(), dtable_ref.data(), c.rows, c.cols);
  std::vector<float> y(n, NAN), dtable = old;
  embedding_fwd(ids.data(), {table.data(), c.vocabulary, c.cols}, {y.data(), c.rows, c.cols}, par);
  embedding_bwd(ids.data(), {dy.data(), c.rows, c.cols}, {dtable.data(), c.vocabulary, c.cols}, par);
  rows.push_back({name + " y, exact", compare<float, double>(y, y_ref), {0, 0}});
  rows.push_back({name + " dtable", compare<float, double>(dtable, dtable_ref), kTolF32Grad});
}

}  // namespace

std::vector<CheckRow> embedding_check(Par par) {
  std::vector<CheckRow> rows;
  for (const Case& c : kCases) check_case(c, rows, par);
  return rows;
}

std::vector<BenchCase> embedding_bench() {
  struct Data {
    std::vector<int32_t> ids;
    std::vector<float> table, y;
  };
  const size_t rows = 4096, vocabulary = 16384, cols = 1024, n = rows * cols;
  auto d = std::make_shared<Data>(
      Data{random_ids(rows, vocabulary), std::vector<float>(vocabulary * cols), std::vector<float>(n)});
  return {
      {"embedding fwd 4096 of 16384x1024", 0, 8.0 * n,
       [=](Par par) {
         embedding_fwd(d->ids.data(), {d->table.data(), vocabulary, cols}, {d->y.data(), rows, cols}, par);
       }},
      {"embedding bwd 4096 of 16384x1024", 0, 12.0 * n, [=](Par par) {
         embedding_bwd(d->ids.data(), {d->y.data(), rows, cols}, {d->table.data(), vocabulary, cols}, par);
       }}};
}

}  // namespace braid
