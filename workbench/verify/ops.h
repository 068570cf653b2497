// Each op against its reference, and what of it to time: `braid verify`, `braid bench kernels` and the tests.
// One file per op in verify/ops/.
#pragma once

#include <span>
#include <string_view>
#include <vector>

#include "verify/compare.h"

namespace braid {

using CheckOp =
    std::vector<CheckRow> (*)(Par par);  // with the kernels that par has, against the reference in double
using BenchOp = std::vector<BenchCase> (*)();
struct OpCheck {
  std::string_view op;  // a name of all_ops()
  CheckOp check;
  BenchOp bench;
};

std::span<const OpCheck> all_op_checks();
const OpCheck& op_check(std::string_view op);

std::vector<CheckRow> matmul_check(Par par);
std::vector<CheckRow> matmul_bf16_check(Par par);
std::vector<CheckRow> weight_matmul_check(Par par);
std::vector<CheckRow> rmsnorm_check(Par par);
std::vector<CheckRow> swiglu_check(Par par);
std::vector<CheckRow> l2norm_check(Par par);
std::vector<CheckRow> rope_check(Par par);
std::vector<CheckRow> embedding_check(Par par);
std::vector<CheckRow> cross_entropy_check(Par par);
std::vector<CheckRow> dropout_check(Par par);
std::vector<CheckRow> elementwise_check(Par par);
std::vector<CheckRow> adamw_check(Par par);
std::vector<CheckRow> attention_check(Par par);
std::vector<CheckRow> short_conv_check(Par par);
std::vector<CheckRow> delta_gates_check(Par par);
std::vector<CheckRow> selective_scan_check(Par par);
std::vector<CheckRow> fast_weight_check(Par par);
std::vector<CheckRow> delta_former_check(Par par);
std::vector<CheckRow> pointwise_check(Par par);

std::vector<BenchCase> matmul_bench();
std::vector<BenchCase> matmul_bf16_bench();
std::vector<BenchCase> weight_matmul_bench();
std::vector<BenchCase> rmsnorm_bench();
std::vector<BenchCase> swiglu_bench();
std::vector<BenchCase> l2norm_bench();
std::vector<BenchCase> rope_bench();
std::vector<BenchCase> embedding_bench();
std::vector<BenchCase> cross_entropy_bench();
std::vector<BenchCase> dropout_bench();
std::vector<BenchCase> elementwise_bench();
std::vector<BenchCase> adamw_bench();
std::vector<BenchCase> attention_bench();
std::vector<BenchCase> short_conv_bench();
std::vector<BenchCase> delta_gates_bench();
std::vector<BenchCase> selective_scan_bench();
std::vector<BenchCase> fast_weight_bench();
std::vector<BenchCase> delta_former_bench();
std::vector<BenchCase> pointwise_bench();

}  // namespace braid
