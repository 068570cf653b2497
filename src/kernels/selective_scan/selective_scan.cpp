#include "kernels/selective_scan/selective_scan.h"

#include <algorithm>
#include <vector>

#include "base/check.h"
#include "kernels/common/ragged.h"
#include "kernels/selective_scan/selective_scan_ref.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/selective_scan/selective_scan.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "kernels/common/gemm-inl.h"
#include "kernels/common/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace braid {
namespace HWY_NAMESPACE {
namespace {

// A lane is a channel: sums over the state then need no reduction across lanes, and any S fills the vectors.
// Matrices of the block are transposed to [S, kBlock].
constexpr size_t kBlock = kSelectiveScanBlock, kChunk = kSelectiveScanChunk, kMaxS = kSelectiveScanMaxState;
constexpr size_t kLanes = HWY_LANES(float);

// from: [n, S] or null for zeros.
HWY_INLINE void load_block(const float* from, size_t n, size_t S, float* to) {
  if (from)
    transpose(n, S, from, S, to, kBlock);
  else
    std::fill(to, to + S * kBlock, 0.0f);
}

HWY_INLINE void store_block(const float* from, size_t n, size_t S, float* to) {
  transpose(S, n, from, kBlock, to, S);
}

// exp(x) between -88, below which it is 0, and 88, above which a state is lost anyway; as exp_weight. There
// is one for each number of the state, and they take most of the time.
template <class D, class V = hn::Vec<D>>
HWY_INLINE V exp_decay(D d, V x) {
  const hn::RebindToSigned<D> di;
  const V c = hn::Min(hn::Set(d, 88.0f), hn::Max(hn::Set(d, -88.0f), x));  // NaN stays: see exp_weight
  const V magic = hn::Set(d, 12582912.0f + 127.0f);
  const V shifted = hn::MulAdd(c, hn::Set(d, 1.44269504088896341f), magic), n = hn::Sub(shifted, magic);
  return hn::Mul(exp_remainder(d, c, n), hn::BitCast(d, hn::ShiftLeft<23>(hn::BitCast(di, shifted))));
}

// a_t - low.
template <class D, class V = hn::Vec<D>>
HWY_INLINE V above_low(D d, V dt, const float* A, float low) {
  return hn::Mul(hn::Set(d, 1 - low), exp_decay(d, hn::Mul(dt, hn::LoadU(d, A))));
}

// h_t from h_{t-1}, for the lanes at i.
template <class D, class V = hn::Vec<D>>
HWY_INLINE V next_state(D d, V dt, V u, const float* A, float B, V before, float low) {
  return hn::MulAdd(hn::Add(above_low(d, dt, A, low), hn::Set(d, low)), before, hn::Mul(u, hn::Set(d, B)));
}

void fwd(const SelectiveScanPiece& p, size_t begin, size_t end) {
  const size_t n = end - begin, S = p.B.cols;
  HWY_ALIGN float A[kMaxS * kBlock], h[kMaxS * kBlock];
  load_block(p.A + begin * S, n, S, A);
  load_block(p.h0 ? p.h0 + begin * S : nullptr, n, S, h);
  for (size_t t = 0; t < p.x.rows; ++t) {
    const float *x = p.x.row(t) + begin, *dt = p.dt.row(t) + begin, *B = p.B.row(t), *C = p.C.row(t);
    float* y = p.y.row(t) + begin;
    for_lanes(n, [&](auto d, size_t i) {
      const auto xt = hn::LoadU(d, x + i), step = hn::LoadU(d, dt + i), u = hn::Mul(step, xt);
      auto sum = p.skip ? hn::Mul(hn::LoadU(d, p.skip + begin + i), xt) : hn::Zero(d);
      for (size_t s = 0; s < S; ++s) {
        float* hs = h + s * kBlock + i;
        const auto now = next_state(d, step, u, A + s * kBlock + i, B[s], hn::LoadU(d, hs), p.low);
        hn::StoreU(now, d, hs);
        sum = hn::MulAdd(hn::Set(d, C[s]), now, sum);
      }
      hn::StoreU(sum, d, y + i);
    });
  }
  if (p.last) store_block(h, n, S, p.last + begin * S);
}

// The rows of one sequence and what the backward keeps for a block of channels.
struct BwdBlock {
  // The arrays stay as they are: zeroing them would cost as much as a few tokens.
  BwdBlock(const SelectiveScanIn& i, Mat<const float> up, const SelectiveScanGrad& o, size_t first,
           size_t end)
      : in(i), dy(up), out(o), begin(first), n(end - first) {}

  const SelectiveScanIn& in;
  Mat<const float> dy;
  const SelectiveScanGrad& out;
  size_t begin, n;
  HWY_ALIGN float A[kMaxS * kBlock];
  HWY_ALIGN float h[kMaxS * kBlock];   // a state
  HWY_ALIGN float g[kMaxS * kBlock];   // what comes back from the next token: a_{t+1} g_{t+1}
  HWY_ALIGN float dA[kMaxS * kBlock];  // of this sequence
  HWY_ALIGN float dskip[kBlock];
  // Of one vector of channels over a chunk: [tokens, S] vectors.
  HWY_ALIGN float states[(kChunk + 1) * kMaxS * kLanes];
  HWY_ALIGN float decays[kChunk * kMaxS * kLanes];  // above low
  HWY_ALIGN float dB[kChunk * kMaxS * kLanes];      // sums over vectors of channels
  HWY_ALIGN float dC[kChunk * kMaxS * kLanes];
};

// h over the tokens [row, row + rows).
HWY_INLINE void advance(BwdBlock& b, size_t row, size_t rows) {
  const size_t S = b.in.B.cols;
  for (size_t t = row; t < row + rows; ++t) {
    const float *x = b.in.x.row(t) + b.begin, *dt = b.in.dt.row(t) + b.begin, *B = b.in.B.row(t);
    for_lanes(b.n, [&](auto d, size_t i) {
      const auto step = hn::LoadU(d, dt + i), u = hn::Mul(step, hn::LoadU(d, x + i));
      for (size_t s = 0; s < S; ++s) {
        float* hs = b.h + s * kBlock + i;
        hn::StoreU(next_state(d, step, u, b.A + s * kBlock + i, B[s], hn::LoadU(d, hs), b.in.low), d, hs);
      }
    });
  }
}

// The gradients of the tokens [row, row + rows), whose first finds the state h0: [S, kBlock].
HWY_INLINE void chunk_bwd(BwdBlock& b, const float* h0, size_t row, size_t rows, Mat<float> dB,
                          Mat<float> dC) {
  const SelectiveScanIn& in = b.in;
  const size_t S = in.B.cols, each = S * kLanes;
  std::fill(b.dB, b.dB + rows * each, 0.0f);
  std::fill(b.dC, b.dC + rows * each, 0.0f);
  for_lanes(b.n, [&](auto d, size_t i) {
    using V = hn::Vec<decltype(d)>;
    const size_t col = b.begin + i;
    const V low = hn::Set(d, in.low);
    for (size_t s = 0; s < S; ++s) hn::StoreU(hn::LoadU(d, h0 + s * kBlock + i), d, b.states + s * kLanes);
    for (size_t r = 0; r < rows; ++r) {
      const float* B = in.B.row(row + r);
      const V step = hn::LoadU(d, in.dt.row(row + r) + col),
              u = hn::Mul(step, hn::LoadU(d, in.x.row(row + r) + col));
      for (size_t s = 0; s < S; ++s) {
        const size_t at = r * each + s * kLanes;
        const V above = above_low(d, step, b.A + s * kBlock + i, in.low);
        hn::StoreU(above, d, b.decays + at);
        hn::StoreU(hn::MulAdd(hn::Add(above, low), hn::LoadU(d, b.states + at), hn::Mul(u, hn::Set(d, B[s]))),
                   d, b.states + at + each);
      }
    }
    const V skip = in.skip ? hn::LoadU(d, in.skip + col) : hn::Zero(d);
    V dskip = hn::LoadU(d, b.dskip + i);
    for (size_t r = rows; r-- > 0;) {
      const float *B = in.B.row(row + r), *C = in.C.row(row + r);
      const V x = hn::LoadU(d, in.x.row(row + r) + col), step = hn::LoadU(d, in.dt.row(row + r) + col),
              up = hn::LoadU(d, b.dy.row(row + r) + col), u = hn::Mul(step, x);
      V gB = hn::Zero(d), ddt = hn::Zero(d);
      for (size_t s = 0; s < S; ++s) {
        const size_t at = r * each + s * kLanes, line = s * kBlock + i;
        const V g = hn::MulAdd(up, hn::Set(d, C[s]), hn::LoadU(d, b.g + line));
        const V above = hn::Mul(g, hn::LoadU(d, b.decays + at)),
                through = hn::Mul(above, hn::LoadU(d, b.states + at));  // g_t (a_t - low) h_{t-1}
        hn::StoreU(hn::MulAdd(g, low, above), d, b.g + line);
        hn::StoreU(hn::MulAdd(up, hn::LoadU(d, b.states + at + each), hn::LoadU(d, b.dC + at)), d, b.dC + at);
        hn::StoreU(hn::MulAdd(g, u, hn::LoadU(d, b.dB + at)), d, b.dB + at);
        hn::StoreU(hn::MulAdd(through, step, hn::LoadU(d, b.dA + line)), d, b.dA + line);
        gB = hn::MulAdd(g, hn::Set(d, B[s]), gB);
        ddt = hn::MulAdd(through, hn::LoadU(d, b.A + line), ddt);
      }
      dskip = hn::MulAdd(up, x, dskip);
      hn::StoreU(hn::MulAdd(step, gB, hn::Mul(skip, up)), d, b.out.dx.row(row + r) + col);
      hn::StoreU(hn::MulAdd(x, gB, ddt), d, b.out.ddt.row(row + r) + col);
    }
    hn::StoreU(dskip, d, b.dskip + i);
  });
  const Full d;
  for (size_t r = 0; r < rows; ++r)
    for (size_t s = 0; s < S; ++s) {
      const size_t at = r * each + s * kLanes;
      dB.row(r)[s] = hn::GetLane(hn::SumOfLanes(d, hn::Load(d, b.dB + at)));
      dC.row(r)[s] = hn::GetLane(hn::SumOfLanes(d, hn::Load(d, b.dC + at)));
    }
}

void bwd(const SelectiveScanIn& in, Mat<const float> dy, const float* dlast, const SelectiveScanGrad& out,
         float* checkpoints, Mat<float> dB, Mat<float> dC, size_t begin, size_t end) {
  const size_t n = end - begin, S = in.B.cols;
  BwdBlock b(in, dy, out, begin, end);
  load_block(in.A + begin * S, n, S, b.A);
  for (size_t seq = 0; seq < in.seqs(); ++seq) {
    const size_t first = in.offsets[seq], tokens = in.offsets[seq + 1] - first;
    const size_t at = (seq * in.x.cols + begin) * S, chunks = (tokens + kChunk - 1) / kChunk;
    load_block(in.h0 ? in.h0 + at : nullptr, n, S, b.h);
    for (size_t c = 0; c < chunks; ++c) {
      std::copy_n(b.h, S * kBlock, checkpoints + c * S * kBlock);
      if (c + 1 < chunks) advance(b, first + c * kChunk, kChunk);
    }
    load_block(dlast ? dlast + at : nullptr, n, S, b.g);
    std::fill(b.dA, b.dA + S * kBlock, 0.0f);
    std::fill(b.dskip, b.dskip + n, 0.0f);
    for (size_t c = chunks; c-- > 0;) {
      const size_t row = first + c * kChunk, rows = std::min(kChunk, tokens - c * kChunk);
      const size_t from = row - in.offsets[0];
      chunk_bwd(b, checkpoints + c * S * kBlock, row, rows, dB.row_range(from, from + rows),
                dC.row_range(from, from + rows));
    }
    if (out.dh0) store_block(b.g, n, S, out.dh0 + at);
    for (size_t i = 0; out.dskip && i < n; ++i) out.dskip[begin + i] += b.dskip[i];
    for (size_t i = 0; out.dA && i < n; ++i)
      for (size_t s = 0; s < S; ++s) out.dA[(begin + i) * S + s] += b.dA[s * kBlock + i];
  }
}

constexpr SelectiveScanFns kFns{fwd, bwd};

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace braid
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace braid {
namespace {

constexpr size_t kRowBlock = 64;  // tokens per task of the sums of dB and dC

const float* part(const float* p, size_t at) { return p ? p + at : nullptr; }

void ref_fwd(const SelectiveScanPiece& p, size_t begin, size_t end) {
  const size_t S = p.B.cols;
  const std::vector<float> x = dense(p.x.col_range(begin, end)), dt = dense(p.dt.col_range(begin, end)),
                           B = dense(p.B), C = dense(p.C);
  std::vector<float> y(x.size());
  ref::selective_scan_fwd<float>({p.x.rows, end - begin, S},
                                 {x.data(), dt.data(), p.A + begin * S, B.data(), C.data(),
                                  part(p.skip, begin), part(p.h0, begin * S), p.low},
                                 y.data(), p.last ? p.last + begin * S : nullptr);
  scatter(y, p.y.col_range(begin, end));
}

void ref_bwd(const SelectiveScanIn& in, Mat<const float> dy, const float* dlast, const SelectiveScanGrad& out,
             float*, Mat<float> dB, Mat<float> dC, size_t begin, size_t end) {
  const size_t S = in.B.cols, n = end - begin;
  std::vector<float> dA(n * S), dskip(n), dh0(n * S);
  for (size_t seq = 0; seq < in.seqs(); ++seq) {
    const size_t first = in.offsets[seq], after = in.offsets[seq + 1], base = in.offsets[0];
    const size_t at = (seq * in.x.cols + begin) * S;
    const auto block = [&](auto m) { return m.row_range(first, after).col_range(begin, end); };
    const std::vector<float> x = dense(block(in.x)), dt = dense(block(in.dt)), up = dense(block(dy)),
                             B = dense(in.B.row_range(first, after)), C = dense(in.C.row_range(first, after));
    std::vector<float> dx(x.size()), ddt(x.size()), dBs(B.size()), dCs(C.size());
    ref::selective_scan_bwd<float>(
        {after - first, n, S},
        {x.data(), dt.data(), in.A + begin * S, B.data(), C.data(), part(in.skip, begin), part(in.h0, at),
         in.low},
        up.data(), part(dlast, at),
        {dx.data(), ddt.data(), dA.data(), dBs.data(), dCs.data(), dskip.data(), dh0.data()});
    scatter(dx, block(out.dx)), scatter(ddt, block(out.ddt));
    scatter(dBs, dB.row_range(first - base, after - base));
    scatter(dCs, dC.row_range(first - base, after - base));
    if (out.dh0) std::copy(dh0.begin(), dh0.end(), out.dh0 + at);
  }
  for (size_t i = 0; out.dA && i < n * S; ++i) out.dA[begin * S + i] += dA[i];
  for (size_t i = 0; out.dskip && i < n; ++i) out.dskip[begin + i] += dskip[i];
}

constexpr SelectiveScanFns kRefFns{ref_fwd, ref_bwd};

void check_state(size_t S) {
  check(S >= 1 && S <= kSelectiveScanMaxState, "selective_scan: the state must be 1 .. 64 numbers");
}

size_t blocks_of(size_t channels) { return (channels + kSelectiveScanBlock - 1) / kSelectiveScanBlock; }

// run(sequence, begin, end) for each block of channels of each sequence.
template <class Run>
void for_blocks(size_t seqs, size_t channels, Par par, const Run& run) {
  const size_t blocks = blocks_of(channels);
  par.tasks(seqs * blocks, [&](size_t i) {
    const size_t begin = i % blocks * kSelectiveScanBlock;
    run(i / blocks, begin, std::min(channels, begin + kSelectiveScanBlock));
  });
}

size_t rows_of(std::span<const uint32_t> offsets) {
  return offsets.empty() ? 0 : offsets.back() - offsets.front();
}

size_t checkpoints_per_thread(size_t S, std::span<const uint32_t> offsets) {
  return (longest_sequence(offsets) + kSelectiveScanChunk - 1) / kSelectiveScanChunk * S *
         kSelectiveScanBlock;
}

}  // namespace

const Impls<SelectiveScanFns>& selective_scan_impls() {
  static const Impls<SelectiveScanFns> table(
      "selective_scan", {"avx512", Isa::kAvx512, &N_AVX3::kFns}, {"avx2", Isa::kAvx2, &N_AVX2::kFns},
      {"sse", Isa::kBase, &N_SSSE3::kFns}, {"ref", Isa::kBase, &kRefFns});
  return table;
}

void selective_scan_fwd(const SelectiveScanIn& in, Mat<float> y, float* last, Par par) {
  check_state(in.B.cols);
  const SelectiveScanFns& f = selective_scan_impls().use(par);
  const size_t each = in.x.cols * in.B.cols;
  for_blocks(in.seqs(), in.x.cols, par, [&](size_t s, size_t begin, size_t end) {
    const auto rows = [&](auto m) { return m.row_range(in.offsets[s], in.offsets[s + 1]); };
    f.fwd({rows(in.x), rows(in.dt), in.A, rows(in.B), rows(in.C), in.skip, part(in.h0, s * each), rows(y),
           last ? last + s * each : nullptr, in.low},
          begin, end);
  });
}

size_t selective_scan_bwd_scratch(size_t channels, size_t state, std::span<const uint32_t> offsets, Par par) {
  return checkpoints_per_thread(state, offsets) * static_cast<size_t>(par.threads()) +
         2 * blocks_of(channels) * rows_of(offsets) * state;
}

void selective_scan_bwd(const SelectiveScanIn& in, Mat<const float> dy, const float* dlast,
                        const SelectiveScanGrad& out, std::span<float> scratch, Par par) {
  const size_t D = in.x.cols, S = in.B.cols, rows = rows_of(in.offsets), blocks = blocks_of(D);
  check_state(S);
  check(scratch.size() >= selective_scan_bwd_scratch(D, S, in.offsets, par),
        "selective_scan_bwd: scratch too small");
  const SelectiveScanFns& f = selective_scan_impls().use(par);
  const size_t each = checkpoints_per_thread(S, in.offsets);
  float* parts = scratch.data() + each * static_cast<size_t>(par.threads());  // [blocks, 2, rows, S]
  const auto part_of = [&](size_t block, size_t which) {
    return Mat<float>{parts + (2 * block + which) * rows * S, rows, S};
  };
  take_turns(blocks, 1, par, [&](size_t i, size_t worker) {
    f.bwd(in, dy, dlast, out, scratch.data() + worker * each, part_of(i, 0), part_of(i, 1),
          i * kSelectiveScanBlock, std::min(D, (i + 1) * kSelectiveScanBlock));
  });
  par.blocks(rows, kRowBlock, [&](size_t begin, size_t end) {
    for (size_t r = begin; r < end; ++r)
      for (const size_t which : {0, 1}) {
        float* to = (which == 0 ? out.dB : out.dC).row(in.offsets[0] + r);
        std::fill(to, to + S, 0.0f);
        for (size_t block = 0; block < blocks; ++block) {
          const float* from = part_of(block, which).row(r);
          for (size_t s = 0; s < S; ++s) to[s] += from[s];
        }
      }
  });
}

void selective_scan_step(const SelectiveScanStep& in, Mat<float> y, Par par) {
  check_state(in.B.cols);
  const SelectiveScanFns& f = selective_scan_impls().use(par);
  for_blocks(in.x.rows, in.x.cols, par, [&](size_t s, size_t begin, size_t end) {
    const auto row = [&](auto m) { return m.row_range(s, s + 1); };
    f.fwd({row(in.x), row(in.dt), in.A, row(in.B), row(in.C), in.skip, in.states[s], row(y), in.states[s],
           in.low},
          begin, end);
  });
}

}  // namespace braid
#endif
