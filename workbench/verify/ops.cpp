#include "verify/ops.h"

#include <algorithm>
#include <array>

#include "base/check.h"

namespace braid {

std::span<const OpCheck> all_op_checks() {
  static constexpr std::array kAll{
      OpCheck{"matmul", matmul_check, matmul_bench},
      OpCheck{"matmul_bf16", matmul_bf16_check, matmul_bf16_bench},
      OpCheck{"weight_matmul", weight_matmul_check, weight_matmul_bench},
      OpCheck{"rmsnorm", rmsnorm_check, rmsnorm_bench},
      OpCheck{"swiglu", swiglu_check, swiglu_bench},
      OpCheck{"l2norm", l2norm_check, l2norm_bench},
      OpCheck{"rope", rope_check, rope_bench},
      OpCheck{"embedding", embedding_check, embedding_bench},
      OpCheck{"cross_entropy", cross_entropy_check, cross_entropy_bench},
      OpCheck{"dropout", dropout_check, dropout_bench},
      OpCheck{"elementwise", elementwise_check, elementwise_bench},
      OpCheck{"adamw", adamw_check, adamw_bench},
      OpCheck{"attention", attention_check, attention_bench},
      OpCheck{"short_conv", short_conv_check, short_conv_bench},
      OpCheck{"delta_gates", delta_gates_check, delta_gates_bench},
      OpCheck{"selective_scan", selective_scan_check, selective_scan_bench},
      OpCheck{"fast_weight", fast_weight_check, fast_weight_bench},
      OpCheck{"delta_former", delta_former_check, delta_former_bench},
      OpCheck{"pointwise", pointwise_check, pointwise_bench},
  };
  return kAll;
}

const OpCheck& op_check(std::string_view op) {
  const auto all = all_op_checks();
  const auto it = std::ranges::find(all, op, &OpCheck::op);
  check(it != all.end(), "op_check: no such op");
  return *it;
}

}  // namespace braid
