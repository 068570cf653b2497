// How many bits of X enter products of many rows (prefill) with weights that are stored as bf16, q8 or q4.
//   kF32    all of them, or 16 where the product rounds (q8 and q4; all formats on AMX)
//   kBf16   8, as transformers and llama.cpp round them for bf16 weights. One product of bf16 is left of two,
//           or two of three; products of q8 and q4 in integers do not change. Twice as fast with bf16 weights
//           where the processor multiplies bf16, slower where it does not.
//   kAuto   kBf16 with bf16 weights where the implementation in use multiplies bf16, else kF32
#pragma once

#include <optional>
#include <string_view>

namespace braid {

enum class Activations { kF32, kBf16, kAuto };

std::string_view activations_name(Activations a);  // "f32", "bf16", "auto"
std::optional<Activations> activations_from_name(std::string_view name);

}  // namespace braid
