// What is checked by the tests and by `braid verify`, and what `braid bench kernels` times.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <memory>

#include "verify/ops.h"
#include "kernels/attention/attention.h"
#include "kernels/attention/attention_ref.h"

namespace braid {
namespace {

struct Case {
  std::vector<uint32_t> lengths;
  size_t heads, kv_heads, dk, dv, window;
  float scale;
  size_t chunk = 0;
  AttentionDrop drop = {};
};

// Lengths around the vectors, panels and tiles (8, 16, 64, 128), heads that are no multiple of a vector, and
// windows and chunks that end inside, at and beyond a tile. Small windows have a form of their own, in groups
// of 4 and blocks of 64 queries.
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
      {{3, 40, 21, 0, 12, 1, 35, 17}, 4, 4, 32, 32, 8, 0.18f},
      {{65}, 2, 2, 32, 32, 1, 0.18f},
      {{1, 2, 66}, 2, 1, 64, 64, 2, 0.125f},
      {{6, 7, 8, 130}, 2, 2, 16, 64, 7, 0.25f},
      {{5, 64}, 4, 1, 8, 8, 8, 0.35f},
      {{15, 129}, 4, 2, 64, 16, 16, 0.125f},
      {{70}, 2, 2, 20, 20, 16, 0.22f},
      {{200}, 3, 1, 48, 112, 10, 0.15f},
      {{31, 100}, 1, 1, 16, 128, 32, 0.25f},
      {{70}, 1, 1, 32, 32, 8, 3.0f},
      {{1}, 4, 1, 8, 8, 0, 0.35f, 0, {0.3f, 5}},
      {{0, 70, 0, 2, 129}, 6, 2, 12, 36, 33, 0.3f, 0, {0.1f, 6}},
      {{300}, 3, 1, 16, 16, 0, 0.25f, 0, {0.5f, 7}},
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
    ref::AttentionDims<double> d{c.heads, c.kv_heads, c.dk, c.dv, c.window, c.scale, c.chunk, c.drop};
    for (size_t s = 0; s < c.lengths.size(); ++s) {
      const size_t at = offsets[s], n = c.lengths[s];
      d.row0 = at;
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

  AttentionShape shape() const {
    return {c.heads, c.kv_heads, c.dk, c.dv, c.window, c.scale, c.chunk, c.drop};
  }
  std::string name() const {
    std::string s;
    for (const uint32_t n : c.lengths) s += fmt::format("{}{}", s.empty() ? "" : ",", n);
    s += fmt::format(" h{}/{} d{}/{} ", c.heads, c.kv_heads, c.dk, c.dv);
    if (c.window) s += fmt::format("window {} ", c.window);
    if (c.chunk) s += fmt::format("chunk {} ", c.chunk);
    if (c.drop.p > 0) s += fmt::format("dropout {} ", c.drop.p);
    return s;
  }
  Mat<const float> view(size_t begin, size_t width) const {
    return {qkv.data() + begin, rows, width, qw + kw + vw};
  }
  AttentionPacked packed() const { return {view(0, qw), view(qw, kw), view(qw + kw, vw), offsets}; }
};

void check_packed(const Problem& p, std::vector<CheckRow>& rows, Par par) {
  const std::string name = p.name();
  std::vector<float> o(p.o.size(), NAN), lse(p.lse.size(), NAN), dq(p.dq.size(), NAN), dk(p.dk.size(), NAN),
      dv(p.dv.size(), NAN);
  std::vector<float> scratch(attention_fwd_scratch(p.shape(), p.offsets, par), NAN);
  attention_packed_fwd(p.shape(), p.packed(), {o.data(), p.rows, p.ow}, lse.data(), scratch, par);
  scratch.assign(attention_bwd_scratch(p.shape(), p.offsets, par), NAN);
  attention_packed_bwd(
      p.shape(), p.packed(), {{o.data(), p.rows, p.ow}, lse.data()}, {p.dout.data(), p.rows, p.ow},
      {{dq.data(), p.rows, p.qw}, {dk.data(), p.rows, p.kw}, {dv.data(), p.rows, p.vw}}, scratch, par);
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
void check_cached(const Case& c, std::vector<CheckRow>& rows, Par par) {
  const Problem p(c);
  const std::string name = p.name();
  const auto run = [&](std::vector<float>& o, size_t begin, size_t end, size_t pieces) {
    const Cache cache(p, end, pieces);
    const AttentionSeq seq{begin, end - begin, static_cast<int64_t>(begin), cache.segments};
    attention_fwd(p.shape(), p.view(0, p.qw), {&seq, 1}, {o.data(), p.rows, p.ow}, nullptr, par);
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

std::vector<CheckRow> attention_check(Par par) {
  std::vector<CheckRow> rows;
  for (const Case& c : cases()) check_packed(Problem(c), rows, par);
  check_cached({{70}, 2, 2, 8, 12, 0, 0.35f}, rows, par);
  check_cached({{40}, 4, 1, 32, 32, 7, 0.18f}, rows, par);
  check_cached({{70}, 2, 2, 8, 12, 0, 0.35f, 16}, rows, par);
  check_cached({{40}, 4, 1, 32, 32, 0, 0.18f, 7}, rows, par);
  return rows;
}

namespace {

struct BenchShape {
  std::string name;
  size_t seqs, length, heads, d, window, chunk = 0;
};

// In memory like a model's: on huge pages.
struct BenchData {
  Tensor qkv, o, lse, dout, dqkv, scratch;
  std::vector<uint32_t> offsets;
};

Tensor floats(size_t n) { return {DType::kF32, {static_cast<int64_t>(n)}}; }

Tensor random_floats(size_t n, uint64_t seed) {
  Tensor t = floats(n);
  std::ranges::copy(random_vector(n, seed), t.as<float>().begin());
  return t;
}

void bench_shape(const BenchShape& b, std::vector<BenchCase>& out) {
  const size_t rows = b.seqs * b.length, w = b.heads * b.d;
  auto data = std::make_shared<BenchData>(BenchData{random_floats(rows * 3 * w, 1),
                                                    floats(rows * w),
                                                    floats(rows * b.heads),
                                                    random_floats(rows * w, 2),
                                                    floats(rows * 3 * w),
                                                    {},
                                                    {}});
  for (size_t s = 0; s <= b.seqs; ++s) data->offsets.push_back(static_cast<uint32_t>(s * b.length));
  const AttentionShape shape{b.heads, b.heads, b.d, b.d, b.window, 1.0f / std::sqrt(static_cast<float>(b.d)),
                             b.chunk};
  const auto view = [=](Tensor& x, size_t i) {
    return Mat<float>(x.as<float>().data() + i * w, rows, w, 3 * w);
  };
  const auto numbers = [](Tensor& x) { return x.as<float>().data(); };
  const auto reserve = [=](Par par) {
    const size_t n = std::max(attention_fwd_scratch(shape, data->offsets, par),
                              attention_bwd_scratch(shape, data->offsets, par));
    if (data->scratch.shape().count() != static_cast<int64_t>(n)) data->scratch = floats(n);
  };
  const auto fwd = [=](Par par) {
    reserve(par);
    attention_packed_fwd(shape, {view(data->qkv, 0), view(data->qkv, 1), view(data->qkv, 2), data->offsets},
                         {numbers(data->o), rows, w}, numbers(data->lse), data->scratch.as<float>(), par);
  };
  const auto both = [=](Par par) {
    fwd(par);
    attention_packed_bwd(shape, {view(data->qkv, 0), view(data->qkv, 1), view(data->qkv, 2), data->offsets},
                         {{numbers(data->o), rows, w}, numbers(data->lse)}, {numbers(data->dout), rows, w},
                         {view(data->dqkv, 0), view(data->dqkv, 1), view(data->dqkv, 2)},
                         data->scratch.as<float>(), par);
  };
  double pairs = 0;  // that see each other
  for (size_t i = 0; i < b.length; ++i)
    pairs += static_cast<double>(b.chunk ? i % b.chunk + 1 : b.window ? std::min(b.window, i + 1) : i + 1);
  // Two products of d numbers forward, five backward.
  const double flops = 4.0 * static_cast<double>(b.d * b.heads * b.seqs) * pairs;
  out.push_back({"attention fwd " + b.name, flops, 0, fwd});
  out.push_back({"attention fwd+bwd " + b.name, 3.5 * flops, 0, both});
}

// One decode step of `seqs` sequences over `tokens` cached tokens each; every key and value is read once.
void bench_step(size_t seqs, size_t tokens, size_t heads, size_t kv_heads, size_t d,
                std::vector<BenchCase>& out) {
  struct Data {
    Tensor q, k, v, o;
    std::vector<KvSegment> caches;
    std::vector<AttentionSeq> seqs;
  };
  const size_t w = kv_heads * d, qw = heads * d;
  const auto make = [=] {
    auto data = std::make_shared<Data>(Data{random_floats(seqs * qw, 1),
                                            random_floats(seqs * tokens * w, 2),
                                            random_floats(seqs * tokens * w, 3),
                                            floats(seqs * qw),
                                            {},
                                            {}});
    for (size_t i = 0; i < seqs; ++i)
      data->caches.push_back({data->k.as<float>().data() + i * tokens * w,
                              data->v.as<float>().data() + i * tokens * w, tokens, 0, w, w});
    for (size_t i = 0; i < seqs; ++i)
      data->seqs.push_back({i, 1, static_cast<int64_t>(tokens) - 1, {&data->caches[i], 1}});
    return data;
  };
  const std::string name = fmt::format("attention step {}over {} h{}/{} d{}",
                                       seqs > 1 ? fmt::format("{}x ", seqs) : "", tokens, heads, kv_heads, d);
  out.push_back({name, 4.0 * static_cast<double>(seqs * tokens * heads * d),
                 8.0 * static_cast<double>(seqs * tokens * w),
                 [=, data = std::shared_ptr<Data>()](Par par) mutable {
                   if (!data) data = make();  // 268 MB: only if this case is chosen
                   attention_fwd({heads, kv_heads, d, d, 0, 0.088f}, {data->q.as<float>().data(), seqs, qw},
                                 data->seqs, {data->o.as<float>().data(), seqs, qw}, nullptr, par);
                 }});
}

}  // namespace

std::vector<BenchCase> attention_bench() {
  std::vector<BenchCase> out;
  bench_shape({"1024xT40 h4 d32", 1024, 40, 4, 32, 0}, out);
  bench_shape({"64xT21 h4 d32 window 8", 64, 21, 4, 32, 8}, out);
  bench_shape({"T2048 h16 d128", 1, 2048, 16, 128, 0}, out);
  bench_shape({"T2048 h16 d128 window 64", 1, 2048, 16, 128, 64}, out);
  bench_shape({"T2048 h16 d128 chunk 64", 1, 2048, 16, 128, 0, 64}, out);
  bench_step(1, 4096, 16, 4, 128, out);
  bench_step(1, 32768, 32, 8, 128, out);
  bench_step(1, 32768, 8, 8, 128, out);
  bench_step(32, 1024, 32, 8, 128, out);
  return out;
}

}  // namespace braid
