#include "kernels/delta_former/delta_former.h"

#include <gtest/gtest.h>

#include <array>
#include <bit>
#include <cmath>
#include <cstdio>

#include "kernels/attention/attention_ref.h"
#include "support/op_test.h"
#include "kernels/delta_former/delta_former_ref.h"
#include "kernels/fast_weight/fast_weight_ref.h"

namespace braid {
namespace {

using C = std::complex<double>;
using K = DeltaKind;

// The reference's backward against the complex step, for every input and kernel. A step passes a straight-
// through rounding and stops at one without, so that both definitions are tested; relu has no kink at random
// scores.
TEST(DeltaFormer, RefBackwardEqualsComplexStep) {
  const DeltaKernel kernels[] = {{K::kLinear, 0.7f},  {K::kRelu, 0.7f},    {K::kExp, 0.5f},
                                 {K::kSoftmax, 1.5f}, {K::kRound, 1, 100}, {K::kRound, 1, 2, false}};
  for (const DeltaKernel& write : kernels)
    for (const DeltaKernel& read : kernels)
      for (const auto similarity : {DeltaSimilarity::kKey, DeltaSimilarity::kQuery})
        for (const size_t n : {1, 6}) {
          SCOPED_TRACE(testing::Message()
                       << int(write.kind) << " " << int(read.kind) << " " << int(similarity) << " T " << n);
          const DeltaFormerShape d{1, 3, 2, write, read, similarity};
          std::vector<C> q = random_complex(n * 3, 1), k = random_complex(n * 3, 2, 0.6),
                         v = random_complex(n * 2, 3), a = random_complex(n, 4), b = random_complex(n, 5),
                         dout = random_complex(n * 2, 6), du = random_complex(n * 2, 7), o(n * 2), u(n * 2),
                         dq(n * 3), dk(n * 3), dv(n * 2), da(n), db(n);
          const ref::DeltaFormerArgs<C> in{q.data(), k.data(), v.data(), a.data(), b.data()};
          const auto loss = [&] {
            ref::delta_former_fwd<C>(d, 0, n, in, o.data(), u.data());
            return dot(o, dout) + dot(u, du);
          };
          loss();
          ref::delta_former_bwd<C>(d, n, in, u.data(), dout.data(), du.data(),
                                   {dq.data(), dk.data(), dv.data(), da.data(), db.data()});
          expect_gradient(q, dq, loss);
          expect_gradient(k, dk, loss);
          expect_gradient(v, dv, loss);
          expect_gradient(a, da, loss);
          expect_gradient(b, db, loss);
        }
}

TEST(DeltaFormer, EveryImplementationEqualsTheReference) {
  expect_all_impls(delta_former_impls(), delta_former_check);
}

// One head of n tokens in double.
struct Small {
  size_t n = 20, dk = 4, dv = 3;
  std::vector<double> q = to_double(random_vector(n * dk, 1)), k = to_double(random_vector(n * dk, 2, 0.5f)),
                      v = to_double(random_vector(n * dv, 3)), a = to_double(random_vector(n, 4)),
                      b = to_double(random_vector(n, 5)), o = v, u = v, m = v;
  void run(const DeltaFormerShape& d) {
    ref::delta_former_fwd<double>(d, 0, n, {q.data(), k.data(), v.data(), a.data(), b.data()}, o.data(),
                                  u.data(), m.data());
  }
};

TEST(DeltaFormer, LinearKernelsAreDeltaNet) {
  Small p;
  p.a = p.b;
  p.run({1, p.dk, p.dv, {K::kLinear}, {K::kLinear, 0.5f}});
  std::vector<double> want(p.o.size());
  const ref::FastWeightDims<double> d{1, 1, p.dk, p.dv, FastWeightDecay::kNone, FastWeightWrite::kDelta, 0.5};
  ref::fast_weight_fwd<double>(d, p.n, {p.q.data(), p.k.data(), p.v.data(), nullptr, p.b.data(), nullptr},
                               want.data(), nullptr);
  EXPECT_TRUE(within(compare<double, double>(p.o, want), kTolF64));
}

// With w = q and both softmaxes of one scale, the two sums differ only by the token itself: rho is its
// weight.
TEST(DeltaFormer, QuerySimilarityNeedsOnePass) {
  Small p;
  const DeltaKernel f{K::kSoftmax, 0.5f};
  p.run({1, p.dk, p.dv, f, f, DeltaSimilarity::kQuery});
  std::vector<double> want(p.o.size()), row(p.dv);
  for (size_t t = 0; t < p.n; ++t) {
    const double rho =
        ref::delta_read<double>(f, p.dk, p.dv, t + 1, p.k.data(), p.u.data(), &p.q[t * p.dk], row.data())
            .p[t];
    for (size_t e = t * p.dv; e < (t + 1) * p.dv; ++e)
      want[e] = (1 - rho - rho * p.b[t]) * p.m[e] + rho * p.a[t] * p.v[e];
  }
  EXPECT_TRUE(within(compare<double, double>(p.o, want), kTolF64));
}

struct Batch {
  DeltaFormerShape shape;
  std::vector<uint32_t> offsets;
  size_t rows, kw, vw;
  std::vector<float> q, k, v, a, b, dout;

  explicit Batch(const DeltaFormerShape& s, std::vector<uint32_t> cuts = {0, 100, 100, 101, 160, 300},
                 float key_scale = 1)
      : shape(s), offsets(std::move(cuts)), rows(offsets.back()), kw(s.heads * s.dk), vw(s.heads * s.dv) {
    q = random_vector(rows * kw, 1, key_scale), k = random_vector(rows * kw, 2, key_scale);
    v = random_vector(rows * vw, 3), a = random_vector(rows * s.heads, 4, 0.5f);
    b = random_vector(rows * s.heads, 5, 0.5f), dout = random_vector(rows * vw, 6);
  }
  DeltaFormerIn in() const {
    return {{q.data(), rows, kw},
            {k.data(), rows, kw},
            {v.data(), rows, vw},
            {a.data(), rows, shape.heads},
            {b.data(), rows, shape.heads},
            offsets,
            {}};
  }
  // Outputs and gradients by name; offsets may be others than the batch's.
  struct Result {
    std::vector<float> o, u, m, lse_write, lse_read, dq, dk, dv, da, db;
    bool operator==(const Result&) const = default;
  };
  Result run(std::span<const uint32_t> cuts, Par par = {}) const {
    Result r;
    for (std::vector<float>* x : {&r.o, &r.u, &r.m, &r.dv}) x->assign(rows * vw, 7);
    for (std::vector<float>* x : {&r.lse_write, &r.lse_read, &r.da, &r.db}) x->assign(rows * shape.heads, 7);
    for (std::vector<float>* x : {&r.dq, &r.dk}) x->assign(rows * kw, 7);
    const auto mat = [&](std::vector<float>& x) { return Mat<float>(x.data(), rows, x.size() / rows); };
    DeltaFormerIn x = in();
    x.offsets = cuts;
    std::vector<float> scratch(delta_former_bwd_scratch(shape, cuts, par), NAN);
    delta_former_fwd(shape, x, {mat(r.o), mat(r.u), mat(r.m), r.lse_write.data(), r.lse_read.data()}, scratch,
                     par);
    delta_former_bwd(shape, x, {mat(r.o), mat(r.u), mat(r.m), r.lse_write.data(), r.lse_read.data()},
                     {dout.data(), rows, vw}, {}, {mat(r.dq), mat(r.dk), mat(r.dv), mat(r.da), mat(r.db)},
                     scratch, par);
    return r;
  }
};

TEST(DeltaFormer, WithoutTakingBackItIsAttention) {
  Batch p({3, 20, 28, {K::kSoftmax, 0.3f}, {K::kSoftmax, 0.2f}});
  std::fill(p.a.begin(), p.a.end(), 1.0f), std::fill(p.b.begin(), p.b.end(), 0.0f);
  const Batch::Result got = p.run(p.offsets);
  EXPECT_EQ(got.u, p.v);
  std::vector<float> o(p.v.size()), lse(p.rows * 3), dq(p.q.size()), dk(p.k.size()), dv(p.v.size());
  const AttentionShape shape{3, 3, 20, 28, 0, 0.2f};
  const AttentionPacked in{p.in().q, p.in().k, p.in().v, p.offsets};
  attention_packed_fwd(shape, in, {o.data(), p.rows, p.vw}, lse.data());
  std::vector<float> scratch(attention_bwd_scratch(shape, p.offsets));
  attention_packed_bwd(shape, in, {{o.data(), p.rows, p.vw}, lse.data()}, {p.dout.data(), p.rows, p.vw},
                       {{dq.data(), p.rows, p.kw}, {dk.data(), p.rows, p.kw}, {dv.data(), p.rows, p.vw}},
                       scratch);
  const auto equal = [](const std::vector<float>& x, const std::vector<float>& y, Tol tol) {
    EXPECT_TRUE(within(compare<float, double>(x, to_double(y)), tol));
  };
  equal(got.o, o, kTolF32);
  equal(got.dq, dq, kTolF32Grad);
  equal(got.dk, dk, kTolF32Grad);
  equal(got.dv, dv, kTolF32Grad);
}

TEST(DeltaFormer, ThreadsDoNotChangeABit) {
  ThreadPool two(2), three(3);
  for (const DeltaKernel& write : {DeltaKernel{K::kSoftmax, 0.2f}, DeltaKernel{K::kRound, 1, 100}}) {
    const Batch p({4, 24, 32, write, {K::kSoftmax, 0.2f}}, {0, 100, 100, 101, 160, 300}, 0.2f);
    const Batch::Result alone = p.run(p.offsets);
    for (int i = 0; i < 3; ++i) {
      EXPECT_TRUE(alone == p.run(p.offsets, Par(two)));
      EXPECT_TRUE(alone == p.run(p.offsets, Par(three)));
    }
  }
}

// Sequences of a ragged batch equal each alone, bit by bit; rows of no sequence are left alone.
TEST(DeltaFormer, ARaggedBatchEqualsItsParts) {
  const Batch p({2, 24, 32, {K::kSoftmax, 0.2f}, {K::kSoftmax, 0.2f}});
  const Batch::Result together = p.run(p.offsets);
  for (size_t s = 0; s + 1 < p.offsets.size(); ++s) {
    const Batch::Result alone = p.run(std::span(p.offsets).subspan(s, 2));
    const auto same = [&](const std::vector<float>& x, const std::vector<float>& y) {
      const size_t w = x.size() / p.rows;
      for (size_t i = 0; i < x.size(); ++i) {
        const bool inside = i >= p.offsets[s] * w && i < p.offsets[s + 1] * w;
        ASSERT_EQ(y[i], inside ? x[i] : 7.0f) << i;
      }
    };
    same(together.o, alone.o), same(together.u, alone.u), same(together.dq, alone.dq);
    same(together.dk, alone.dk), same(together.dv, alone.dv), same(together.db, alone.db);
  }
}

// A wrong sign in the inverse, and chunks that forget the earlier ones, must be caught by the comparison.
TEST(DeltaFormer, MutantsFail) {
  Batch p({1, 16, 16, {K::kSoftmax, 0.25f}, {K::kSoftmax, 0.25f}}, {0, 128});
  const Batch::Result right = p.run(p.offsets);
  const auto caught = [&](const Batch::Result& wrong) {
    const auto far = [](const std::vector<float>& x, const std::vector<float>& y, Tol tol) {
      return !within(compare<float, double>(x, to_double(y)), tol);
    };
    EXPECT_TRUE(far(wrong.u, right.u, kTolF32) && far(wrong.o, right.o, kTolF32));
    EXPECT_TRUE(far(wrong.dv, right.dv, kTolF32Grad) && far(wrong.dk, right.dk, kTolF32Grad));
  };
  const uint32_t chunks[] = {0, 64, 128};
  caught(p.run(chunks));
  for (float& x : p.b) x = -x;  // u = (I - A)^-1 a v
  caught(p.run(p.offsets));
}

// Theorem 1 of the paper: 256 slots in 128 dimensions, unit keys (the identity and a Hadamard matrix) whose
// inner products are at most 0.089 < 1/8. Key k_a - k_b with value 0 swaps the contents of two slots; after
// every block of swaps the cache is compressed to 256 pairs. All reads must be exact.
struct Slots {
  size_t n = 256, d = 128, dv = 3, block = 200;
  std::vector<float> keys = std::vector<float>(n * d), u, content;
  DeltaFormerShape shape;
  Par par;

  Slots(const DeltaKernel& f, Par p) : shape{1, d, dv, f, f}, par(p) {
    for (size_t i = 0; i < d; ++i)
      for (size_t j = 0; j < d; ++j) {
        keys[i * d + j] = i == j ? 1.0f : 0.0f;
        keys[(d + i) * d + j] = (std::popcount(i & j) % 2 ? -1.0f : 1.0f) / std::sqrt(static_cast<float>(d));
      }
    content = random_vector(n * dv, 1, 30.0f);
    for (float& x : content) x = std::rint(x);
    u.resize(n * dv);
    run(nullptr, keys, content, {}, nullptr, u.data());
  }
  void run(const float* q, const std::vector<float>& k, const std::vector<float>& v,
           std::span<const KvSegment> past, float* o, float* to) const {
    const size_t rows = k.size() / d;
    const uint32_t offsets[] = {0, static_cast<uint32_t>(rows)};
    std::vector<float> scratch(delta_former_fwd_scratch(shape, offsets, par), NAN);
    delta_former_fwd(shape,
                     {.q = {q, rows, d},
                      .k = {k.data(), rows, d},
                      .v = {v.data(), rows, dv},
                      .offsets = offsets,
                      .past = {&past, 1}},
                     {.o = {o, rows, dv}, .u = {to, rows, dv}}, scratch, par);
  }
  // A block of random swaps, a read of a random slot after each, then compression. Returns wrong reads.
  size_t swap_block(uint64_t seed) {
    std::vector<float> k(block * d), q(block * d), v(block * dv), o(block * dv), ub(block * dv), want;
    const std::vector<float> dice = random_vector(3 * block, seed, 1000.0f);
    const auto pick = [&](size_t i) { return static_cast<size_t>(std::fabs(dice[i]) * 16) % n; };
    for (size_t t = 0; t < block; ++t) {
      const size_t x = pick(3 * t), y = pick(3 * t + 1), z = pick(3 * t + 2);
      for (size_t e = 0; x != y && e < d; ++e)
        k[t * d + e] = keys[std::max(x, y) * d + e] - keys[std::min(x, y) * d + e];
      for (size_t e = 0; e < dv; ++e) std::swap(content[x * dv + e], content[y * dv + e]);
      std::copy_n(&keys[z * d], d, &q[t * d]);
      want.insert(want.end(), &content[z * dv], &content[z * dv] + dv);
    }
    const KvSegment old{keys.data(), u.data(), n, 0, d, dv};
    run(q.data(), k, v, {&old, 1}, o.data(), ub.data());
    const KvSegment all[] = {old, {k.data(), ub.data(), block, 0, d, dv}};
    std::vector<float> compressed(n * dv),
        scratch(delta_former_fwd_scratch(shape, std::array{0u, 256u}, par));
    delta_former_compress(shape, {keys.data(), n, d}, all, {compressed.data(), n, dv}, scratch, par);
    u = compressed;
    size_t wrong = 0;
    for (size_t i = 0; i < want.size(); ++i) wrong += o[i] != want[i];
    for (size_t i = 0; i < u.size(); ++i) wrong += u[i] != content[i];
    return wrong;
  }
};

TEST(DeltaFormer, SwapsAreExactUnderCompression) {
  delta_former_impls().each([&](std::string_view name, Par par) {
    Slots rounded(DeltaKernel{K::kRound}, par), linear(DeltaKernel{K::kLinear}, par);
    for (uint64_t i = 1; i <= 10; ++i) EXPECT_EQ(rounded.swap_block(i), 0u) << name << " block " << i;
    EXPECT_GT(linear.swap_block(1), 100u);  // more slots than dimensions: rounding is what makes it exact
  });
}

// The two solves against the reference in double, by chunk length: the table of
// docs/results/notes/delta-former-solve.md.
TEST(DeltaFormer, TheProductFormLosesAccuracyWithTheChunk) {
  struct Keys {
    const char* name;
    DeltaKernel write;
    float shared;  // cosine of any two keys, on average
  };
  const Keys kinds[] = {{"softmax", {K::kSoftmax, 0.125f}, 0.0f},
                        {"linear, cosine 0", {K::kLinear}, 0.0f},
                        {"linear, cosine 0.1", {K::kLinear}, 0.1f},
                        {"linear, cosine 0.5", {K::kLinear}, 0.5f}};
  const size_t T = 512, d = 64;
  std::printf("%-20s %5s %14s %14s\n", "rms error of u", "C", "substitution", "product");
  for (const Keys& kind : kinds) {
    Batch p({1, d, d, kind.write, {K::kLinear}}, {0, T});
    const bool unit = kind.write.kind == K::kLinear;
    for (size_t t = 0; unit && t < T; ++t) {  // unit keys around a common direction
      float* k = &p.k[t * d];
      float length = 0;
      for (size_t e = 0; e < d; ++e) {
        k[e] = std::sqrt(1 - kind.shared) * k[e] + (e == 0 ? std::sqrt(kind.shared * d) : 0.0f);
        length += k[e] * k[e];
      }
      for (size_t e = 0; e < d; ++e) k[e] /= std::sqrt(length);
    }
    const std::vector<double> q = to_double(p.q), k = to_double(p.k), v = to_double(p.v);
    std::vector<double> o(T * d), u(T * d);
    ref::delta_former_fwd<double>(p.shape, 0, T, {q.data(), k.data(), v.data(), nullptr, nullptr}, o.data(),
                                  u.data());
    double product[6];
    for (size_t i = 0; i < 6; ++i) {
      p.shape.chunk = size_t{16} << i;
      const auto error = [&](DeltaSolve solve) {
        p.shape.solve = solve;
        std::vector<float> got(T * d), scratch(delta_former_fwd_scratch(p.shape, p.offsets));
        DeltaFormerIn in = p.in();
        in.a = in.b = {};
        delta_former_fwd(p.shape, in, {.u = {got.data(), T, d}}, scratch);
        return compare<float, double>(got, u).rms;
      };
      const double substitution = error(DeltaSolve::kSubstitution);
      product[i] = error(DeltaSolve::kProduct);
      std::printf("%-20s %5zu %14.1e %14.1e\n", kind.name, p.shape.chunk, substitution, product[i]);
      EXPECT_LE(substitution, kTolF32.rms);
    }
    EXPECT_FALSE(kind.shared > 0 && product[5] <= 10 * product[0]);  // NaN is a loss, too
  }
}

}  // namespace
}  // namespace braid
