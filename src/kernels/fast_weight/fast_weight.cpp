#include "kernels/fast_weight/fast_weight.h"

#include <algorithm>
#include <vector>

#include "base/check.h"
#include "kernels/common/ragged.h"
#include "kernels/fast_weight/fast_weight_ref.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/fast_weight/fast_weight.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "kernels/fast_weight/asked-inl.h"
#include "kernels/fast_weight/chunk_sizes.h"
#include "kernels/fast_weight/parts-inl.h"
#include "kernels/fast_weight/recurrent_sizes.h"

HWY_BEFORE_NAMESPACE();
namespace braid {
namespace HWY_NAMESPACE {
namespace {

constexpr FastWeightFns kFns{recurrent_fwd, chunk_fwd,  narrow_fwd, recurrent_bwd,
                             chunk_bwd,     narrow_bwd, asked_fwd,  asked_bwd};

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace braid
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace braid {
namespace {

// The reference wants dense rows of one key head's group, in f32.
std::vector<float> dense(Mat<const float> f32, Mat<const bf16> narrow, size_t row, size_t rows, size_t begin,
                         size_t width) {
  if (!narrow.data) return dense(f32, row, rows, begin, width);
  std::vector<float> to;
  for (size_t i = row; i < row + rows; ++i)
    for (size_t j = begin; j < begin + width; ++j) to.push_back(to_f32(narrow.row(i)[j]));
  return to;
}

// g of `heads` value heads from `head`.
std::vector<float> dense_g(const FastWeightShape& s, Mat<const float> g, size_t row, size_t rows, size_t head,
                           size_t heads) {
  switch (s.decay) {
    case FastWeightDecay::kNone:
      return {};
    case FastWeightDecay::kHead:
      return dense(g, 0, 1, head, heads);
    case FastWeightDecay::kToken:
      return dense(g, row, rows, head, heads);
    case FastWeightDecay::kChannel:
      return dense(g, row, rows, head * s.dk, heads * s.dk);
  }
  return {};
}

void ref_fwd(const FastWeightShape& s, const FastWeightIn& in, size_t seq, size_t head, size_t begin,
             size_t end, Mat<float> o, float* s_end, const FastWeightMarks& marks, float*) {
  const size_t row = in.offsets[seq], n = in.offsets[seq + 1] - row, width = end - begin;
  const size_t key = head / (s.value_heads / s.key_heads) * s.dk, value = head * s.dv + begin;
  const ref::FastWeightDims<float> dims{1, 1, s.dk, width, s.decay, s.write, s.scale};
  const std::vector<float> q = dense(in.q, in.q_bf16, row, n, key, s.dk),
                           k = dense(in.k, in.k_bf16, row, n, key, s.dk),
                           v = dense(in.v, in.v_bf16, row, n, value, width),
                           g = dense_g(s, in.g, row, n, head, 1), beta = dense(in.beta, row, n, head, 1);
  const size_t count = marks.to ? n / marks.every : 0, size = s.dk * width;
  std::vector<float> S(size), out(n * width), emitted(count * size);
  const size_t state = head * s.dk * s.dv + begin;
  if (!in.s0.empty() && in.s0[seq])
    S = dense(Mat<const float>(in.s0[seq] + state, s.dk, width, s.dv), 0, s.dk, 0, width);
  ref::fast_weight_fwd<float>(dims, n, {q.data(), k.data(), v.data(), g.data(), beta.data(), S.data()},
                              out.data(), S.data(), marks.every, count ? emitted.data() : nullptr);
  scatter(out, o, row, n, value, width);
  if (s_end) scatter(S, {s_end + state, s.dk, width, s.dv}, 0, s.dk, 0, width);
  for (size_t i = 0; i < count; ++i)
    for (size_t r = 0; r < s.dk; ++r)
      std::copy_n(&emitted[i * size + r * width], width,
                  marks.to + i * s.value_heads * s.dk * s.dv + state + r * s.dv);
}

void ref_bwd(const FastWeightShape& s, const FastWeightIn& in, Mat<const float> dout, const float* ds_end,
             const FastWeightGrad& grad, size_t seq, size_t key_head, float* ds0, float* dg_head,
             const FastWeightMarks& marks, float*) {
  const size_t row = in.offsets[seq], n = in.offsets[seq + 1] - row, group = s.value_heads / s.key_heads;
  const size_t head = key_head * group, key = key_head * s.dk, value = head * s.dv, width = group * s.dv,
               state = head * s.dk * s.dv;
  const ref::FastWeightDims<float> dims{group, 1, s.dk, s.dv, s.decay, s.write, s.scale};
  const std::vector<float> q = dense(in.q, in.q_bf16, row, n, key, s.dk),
                           k = dense(in.k, in.k_bf16, row, n, key, s.dk),
                           v = dense(in.v, in.v_bf16, row, n, value, width),
                           g = dense_g(s, in.g, row, n, head, group),
                           beta = dense(in.beta, row, n, head, group), up = dense(dout, row, n, value, width);
  std::vector<float> dq(n * s.dk), dk(n * s.dk), dv(n * width), dg(g.size()), dbeta(n * group), d_emitted;
  if (marks.dstates)
    for (size_t i = 0; i < n / marks.every; ++i) {
      const float* from = marks.dstates + i * s.value_heads * s.dk * s.dv + state;
      d_emitted.insert(d_emitted.end(), from, from + group * s.dk * s.dv);
    }
  ref::fast_weight_bwd<float>(
      dims, n,
      {q.data(), k.data(), v.data(), g.data(), beta.data(),
       in.s0.empty() || !in.s0[seq] ? nullptr : in.s0[seq] + state},
      up.data(), ds_end ? ds_end + state : nullptr,
      {dq.data(), dk.data(), dv.data(), dg.data(), dbeta.data(), ds0 ? ds0 + state : nullptr}, marks.every,
      marks.dstates ? d_emitted.data() : nullptr);
  scatter(dq, grad.dq, row, n, key, s.dk);
  scatter(dk, grad.dk, row, n, key, s.dk);
  scatter(dv, grad.dv, row, n, value, width);
  if (s.write == FastWeightWrite::kDelta) scatter(dbeta, grad.dbeta, row, n, head, group);
  if (s.decay == FastWeightDecay::kHead) std::copy(dg.begin(), dg.end(), dg_head + head);
  if (!grad.dg.data) return;
  if (s.decay == FastWeightDecay::kToken) scatter(dg, grad.dg, row, n, head, group);
  if (s.decay == FastWeightDecay::kChannel) scatter(dg, grad.dg, row, n, head * s.dk, group * s.dk);
}

// Few rows among as many as there are tokens, the others zeros.
std::vector<float> among_all(Mat<const float> few, std::span<const uint32_t> asked, size_t tokens) {
  std::vector<float> all(tokens * few.cols);
  for (size_t i = 0; i < asked.size(); ++i) std::copy_n(few.row(i), few.cols, &all[asked[i] * few.cols]);
  return all;
}

// Columns of the asked rows of one sequence.
void pick_asked(const std::vector<float>& all, std::span<const uint32_t> asked, const FastWeightIn& in,
                size_t seq, size_t col, size_t width, Mat<float> few) {
  for (size_t i = 0; i < asked.size(); ++i)
    if (asked[i] >= in.offsets[seq] && asked[i] < in.offsets[seq + 1])
      std::copy_n(&all[asked[i] * few.cols + col], width, few.row(i) + col);
}

// The definition, with queries of zeros for those that do not ask.
void ref_asked_fwd(const FastWeightShape& s, const FastWeightIn& in, std::span<const uint32_t> asked,
                   size_t seq, size_t head, Mat<float> o) {
  const size_t tokens = in.offsets.back();
  const std::vector<float> q = among_all(in.q, asked, tokens);
  std::vector<float> all(tokens * o.cols);
  FastWeightIn wide = in;
  wide.q = {q.data(), tokens, in.q.cols};
  ref_fwd(s, wide, seq, head, 0, s.dv, {all.data(), tokens, o.cols}, nullptr, {}, nullptr);
  pick_asked(all, asked, in, seq, head * s.dv, s.dv, o);
}

void ref_asked_bwd(const FastWeightShape& s, const FastWeightIn& in, std::span<const uint32_t> asked,
                   Mat<const float> dout, const FastWeightGrad& grad, size_t seq, size_t key_head,
                   float* dg_head, float*) {
  const size_t tokens = in.offsets.back();
  const std::vector<float> q = among_all(in.q, asked, tokens), up = among_all(dout, asked, tokens);
  std::vector<float> dq(tokens * in.q.cols);
  FastWeightIn wide = in;
  wide.q = {q.data(), tokens, in.q.cols};
  FastWeightGrad to = grad;
  to.dq = {dq.data(), tokens, in.q.cols};
  ref_bwd(s, wide, {up.data(), tokens, dout.cols}, nullptr, to, seq, key_head, nullptr, dg_head, {}, nullptr);
  pick_asked(dq, asked, in, seq, key_head * s.dk, s.dk, grad.dq);
}

constexpr FastWeightFns kRefFns{ref_fwd, ref_fwd, ref_fwd,       ref_bwd,
                                ref_bwd, ref_bwd, ref_asked_fwd, ref_asked_bwd};

bool too_wide(const FastWeightShape& s) { return std::max(s.dk, s.dv) > kFastWeightMaxDim; }

const FastWeightFns& fns_for(const FastWeightShape& s, Par par) {
  return too_wide(s) ? kRefFns : fast_weight_impls().use(par);
}

// Sequences up to this length can be one chunk.
constexpr size_t kWholeTokens = 64;

// Tasks of a sequence that a thread takes at once: with many sequences all, as their rows share cache lines.
size_t tasks_at_once(size_t seqs, size_t per_seq, Par par) {
  return seqs >= 16 * static_cast<size_t>(par.threads()) ? per_seq : 1;
}

// The shape with what the plan says filled in.
FastWeightShape planned(FastWeightShape s, size_t tokens, FastWeightUse use, Par par) {
  const FastWeightPlan plan = fast_weight_plan(s, tokens, use, par);
  s.form = plan.form, s.chunk = plan.chunk;
  return s;
}

FastWeightShape with_chunk(FastWeightShape s, size_t chunk) {
  s.chunk = chunk;
  return s;
}

// Enough for whatever the plan takes, as sequences differ in length.
size_t fwd_scratch_per_thread(const FastWeightShape& shape, Par par) {
  if (shape.form == FastWeightForm::kRecurrent) return 0;
  const bool fixed = shape.form == FastWeightForm::kChunk;
  return ChunkBuffers(with_chunk(shape, fixed ? fast_weight_chunk(shape, par) : kWholeTokens), nullptr)
      .floats;
}

size_t bwd_scratch_per_thread(const FastWeightShape& shape, std::span<const uint32_t> offsets,
                              const FastWeightKept& kept, Par par) {
  const auto chunk = [&](size_t C, size_t T) {
    const FastWeightShape s = with_chunk(shape, C);
    const size_t E = segment_tokens(s, kept.every), segments = kept.states.empty() ? (T + E - 1) / E : 0;
    return ChunkBuffers(s, std::min(E, T), segments, nullptr).floats;
  };
  const size_t T = longest_sequence(offsets);
  if (shape.form == FastWeightForm::kRecurrent) return BwdScratch(shape, T).floats;
  if (shape.form == FastWeightForm::kChunk) return chunk(fast_weight_chunk(shape, par), T);
  return std::max({chunk(fast_weight_chunk(shape, par), T), chunk(kWholeTokens, std::min(T, kWholeTokens)),
                   BwdScratch(shape, T).floats});
}

// Shares of dg, one per sequence and head, behind the threads' scratch.
size_t dg_shares(const FastWeightShape& shape, size_t seqs) {
  return shape.decay == FastWeightDecay::kHead ? seqs * shape.value_heads : 0;
}

void add_dg_shares(const FastWeightShape& shape, size_t seqs, const float* shares, Mat<float> dg) {
  if (shape.decay != FastWeightDecay::kHead || !dg.data) return;
  for (size_t h = 0; h < shape.value_heads; ++h) {
    double sum = 0;
    for (size_t s = 0; s < seqs; ++s) sum += static_cast<double>(shares[s * shape.value_heads + h]);
    dg.row(0)[h] = static_cast<float>(sum);
  }
}

}  // namespace

const Impls<FastWeightFns>& fast_weight_impls() {
  static const Impls<FastWeightFns> table("fast_weight", {"avx512", Isa::kAvx512, &N_AVX3::kFns},
                                          {"avx2", Isa::kAvx2, &N_AVX2::kFns},
                                          {"sse", Isa::kBase, &N_SSSE3::kFns}, {"ref", Isa::kBase, &kRefFns});
  return table;
}

std::string_view fast_weight_impl(const FastWeightShape& shape, Par par) {
  const ImplTable& table = fast_weight_impls();
  return too_wide(shape) ? table.rows().back().name : table.rows()[table.chosen(par)].name;
}

// Products of bf16 want longer chunks than those of f32. T2048 h16 d128, forward and backward, one core of
// Zen 4: 143 ms with 32, 153 with 48 and 64. AMX tiles are 16 x 32 x 16, and rounding a state costs as much
// as multiplying with it there; 64 is what a prototype on such a machine was fastest with.
size_t fast_weight_chunk(const FastWeightShape& s, Par par) {
  if (s.chunk) return s.chunk;
  return s.precision == Precision::kF32 ? kFastWeightChunk : par.isa() >= Isa::kAmx ? 64 : 32;
}

FastWeightPlan fast_weight_plan(const FastWeightShape& shape, size_t tokens, FastWeightUse use, Par par) {
  const FastWeightPlan recurrent{FastWeightForm::kRecurrent, 0},
      chunk{FastWeightForm::kChunk, fast_weight_chunk(shape, par)};
  if (shape.form == FastWeightForm::kRecurrent) return recurrent;
  if (shape.form == FastWeightForm::kChunk) return chunk;
  // Measured with AVX2 (docs/results/kernels.md): what a token costs besides the state's numbers weighs more
  // in small states, and backward gains more than forward.
  const size_t d = std::min(shape.dk, shape.dv);
  if (use.alone && tokens <= kWholeTokens && d >= (use.backward ? 48 : 64) && tokens > 0)
    return {FastWeightForm::kChunk, tokens};
  // With AVX-512 twice the registers let forward go token by token at 70-72 % of the peak on one core and
  // 66-69 % on two, in chunks of f32 at 68-71 and 61-64 % (Zen 4, d = 128, four runs).
  const bool steps = par.isa() >= Isa::kAvx512 && shape.precision == Precision::kF32 &&
                     shape.decay != FastWeightDecay::kChannel && std::max(shape.dk, shape.dv) <= 128;
  if (use.backward ? d >= 48 : d >= 128 && tokens >= 64 && !steps) return chunk;
  return recurrent;
}

size_t fast_weight_fwd_scratch(const FastWeightShape& shape, Par par) {
  return fwd_scratch_per_thread(shape, par) * static_cast<size_t>(par.threads());
}

void fast_weight_fwd(const FastWeightShape& shape, const FastWeightIn& in, Mat<float> o,
                     std::span<float* const> s_end, const FastWeightEmit& emit, std::span<float> scratch,
                     Par par) {
  const bool wide = in.q_bf16.data != nullptr;
  check(shape.chunk <= kFastWeightMaxChunk, "fast_weight: chunk too long");
  check(!wide || shape.form != FastWeightForm::kRecurrent, "fast_weight: bf16 needs the chunk form");
  check(scratch.size() >= fast_weight_fwd_scratch(shape, par) ||
            (scratch.empty() && !wide && shape.form == FastWeightForm::kAuto),
        "fast_weight_fwd: scratch too small");
  const FastWeightFns& f = fns_for(shape, par);
  const size_t each = fwd_scratch_per_thread(shape, par);
  // Both forms cut the columns at multiples of kFastWeightBlock.
  const size_t blocks = (shape.dv + kFastWeightChunkBlock - 1) / kFastWeightChunkBlock,
               per_seq = shape.value_heads * blocks;
  take_turns(in.seqs() * per_seq, tasks_at_once(in.seqs(), per_seq, par), par, [&](size_t i, size_t worker) {
    const size_t s = i / per_seq, head = i % per_seq / blocks, begin = i % blocks * kFastWeightChunkBlock,
                 end = std::min(shape.dv, begin + kFastWeightChunkBlock);
    float* const last = s_end.empty() ? nullptr : s_end[s];
    const FastWeightMarks marks{
        .every = emit.every, .to = emit.every ? emit.to[s] : nullptr, .par = par.alone()};
    const bool alone = !last && !marks.to && (in.s0.empty() || !in.s0[s]);
    FastWeightShape how = shape;
    if (wide) how.form = FastWeightForm::kChunk;
    how = planned(how, in.offsets[s + 1] - in.offsets[s], {.alone = alone}, par);
    if (how.form == FastWeightForm::kChunk && !scratch.empty())
      return (how.precision == Precision::kBf16 ? f.narrow_fwd : f.chunk_fwd)(
          how, in, s, head, begin, end, o, last, marks, scratch.data() + worker * each);
    for (size_t col = begin; col < end; col += kFastWeightBlock)
      f.fwd(shape, in, s, head, col, std::min(end, col + kFastWeightBlock), o, last, marks, nullptr);
  });
}

size_t fast_weight_bwd_scratch(const FastWeightShape& shape, std::span<const uint32_t> offsets,
                               const FastWeightKept& kept, Par par) {
  return bwd_scratch_per_thread(shape, offsets, kept, par) * static_cast<size_t>(par.threads()) +
         dg_shares(shape, offsets.empty() ? 0 : offsets.size() - 1);
}

void fast_weight_bwd(const FastWeightShape& shape, const FastWeightIn& in, const FastWeightKept& kept,
                     Mat<const float> dout, std::span<const float* const> ds_end, const FastWeightGrad& grad,
                     std::span<float> scratch, Par par) {
  const bool needs_chunk = in.q_bf16.data != nullptr || !kept.dstates.empty();
  check(shape.chunk <= kFastWeightMaxChunk, "fast_weight: chunk too long");
  check(!needs_chunk || shape.form != FastWeightForm::kRecurrent,
        "fast_weight_bwd: bf16 and cotangents of emitted states need the chunk form");
  check(scratch.size() >= fast_weight_bwd_scratch(shape, in.offsets, kept, par),
        "fast_weight_bwd: scratch too small");
  const FastWeightFns& f = fns_for(shape, par);
  const size_t each = bwd_scratch_per_thread(shape, in.offsets, kept, par);
  float* shares = scratch.data() + each * static_cast<size_t>(par.threads());
  std::fill_n(shares, dg_shares(shape, in.seqs()), 0.0f);
  const size_t step = tasks_at_once(in.seqs(), shape.key_heads, par);
  take_turns(in.seqs() * shape.key_heads, step, par, [&](size_t i, size_t worker) {
    const size_t s = i / shape.key_heads;
    const FastWeightMarks marks{.every = kept.every,
                                .states = kept.states.empty() ? nullptr : kept.states[s],
                                .dstates = kept.dstates.empty() ? nullptr : kept.dstates[s],
                                .par = par.alone()};
    const float* const end = ds_end.empty() ? nullptr : ds_end[s];
    float* const ds0 = grad.ds0.empty() ? nullptr : grad.ds0[s];
    const bool alone = !end && !ds0 && !kept.every && (in.s0.empty() || !in.s0[s]);
    FastWeightShape how = shape;
    if (needs_chunk) how.form = FastWeightForm::kChunk;
    how = planned(how, in.offsets[s + 1] - in.offsets[s], {.backward = true, .alone = alone}, par);
    (how.form != FastWeightForm::kChunk  ? f.bwd
     : how.precision == Precision::kBf16 ? f.narrow_bwd
                                         : f.chunk_bwd)(how, in, dout, end, grad, s, i % shape.key_heads, ds0,
                                                        shares + s * shape.value_heads, marks,
                                                        scratch.data() + worker * each);
  });
  add_dg_shares(shape, in.seqs(), shares, grad.dg);
}

namespace {

size_t asked_scratch_per_thread(const FastWeightShape& shape, std::span<const uint32_t> offsets) {
  return (longest_sequence(offsets) * (shape.dk + 1) + 15) / 16 * 16;
}

}  // namespace

void fast_weight_asked_fwd(const FastWeightShape& shape, const FastWeightIn& in,
                           std::span<const uint32_t> asked, Mat<float> o, Par par) {
  check(in.s0.empty() && !in.q_bf16.data && in.q.rows == asked.size() && o.rows == asked.size(),
        "fast_weight_asked: no states and no bf16; a row of q and o for each that asks");
  const FastWeightFns& f = fns_for(shape, par);
  take_turns(in.seqs() * shape.value_heads, tasks_at_once(in.seqs(), shape.value_heads, par), par,
             [&](size_t i, size_t) {
               f.asked_fwd(shape, in, asked, i / shape.value_heads, i % shape.value_heads, o);
             });
}

size_t fast_weight_asked_scratch(const FastWeightShape& shape, std::span<const uint32_t> offsets, Par par) {
  return asked_scratch_per_thread(shape, offsets) * static_cast<size_t>(par.threads()) +
         dg_shares(shape, offsets.empty() ? 0 : offsets.size() - 1);
}

void fast_weight_asked_bwd(const FastWeightShape& shape, const FastWeightIn& in,
                           std::span<const uint32_t> asked, Mat<const float> dout, const FastWeightGrad& grad,
                           std::span<float> scratch, Par par) {
  check(in.s0.empty() && !in.q_bf16.data && in.q.rows == asked.size() && dout.rows == asked.size() &&
            scratch.size() >= fast_weight_asked_scratch(shape, in.offsets, par),
        "fast_weight_asked_bwd: see forward; or scratch too small");
  const FastWeightFns& f = fns_for(shape, par);
  const size_t each = asked_scratch_per_thread(shape, in.offsets);
  float* shares = scratch.data() + each * static_cast<size_t>(par.threads());
  std::fill_n(shares, dg_shares(shape, in.seqs()), 0.0f);
  take_turns(in.seqs() * shape.key_heads, tasks_at_once(in.seqs(), shape.key_heads, par), par,
             [&](size_t i, size_t worker) {
               const size_t s = i / shape.key_heads;
               f.asked_bwd(shape, in, asked, dout, grad, s, i % shape.key_heads,
                           shares + s * shape.value_heads, scratch.data() + worker * each);
             });
  add_dg_shares(shape, in.seqs(), shares, grad.dg);
}

}  // namespace braid
#endif
