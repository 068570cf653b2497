#include "kernels/registry.h"

#include <array>

#include "kernels/matmul/matmul.h"
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
      OpEntry{"matmul", "matrix product, f32", impls<matmul_impls>, matmul_check, matmul_bench},
      OpEntry{"matmul_bf16", "matrix product, bf16 operands, f32 sums", impls<matmul_bf16_impls>,
              matmul_bf16_check, matmul_bf16_bench},
      OpEntry{"rmsnorm", "root-mean-square norm: plain, zero-centred, gated, per head", impls<rmsnorm_impls>,
              rmsnorm_check, rmsnorm_bench},
  };
  return kOps;
}

}  // namespace braid
