// Forward in both forms.
#include "kernels/fast_weight/fast_weight.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/fast_weight/forward.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "kernels/fast_weight/chunk-inl.h"
#include "kernels/fast_weight/parts-inl.h"
#include "kernels/fast_weight/recurrent-inl.h"

HWY_BEFORE_NAMESPACE();
namespace braid {
namespace HWY_NAMESPACE {
namespace {

template <class Products>
void ChunkTask<Products>::forward(const float* s0, float* s_end, const FastWeightMarks& marks,
                                  Mat<float> o) const {
  const float* S = load_state(s0, b.S);
  for (size_t t = 0, next; t < h.tokens; t = next) {
    const size_t limit = marks.every ? (t / marks.every + 1) * marks.every : h.tokens;
    next = std::min({h.tokens, limit, t + b.C});
    prepare(t, next - t);
    Ahead ahead = inputs_ahead(next, std::min(h.tokens, next + b.C));
    ahead.add(o, h.row0 + t, h.head * h.s.dv + begin, cols);
    const bool wanted = next < h.tokens || s_end || (marks.to && next == limit);
    advance(t, next - t, S, wanted ? b.S : nullptr, b.r, b.u, true, ahead);
    S = b.S;
    for (size_t i = t; i < next; ++i)
      std::copy_n(b.y + (i - t) * W, cols, o.row(h.row0 + i) + h.head * h.s.dv + begin);
    if (marks.to && next == limit) store_state(S, mark(marks.to, next / marks.every - 1));
  }
  if (s_end) store_state(S, s_end);
}

template <class Products>
void chunk_forward(const FastWeightShape& s, const FastWeightIn& in, size_t seq, size_t head, size_t begin,
                   size_t end, Mat<float> o, float* s_end, const FastWeightMarks& marks, float* scratch) {
  const Head h(s, in, seq, head);
  ChunkBuffers b(s, scratch);
  b.par = marks.par;
  ChunkTask<Products>{h, b, begin, end}.forward(state_of(s, in.s0.empty() ? nullptr : in.s0[seq], head),
                                                state_of(s, s_end, head), marks, o);
}

template <size_t W, bool kDelta, Fading kFading>
HWY_NOINLINE void fwd_panel(const Head& h, const Columns<W>& cols, const float* s0, float* s_end,
                            const FastWeightMarks& marks, Mat<float> o) {
  HWY_ALIGN float panel[kPanelFloats];
  const size_t dk = h.s.dk, dv = h.s.dv;
  const Rows local{panel, W * kLanes};
  // Whole panels are read from s0 by the first token and written to s_end by the last.
  const bool direct_in = s0 && cols.whole() && h.tokens > 0, direct_out = s_end && cols.whole() && !marks.to;
  if (!direct_in) cols.take(dk, s0, dv, panel);
  const ConstRows start = direct_in ? ConstRows(s0 + cols.begin, dv) : ConstRows(local);
  const VFull scale = hn::Set(Full(), h.s.scale);
  walk<W, kDelta, kFading, true>(
      h, cols, 0, h.tokens, start,
      [&](size_t t) {
        return direct_out && t + 1 == h.tokens ? Rows{s_end + cols.begin, dv} : local;
      },
      [&](size_t t, const VFull(&)[W], const VFull(&read)[W]) {
        float* to = o.row(h.row0 + t) + h.head * dv;
        for (size_t w = 0; w < W; ++w) cols.store(hn::Mul(scale, read[w]), to, w);
        if (marks.to && (t + 1) % marks.every == 0)
          cols.put(dk, panel, marks.to + (((t + 1) / marks.every - 1) * h.s.value_heads + h.head) * dk * dv,
                   dv);
      });
  if (s_end && (h.tokens == 0 || !direct_out)) cols.put(dk, panel, s_end, dv);
}

}  // namespace

void recurrent_fwd(const FastWeightShape& s, const FastWeightIn& in, size_t seq, size_t head, size_t begin,
                   size_t end, Mat<float> o, float* s_end, const FastWeightMarks& marks, float* /*scratch*/) {
  const Head h(s, in, seq, head);
  const float* s0 = state_of(s, in.s0.empty() ? nullptr : in.s0[seq], head);
  for_panels<kWideFwd>(s, begin, end, [&](auto W, auto delta, auto fading, size_t col, size_t width) {
    fwd_panel<W, delta, fading>(h, {col, width}, s0, state_of(s, s_end, head), marks, o);
  });
}

void chunk_fwd(const FastWeightShape& s, const FastWeightIn& in, size_t seq, size_t head, size_t begin,
               size_t end, Mat<float> o, float* s_end, const FastWeightMarks& marks, float* scratch) {
  chunk_forward<Wide>(s, in, seq, head, begin, end, o, s_end, marks, scratch);
}
void narrow_fwd(const FastWeightShape& s, const FastWeightIn& in, size_t seq, size_t head, size_t begin,
                size_t end, Mat<float> o, float* s_end, const FastWeightMarks& marks, float* scratch) {
  chunk_forward<Narrow>(s, in, seq, head, begin, end, o, s_end, marks, scratch);
}

}  // namespace HWY_NAMESPACE
}  // namespace braid
HWY_AFTER_NAMESPACE();
