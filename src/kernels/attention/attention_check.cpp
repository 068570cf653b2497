// What is checked by the tests and by `braid verify`, and what `braid bench kernels` times.
#include <fmt/format.h>

#include <cmath>
#include <memory>

#include "kernels/attention/attention.h"
#include "kernels/attention/attention_ref.h"

namespace braid {
namespace {

struct Case {
  std::vector<uint32_t> lengths;
  size_t heads, kv_heads, dk, dv, window;
  float scale;
  size_t chunk = 0;
};

// Lengths around the vectors, panels and tiles (8, 16, 64, 128), heads that are no multiple of a vector, and
// windows and chunks that end inside, at and beyond a tile.
const std::vector<Case>& cases() {
  static const std::vector<Case> all{
      {{1}, 1, 1, 8, 8, 0, 0.35f},
      {{2}, 2, 1, 8, 8, 0, 0.35f},
      {{15}, 2, 2, 1, 1, 0, 1.0f},
      {{63}, 2, 2, 32, 32, 0, 0.18f},
      {{64}, 1, 1, 64, 64, 0, 0.125f},
      {{65}, 2, 1, 60, 60, 0, 0.13f},
      {{130}, 1, 1, 128, 128, 0, 0.09f},
      {{130}, 4, 1, 8, 20, 0, 0.35f},
      {{130}, 4, 2, 60, 32, 5, 0.13f},
      {{130}, 2, 2, 32, 60, 64, 0.18f},
      {{65}, 1, 1, 8, 8, 1, 0.35f},
      {{65}, 2, 1, 8, 8, 100, 0.35f},
      {{0, 3, 40, 0, 0, 65, 1, 17}, 4, 4, 32, 32, 0, 0.18f},
      {{0, 70, 0, 2, 129}, 6, 2, 12, 36, 33, 0.3f},
      {{65}, 2, 1, 8, 8, 0, 0.35f, 1},
      {{130}, 4, 2, 60, 32, 0, 0.13f, 8},
      {{300}, 2, 2, 32, 60, 0, 0.18f, 64},
      {{0, 70, 0, 2, 129}, 6, 2, 12, 36, 0, 0.3f, 33},
      {{65}, 2, 1, 8, 8, 0, 0.35f, 100},
      {{200}, 1, 1, 200, 130, 0, 0.07f},
      {{90}, 2, 1, 512, 500, 40, 0.04f},
      {{300}, 3, 1, 16, 16, 0, 0.25f},
      {{70}, 1, 1, 32, 32, 0, 3.0f},  // sharp: the running maximum moves a lot
  };
  return all;
}

// Random q, k and v as views into one [N, ...] buffer, and what the reference makes of them in double.
struct Problem {
  Case c;
  std::vector<uint32_t> offsets{0};
  size_t rows, qw, kw, vw, ow;
  std::vector<float> qkv, dout;
  std::vector<double> o, lse, dq, dk, dv;

  explicit Problem(const Case& of) : c(of) {
    for (const uint32_t n : c.lengths) offsets.push_back(offsets.back() + n);
    rows = offsets.back();
    qw = c.heads * c.dk, kw = c.kv_heads * c.dk, vw = c.kv_heads * c.dv, ow = c.heads * c.dv;
    qkv = random_vector(rows * (qw + kw + vw), 1);
    dout = random_vector(rows * ow, 2);
    o.resize(rows * ow), lse.resize(rows * c.heads);
    dq.resize(rows * qw), dk.resize(rows * kw), dv.resize(rows * vw);
    const auto part = [&](size_t begin, size_t width) {
      std::vector<double> x;
      for (size_t i = 0; i < rows; ++i)
        for (size_t j = begin; j < begin + width; ++j) x.push_back(qkv[i * (qw + kw + vw) + j]);
      return x;
    };
    const std::vector<double> qd = part(0, qw), kd = part(qw, kw), vd = part(qw + kw, vw),
                              dod = to_double(dout);
    const ref::AttentionDims<double> d{c.heads, c.kv_heads, c.dk, c.dv, c.window, c.scale, c.chunk};
    for (size_t s = 0; s < c.lengths.size(); ++s) {
      const size_t at = offsets[s], n = c.lengths[s];
      const double *q = qd.data() + at * qw, *k = kd.data() + at * kw, *v = vd.data() + at * vw;
      ref::attention_fwd<double>(d, q, k, v, n, n, 0, nullptr, o.data() + at * ow, lse.data() + at * c.heads);
      ref::attention_bwd<double>(d, q, k, v, o.data() + at * ow, lse.data() + at * c.heads,
                                 dod.data() + at * ow, n, dq.data() + at * qw, dk.data() + at * kw,
                                 dv.data() + at * vw);
    }
    // A query that sees only itself has p = 1: no gradient but rounding.
    if (c.window == 1 || c.chunk == 1 || c.lengths == std::vector<uint32_t>{1}) {
      std::fill(dq.begin(), dq.end(), 0.0);
      std::fill(dk.begin(), dk.end(), 0.0);
    }
  }

  AttentionShape shape() const { return {c.heads, c.kv_heads, c.dk, c.dv, c.window, c.scale, c.chunk}; }
  std::string name() const {
    std::string s;
    for (const uint32_t n : c.lengths) s += fmt::format("{}{}", s.empty() ? "" : ",", n);
    s += fmt::format(" h{}/{} d{}/{} ", c.heads, c.kv_heads, c.dk, c.dv);
    if (c.window) s += fmt::format("window {} ", c.window);
    if (c.chunk) s += fmt::format("chunk {} ", c.chunk);
    return s;
  }
  Mat<const float> view(size_t begin, size_t width) const {
    return {qkv.data() + begin, rows, width, qw + kw + vw};
  }
  AttentionPacked packed() const { return {view(0, qw), view(qw, kw), view(qw + kw, vw), offsets}; }
};

void check_packed(const Problem& p, std::vector<CheckRow>& rows) {
  const std::string name = p.name();
  std::vector<float> o(p.o.size(), NAN), lse(p.lse.size(), NAN), dq(p.dq.size(), NAN), dk(p.dk.size(), NAN),
      dv(p.dv.size(), NAN);
  attention_packed_fwd(p.shape(), p.packed(), {o.data(), p.rows, p.ow}, lse.data());
  std::vector<float> scratch(attention_bwd_scratch(p.shape(), p.offsets), NAN);
  attention_packed_bwd(
      p.shape(), p.packed(), {{o.data(), p.rows, p.ow}, lse.data()}, {p.dout.data(), p.rows, p.ow},
      {{dq.data(), p.rows, p.qw}, {dk.data(), p.rows, p.kw}, {dv.data(), p.rows, p.vw}}, scratch);
  rows.push_back({name + "o", compare<float, double>(o, p.o), kTolF32});
  rows.push_back({name + "lse", compare<float, double>(lse, p.lse), kTolF32});
  rows.push_back({name + "dq", compare<float, double>(dq, p.dq), kTolF32Grad});
  rows.push_back({name + "dk", compare<float, double>(dk, p.dk), kTolF32Grad});
  rows.push_back({name + "dv", compare<float, double>(dv, p.dv), kTolF32Grad});
}

// Keys [0, end) of a one-sequence problem in up to three segments, the newest first, each a copy of its own.
struct Cache {
  std::vector<std::vector<float>> k, v;
  std::vector<KvSegment> segments;

  Cache(const Problem& p, size_t end, size_t pieces) {
    for (size_t i = pieces; i-- > 0;) {
      const size_t from = end * i / pieces, to = end * (i + 1) / pieces;
      const AttentionPacked in = p.packed();
      k.emplace_back(), v.emplace_back();
      for (size_t r = from; r < to; ++r) {
        k.back().insert(k.back().end(), in.k.row(r), in.k.row(r) + p.kw);
        v.back().insert(v.back().end(), in.v.row(r), in.v.row(r) + p.vw);
      }
      segments.push_back(
          {k.back().data(), v.back().data(), to - from, static_cast<int64_t>(from), p.kw, p.vw});
    }
  }
};

// The sequence cut at every position into two pieces, and as single steps, equals the whole.
void check_cached(const Case& c, std::vector<CheckRow>& rows) {
  const Problem p(c);
  const std::string name = p.name();
  const auto run = [&](std::vector<float>& o, size_t begin, size_t end, size_t pieces) {
    const Cache cache(p, end, pieces);
    const AttentionSeq seq{begin, end - begin, static_cast<int64_t>(begin), cache.segments};
    attention_fwd(p.shape(), p.view(0, p.qw), {&seq, 1}, {o.data(), p.rows, p.ow}, nullptr);
  };
  std::vector<float> all;
  std::vector<double> want;
  for (size_t cut = 0; cut <= p.rows; ++cut) {
    std::vector<float> o(p.o.size(), NAN);
    run(o, 0, cut, 1 + cut % 3);
    run(o, cut, p.rows, 1 + (cut + 1) % 3);
    all.insert(all.end(), o.begin(), o.end());
    want.insert(want.end(), p.o.begin(), p.o.end());
  }
  rows.push_back({name + "cut anywhere", compare<float, double>(all, want), kTolF32});
  std::vector<float> o(p.o.size(), NAN);
  for (size_t i = 0; i < p.rows; ++i) run(o, i, i + 1, 1 + i % 3);
  rows.push_back({name + "single steps", compare<float, double>(o, p.o), kTolF32});
}

}  // namespace

std::vector<CheckRow> attention_check() {
  std::vector<CheckRow> rows;
  for (const Case& c : cases()) check_packed(Problem(c), rows);
  check_cached({{70}, 2, 2, 8, 12, 0, 0.35f}, rows);
  check_cached({{40}, 4, 1, 32, 32, 7, 0.18f}, rows);
  check_cached({{70}, 2, 2, 8, 12, 0, 0.35f, 16}, rows);
  check_cached({{40}, 4, 1, 32, 32, 0, 0.18f, 7}, rows);
  return rows;
}

namespace {

struct BenchShape {
  std::string name;
  size_t seqs, length, heads, d, window, chunk = 0;
};

struct BenchData {
  std::vector<float> qkv, o, lse, dout, dqkv, scratch;
  std::vector<uint32_t> offsets;
};

void bench_shape(const BenchShape& b, std::vector<BenchCase>& out) {
  const size_t rows = b.seqs * b.length, w = b.heads * b.d;
  auto data = std::make_shared<BenchData>(BenchData{random_vector(rows * 3 * w, 1),
                                                    std::vector<float>(rows * w),
                                                    std::vector<float>(rows * b.heads),
                                                    random_vector(rows * w, 2),
                                                    std::vector<float>(rows * 3 * w),
                                                    {},
                                                    {}});
  for (size_t s = 0; s <= b.seqs; ++s) data->offsets.push_back(static_cast<uint32_t>(s * b.length));
  const AttentionShape shape{b.heads, b.heads, b.d, b.d, b.window, 1.0f / std::sqrt(static_cast<float>(b.d)),
                             b.chunk};
  const auto view = [=](std::vector<float>& x, size_t i) {
    return Mat<float>(x.data() + i * w, rows, w, 3 * w);
  };
  const auto fwd = [=](Par par) {
    attention_packed_fwd(shape, {view(data->qkv, 0), view(data->qkv, 1), view(data->qkv, 2), data->offsets},
                         {data->o.data(), rows, w}, data->lse.data(), par);
  };
  const auto both = [=](Par par) {
    fwd(par);
    data->scratch.resize(attention_bwd_scratch(shape, data->offsets, par));
    attention_packed_bwd(shape, {view(data->qkv, 0), view(data->qkv, 1), view(data->qkv, 2), data->offsets},
                         {{data->o.data(), rows, w}, data->lse.data()}, {data->dout.data(), rows, w},
                         {view(data->dqkv, 0), view(data->dqkv, 1), view(data->dqkv, 2)}, data->scratch, par);
  };
  double pairs = 0;  // that see each other
  for (size_t i = 0; i < b.length; ++i)
    pairs += static_cast<double>(b.chunk ? i % b.chunk + 1 : b.window ? std::min(b.window, i + 1) : i + 1);
  // Two products of d numbers forward, five backward.
  const double flops = 4.0 * static_cast<double>(b.d * b.heads * b.seqs) * pairs;
  out.push_back({"attention fwd " + b.name, flops, 0, fwd});
  out.push_back({"attention fwd+bwd " + b.name, 3.5 * flops, 0, both});
}

}  // namespace

std::vector<BenchCase> attention_bench() {
  std::vector<BenchCase> out;
  bench_shape({"1024xT40 h4 d32", 1024, 40, 4, 32, 0}, out);
  bench_shape({"T2048 h16 d128", 1, 2048, 16, 128, 0}, out);
  bench_shape({"T2048 h16 d128 window 64", 1, 2048, 16, 128, 64}, out);
  bench_shape({"T2048 h16 d128 chunk 64", 1, 2048, 16, 128, 0, 64}, out);
  // One decode step: 16 query heads over 4 kv heads of 4096 cached tokens.
  struct Data {
    std::vector<float> q, k, v, o;
    KvSegment cache;
    AttentionSeq seq;
  };
  const size_t tokens = 4096, heads = 16, kv_heads = 4, d = 128;
  auto data = std::make_shared<Data>();
  data->q = random_vector(heads * d, 1), data->o.resize(heads * d);
  data->k = random_vector(tokens * kv_heads * d, 2), data->v = random_vector(tokens * kv_heads * d, 3);
  data->cache = {data->k.data(), data->v.data(), tokens, 0, kv_heads * d, kv_heads * d};
  data->seq = {0, 1, tokens - 1, {&data->cache, 1}};
  out.push_back({"attention step over 4096 h16/4 d128", 0, 8.0 * tokens * kv_heads * d, [=](Par par) {
                   attention_fwd({heads, kv_heads, d, d, 0, 0.088f}, {data->q.data(), 1, heads * d},
                                 {&data->seq, 1}, {data->o.data(), 1, heads * d}, nullptr, par);
                 }});
  return out;
}

}  // namespace braid
