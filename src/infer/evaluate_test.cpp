#include "infer/evaluate.h"

#include <gtest/gtest.h>

#include <cmath>

#include "io/json.h"
#include "model/config_json.h"
#include "model/model.h"
#include "verify/compare.h"
#include "verify/long_check.h"
#include "support/test_dir.h"
#include "support/test_kernels.h"
#include "model/presets.h"

namespace braid {
namespace {

std::unique_ptr<Model> make(const char* arch, uint64_t seed) {
  std::unique_ptr<Model> m = Model::create(*parse_config(*preset_config(arch, "tiny", 31), ""));
  m->init(seed);
  return m;
}

std::vector<int32_t> text(size_t n) {
  std::vector<int32_t> t(n);
  for (size_t i = 0; i < n; ++i) t[i] = static_cast<int32_t>((3 * i + i * i / 7) % 31);
  return t;
}

// The definitions, written out.
TEST(Evaluate, IsWhatItSays) {
  ThreadPool pool(1, test_kernels());
  Context one(pool), two(pool);
  const std::unique_ptr<Model> a = make("gdn-h1", 1), b = make("gdn-h1", 2);
  Session base(*a, one), other(*b, two);
  const std::vector<int32_t> tokens = text(150);
  for (const bool plain : {false, true}) {
    const Result<Comparison> got = evaluate(base, &other, tokens, {.plain = plain, .context = 40, .bos = 30});
    ASSERT_TRUE(got);
    double nll = 0, other_nll = 0, kl = 0;
    size_t count = 0, same = 0;
    const size_t length = plain ? 150 : 40, chunks = plain ? 1 : 3;
    for (size_t c = 0; c < chunks; ++c) {
      std::vector<int32_t> chunk(tokens.begin() + static_cast<ptrdiff_t>(c * length),
                                 tokens.begin() + static_cast<ptrdiff_t>((c + 1) * length));
      if (!plain) chunk[0] = 30;
      Session x(*a, one), y(*b, two);
      const Mat<const float> p = x.feed_all(chunk), q = y.feed_all(chunk);
      for (size_t t = plain ? 0 : 20; t + 1 < length; ++t) {
        double sp = 0, sq = 0;
        for (size_t i = 0; i < 31; ++i) sp += std::exp(p.row(t)[i]), sq += std::exp(q.row(t)[i]);
        const auto next = static_cast<size_t>(chunk[t + 1]);
        nll -= p.row(t)[next] - std::log(sp), other_nll -= q.row(t)[next] - std::log(sq);
        for (size_t i = 0; i < 31; ++i)
          kl += std::exp(p.row(t)[i]) / sp * ((p.row(t)[i] - std::log(sp)) - (q.row(t)[i] - std::log(sq)));
        same += std::max_element(p.row(t), p.row(t) + 31) - p.row(t) ==
                std::max_element(q.row(t), q.row(t) + 31) - q.row(t);
        ++count;
      }
    }
    EXPECT_EQ(got->base.tokens, count);
    EXPECT_EQ(count, plain ? 149u : 57u);
    const auto n = static_cast<double>(count);
    EXPECT_NEAR(got->base.nll, nll / n, kTolF32.rms);
    EXPECT_NEAR(got->base.perplexity(), std::exp(nll / n), kTolF32.rms * std::exp(nll / n));
    EXPECT_NEAR(got->other.nll, other_nll / n, kTolF32.rms);
    EXPECT_NEAR(got->kl, kl / n, kTolOps.max);
    EXPECT_GT(got->kl, 0);
    EXPECT_EQ(got->same_top, static_cast<double>(same) / n);
    EXPECT_GE(got->kl_worst, got->kl_99);
    EXPECT_GE(got->kl_99, got->kl_median);
  }
  // A model against itself.
  Session again(*a, two);
  const Result<Comparison> self = evaluate(base, &again, tokens, {.context = 64});
  ASSERT_TRUE(self);
  EXPECT_EQ(self->kl, 0);
  EXPECT_EQ(self->same_top, 1);
  EXPECT_EQ(self->rms_dp, 0);
  EXPECT_FALSE(evaluate(base, nullptr, text(30), {.context = 64}));
  EXPECT_FALSE(evaluate(base, nullptr, tokens, {.context = 64}, [](size_t, size_t) { return false; }));
}

TEST(LongCheck, PiecesAndFilesGiveTheSameState) {
  const TestDir dir;
  ThreadPool pool(2, test_kernels());
  for (const char* arch : {"qwen3.5", "gdn-h2", "samba"}) {
    const std::unique_ptr<Model> model = make(arch, 1);
    const Result<std::vector<LongRow>> rows = check_long(*model, pool, 3000, dir / "state");
    ASSERT_TRUE(rows) << rows.error().what;
    EXPECT_EQ(rows->size(), 4u);
    for (const LongRow& r : *rows)
      EXPECT_TRUE(r.ok()) << arch << ": " << r.what << ": same bits " << r.same_bits << ", difference "
                          << r.difference << ", finite " << r.finite;
  }
}

TEST(Evaluate, LogitsThatAreNotFiniteAreAnError) {
  ThreadPool pool(1, test_kernels());
  Context one(pool), two(pool);
  const std::unique_ptr<Model> a = make("transformer", 1), b = make("transformer", 2);
  b->params().mat(b->head()).data[7] = NAN;
  Session good(*a, one), bad(*b, two);
  const std::vector<int32_t> tokens = text(80);
  const auto alone = evaluate(bad, nullptr, tokens, {.context = 40});
  ASSERT_FALSE(alone);
  EXPECT_TRUE(has(alone.error().what, "--model: logits behind token 20 are not finite"))
      << alone.error().what;
  const auto compared = evaluate(good, &bad, tokens, {.plain = true, .context = 40});
  ASSERT_FALSE(compared);
  EXPECT_TRUE(has(compared.error().what, "--compare: logits")) << compared.error().what;
}

}  // namespace
}  // namespace braid
