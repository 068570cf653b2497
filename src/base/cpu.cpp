#include "base/cpu.h"

#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <fstream>

#include <cpuid.h>

namespace braid {
namespace {

constexpr std::array<std::string_view, 5> kNames{"base", "avx2", "avx512", "avx512dot", "amx"};

bool amx_granted() {
  unsigned a = 0, b = 0, c = 0, d = 0;
  if (!__get_cpuid_count(7, 0, &a, &b, &c, &d)) return false;
  const bool tile = d & (1u << 24), bf16 = d & (1u << 22), int8 = d & (1u << 25);
  if (!(tile && bf16 && int8)) return false;
  constexpr long kReqXcompPerm = 0x1023, kXfeatureTileData = 18;
  return syscall(SYS_arch_prctl, kReqXcompPerm, kXfeatureTileData) == 0;
}

// Two features that clang 14's __builtin_cpu_supports does not know.
bool lzcnt_and_f16c() {
  unsigned a = 0, b = 0, c = 0, d = 0;
  const bool f16c = __get_cpuid(1, &a, &b, &c, &d) && (c & (1u << 29));
  return f16c && __get_cpuid(0x80000001, &a, &b, &c, &d) && (c & (1u << 5));
}

// VNNI and AVX512_BF16. Intel has both too, but needs two cycles for a product of bf16 pairs, twice as long
// as for the two multiply-adds that it replaces; there AMX is what pays.
bool fast_dots() {
  unsigned a = 0, b = 0, c = 0, d = 0;
  if (!__builtin_cpu_is("amd") || !__get_cpuid_count(7, 0, &a, &b, &c, &d) || !(c & (1u << 11))) return false;
  return __get_cpuid_count(7, 1, &a, &b, &c, &d) && (a & (1u << 5));
}

Isa detect() {
  __builtin_cpu_init();
  // The same features that Highway's AVX2 and AVX3 targets need.
  const bool avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
                    __builtin_cpu_supports("bmi") && __builtin_cpu_supports("bmi2") && lzcnt_and_f16c();
  if (!avx2) return Isa::kBase;
  const bool avx512 = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512vl") &&
                      __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512bw") &&
                      __builtin_cpu_supports("avx512cd");
  if (!avx512) return Isa::kAvx2;
  return amx_granted() ? Isa::kAmx : fast_dots() ? Isa::kAvx512Dot : Isa::kAvx512;
}

}  // namespace

std::string_view isa_name(Isa isa) { return kNames[static_cast<size_t>(isa)]; }

std::optional<Isa> isa_from_name(std::string_view name) {
  for (size_t i = 0; i < kNames.size(); ++i)
    if (kNames[i] == name) return static_cast<Isa>(i);
  return std::nullopt;
}

Isa detected_isa() {
  static const Isa isa = detect();
  return isa;
}

std::string cpu_model() {
  std::ifstream in("/proc/cpuinfo");
  for (std::string line; std::getline(in, line);)
    if (line.starts_with("model name")) return line.substr(line.find(':') + 2);
  return "unknown";
}

int cpu_count() {
  cpu_set_t set;
  CPU_ZERO(&set);
  if (sched_getaffinity(0, sizeof set, &set) == 0) return std::max(1, CPU_COUNT(&set));
  return std::max(1L, sysconf(_SC_NPROCESSORS_ONLN));
}

}  // namespace braid
