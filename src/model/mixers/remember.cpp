#include "model/mixers/remember.h"

namespace braid {
namespace {

using Kind = Memory LayerState::*;

size_t kind_index(Kind which) {
  size_t i = 0;
  while (kMemories[i].which != which) ++i;
  return i;
}

// Where snapshots want the memory as it is on the way.
std::vector<StateCut> cuts(const MixerCall& call, Kind which, size_t count) {
  std::vector<StateCut> all;
  for (size_t s = 0; s < call.snapshots.size(); ++s)
    for (const LayerSnapshot& x : call.snapshots[s])
      all.push_back({s, x.tokens, (x.to->*which).write(count)});
  return all;
}

// Keeps the rows that a memory is given, side by side, if they may be taken back.
void record(const MixerCall& call, Kind which, size_t count, std::span<const Mat<const float>> parts,
            const Replay& replay) {
  for (size_t s = 0; s < call.states.size(); ++s) {
    if (call.states[s]->trail.empty()) continue;
    LayerState::Given& g = call.states[s]->trail.back()[kind_index(which)];
    g.count = count, g.replay = replay, g.width = 0;
    for (const Mat<const float>& p : parts) g.width += p.cols;
    for (size_t r = call.offsets[s]; r < call.offsets[s + 1]; ++r)
      for (const Mat<const float>& p : parts) g.rows.insert(g.rows.end(), p.row(r), p.row(r) + p.cols);
  }
}

// Takes columns of recorded rows from left to right.
class Columns {
 public:
  explicit Columns(Mat<const float> rows) : rows_(rows) {}
  Var next(size_t n) {
    if (n == 0) return {};
    const Mat<const float> m = rows_.col_range(at_, at_ + n);
    at_ += n;
    return {
        {const_cast<float*>(m.data), m.rows, m.cols, m.stride}};  // ops do not write to what they are given
  }

 private:
  Mat<const float> rows_;
  size_t at_ = 0;
};

std::array<uint32_t, 2> bounds(Mat<const float> rows) { return {0, static_cast<uint32_t>(rows.rows)}; }

// A few tokens go one by one, whatever a longer pass would do: passes of up to kSkinnyRows tokens give each
// of them the bits that it gets alone.
FastWeightShape form_for(FastWeightShape shape, size_t tokens) {
  if (tokens <= kSkinnyRows) shape.form = FastWeightForm::kRecurrent;
  return shape;
}

std::vector<Mat<const float>> given(const FastWeightVars& in) {
  std::vector<Mat<const float>> parts{in.k.v, in.v.v};
  if (in.g.present()) parts.emplace_back(in.g.v);
  if (in.beta.present()) parts.emplace_back(in.beta.v);
  return parts;
}

// The recorded rows of these variables; nobody looks at what is read, so keys serve as queries.
FastWeightVars taken(const FastWeightVars& like, Mat<const float> rows) {
  Columns c(rows);
  FastWeightVars in = like;
  in.k = c.next(like.k.v.cols), in.v = c.next(like.v.v.cols);
  in.q = {in.k.v.col_range(0, like.q.v.cols)};
  in.g = c.next(like.g.present() ? like.g.v.cols : 0);
  in.beta = c.next(like.beta.present() ? like.beta.v.cols : 0);
  return in;
}

size_t longest(const MixerCall& call) {
  size_t n = 0;
  for (size_t s = 0; s + 1 < call.offsets.size(); ++s)
    n = std::max<size_t>(n, call.offsets[s + 1] - call.offsets[s]);
  return n;
}

}  // namespace

std::vector<Var> remembered_delay(const MixerCall& call, std::span<const Var> xs, size_t by) {
  constexpr Kind kWhich = &LayerState::delayed;
  std::vector<size_t> widths;
  std::vector<Mat<const float>> rows;
  size_t count = 0;
  for (const Var& x : xs) rows.emplace_back(x.v), widths.push_back(x.v.cols), count += by * x.v.cols;
  record(call, kWhich, count, rows, [by, widths](Exec& e, Mat<const float> given, int64_t, float* memory) {
    Columns c(given);
    for (const size_t w : widths) {
      float* const states[] = {memory};
      delay(e, c.next(w), by, bounds(given), states);
      memory += by * w;
    }
  });
  std::vector<float*> states = call.memory(kWhich, count);
  std::vector<StateCut> at = cuts(call, kWhich, count);
  std::vector<Var> out;
  for (const Var& x : xs) {
    out.push_back(delay(call.exec, x, by, call.offsets, states, at));
    for (float*& s : states) s += by * x.v.cols;
    for (StateCut& c : at) c.to += by * x.v.cols;
  }
  return out;
}

Var remembered_delay(const MixerCall& call, Var x, size_t by) {
  return remembered_delay(call, std::span(&x, 1), by)[0];
}

Var remembered_conv(const MixerCall& call, Var x, size_t w, const ConvOptions& o) {
  constexpr Kind kWhich = &LayerState::conv;
  const size_t count = x.v.cols * (call.exec.weight(w).cols - 1);
  const Mat<const float> rows[] = {x.v};
  record(call, kWhich, count, rows, [w, o](Exec& e, Mat<const float> given, int64_t, float* memory) {
    float* const states[] = {memory};
    short_conv(e, Columns(given).next(given.cols), w, o, bounds(given), states);
  });
  return short_conv(call.exec, x, w, o, call.offsets, call.memory(kWhich, count), cuts(call, kWhich, count));
}

Var remembered_scan(const MixerCall& call, const ScanVars& in) {
  constexpr Kind kWhich = &LayerState::scan;
  const size_t count = call.exec.weight(in.a_log).count(), state = in.B.v.cols;
  const Mat<const float> rows[] = {in.x.v, in.dt.v, in.B.v};
  record(call, kWhich, count, rows, [in, state](Exec& e, Mat<const float> given, int64_t, float* memory) {
    Columns c(given);
    ScanVars again = in;
    again.x = c.next(in.x.v.cols), again.dt = c.next(in.dt.v.cols), again.B = again.C = c.next(state);
    float* const states[] = {memory};
    selective_scan(e, again, bounds(given), states);
  });
  return selective_scan(call.exec, in, call.offsets, call.memory(kWhich, count), cuts(call, kWhich, count));
}

Var remembered_fast(const MixerCall& call, Kind which, const FastWeightShape& shape,
                    const FastWeightVars& in) {
  const size_t count = shape.value_heads * shape.dk * shape.dv;
  record(call, which, count, given(in), [shape, in](Exec& e, Mat<const float> rows, int64_t, float* memory) {
    float* const states[] = {memory};
    fast_weight(e, form_for(shape, rows.rows), taken(in, rows), bounds(rows), states);
  });
  const std::vector<float*> states = call.memory(which, count);
  return fast_weight(call.exec, states.empty() ? shape : form_for(shape, longest(call)), in, call.offsets,
                     states, cuts(call, which, count));
}

Var remembered_chunks(const MixerCall& call, const FastWeightShape& shape, const FastWeightVars& in,
                      size_t chunk) {
  constexpr Kind kWhich = &LayerState::fast;
  const size_t count = 2 * shape.value_heads * shape.dk * shape.dv;
  record(call, kWhich, count, given(in),
         [shape, in, chunk](Exec& e, Mat<const float> rows, int64_t position, float* memory) {
           std::vector<int32_t> positions(rows.rows);
           for (size_t i = 0; i < rows.rows; ++i)
             positions[i] = static_cast<int32_t>(position + static_cast<int64_t>(i));
           float* const states[] = {memory};
           fast_weight_chunks(e, shape, taken(in, rows), chunk, positions, bounds(rows), states);
         });
  return fast_weight_chunks(call.exec, shape, in, chunk, call.positions, call.offsets,
                            call.memory(kWhich, count), cuts(call, kWhich, count));
}

void append_kv(const MixerCall& call, size_t sequence, Mat<const float> k, Mat<const float> v,
               size_t window) {
  LayerState& state = *call.states[sequence];
  const int64_t first = state.kv.end();
  state.kv.append(k, v);
  if (call.snapshots.empty()) return;
  for (const LayerSnapshot& x : call.snapshots[sequence]) {
    x.to->kv = state.kv;
    x.to->kv.truncate(first + static_cast<int64_t>(x.tokens));
    x.to->kv.drop_before_window(window, x.to->kv.end());
  }
}

}  // namespace braid
