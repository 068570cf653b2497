// Every kernel, forward and backward, on matrices in the caller's memory. Each header starts with its
// formula, shapes and layouts; docs/howto/embed.md says what they have in common.
#pragma once

#if __cplusplus < 202002L
#error "Braid needs C++20: compile with -std=c++20"
#else

#include "base/cpu.h"
#include "base/parallel.h"
#include "kernels/adamw/adamw.h"
#include "kernels/attention/attention.h"
#include "kernels/cross_entropy/cross_entropy.h"
#include "kernels/delta_former/delta_former.h"
#include "kernels/delta_gates/delta_gates.h"
#include "kernels/dropout/dropout.h"
#include "kernels/elementwise/elementwise.h"
#include "kernels/embedding/embedding.h"
#include "kernels/fast_weight/fast_weight.h"
#include "kernels/l2norm/l2norm.h"
#include "kernels/matmul/matmul.h"
#include "kernels/pointwise/pointwise.h"
#include "kernels/registry.h"
#include "kernels/rmsnorm/rmsnorm.h"
#include "kernels/rope/rope.h"
#include "kernels/router/router.h"
#include "kernels/selective_scan/selective_scan.h"
#include "kernels/short_conv/short_conv.h"
#include "kernels/swiglu/swiglu.h"
#include "kernels/weight_matmul/weight_matmul.h"
#include "tensor/arena.h"
#include "tensor/tensor.h"
#include "version.hpp"

#endif
