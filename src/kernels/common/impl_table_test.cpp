#include "kernels/common/impl_table.h"

#include <gtest/gtest.h>

#include "kernels/registry.h"

namespace braid {
namespace {

TEST(ImplTable, TheCallSaysWhichOneRuns) {
  for (const OpEntry& op : all_ops()) {
    const ImplTable& t = op.impls();
    const size_t best = t.chosen({});
    EXPECT_LE(t.rows()[best].needs, detected_isa()) << op.name;
    EXPECT_EQ(t.refusal(best, {}), "");
    const KernelChoice base = KernelChoice().cap(Isa::kBase), ref = KernelChoice().force(op.name, "ref"),
                       other = KernelChoice().force("no such op", "ref");
    EXPECT_EQ(t.rows()[t.chosen(Par().with(base))].needs, Isa::kBase) << op.name;
    EXPECT_EQ(t.rows()[t.chosen(Par().with(ref))].name, "ref") << op.name;
    EXPECT_EQ(t.chosen(Par().with(other)), best) << op.name;
    ThreadPool pool(2, ref);
    EXPECT_EQ(t.rows()[t.chosen(Par(pool))].name, "ref");
    EXPECT_EQ(t.rows()[t.chosen(Par(pool).alone())].name, "ref");
    EXPECT_EQ(t.chosen({}), best);  // nothing of these stays
  }
}

TEST(ImplTable, ARefusalIsASentence) {
  const ImplTable& t = all_ops()[0].impls();
  const KernelChoice base = KernelChoice().cap(Isa::kBase), ref = KernelChoice().force(t.op(), "ref");
  if (detected_isa() > Isa::kBase) {
    EXPECT_EQ(t.refusal(0, Par().with(base)).find("needs "), 0u);
  }
  EXPECT_EQ(t.refusal(0, Par().with(ref)), "ref is forced");
}

TEST(KernelChoice, IsParsedWithItsMistakes) {
  const Result<KernelChoice> c = parse_kernel_choice("base", "rmsnorm=ref,attention=sse");
  ASSERT_TRUE(c) << c.error().what;
  EXPECT_EQ(c->isa(), Isa::kBase);
  EXPECT_EQ(c->forced("rmsnorm"), "ref");
  EXPECT_EQ(c->forced("attention"), "sse");
  EXPECT_TRUE(parse_kernel_choice("", "")->is_default());
  for (const auto& [isa, kernels, what] : {std::tuple{"avx3", "", "isa=avx3"},
                                           {"", "rmsnrm=ref", "no op 'rmsnrm'"},
                                           {"", "rmsnorm=fast", "cannot use 'fast'"},
                                           {"", "rmsnorm", "cannot use ''"},
                                           {"", ",", "no op ''"}}) {
    const Result<KernelChoice> bad = parse_kernel_choice(isa, kernels);
    ASSERT_FALSE(bad);
    EXPECT_NE(bad.error().what.find(what), std::string::npos) << bad.error().what;
    EXPECT_FALSE(bad.error().fix.empty());
  }
}

}  // namespace
}  // namespace braid
