#include "model/mixers/attend.h"

#include <algorithm>

namespace braid {

Var attend(const MixerCall& call, Var q, Var k, Var v, const AttentionShape& s) {
  Exec& e = call.exec;
  if (call.states.empty()) return attention(e, q, k, v, call.offsets, s);
  check(!e.recording(), "attention: gradients through a cache are not recorded");
  const size_t n = call.states.size();
  std::vector<std::vector<KvSegment>> segments(n);
  std::vector<AttentionSeq> seqs;
  for (size_t i = 0; i < n; ++i) {
    const size_t begin = call.offsets[i], end = call.offsets[i + 1];
    KvCache& kv = call.states[i]->kv;
    const int64_t first = kv.end();
    kv.append(k.v.row_range(begin, end), v.v.row_range(begin, end));
    kv.segments(segments[i]);
    seqs.push_back({.begin = begin, .count = end - begin, .first = first, .kv = segments[i]});
  }
  const Var o = e.result(q.v.rows, s.heads * s.dv);
  attention_fwd(s, q.v, seqs, o.v, nullptr, e.par());
  for (LayerState* state : call.states) state->kv.drop_before_window(s.window);
  return o;
}

double attend_flops(const AttentionShape& s, int64_t length) {
  // Scores and weighted values over the visible half (or window) of the sequence.
  const double half = (static_cast<double>(length) + 1) / 2;
  const double seen = s.window ? std::min(static_cast<double>(s.window), half) : half;
  return 2.0 * static_cast<double>(s.heads * (s.dk + s.dv)) * seen;
}

size_t attend_numbers(const AttentionShape& s, int64_t length) {
  const auto all = static_cast<size_t>(length);
  return s.kv_heads * (s.dk + s.dv) * (s.window ? std::min(s.window, all) : all);
}

}  // namespace braid
