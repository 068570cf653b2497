// One kernel with its backward: the gated delta rule on two sequences of different lengths. The gradient of
// one number is then compared with a finite difference.
#include <braid/kernels.hpp>

#include <cmath>
#include <cstdio>

using namespace braid;

int main() {
  const size_t heads = 2, dk = 16, dv = 32, tokens = 80;
  const uint32_t offsets[] = {0, 50, tokens};  // rows 0..49 are one sequence, rows 50..79 another
  const FastWeightShape shape{heads, heads, dk, dv, FastWeightDecay::kToken, FastWeightWrite::kDelta, 0.25f};
  Arena arena;
  Rng rng(1, "example");
  const auto matrix = [&](size_t cols, float mean, float spread) {  // [tokens, cols], heads side by side
    const Mat<float> m = arena.mat(tokens, cols);
    std::generate_n(m.data, m.count(), [&] { return mean + spread * rng.normal(); });
    return m;
  };
  const Mat<float> q = matrix(heads * dk, 0, 1), k = matrix(heads * dk, 0, 0.25f),
                   v = matrix(heads * dv, 0, 1);
  const Mat<float> log_decay = matrix(heads, -0.1f, 0.01f), beta = matrix(heads, 0.8f, 0.05f);
  const FastWeightIn in{.q = q, .k = k, .v = v, .g = log_decay, .beta = beta, .offsets = offsets, .s0 = {}};

  ThreadPool pool(2);  // any number gives the same bits
  const Par par(pool);
  const size_t scratch_size =
      std::max(fast_weight_fwd_scratch(shape, par), fast_weight_bwd_scratch(shape, offsets, {}, par));
  const std::span<float> scratch = arena.take<float>(scratch_size);
  const Mat<float> o = matrix(heads * dv, 0, 0), dout = matrix(heads * dv, 0, 1);
  const auto loss = [&] {  // the sum of o * dout: its gradient with respect to o is dout
    fast_weight_fwd(shape, in, o, {}, {}, scratch, par);
    double sum = 0;
    for (size_t i = 0; i < o.count(); ++i) sum += static_cast<double>(o.data[i]) * dout.data[i];
    return sum;
  };
  const double before = loss();
  const FastWeightGrad grad{.dq = arena.mat(tokens, q.cols),
                            .dk = arena.mat(tokens, k.cols),
                            .dv = arena.mat(tokens, v.cols),
                            .dg = arena.mat(tokens, heads),
                            .dbeta = arena.mat(tokens, heads),
                            .ds0 = {}};
  fast_weight_bwd(shape, in, {}, dout, {}, grad, scratch, par);

  v.row(3)[7] += 1;  // the output is linear in v, so a whole step is as good as a small one
  const double difference = loss() - before, backward = grad.dv.row(3)[7];
  std::printf("loss %.4f\ngradient of v[3, 7]: backward %.4f, difference %.4f\n", before, backward,
              difference);
  return std::abs(difference - backward) < 1e-3 ? 0 : 1;
}
