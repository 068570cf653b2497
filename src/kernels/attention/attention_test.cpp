#include "kernels/attention/attention.h"

#include <gtest/gtest.h>

#include <cmath>

#include "kernels/attention/attention_ref.h"
#include "support/op_test.h"

namespace braid {
namespace {

using C = std::complex<double>;

// The reference's backward against the complex step, for every input.
TEST(Attention, RefBackwardEqualsComplexStep) {
  struct {
    size_t window, chunk;
    float drop;
  } forms[] = {{0, 0, 0}, {3, 0, 0}, {0, 4, 0}, {0, 0, 0.4f}};
  for (const auto& [window, chunk, drop] : forms) {
    const ref::AttentionDims<C> d{4, 2, 3, 2, window, 0.6, chunk, {drop, 1}};
    const size_t n = 6, nq = n * d.heads * d.dk, nk = n * d.kv_heads * d.dk, nv = n * d.kv_heads * d.dv,
                 no = n * d.heads * d.dv;
    std::vector<C> q = random_complex(nq, 1), k = random_complex(nk, 2), v = random_complex(nv, 3),
                   dout = random_complex(no, 4), o(no), lse(n * d.heads), dq(nq), dk(nk), dv(nv);
    const auto loss = [&] {
      ref::attention_fwd<C>(d, q.data(), k.data(), v.data(), n, n, 0, nullptr, o.data(), lse.data());
      return dot(o, dout);
    };
    loss();
    ref::attention_bwd<C>(d, q.data(), k.data(), v.data(), o.data(), lse.data(), dout.data(), n, dq.data(),
                          dk.data(), dv.data());
    expect_gradient(q, dq, loss);
    expect_gradient(k, dk, loss);
    expect_gradient(v, dv, loss);
  }
}

// As many weights are dropped as asked, in every row, head and column, and another seed drops others.
TEST(Attention, DropoutKeepsItsShare) {
  const AttentionDrop drop{0.25f, 9}, other{0.25f, 10};
  const size_t n = 64, heads = 4;
  size_t kept = 0, same = 0;
  std::vector<size_t> by_key(n), by_row(n);
  for (size_t row = 0; row < n; ++row)
    for (size_t head = 0; head < heads; ++head)
      for (size_t key = 0; key < n; ++key) {
        const auto at = static_cast<int64_t>(key);
        const float f = drop_factor(drop, drop_column(drop, row, head), at);
        EXPECT_TRUE(f == 0 || f == 1 / 0.75f);
        kept += f > 0, by_key[key] += f > 0, by_row[row] += f > 0;
        same += (f > 0) == (drop_factor(other, drop_column(other, row, head), at) > 0);
      }
  const auto all = static_cast<double>(n * n * heads);
  EXPECT_NEAR(static_cast<double>(kept) / all, 0.75, 0.01);
  EXPECT_NEAR(static_cast<double>(same) / all, 0.75 * 0.75 + 0.25 * 0.25, 0.01);
  for (size_t i = 0; i < n; ++i) {
    EXPECT_NEAR(static_cast<double>(by_key[i]), 192, 35);  // 5 standard deviations
    EXPECT_NEAR(static_cast<double>(by_row[i]), 192, 35);
  }
}

TEST(Attention, EveryImplementationEqualsTheReference) {
  expect_all_impls(attention_impls(), attention_check);
}

TEST(Attention, HeadsThatAreTooWideAreSaidToRunTheReference) {
  attention_impls().each([](std::string_view name, Par par) {
    EXPECT_EQ(attention_impl({.heads = 1, .kv_heads = 1, .dk = 512, .dv = 512}, par), name);
    EXPECT_EQ(attention_impl({.heads = 1, .kv_heads = 1, .dk = 513, .dv = 8}, par), "ref");
    EXPECT_EQ(attention_impl({.heads = 1, .kv_heads = 1, .dk = 8, .dv = 513}, par), "ref");
  });
}

struct Batch {
  AttentionShape shape{4, 2, 24, 32, 20, 0.2f};
  std::vector<uint32_t> offsets{0, 100, 100, 101, 160, 460};
  size_t rows = 460, qw = shape.heads * shape.dk, kw = shape.kv_heads * shape.dk,
         vw = shape.kv_heads * shape.dv, ow = shape.heads * shape.dv;
  std::vector<float> q = random_vector(rows * qw, 1), k = random_vector(rows * kw, 2),
                     v = random_vector(rows * vw, 3), dout = random_vector(rows * ow, 4);

  // o, dq, dk, dv behind each other. unasked: rows that are as if they saw nothing.
  std::vector<float> run(Par par, bool copies = true, std::span<const size_t> unasked = {}) const {
    std::vector<float> out(rows * (ow + qw + kw + vw), NAN), lse(rows * shape.heads, NAN);
    float *o = out.data(), *dq = o + rows * ow, *dk = dq + rows * qw, *dv = dk + rows * kw;
    const AttentionPacked in{{q.data(), rows, qw}, {k.data(), rows, kw}, {v.data(), rows, vw}, offsets};
    std::vector<float> scratch(copies ? attention_fwd_scratch(shape, offsets, par) : 0, NAN);
    attention_packed_fwd(shape, in, {o, rows, ow}, lse.data(), scratch, par);
    for (const size_t i : unasked) {
      std::fill_n(o + i * ow, ow, 0.0f);
      std::fill_n(&lse[i * shape.heads], shape.heads, -HUGE_VALF);
    }
    scratch.assign(attention_bwd_scratch(shape, offsets, par), NAN);
    attention_packed_bwd(shape, in, {{o, rows, ow}, lse.data()}, {dout.data(), rows, ow},
                         {{dq, rows, qw}, {dk, rows, kw}, {dv, rows, vw}}, scratch, par);
    return out;
  }
};

TEST(Attention, ThreadsDoNotChangeABit) {
  ThreadPool pool(3);
  // The second with a small window, and groups of 3: tasks begin at any head of a group.
  for (const Batch& b : {Batch(), Batch{{6, 2, 16, 32, 10, 0.2f}}}) {
    const std::vector<float> alone = b.run({});
    for (int i = 0; i < 5; ++i) EXPECT_EQ(alone, b.run(Par(pool)));
  }
}

TEST(Attention, CopiedKeysDoNotChangeABit) {
  const Batch b;
  ThreadPool two(2);  // 5 x 2 heads: enough for whole heads per thread
  EXPECT_EQ(b.run({}, true), b.run({}, false));
  EXPECT_EQ(b.run(Par(two), true), b.run(Par(two), false));
}

const KernelChoice kRef = KernelChoice().force("attention", "ref");

// Backward leaves out queries without a cotangent, which changes nothing; also if a sequence has none at all.
TEST(Attention, QueriesThatNobodyUsedSendNothingBack) {
  Batch b;
  // Of the first and the last sequence only the last row is used, of the one of 59 tokens nothing.
  for (const auto& [begin, end] : {std::pair{0, 99}, {101, 160}, {160, 459}})
    std::fill(b.dout.begin() + begin * 128, b.dout.begin() + end * 128, 0.0f);
  const std::vector<float> want = b.run(Par().with(kRef));
  attention_impls().each([&](std::string_view name, Par par) {
    const Diff d = compare<float, float>(b.run(par), want);
    EXPECT_TRUE(within(d, kTolF32Grad)) << name << " rms " << d.rms << " max " << d.max;
  });
}

// Small windows, which have a form of their own: every window with every size of head and group, sequences
// shorter and longer than it, and queries that nobody used or asked.
TEST(Attention, SmallWindowsEqualTheReference) {
  const size_t unasked[] = {0, 1, 2, 7, 30, 99, 101, 102, 200};
  for (const size_t window : {1, 2, 3, 7, 8, 16, 32})
    for (const size_t d : {8, 16, 20, 32, 64, 80})
      for (const size_t kv_heads : {4, 2, 1}) {
        Batch b{
            {4, kv_heads, d, d == 64 ? 32 : d, window, 0.2f}, {0, 3, 3, 10, 26, 43, 44, 109, 174, 240}, 240};
        std::fill_n(&b.dout[10 * b.ow], 13 * b.ow, 0.0f);   // of the fourth sequence
        std::fill_n(&b.dout[44 * b.ow], 65 * b.ow, 0.0f);   // all of the seventh
        std::fill_n(&b.dout[109 * b.ow], 64 * b.ow, 0.0f);  // of the eighth all but the last
        const std::vector<float> want = b.run(Par().with(kRef), true, unasked);
        attention_impls().each([&](std::string_view name, Par par) {
          const Diff diff = compare<float, float>(b.run(par, true, unasked), want);
          EXPECT_TRUE(within(diff, kTolF32Grad)) << name << " window " << window << " d " << d << " kv heads "
                                                 << kv_heads << " rms " << diff.rms << " max " << diff.max;
        });
      }
}

// Sequences of a mixed batch do not disturb each other: a prefill piece and two steps at once equal each
// alone, bit by bit.
TEST(Attention, AMixedBatchEqualsItsParts) {
  const AttentionShape shape{2, 1, 16, 16, 0, 0.25f};
  const size_t rows = 90, w = 32;
  const std::vector<float> q = random_vector(rows * w, 1), k = random_vector(rows * 16, 2),
                           v = random_vector(rows * 16, 3);
  const KvSegment keys[] = {{k.data() + 50 * 16, v.data() + 50 * 16, 40, 50, 16, 16},
                            {k.data(), v.data(), 50, 0, 16, 16}};
  const AttentionSeq seqs[] = {{2, 75, 15, keys}, {0, 1, 89, keys}, {1, 1, 60, keys}};
  std::vector<float> together(rows * w, 7.0f), apart(rows * w, 7.0f), lse(rows * 2);
  ThreadPool pool(2);
  attention_fwd(shape, {q.data(), rows, w}, seqs, {together.data(), rows, w}, lse.data(), Par(pool));
  for (const AttentionSeq& s : seqs)
    attention_fwd(shape, {q.data(), rows, w}, {&s, 1}, {apart.data(), rows, w}, nullptr);
  EXPECT_EQ(together, apart);
  EXPECT_EQ(together.back(), 7.0f);  // a row of no sequence
}

// Queries whose keys are all absent, outside the window or infinitely unlikely give zeros, never NaN.
TEST(Attention, NothingVisibleGivesZeros) {
  attention_impls().each([&](std::string_view name, Par par) {
    for (const size_t count : {1, 20}) {
      const size_t d = 8;
      const std::vector<float> q(count * d, 1.0f), v(30 * d, 1.0f);
      std::vector<float> k(30 * d, 1.0f), o(count * d, NAN), lse(count, NAN);
      const KvSegment early{k.data(), v.data(), 30, 0, d, d}, late{k.data(), v.data(), 30, 500, d, d};
      const std::vector<KvSegment> both{early, late};
      const AttentionSeq unseen{0, count, 100, both}, plain{0, count, 30, {&early, 1}};
      const auto expect_zeros = [&](const AttentionSeq& seq, size_t window) {
        attention_fwd({1, 1, d, d, window, 1.0f}, {q.data(), count, d}, {&seq, 1}, {o.data(), count, d},
                      lse.data(), par);
        for (const float x : o) EXPECT_EQ(x, 0.0f) << name;
        for (const float x : lse) EXPECT_EQ(x, -HUGE_VALF) << name;
      };
      expect_zeros(unseen, 16);
      std::fill(k.begin(), k.end(), -HUGE_VALF);
      expect_zeros(plain, 0);
      const uint32_t offsets[] = {0, static_cast<uint32_t>(count)};
      attention_packed_fwd({1, 1, d, d, 8, 1.0f},
                           {{q.data(), count, d}, {k.data(), count, d}, {v.data(), count, d}, offsets},
                           {o.data(), count, d}, lse.data(), {}, par);
      for (const float x : o) EXPECT_EQ(x, 0.0f) << name;
      for (const float x : lse) EXPECT_EQ(x, -HUGE_VALF) << name;
    }
  });
}

// Chunks do not touch each other: each alone, as a sequence of its own, gives the same forward and backward.
TEST(Attention, ChunksAreSequences) {
  Batch b;
  b.shape.window = 0, b.shape.chunk = 25;
  b.offsets = {0, 460};
  const std::vector<float> chunked = b.run({});
  b.shape.chunk = 0;
  b.offsets.clear();
  for (uint32_t at = 0; at < 460; at += 25) b.offsets.push_back(at);
  b.offsets.push_back(460);
  const Diff d = compare<float, float>(chunked, b.run({}));
  EXPECT_TRUE(within(d, kTolF32)) << "rms " << d.rms << " max " << d.max;
}

TEST(AttentionDeathTest, WindowAndChunkExcludeEachOther) {
  Batch b;
  b.shape.chunk = 16;
  EXPECT_DEATH(b.run({}), "window and chunk");
}

// NaN in an input must come out, so that divergence shows.
TEST(Attention, NanComesThrough) {
  for (const auto& [count, window] : {std::pair<size_t, size_t>{1, 0}, {40, 0}, {1, 8}, {40, 8}}) {
    const size_t d = 16;
    std::vector<float> q(count * d, 1.0f), o(count * d, 0.0f);
    const std::vector<float> k(count * d, 1.0f);
    q[(count - 1) * d] = NAN;
    const uint32_t offsets[] = {0, static_cast<uint32_t>(count)};
    attention_packed_fwd({1, 1, d, d, window, 1.0f},
                         {{q.data(), count, d}, {k.data(), count, d}, {k.data(), count, d}, offsets},
                         {o.data(), count, d}, nullptr);
    EXPECT_TRUE(std::isnan(o.back()));
    if (count > 1) {
      EXPECT_EQ(o[0], 1.0f);
    }
  }
}

// Mutants of the reference that the checks' comparison must reject.
struct Mutant : ::testing::Test {
  ref::AttentionDims<double> d{4, 2, 6, 5, 7, 0.4};
  size_t n = 30;
  std::vector<double> q = to_double(random_vector(n * 24, 1)), k = to_double(random_vector(n * 12, 2)),
                      v = to_double(random_vector(n * 10, 3)), dout = to_double(random_vector(n * 20, 4));

  std::vector<double> forward(const ref::AttentionDims<double>& dims, const std::vector<double>& keys) {
    std::vector<double> o(n * 20);
    ref::attention_fwd<double>(dims, q.data(), keys.data(), v.data(), n, n, 0, nullptr, o.data(), nullptr);
    return o;
  }
  static bool passes(const std::vector<double>& mutant, const std::vector<double>& want, Tol tol) {
    return within(compare<double, double>(mutant, want), tol);
  }
};

TEST_F(Mutant, WindowOffByOneFails) {
  const std::vector<double> want = forward(d, k);
  EXPECT_TRUE(passes(forward(d, k), want, kTolF32));
  d.window += 1;
  EXPECT_FALSE(passes(forward(d, k), want, kTolF32));
}

TEST_F(Mutant, AChunkBoundaryIgnoredFails) {
  d.window = 0, d.chunk = 8;
  const std::vector<double> want = forward(d, k);
  d.chunk = 0;
  EXPECT_FALSE(passes(forward(d, k), want, kTolF32));
  d.window = 8;  // as many keys, but a sliding edge
  EXPECT_FALSE(passes(forward(d, k), want, kTolF32));
}

TEST_F(Mutant, WrongKvHeadFails) {
  const std::vector<double> want = forward(d, k);
  std::vector<double> swapped = k;  // every head reads the keys of the other kv head
  for (size_t i = 0; i < n; ++i)
    std::swap_ranges(&swapped[i * 12], &swapped[i * 12 + 6], &swapped[i * 12 + 6]);
  EXPECT_FALSE(passes(forward(d, swapped), want, kTolF32));
}

TEST_F(Mutant, MissingDeltaFails) {
  std::vector<double> o(n * 20), lse(n * 4), none(n * 20, 0.0), dq(n * 24), dk(n * 12), dv(n * 10);
  ref::attention_fwd<double>(d, q.data(), k.data(), v.data(), n, n, 0, nullptr, o.data(), lse.data());
  const auto backward = [&](const std::vector<double>& out) {
    ref::attention_bwd<double>(d, q.data(), k.data(), v.data(), out.data(), lse.data(), dout.data(), n,
                               dq.data(), dk.data(), dv.data());
    return std::pair(dq, dk);
  };
  const auto [dq_want, dk_want] = backward(o);
  const auto [dq_mutant, dk_mutant] = backward(none);  // o only enters through delta
  EXPECT_FALSE(passes(dq_mutant, dq_want, kTolF32Grad));
  EXPECT_FALSE(passes(dk_mutant, dk_want, kTolF32Grad));
}

}  // namespace
}  // namespace braid
