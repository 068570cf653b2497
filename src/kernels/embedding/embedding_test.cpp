#include "kernels/embedding/embedding.h"

#include "support/op_test.h"
#include "kernels/embedding/embedding_ref.h"

namespace braid {
namespace {

using C = std::complex<double>;

TEST(Embedding, RefBackwardEqualsComplexStep) {
  const size_t vocabulary = 4, cols = 3, n = 5;
  const int32_t ids[n] = {2, 0, 2, 3, 2};  // one repeated, one never used
  std::vector<C> table = random_complex(vocabulary * cols, 1), dy = random_complex(n * cols, 2), y(n * cols),
                 dtable(vocabulary * cols);
  const auto loss = [&] {
    ref::embedding_fwd<C>(ids, table.data(), y.data(), n, cols);
    return dot(y, dy);
  };
  ref::embedding_bwd<C>(ids, dy.data(), dtable.data(), n, cols);
  expect_gradient(table, dtable, loss);
}

TEST(Embedding, EveryImplementationEqualsTheReference) {
  expect_all_impls(embedding_impls(), embedding_check);
}

TEST(Embedding, ThreadsDoNotChangeABit) {
  const size_t rows = 500, vocabulary = 9, cols = 300;
  std::vector<int32_t> ids(rows);
  for (size_t i = 0; i < rows; ++i) ids[i] = static_cast<int32_t>(i * i % vocabulary);
  const std::vector<float> table = random_vector(vocabulary * cols, 1);
  const auto run = [&](Par par) {
    std::vector<float> y(rows * cols), dtable(vocabulary * cols);
    embedding_fwd(ids.data(), {table.data(), vocabulary, cols}, {y.data(), rows, cols}, par);
    embedding_bwd(ids.data(), {y.data(), rows, cols}, {dtable.data(), vocabulary, cols}, par);
    y.insert(y.end(), dtable.begin(), dtable.end());
    return y;
  };
  ThreadPool pool(3);
  EXPECT_EQ(run({}), run(Par(pool)));
}

TEST(Embedding, AMutantFails) {  // the last of repeated ids wins instead of the sum
  const int32_t ids[] = {1, 1, 0};
  const std::vector<double> dy = to_double(random_vector(6, 1));
  std::vector<double> dtable(4);
  ref::embedding_bwd<double>(ids, dy.data(), dtable.data(), 3, 2);
  std::vector<float> mutant(4);
  for (size_t i = 0; i < 3; ++i)
    for (size_t j = 0; j < 2; ++j) mutant[ids[i] * 2 + j] = static_cast<float>(dy[i * 2 + j]);
  EXPECT_FALSE(within(compare<float, double>(mutant, dtable), kTolF32Grad));
}

}  // namespace
}  // namespace braid
