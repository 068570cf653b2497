#include "autograd/exact.h"

#include "kernels/attention/attention_ref.h"
#include "kernels/cross_entropy/cross_entropy_ref.h"
#include "kernels/delta_former/delta_former_ref.h"
#include "kernels/delta_gates/delta_gates_ref.h"
#include "kernels/dropout/dropout_ref.h"
#include "kernels/elementwise/elementwise_ref.h"
#include "kernels/embedding/embedding_ref.h"
#include "kernels/fast_weight/fast_weight_ref.h"
#include "kernels/l2norm/l2norm_ref.h"
#include "kernels/matmul/matmul_ref.h"
#include "kernels/pointwise/pointwise_ref.h"
#include "kernels/rmsnorm/rmsnorm_ref.h"
#include "kernels/rope/rope_ref.h"
#include "kernels/router/router_ref.h"
#include "kernels/selective_scan/selective_scan_ref.h"
#include "kernels/short_conv/short_conv_ref.h"
#include "kernels/swiglu/swiglu_ref.h"

namespace braid {
namespace {

using Number = Exact::Number;

// run(first row, rows) for every sequence that has tokens.
template <class Run>
void each_sequence(std::span<const uint32_t> offsets, const Run& run) {
  for (size_t s = 0; s + 1 < offsets.size(); ++s)
    if (offsets[s + 1] > offsets[s]) run(size_t{offsets[s]}, size_t{offsets[s + 1] - offsets[s]});
}

Mat<const float> vec(const float* data, size_t n) { return {data, 1, n}; }
const Number* pointer(const Exact::Numbers& x) { return x.empty() ? nullptr : x.data(); }

}  // namespace

// ---- Memory

Exact::Page* Exact::page(uintptr_t number) const {
  if (number != last_number_) {
    const auto found = pages_.find(number);
    last_number_ = number, last_ = found == pages_.end() ? nullptr : found->second.get();
  }
  return last_;
}

Exact::Numbers Exact::get(In m) const {
  Numbers out;
  if (!m.data) return out;
  out.reserve(m.count());
  for (size_t r = 0; r < m.rows; ++r)
    for (size_t c = 0; c < m.cols; ++c) {
      const uintptr_t at = index(m.row(r) + c);
      const Page* p = page(at / kPage);
      out.push_back(p && p->known[at % kPage] ? p->numbers[at % kPage] : Number(m.row(r)[c]));
    }
  return out;
}

void Exact::set(In m, const Numbers& numbers) {
  check(numbers.size() == m.count(), "Exact::set: another count");
  for (size_t r = 0; r < m.rows; ++r)
    for (size_t c = 0; c < m.cols; ++c) {
      const uintptr_t at = index(m.row(r) + c);
      Page* p = page(at / kPage);
      if (!p) p = last_ = (pages_[at / kPage] = std::make_unique<Page>()).get();
      p->numbers[at % kPage] = numbers[r * m.cols + c];
      p->known[at % kPage] = true;
    }
}

void Exact::forget(In m) {
  for (size_t r = 0; r < m.rows; ++r)
    for (size_t c = 0; c < m.cols; ++c) {
      const uintptr_t at = index(m.row(r) + c);
      if (Page* p = page(at / kPage)) p->known[at % kPage] = false;
    }
}

// ---- Rows by themselves

void Exact::copy(In from, In to) { set(to, get(from)); }

void Exact::add(In a, In b, In y) {
  Numbers out(y.count());
  ref::add(get(a).data(), get(b).data(), out.data(), out.size());
  set(y, out);
}

void Exact::embedding_fwd(const int32_t* ids, In table, In y) {
  Numbers out(y.count());
  ref::embedding_fwd(ids, get(table).data(), out.data(), y.rows, y.cols);
  set(y, out);
}

void Exact::matmul(In a, In b, In c, Into into) {
  const Numbers x = get(a), w = get(b);
  Numbers out = into == Into::kAdd ? get(c) : Numbers(c.count());
  ref::matmul(MatmulForm::kNT, a.rows, b.rows, a.cols, x.data(), a.cols, w.data(), b.cols, out.data(), c.cols,
              into);
  set(c, out);
}

void Exact::rmsnorm_fwd(const RmsNormIn& in, In y) {
  const size_t n = y.cols / in.groups;
  const size_t weights = in.weight_per_group ? y.cols : n;
  const Numbers x = get(in.x), w = get(vec(in.w, weights)), z = get(in.z);
  Numbers out(y.count());
  for (size_t i = 0; i < out.size(); i += n)
    ref::rmsnorm_fwd<Number>(&x[i], &w[i % weights], z.empty() ? nullptr : &z[i], &out[i], nullptr, n, in.eps,
                             in.offset, {in.gate, in.order});
  set(y, out);
}

void Exact::l2norm_fwd(const L2NormIn& in, In y) {
  const size_t n = y.cols / in.groups;
  const Numbers x = get(in.x);
  Numbers out(y.count());
  for (size_t i = 0; i < out.size(); i += n) ref::l2norm_fwd<Number>(&x[i], &out[i], nullptr, n, in.eps);
  set(y, out);
}

void Exact::l1norm_fwd(const L1NormIn& in, In y) {
  const size_t n = y.cols / in.heads;
  const Numbers x = get(in.x);
  Numbers out(y.count());
  for (size_t i = 0; i < out.size(); i += n) ref::l1norm_fwd<Number>(&x[i], in.eps, &out[i], n);
  set(y, out);
}

void Exact::rope_fwd(const RopeIn& in, In y) {
  const size_t n = y.cols / in.heads, rot = in.table->rot();
  Numbers x = get(in.x);
  for (size_t r = 0; r < y.rows; ++r) {
    const Numbers cos = get(vec(in.table->cos(in.positions[r]), rot / 2)),
                  sin = get(vec(in.table->sin(in.positions[r]), rot / 2));
    for (size_t h = 0; h < in.heads; ++h) {
      Number* head = &x[r * y.cols + h * n];
      ref::rope_fwd<Number>(head, cos.data(), sin.data(), head, rot, n);
    }
  }
  set(y, x);
}

void Exact::dropout(const DropoutMask& mask, In x, In y) {
  Numbers all = get(x);
  ref::dropout(mask.rng, mask.index, mask.p, 0, all.data(), all.data(), all.size());
  set(y, all);
}

void Exact::swiglu_fwd(const SwigluIn& in, In y) {
  Numbers out(y.count());
  ref::swiglu_fwd(in.gate, get(in.g).data(), get(in.u).data(), out.data(), out.size());
  set(y, out);
}

void Exact::map_fwd(const MapIn& in, In y) {
  const Numbers bias = in.bias ? get(vec(in.bias, y.cols)) : Numbers(y.cols);
  Numbers x = get(in.x);
  for (size_t i = 0; i < x.size(); ++i) x[i] = Number(in.scale) * ref::map(in.map, x[i] + bias[i % y.cols]);
  set(y, x);
}

void Exact::scale_heads_fwd(const ScaleHeadsIn& in, In y) {
  const size_t n = y.cols / in.s.cols;
  const Numbers s = get(in.s);
  Numbers x = get(in.x);
  for (size_t i = 0; i < s.size(); ++i)
    ref::scale_head_fwd<Number>(&x[i * n], s[i], in.divide, in.eps, &x[i * n], n);
  set(y, x);
}

void Exact::blend_fwd(const BlendIn& in, In y) {
  const Numbers b = get(in.b), z = get(in.z);
  Numbers a = get(in.a);
  for (size_t i = 0; i < a.size(); ++i) a[i] = ref::blend(a[i], b[i], z[i]);
  set(y, a);
}

void Exact::decay_fwd(const DecayIn& in, In g) {
  const Numbers a_log = get(vec(in.a_log, in.heads));
  Numbers dt = get(in.dt);
  for (size_t i = 0; i < dt.size(); ++i) dt[i] = ref::decay(a_log[i % g.cols / (g.cols / in.heads)], dt[i]);
  set(g, dt);
}

void Exact::delta_gates_fwd(const DeltaGatesIn& in, In g, In beta) {
  const size_t n = g.cols;
  const Numbers A_log = get(vec(in.A_log, n)), dt_bias = get(vec(in.dt_bias, n));
  Numbers a = get(in.a), b = get(in.b);
  for (size_t i = 0; i < a.size(); ++i)
    ref::delta_gates_fwd<Number>(a[i], b[i], A_log[i % n], dt_bias[i % n], in.beta_max, &a[i], &b[i]);
  set(g, a), set(beta, b);
}

void Exact::lower_bound_fwd(In P, size_t layer, const float* low) {
  const Numbers all = get(P);
  Numbers out(P.cols);
  for (size_t c = 0; c < P.cols; ++c) out[c] = ref::lower_bound(&all[c], P.cols, P.rows, layer);
  set(vec(low, P.cols), out);
}

void Exact::forget_fwd(const ForgetIn& in, In g, In k) {
  const Numbers low = get(vec(in.low, g.cols));
  Numbers x = get(in.x), keys(x.size());
  for (size_t i = 0; i < x.size(); ++i) ref::forget(x[i], low[i % g.cols], &x[i], &keys[i]);
  set(g, x), set(k, keys);
}

void Exact::router_weights(In logits, const int32_t* chosen, In w) {
  const Numbers x = get(logits);
  Numbers out(w.count());
  for (size_t r = 0; r < w.rows; ++r)
    ref::router_weights(&x[r * logits.cols], w.cols, chosen + r * w.cols, &out[r * w.cols]);
  set(w, out);
}

void Exact::cross_entropy(const CrossEntropyIn& in) {
  const Numbers x = get(in.logits);
  for (size_t r = 0; r < in.logits.rows; ++r)
    loss_ += Number(in.weight ? in.weight[r] : 1) *
             ref::cross_entropy_loss(&x[r * in.logits.cols], in.target[r], in.logits.cols);
}

// ---- Sequences

void Exact::attention_packed_fwd(const AttentionShape& s, const AttentionPacked& in, In o) {
  ref::AttentionDims<Number> d{s.heads, s.kv_heads, s.dk, s.dv, s.window, s.scale, s.chunk, s.drop};
  each_sequence(in.offsets, [&](size_t at, size_t n) {
    d.row0 = at;
    const auto part = [&](In m) { return get(m.row_range(at, at + n)); };
    Numbers out(n * o.cols);
    ref::attention_fwd<Number>(d, part(in.q).data(), part(in.k).data(), part(in.v).data(), n, n, 0, nullptr,
                               out.data(), nullptr);
    set(o.row_range(at, at + n), out);
  });
}

void Exact::delta_former_fwd(const DeltaFormerShape& s, const DeltaFormerIn& in, In o) {
  each_sequence(in.offsets, [&](size_t at, size_t n) {
    for (size_t h = 0; h < s.heads; ++h) {
      const auto head = [&](In m, size_t width) {
        return m.data ? m.row_range(at, at + n).col_range(h * width, (h + 1) * width) : m;
      };
      const Numbers q = get(head(in.q, s.dk)), k = get(head(in.k, s.dk)), v = get(head(in.v, s.dv)),
                    a = get(head(in.a, 1)), b = get(head(in.b, 1));
      Numbers out(n * s.dv), u(n * s.dv);
      ref::delta_former_fwd<Number>(s, 0, n, {q.data(), k.data(), v.data(), pointer(a), pointer(b)},
                                    out.data(), u.data());
      set(head(o, s.dv), out);
    }
  });
}

void Exact::short_conv_fwd(const ShortConvIn& in, In y) {
  const Numbers w = get({in.w, y.cols, in.width});
  each_sequence(in.offsets, [&](size_t at, size_t n) {
    Numbers out(n * y.cols);
    ref::short_conv_fwd<Number>({n, y.cols, in.width, in.silu, in.l2_dim, in.l2_channels},
                                get(in.x.row_range(at, at + n)).data(), w.data(), nullptr, out.data(),
                                nullptr);
    set(y.row_range(at, at + n), out);
  });
}

void Exact::selective_scan_fwd(const SelectiveScanIn& in, In y) {
  const size_t channels = y.cols, state = in.B.cols;
  const Numbers A = get(vec(in.A, channels * state)),
                skip = in.skip ? get(vec(in.skip, channels)) : Numbers();
  each_sequence(in.offsets, [&](size_t at, size_t n) {
    const auto part = [&](In m) { return get(m.row_range(at, at + n)); };
    const Numbers x = part(in.x), dt = part(in.dt), B = part(in.B), C = part(in.C);
    Numbers out(n * channels);
    ref::selective_scan_fwd<Number>({n, channels, state},
                                    {.x = x.data(),
                                     .dt = dt.data(),
                                     .A = A.data(),
                                     .B = B.data(),
                                     .C = C.data(),
                                     .skip = pointer(skip),
                                     .h0 = nullptr,
                                     .low = static_cast<double>(in.low)},
                                    out.data(), nullptr);
    set(y.row_range(at, at + n), out);
  });
}

void Exact::fast_weight_fwd(const FastWeightShape& s, const FastWeightIn& in, In o) {
  fast_weight_chunks_fwd(s, in, 0, o);
}

void Exact::fast_weight_chunks_fwd(const FastWeightShape& s, const FastWeightIn& in, size_t chunk, In o) {
  const ref::FastWeightDims<Number> d{s.value_heads, s.key_heads, s.dk, s.dv, s.decay, s.write, s.scale};
  each_sequence(in.offsets, [&](size_t first, size_t tokens) {
    Numbers state(s.value_heads * s.dk * s.dv);
    for (size_t t = 0; t < tokens; t += chunk ? chunk : tokens) {
      const size_t at = first + t, n = std::min(chunk ? chunk : tokens, tokens - t);
      const auto part = [&](In m) { return m.data ? get(m.row_range(at, at + n)) : Numbers(); };
      const Numbers q = part(in.q), k = part(in.k), v = part(in.v), beta = part(in.beta),
                    g = s.decay == FastWeightDecay::kHead ? get(in.g) : part(in.g);
      Numbers out(n * o.cols);
      const Numbers before = state;
      ref::fast_weight_fwd<Number>(d, n,
                                   {q.data(), k.data(), v.data(), pointer(g), pointer(beta), before.data()},
                                   out.data(), state.data());
      if (chunk) {  // what was read above has this chunk in it: read again, without a write
        ref::FastWeightDims<Number> reading = d;
        reading.decay = FastWeightDecay::kNone, reading.write = FastWeightWrite::kAdditive;
        const Numbers no_key(k.size()), no_value(v.size());
        ref::fast_weight_fwd<Number>(
            reading, n, {q.data(), no_key.data(), no_value.data(), nullptr, nullptr, before.data()},
            out.data(), nullptr);
      }
      set(o.row_range(at, at + n), out);
    }
  });
}

}  // namespace braid
