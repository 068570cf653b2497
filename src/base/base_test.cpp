#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>
#include <new>

#include "base/cpu.h"
#include "base/error.h"
#include "base/kernel_choice.h"
#include "base/nearest.h"
#include "base/number.h"

namespace {
std::atomic<size_t> allocations{0};
}

// Under a sanitizer g++ takes the calls below for a mix of two allocators.
#pragma GCC diagnostic ignored "-Wmismatched-new-delete"
void* operator new(size_t n) {
  ++allocations;
  if (void* p = std::malloc(n ? n : 1)) return p;
  throw std::bad_alloc();
}
void* operator new(size_t n, const std::nothrow_t&) noexcept { return ++allocations, std::malloc(n ? n : 1); }
void operator delete(void* p) noexcept { std::free(p); }
void operator delete(void* p, size_t) noexcept { std::free(p); }

namespace braid {
namespace {

TEST(Result, ReadingAValueDoesNotAllocate) {
  Result<int> r = 3;
  const Result<int>& same = r;
  const size_t before = allocations;
  int sum = 0;
  for (int i = 0; i < 100; ++i) sum += *r + *same;
  EXPECT_EQ(allocations, before);
  EXPECT_EQ(sum, 600);
}

TEST(ResultDeathTest, ReadingAnErrorStopsWithIt) {
  Result<int> r = Error{"no such thing"};
  EXPECT_DEATH(*r, "no such thing");
}

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

TEST(Error, OfManyAlikeThreeAndTheirNumberAreTold) {
  std::vector<Problem> problems;
  for (int i = 0; i < 32; ++i) problems.push_back({"t" + std::to_string(i), "is missing", ""});
  EXPECT_EQ(to_error("x", problems).what,
            "x\n  t0: is missing\n  t1: is missing\n  t2: is missing\n  and 29 more: is missing");
  for (int i = 0; i < 5000; ++i) problems.push_back({"s", "is " + std::to_string(i), ""});
  EXPECT_LT(to_error("x", problems).what.size(), 1000u);
}

TEST(Nearest, AMegabyteIsComparedAtOnce) {
  EXPECT_EQ(nearest(std::string(1 << 20, 'a'), std::vector<std::string>(200, "--steps")), "");
}

TEST(Number, TheWholeTextAndTheRange) {
  const auto whole = [](std::string_view text, Bounds<int64_t> range = {}) {
    const Result<int64_t> r = parse_number<int64_t>(text, "--n", range);
    return r ? std::to_string(*r) : r.error().what + "; " + r.error().fix;
  };
  EXPECT_EQ(whole("-7"), "-7");
  EXPECT_EQ(whole("+7"), "7");
  EXPECT_EQ(whole("9223372036854775807"), "9223372036854775807");
  for (const char* bad :
       {"", "-", "+-1", "1x", " 1", "1 ", "0x10", "1e3", "1.0", "9223372036854775808", "nan"})
    EXPECT_EQ(whole(bad), "--n: is \'" + std::string(bad) + "'; give a whole number") << bad;
  EXPECT_EQ(whole("0", {1, 1024}), "--n: is \'0'; give a whole number from 1 to 1024");
  EXPECT_EQ(whole("-1", {.low = 0}), "--n: is \'-1'; give a whole number of at least 0");
  const auto real = [](std::string_view text, Bounds<double> range = {}) {
    const Result<double> r = parse_number<double>(text, "--x", range);
    return r ? std::to_string(*r) : r.error().what + "; " + r.error().fix;
  };
  EXPECT_EQ(real("1e-3"), "0.001000");
  EXPECT_EQ(real("-.5"), "-0.500000");
  for (const char* bad : {"nan", "inf", "-inf", "1e999", "0,5", "1..2", "x"})
    EXPECT_EQ(real(bad), "--x: is \'" + std::string(bad) + "'; give a number") << bad;
  EXPECT_EQ(real("0", {0, 1, true}), "--x: is \'0'; give a number above 0, up to 1");
  EXPECT_EQ(real("1", {0, 1, true}), "1.000000");
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

}  // namespace
}  // namespace braid
