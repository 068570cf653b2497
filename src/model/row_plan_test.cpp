#include "model/row_plan.h"

#include <gtest/gtest.h>

#include "autograd/ops.h"

namespace braid {
namespace {

using Rows = std::vector<uint32_t>;
Rows list(std::span<const uint32_t> rows) { return {rows.begin(), rows.end()}; }

// Three sequences: the second begins as the first does, the third as the second.
struct Sample {
  std::vector<int32_t> tokens{5, 6, 5, 5, 6, 6, 5, 6, 6};
  Rows offsets{0, 3, 6, 9}, wanted{2, 8};
  RowPlan plan(Arena& arena, bool share, size_t vocab_size = 8) const {
    return plan_rows(arena, {tokens, offsets, wanted, vocab_size, share});
  }
};

TEST(RowPlan, SequencesShareTheRowsOfTheirCommonBeginning) {
  Arena arena;
  const RowPlan plan = Sample().plan(arena, true);
  ASSERT_TRUE(plan.stream);
  EXPECT_EQ(list(plan.stream->token), (Rows{0, 1, 2, 5}));
  EXPECT_EQ(list(plan.stream->of_token), (Rows{0, 1, 2, 0, 1, 3, 0, 1, 3}));
  EXPECT_EQ(std::vector<int32_t>(plan.ids.begin(), plan.ids.end()), (std::vector<int32_t>{5, 6, 5, 6}));
}

TEST(RowPlan, EqualTokensShareARowBeforeTheFirstMixer) {
  Arena arena;
  const RowPlan plan = Sample().plan(arena, true);
  ASSERT_TRUE(plan.input);
  EXPECT_EQ(list(plan.input->token), (Rows{0, 1}));
  EXPECT_EQ(list(plan.input->of_token), (Rows{0, 1, 0, 0, 1, 1, 0, 1, 1}));
  const RowPlan wide = Sample().plan(arena, true, 1000);  // a table of 1000 for 9 tokens does not pay
  EXPECT_EQ(wide.input, wide.stream);
}

TEST(RowPlan, WithoutSharingOnlyTheOutputIsChosen) {
  Arena arena;
  const Sample sample;  // whose rows the plan refers to
  const RowPlan plan = sample.plan(arena, false);
  EXPECT_EQ(plan.stream, nullptr);
  EXPECT_EQ(plan.input, nullptr);
  EXPECT_EQ(list(plan.output->token), (Rows{2, 8}));
  EXPECT_EQ(plan.output->of_token[8], 1u);
  EXPECT_EQ(plan.output->of_token[7], RowMap::kNoRow);
  EXPECT_FALSE(plan.output->skip_others);
}

class WithRows : public ::testing::Test {
 protected:
  Var numbered(const RowMap* rows) {  // row r holds the number of its token
    const size_t n = rows ? rows->token.size() : sample.tokens.size();
    Var x = exec.result(n, 1);
    for (size_t r = 0; r < n; ++r) x.v.data[r] = static_cast<float>(rows ? rows->token[r] : r);
    x.rows = rows;
    return x;
  }
  static std::vector<float> numbers(Var x) { return {x.v.data, x.v.data + x.v.rows}; }

  Arena arena;
  Exec exec{{.arena = &arena}};
  Sample sample;
  RowPlan plan = sample.plan(arena, true);
};

TEST_F(WithRows, EveryTokenGetsItsRow) {
  EXPECT_EQ(numbers(every_token(exec, numbered(plan.stream))),
            (std::vector<float>{0, 1, 2, 0, 1, 5, 0, 1, 5}));
  EXPECT_EQ(numbers(every_token(exec, numbered(plan.input))),
            (std::vector<float>{0, 1, 0, 0, 1, 1, 0, 1, 1}));
}

TEST_F(WithRows, OneMapIsBroughtToAnother) {
  EXPECT_EQ(numbers(with_rows(exec, numbered(plan.stream), plan.output)), (std::vector<float>{2, 5}));
  EXPECT_EQ(numbers(with_rows(exec, numbered(plan.input), plan.stream)), (std::vector<float>{0, 1, 0, 1}));
  EXPECT_EQ(numbers(with_rows(exec, numbered(nullptr), plan.output)), (std::vector<float>{2, 8}));
}

TEST_F(WithRows, ValuesOfOneOpMeetAtTheOutputRowsOrAtEveryToken) {
  exec.set_output_rows(plan.output);
  Var a = numbered(plan.input), b = numbered(plan.output), none;
  common_rows(exec, {&a, &b, &none});
  EXPECT_EQ(numbers(a), (std::vector<float>{0, 1}));
  EXPECT_EQ(numbers(b), (std::vector<float>{2, 8}));
  EXPECT_FALSE(none.present());
  Var c = numbered(plan.input), d = numbered(nullptr);
  common_rows(exec, {&c, &d});
  EXPECT_EQ(c.v.rows, sample.tokens.size());
  EXPECT_EQ(d.v.rows, sample.tokens.size());
}

TEST_F(WithRows, AnOpThatDropsTheMapIsFound) {
  Var lost = numbered(plan.stream);
  lost.rows = nullptr;  // as an op leaves it that makes its result by result()
  EXPECT_DEATH(with_rows(exec, lost, plan.output), "a token without a row");
  EXPECT_DEATH(every_token(exec, numbered(plan.output)), "a token without a row");
}

}  // namespace
}  // namespace braid
