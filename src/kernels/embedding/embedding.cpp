#include "kernels/embedding/embedding.h"

#include "kernels/embedding/embedding_ref.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/embedding/embedding.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "kernels/common/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace braid {
namespace HWY_NAMESPACE {
namespace {

void fwd(const int32_t* ids, Mat<const float> table, Mat<float> y, size_t begin, size_t end) {
  for (size_t r = begin; r < end; ++r) {
    const float* from = table.row(static_cast<size_t>(ids[r]));
    float* to = y.row(r);
    for_lanes(y.cols, [&](auto d, size_t i) { hn::StoreU(hn::LoadU(d, from + i), d, to + i); });
  }
}

void bwd(const int32_t* ids, Mat<const float> dy, Mat<float> dtable, size_t begin, size_t end) {
  for (size_t r = 0; r < dy.rows; ++r) {
    const float* from = dy.row(r) + begin;
    float* to = dtable.row(static_cast<size_t>(ids[r])) + begin;
    for_lanes(end - begin, [&](auto d, size_t i) {
      hn::StoreU(hn::Add(hn::LoadU(d, to + i), hn::LoadU(d, from + i)), d, to + i);
    });
  }
}

constexpr EmbeddingFns kFns{fwd, bwd};

}  // namespace

}  // namespace HWY_NAMESPACE
}  // namespace braid
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace braid {
namespace {

constexpr size_t kRowBlock = 32;   // rows per task
constexpr size_t kColBlock = 128;  // columns per task of the backward: 512 bytes in a row

// The reference sees one row, or a piece of one, as a table of its own.
constexpr int32_t kOnly = 0;

void ref_fwd(const int32_t* ids, Mat<const float> table, Mat<float> y, size_t begin, size_t end) {
  for (size_t r = begin; r < end; ++r)
    ref::embedding_fwd<float>(&kOnly, table.row(static_cast<size_t>(ids[r])), y.row(r), 1, y.cols);
}

void ref_bwd(const int32_t* ids, Mat<const float> dy, Mat<float> dtable, size_t begin, size_t end) {
  for (size_t r = 0; r < dy.rows; ++r)
    ref::embedding_bwd<float>(&kOnly, dy.row(r) + begin, dtable.row(static_cast<size_t>(ids[r])) + begin, 1,
                              end - begin);
}

constexpr EmbeddingFns kRefFns{ref_fwd, ref_bwd};

}  // namespace

const Impls<EmbeddingFns>& embedding_impls() {
  static const Impls<EmbeddingFns> table("embedding", {"avx512", Isa::kAvx512, &N_AVX3::kFns},
                                         {"avx2", Isa::kAvx2, &N_AVX2::kFns},
                                         {"sse", Isa::kBase, &N_SSSE3::kFns}, {"ref", Isa::kBase, &kRefFns});
  return table;
}

void embedding_fwd(const int32_t* ids, Mat<const float> table, Mat<float> y, Par par) {
  const EmbeddingFns& f = embedding_impls().use(par);
  par.blocks(y.rows, kRowBlock, [&](size_t begin, size_t end) { f.fwd(ids, table, y, begin, end); });
}

void embedding_bwd(const int32_t* ids, Mat<const float> dy, Mat<float> dtable, Par par) {
  const EmbeddingFns& f = embedding_impls().use(par);
  par.blocks(dy.cols, kColBlock, [&](size_t begin, size_t end) { f.bwd(ids, dy, dtable, begin, end); });
}

}  // namespace braid
#endif
