#include "kernels/registry.h"

#include <array>

#include "kernels/attention/attention.h"
#include "kernels/rmsnorm/rmsnorm.h"

namespace braid {
namespace {

template <auto table>
ImplTable& impls() {
  return table();
}

}  // namespace

std::span<const OpEntry> all_ops() {
  static const std::array kOps{
      OpEntry{"rmsnorm", "root-mean-square norm: plain, zero-centred, gated, per head", impls<rmsnorm_impls>,
              rmsnorm_check, rmsnorm_bench},
      OpEntry{"attention", "causal softmax attention: grouped queries, window, caches, ragged batches",
              impls<attention_impls>, attention_check, attention_bench},
  };
  return kOps;
}

}  // namespace braid
