// What this processor can do, found at run time.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace braid {

// Ordered: a machine that has one has all before it.
// kAvx512Dot: dot products of pairs (VNNI, AVX512_BF16) beside it, at twice the rate of multiply-adds.
enum class Isa { kBase, kAvx2, kAvx512, kAvx512Dot, kAmx };

std::string_view isa_name(Isa isa);  // "base", "avx2", "avx512", "avx512dot", "amx"
std::optional<Isa> isa_from_name(std::string_view name);

// The best level this machine has (AMX only if the kernel grants the tile permission).
Isa detected_isa();

std::string cpu_model();  // as the operating system names it
int cpu_count();          // processors this process may run on

}  // namespace braid
