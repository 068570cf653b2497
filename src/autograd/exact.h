// A second run of every op through its reference, beside the fast one, in numbers that count as exact:
// complex doubles, which also carry the derivative along one direction (the complex step).
//
//   Exact exact;
//   exact.set(&w, {w, 1e-30});                                 // the value and how it moves
//   Exec exec({.arena = &arena, .params = &params, .exact = &exact});
//   ... ops ...                                                // each also runs here
//   exact.get(y.v), exact.loss()
//
// Values are found by the address of their f32 twin, so views need nothing and ops in place work. A value
// without set() is a constant: its f32 value. Choices (which experts) are those of the f32 run, so that a
// derivative exists. States are not carried.
#pragma once

#include <array>
#include <bitset>
#include <complex>
#include <memory>
#include <span>
#include <unordered_map>
#include <vector>

#include "kernels/attention/attention.h"
#include "kernels/common/into.h"
#include "kernels/cross_entropy/cross_entropy.h"
#include "kernels/delta_former/delta_former.h"
#include "kernels/delta_gates/delta_gates.h"
#include "kernels/dropout/dropout.h"
#include "kernels/fast_weight/fast_weight.h"
#include "kernels/l2norm/l2norm.h"
#include "kernels/pointwise/pointwise.h"
#include "kernels/rmsnorm/rmsnorm.h"
#include "kernels/rope/rope.h"
#include "kernels/selective_scan/selective_scan.h"
#include "kernels/short_conv/short_conv.h"
#include "kernels/swiglu/swiglu.h"

namespace braid {

class Exact {
 public:
  using Number = std::complex<double>;
  using In = Mat<const float>;  // stands for the exact numbers at the same place
  using Numbers = std::vector<Number>;

  Numbers get(In m) const;                 // row by row, without gaps
  void set(In m, const Numbers& numbers);  // the same way
  void set(const float* at, Number x) { set({at, 1, 1}, {x}); }
  void forget(In m);                     // back to constants: the memory has a new use
  Number loss() const { return loss_; }  // the weighted sum over all cross_entropy() so far

  // The forward of each op, named as the kernel and with the same inputs.
  void copy(In from, In to);
  void fill(In y, double value) { set(y, Numbers(y.count(), value)); }
  void add(In a, In b, In y);
  void embedding_fwd(const int32_t* ids, In table, In y);
  void matmul(In a, In b, In c, Into into);  // a b^T
  void rmsnorm_fwd(const RmsNormIn& in, In y);
  void l2norm_fwd(const L2NormIn& in, In y);
  void l1norm_fwd(const L1NormIn& in, In y);
  void rope_fwd(const RopeIn& in, In y);
  void dropout(const DropoutMask& mask, In x, In y);
  void swiglu_fwd(const SwigluIn& in, In y);
  void map_fwd(const MapIn& in, In y);
  void scale_heads_fwd(const ScaleHeadsIn& in, In y);
  void blend_fwd(const BlendIn& in, In y);
  void decay_fwd(const DecayIn& in, In g);
  void delta_gates_fwd(const DeltaGatesIn& in, In g, In beta);
  void lower_bound_fwd(In P, size_t layer, const float* low);
  void forget_fwd(const ForgetIn& in, In g, In k);
  void router_weights(In logits, const int32_t* chosen, In w);
  void attention_packed_fwd(const AttentionShape& shape, const AttentionPacked& in, In o);
  void delta_former_fwd(const DeltaFormerShape& shape, const DeltaFormerIn& in, In o);
  void short_conv_fwd(const ShortConvIn& in, In y);
  void selective_scan_fwd(const SelectiveScanIn& in, In y);
  void fast_weight_fwd(const FastWeightShape& shape, const FastWeightIn& in, In o);
  // A token reads what was written before its chunk of positions, which count from 0.
  void fast_weight_chunks_fwd(const FastWeightShape& shape, const FastWeightIn& in, size_t chunk, In o);
  void cross_entropy(const CrossEntropyIn& in);

 private:
  // Shadow memory: a page for every 1024 floats that were set.
  static constexpr size_t kPage = 1024;
  struct Page {
    std::array<Number, kPage> numbers;
    std::bitset<kPage> known;
  };
  static uintptr_t index(const float* p) { return reinterpret_cast<uintptr_t>(p) / sizeof(float); }
  Page* page(uintptr_t number) const;  // null if there is none

  std::unordered_map<uintptr_t, std::unique_ptr<Page>> pages_;
  mutable uintptr_t last_number_ = 0;  // the page that was looked for last
  mutable Page* last_ = nullptr;
  Number loss_ = 0;
};

}  // namespace braid
