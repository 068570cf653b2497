#include <gtest/gtest.h>

#include "base/cpu.h"
#include "base/error.h"
#include "base/kernel_choice.h"
#include "base/nearest.h"
#include "base/progress.h"

namespace braid {
namespace {

TEST(Nearest, FindsATypoAndRefusesTheUnrelated) {
  const std::vector<std::string> known{"--steps", "--seed", "--batch"};
  EXPECT_EQ(nearest("--step", known), "--steps");
  EXPECT_EQ(nearest("--bacth", known), "--batch");
  EXPECT_EQ(nearest("--temperature", known), "");
}

TEST(Error, EveryProblemIsListed) {
  const Error e = to_error("config", {{"a", "is 0", "use 1"}, {"b", "is missing", ""}});
  EXPECT_EQ(e.what, "config\n  a: is 0; use 1\n  b: is missing");
}

TEST(Cpu, NamesRoundTrip) {
  for (Isa isa : {Isa::kBase, Isa::kAvx2, Isa::kAvx512, Isa::kAvx512Dot, Isa::kAmx})
    EXPECT_EQ(isa_from_name(isa_name(isa)), isa);
}

TEST(KernelChoice, ACapNeverRaises) {
  EXPECT_EQ(KernelChoice().cap(Isa::kAmx).isa(), detected_isa());
  EXPECT_TRUE(KernelChoice().cap(Isa::kAmx).is_default());
  EXPECT_EQ(KernelChoice().cap(Isa::kBase).isa(), Isa::kBase);
}

TEST(KernelChoice, TheLastForcedOneCounts) {
  const KernelChoice c = KernelChoice().force("rmsnorm", "avx2").force("rope", "ref").force("rmsnorm", "ref");
  EXPECT_EQ(c.forced("rmsnorm"), "ref");
  EXPECT_EQ(c.forced("rope"), "ref");
  EXPECT_EQ(c.forced("matmul"), "");
  EXPECT_FALSE(c.is_default());
}

TEST(Progress, TimesReadWell) {
  EXPECT_EQ(human_time(0.25), "250 ms");
  EXPECT_EQ(human_time(12), "12 s");
  EXPECT_EQ(human_time(250), "4 min 10 s");
  EXPECT_EQ(human_time(3800), "1 h 03 min");
}

}  // namespace
}  // namespace braid
