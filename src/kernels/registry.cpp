#include "kernels/registry.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdlib>

#include "base/nearest.h"

#include "kernels/adamw/adamw.h"
#include "kernels/cross_entropy/cross_entropy.h"
#include "kernels/delta_gates/delta_gates.h"
#include "kernels/delta_former/delta_former.h"
#include "kernels/dropout/dropout.h"
#include "kernels/elementwise/elementwise.h"
#include "kernels/embedding/embedding.h"
#include "kernels/fast_weight/fast_weight.h"
#include "kernels/l2norm/l2norm.h"
#include "kernels/matmul/matmul.h"
#include "kernels/attention/attention.h"
#include "kernels/pointwise/pointwise.h"
#include "kernels/rmsnorm/rmsnorm.h"
#include "kernels/rope/rope.h"
#include "kernels/selective_scan/selective_scan.h"
#include "kernels/short_conv/short_conv.h"
#include "kernels/swiglu/swiglu.h"
#include "kernels/weight_matmul/weight_matmul.h"

namespace braid {
namespace {

template <auto table>
const ImplTable& impls() {
  return table();
}

}  // namespace

std::span<const OpEntry> all_ops() {
  static const std::array kOps{
      OpEntry{"matmul", "matrix product, f32", impls<matmul_impls>},
      OpEntry{"matmul_bf16", "matrix product, bf16 operands, f32 sums", impls<matmul_bf16_impls>},
      OpEntry{"weight_matmul", "matrix product with weights as stored: f32, bf16, q8, q4",
              impls<weight_matmul_impls>},
      OpEntry{"rmsnorm", "root-mean-square norm: plain, zero-centred, gated after or before, per head",
              impls<rmsnorm_impls>},
      OpEntry{"swiglu", "gated products: silu(g) * u, sigmoid(g) * u", impls<swiglu_impls>},
      OpEntry{"l2norm", "rows or heads scaled to length one", impls<l2norm_impls>},
      OpEntry{"rope", "rotary position embedding, half-split pairs", impls<rope_impls>},
      OpEntry{"embedding", "rows of a table by number", impls<embedding_impls>},
      OpEntry{"cross_entropy", "loss, argmax and gradient from logits", impls<cross_entropy_impls>},
      OpEntry{"dropout", "random zeroes from a mask that is never stored", impls<dropout_impls>},
      OpEntry{"elementwise", "add, scale, sum of squares, f32 <-> bf16", impls<elementwise_impls>},
      OpEntry{"adamw", "fused optimiser step with decoupled weight decay", impls<adamw_impls>},
      OpEntry{"attention",
              "causal softmax attention: grouped queries, window, caches; heads above 512 numbers by ref",
              impls<attention_impls>},
      OpEntry{"short_conv",
              "depthwise causal convolution over 2 to 8 tokens, with state; silu and L2 norm per head",
              impls<short_conv_impls>},
      OpEntry{"delta_gates", "log-decay and write strength of Gated DeltaNet from their projections",
              impls<delta_gates_impls>},
      OpEntry{"selective_scan", "the diagonal state-space recurrence of Mamba 1, with state",
              impls<selective_scan_impls>},
      OpEntry{
          "fast_weight",
          "linear recurrence with a matrix state: four decays, two writes; heads above 512 numbers by ref",
          impls<fast_weight_impls>},
      OpEntry{"delta_former", "delta rule over a key-value memory: five kernels, caches, ragged batches",
              impls<delta_former_impls>},
      OpEntry{"pointwise", "feature maps, gates, decays and blends around a recurrence",
              impls<pointwise_impls>},
  };
  return kOps;
}

Result<KernelChoice> parse_kernel_choice(std::string_view isa, std::string_view kernels,
                                         const KernelChoiceNames& names) {
  KernelChoice choice;
  if (!isa.empty()) {
    const std::optional<Isa> level = isa_from_name(isa);
    if (!level)
      return Error{fmt::format("{}={}: no such instruction set", names.isa, isa),
                   "use base, avx2, avx512, avx512dot or amx"};
    choice.cap(*level);
  }
  for (std::string_view rest = kernels; !rest.empty();) {
    const size_t comma = rest.find(',');
    const std::string_view item = rest.substr(0, comma), op = item.substr(0, item.find('='));
    rest = comma == rest.npos ? "" : rest.substr(comma + 1);
    const std::span<const OpEntry> ops = all_ops();
    const auto entry = std::ranges::find(ops, op, &OpEntry::name);
    if (entry == ops.end()) {
      std::vector<std::string> known;
      for (const OpEntry& e : ops) known.emplace_back(e.name);
      return Error{fmt::format("{}: there is no op '{}'", names.kernels, op),
                   suggest(std::string(op), known)};
    }
    const std::string_view impl = item.find('=') == item.npos ? "" : item.substr(item.find('=') + 1);
    std::vector<std::string> usable;
    for (const ImplTable::Row& row : entry->impls().rows())
      if (row.needs <= detected_isa()) usable.emplace_back(row.name);
    if (std::ranges::find(usable, impl) == usable.end())
      return Error{fmt::format("{}: op '{}' cannot use '{}' on this machine", names.kernels, op, impl),
                   suggest(std::string(impl), usable)};
    choice.force(op, impl);
  }
  return choice;
}

Result<KernelChoice> kernel_choice_from_environment() {
  const char *isa = std::getenv("BRAID_ISA"), *kernels = std::getenv("BRAID_KERNEL");
  return parse_kernel_choice(isa ? isa : "", kernels ? kernels : "",
                             {.isa = "BRAID_ISA", .kernels = "BRAID_KERNEL"});
}

}  // namespace braid
