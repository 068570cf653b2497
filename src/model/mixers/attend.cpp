#include "model/mixers/attend.h"

#include <algorithm>

#include "model/mixers/remember.h"

namespace braid {

Var attend(const MixerCall& call, Var q, Var k, Var v, const AttentionShape& s, float p) {
  Exec& e = call.exec;
  if (call.states.empty()) return attention(e, q, k, v, call.offsets, s, p);
  check(!e.recording() && !e.exact(), "attention: gradients through a cache are not recorded");
  const size_t n = call.states.size(), window = s.chunk ? s.chunk : s.window;
  std::vector<std::vector<KvSegment>> segments(n);
  std::vector<AttentionSeq> seqs;
  for (size_t i = 0; i < n; ++i) {
    const size_t begin = call.offsets[i], end = call.offsets[i + 1];
    KvCache& kv = call.states[i]->kv;
    const int64_t first = kv.end();
    append_kv(call, i, k.v.row_range(begin, end), v.v.row_range(begin, end), window);
    kv.segments(segments[i]);
    // Of a few tokens each looks by itself, so that it gets the bits of a pass of its own.
    const size_t step = q.v.rows <= kSkinnyRows ? 1 : end - begin;
    for (size_t at = begin; at < end; at += step)
      seqs.push_back(
          {.begin = at, .count = step, .first = first + static_cast<int64_t>(at - begin), .kv = segments[i]});
  }
  const Var o = e.result(q.v.rows, s.heads * s.dv);
  const OpTimer timer(e.profile(), "attention", false);
  attention_fwd(s, q.v, seqs, o.v, nullptr, e.par());
  for (LayerState* state : call.states) state->kv.drop_before_window(window, state->next_query());
  return with_rows(e, o, e.output_rows());
}

double attend_flops(const AttentionShape& s, int64_t length) {
  // Scores and weighted values over the visible part: half of the sequence or of a chunk, or the window.
  const auto half = [](double n) { return (n + 1) / 2; };
  const auto all = static_cast<double>(length);
  const double seen = s.chunk    ? half(std::min(static_cast<double>(s.chunk), all))
                      : s.window ? std::min(static_cast<double>(s.window), half(all))
                                 : half(all);
  return 2.0 * static_cast<double>(s.heads * (s.dk + s.dv)) * seen;
}

size_t attend_numbers(const AttentionShape& s, int64_t length) {
  const auto all = static_cast<size_t>(length);
  const size_t reach = s.chunk ? s.chunk : s.window;
  return s.kv_heads * (s.dk + s.dv) * (reach ? std::min(reach, all) : all);
}

}  // namespace braid
