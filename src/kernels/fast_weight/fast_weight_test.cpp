#include "kernels/fast_weight/fast_weight.h"

#include <gtest/gtest.h>

#include <cmath>
#include <string>

#include "kernels/common/op_test.h"
#include "kernels/fast_weight/fast_weight_ref.h"

namespace braid {
namespace {

using C = std::complex<double>;
using Decay = FastWeightDecay;
using Write = FastWeightWrite;
constexpr Decay kDecays[] = {Decay::kNone, Decay::kHead, Decay::kToken, Decay::kChannel};
constexpr Write kWrites[] = {Write::kAdditive, Write::kDelta};

// A small problem for the reference with random cotangents of the outputs and of the final state.
struct Small {
  ref::FastWeightDims<C> d;
  size_t n;
  std::vector<C> q, k, v, g, beta, s0, dout, ds_end, o, s_end, dq, dk, dv, dg, dbeta, ds0;

  Small(Decay decay, Write write, size_t tokens) : d{4, 2, 3, 2, decay, write, 0.7}, n(tokens) {
    q = random_complex(n * 2 * 3, 1), k = random_complex(n * 2 * 3, 2, 0.6), v = random_complex(n * 4 * 2, 3);
    g = random_complex(d.g_count(n), 4), beta = random_complex(n * 4, 5), s0 = random_complex(4 * 3 * 2, 6);
    for (C& x : g) x = -std::abs(x.real());
    for (C& x : beta) x = 1.0 + std::tanh(x.real());
    dout = random_complex(n * 4 * 2, 7), ds_end = random_complex(s0.size(), 8);
    o.resize(dout.size()), s_end.resize(s0.size()), dq.resize(q.size()), dk.resize(k.size());
    dv.resize(v.size()), dg.resize(g.size()), dbeta.resize(beta.size()), ds0.resize(s0.size());
  }
  ref::FastWeightArgs<C> args() const {
    return {q.data(), k.data(), v.data(), g.data(), beta.data(), s0.data()};
  }
  C loss() {
    ref::fast_weight_fwd<C>(d, n, args(), o.data(), s_end.data());
    return dot(o, dout) + dot(s_end, ds_end);
  }
  void backward() {
    ref::fast_weight_bwd<C>(d, n, args(), dout.data(), ds_end.data(),
                            {dq.data(), dk.data(), dv.data(), dg.data(), dbeta.data(), ds0.data()});
  }
};

TEST(FastWeight, RefBackwardEqualsComplexStep) {
  for (const Decay decay : kDecays)
    for (const Write write : kWrites)
      for (const size_t n : {0, 1, 5}) {
        SCOPED_TRACE(testing::Message() << int(decay) << " " << int(write) << " T " << n);
        Small p(decay, write, n);
        p.backward();
        const auto loss = [&] { return p.loss(); };
        expect_gradient(p.q, p.dq, loss);
        expect_gradient(p.k, p.dk, loss);
        expect_gradient(p.v, p.dv, loss);
        expect_gradient(p.g, p.dg, loss);
        if (write == Write::kDelta) expect_gradient(p.beta, p.dbeta, loss);
        expect_gradient(p.s0, p.ds0, loss);
      }
}

// Mutants of the reference that the comparisons must reject.
std::vector<double> real(const std::vector<C>& x) {
  std::vector<double> y;
  for (const C& c : x) y.push_back(c.real());
  return y;
}

bool passes(const std::vector<C>& mutant, const std::vector<C>& want, Tol tol) {
  return within(compare<double, double>(real(mutant), real(want)), tol);
}

TEST(FastWeightMutant, DroppedDecayOnTheCarryFails) {
  for (const Decay decay : {Decay::kHead, Decay::kToken, Decay::kChannel}) {
    // The token that receives the carried state forgets its decay, as at a chunk's border.
    Small p(decay, Write::kDelta, 6);
    p.loss();
    const std::vector<C> want = p.o, end = p.s_end;
    p.loss();
    EXPECT_TRUE(passes(p.o, want, kTolF32));
    for (size_t i = 0; i < p.g.size(); ++i)
      if (decay == Decay::kHead || i / (p.g.size() / 6) == 3) p.g[i] = 0;
    p.loss();
    EXPECT_FALSE(passes(p.o, want, kTolF32));
    EXPECT_FALSE(passes(p.s_end, end, kTolF32));
  }
}

TEST(FastWeightMutant, ReversedCotangentFails) {
  Small p(Decay::kToken, Write::kDelta, 6);
  p.backward();
  const std::vector<C> dq = p.dq, dk = p.dk, dv = p.dv, dg = p.dg;
  const size_t width = p.dout.size() / p.n;
  for (size_t t = 0; t < p.n / 2; ++t)
    std::swap_ranges(&p.dout[t * width], &p.dout[(t + 1) * width], &p.dout[(p.n - 1 - t) * width]);
  p.backward();
  EXPECT_FALSE(passes(p.dq, dq, kTolF32Grad));
  EXPECT_FALSE(passes(p.dk, dk, kTolF32Grad));
  EXPECT_FALSE(passes(p.dv, dv, kTolF32Grad));
  EXPECT_FALSE(passes(p.dg, dg, kTolF32Grad));
}

TEST(FastWeightMutant, WrongKeyHeadFails) {
  for (const Write write : kWrites) {
    Small p(Decay::kToken, write, 6);
    p.loss();
    const std::vector<C> want = p.o;
    for (size_t t = 0; t < p.n; ++t) std::swap_ranges(&p.k[t * 6], &p.k[t * 6 + 3], &p.k[t * 6 + 3]);
    p.loss();
    EXPECT_FALSE(passes(p.o, want, kTolF32));
  }
}

TEST(FastWeightMutant, MissingBetaInTheGradientFails) {
  Small p(Decay::kToken, Write::kDelta, 6);
  p.backward();
  std::vector<C> dv = p.dv;
  for (size_t i = 0; i < dv.size(); ++i) dv[i] /= p.beta[i / p.d.dv];
  EXPECT_FALSE(passes(dv, p.dv, kTolF32Grad));
}

}  // namespace
}  // namespace braid
