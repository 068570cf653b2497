// What is checked by the tests and by `braid verify`, and what `braid bench kernels` times.
#include <fmt/format.h>

#include <cmath>
#include <memory>

#include "verify/ops.h"
#include "kernels/selective_scan/selective_scan.h"
#include "kernels/selective_scan/selective_scan_ref.h"

namespace braid {
namespace {

enum class Decay { kMixed, kStrong, kNone };

struct Case {
  std::vector<uint32_t> lengths;
  size_t channels, state;
  bool carried = true, skip = true;  // a state comes in and its gradient comes back; skip is given
  Decay decay = Decay::kMixed;
  float low = 0;
};

// Lengths around the chunk of 16, channels around the vectors and the block of 64.
const std::vector<Case>& cases() {
  static const std::vector<Case> all{
      {{1}, 1, 1},
      {{0}, 5, 4},
      {{0, 0}, 3, 2, false},
      {{2}, 3, 16},
      {{1, 2, 3, 0, 5}, 8, 16},
      {{15, 16, 17}, 7, 3},
      {{63}, 17, 16},
      {{64}, 16, 16, false},
      {{65}, 33, 16},
      {{65}, 15, 5, true, false},
      {{31, 1, 0, 33}, 65, 17},
      {{40}, 130, 64},
      {{9, 0, 30}, 64, 63, false, false},
      {{130, 17}, 64, 16},
      {{65, 3}, 40, 16, true, true, Decay::kStrong},
      {{1, 1, 20}, 9, 8, true, true, Decay::kStrong},
      {{50}, 24, 4, true, true, Decay::kNone},
      {{65, 3}, 40, 16, true, true, Decay::kMixed, -1},
      {{1, 1, 20}, 9, 8, true, true, Decay::kStrong, -1},
  };
  return all;
}

struct Problem {
  Case c;
  std::vector<uint32_t> offsets{0};
  size_t rows, D, S, each;
  std::vector<float> x, dt, A, B, C, skip, h0, dy, dlast;
  std::vector<double> y, last, dx, ddt, dA, dB, dC, dskip, dh0;

  explicit Problem(const Case& of) : c(of), D(of.channels), S(of.state), each(D * S) {
    for (const uint32_t n : c.lengths) offsets.push_back(offsets.back() + n);
    rows = offsets.back();
    const size_t n = c.lengths.size();
    x = random_vector(rows * D, 1), dt = random_vector(rows * D, 2), A = random_vector(each, 3);
    B = random_vector(rows * S, 4), C = random_vector(rows * S, 5), skip = random_vector(D, 6);
    h0 = random_vector(n * each, 7), dy = random_vector(rows * D, 8), dlast = random_vector(n * each, 9);
    // dt A around -0.3; with strong decay from -0.001 down to -90; without, all of it 0.
    for (float& v : dt)
      v = c.decay == Decay::kStrong ? 0.5f + 0.5f * std::tanh(v) : std::log1p(std::exp(v - 2));
    for (size_t i = 0; i < each; ++i) {
      const double place = each > 1 ? static_cast<double>(i * 7 % each) / static_cast<double>(each - 1) : 1;
      A[i] = c.decay == Decay::kMixed    ? -std::exp(A[i])
             : c.decay == Decay::kStrong ? static_cast<float>(-0.001 * std::pow(90000.0, place))
                                         : 0.0f;
    }
    y.resize(rows * D), last.resize(n * each), dx.resize(rows * D), ddt.resize(rows * D);
    dB.resize(rows * S), dC.resize(rows * S), dh0.resize(n * each);
    dA = to_double(random_vector(each, 10)), dskip = to_double(random_vector(D, 11));
    const std::vector<double> xd = to_double(x), dtd = to_double(dt), Ad = to_double(A), Bd = to_double(B),
                              Cd = to_double(C), sd = to_double(skip), hd = to_double(h0),
                              dyd = to_double(dy), dld = to_double(dlast);
    for (size_t s = 0; s < n; ++s) {
      const size_t at = offsets[s] * D, of_bc = offsets[s] * S, of_state = s * each;
      const ref::SelectiveScanDims dims{c.lengths[s], D, S};
      const ref::SelectiveScanArgs<double> in{xd.data() + at,
                                              dtd.data() + at,
                                              Ad.data(),
                                              Bd.data() + of_bc,
                                              Cd.data() + of_bc,
                                              c.skip ? sd.data() : nullptr,
                                              c.carried ? hd.data() + of_state : nullptr,
                                              c.low};
      ref::selective_scan_fwd<double>(dims, in, y.data() + at, last.data() + of_state);
      ref::selective_scan_bwd<double>(dims, in, dyd.data() + at, c.carried ? dld.data() + of_state : nullptr,
                                      {dx.data() + at, ddt.data() + at, dA.data(), dB.data() + of_bc,
                                       dC.data() + of_bc, dskip.data(), dh0.data() + of_state});
    }
  }
};

// Rows with NaN between them.
struct Strided {
  std::vector<float> data;
  size_t rows, cols;
  Strided(size_t r, size_t c, const float* from) : data(r * (c + 3), NAN), rows(r), cols(c) {
    if (from) copy<float>({from, rows, cols}, m());
  }
  Mat<float> m() { return {data.data(), rows, cols, cols + 3}; }
  std::vector<float> dense() {
    std::vector<float> to;
    for (size_t r = 0; r < rows; ++r) to.insert(to.end(), m().row(r), m().row(r) + cols);
    return to;
  }
};

std::string name_of(const Case& c) {
  std::string name;
  for (const uint32_t n : c.lengths) name += fmt::format("{}{}", name.empty() ? "" : ",", n);
  return name + fmt::format(" D{} S{}{}{}{} ", c.channels, c.state, c.carried ? " carried" : "",
                            c.low < 0 ? " negative" : "",
                            c.decay == Decay::kStrong ? " strong decay"
                            : c.decay == Decay::kNone ? " no decay"
                                                      : "");
}

void check_case(const Problem& p, std::vector<CheckRow>& rows, Par par) {
  const auto row = [&](const char* what, const std::vector<float>& got, const std::vector<double>& want,
                       Tol tol) {
    rows.push_back({name_of(p.c) + what, compare<float, double>(got, want), tol});
  };
  Strided x(p.rows, p.D, p.x.data()), dt(p.rows, p.D, p.dt.data()), B(p.rows, p.S, p.B.data()),
      C(p.rows, p.S, p.C.data()), dy(p.rows, p.D, p.dy.data()), y(p.rows, p.D, nullptr),
      dx(p.rows, p.D, nullptr), ddt(p.rows, p.D, nullptr), dB(p.rows, p.S, nullptr), dC(p.rows, p.S, nullptr);
  std::vector<float> last(p.last.size(), NAN), dA = random_vector(p.each, 10), dskip = random_vector(p.D, 11),
                                               dh0(p.dh0.size(), NAN);
  SelectiveScanIn in{.x = x.m(),
                     .dt = dt.m(),
                     .A = p.A.data(),
                     .B = B.m(),
                     .C = C.m(),
                     .skip = p.c.skip ? p.skip.data() : nullptr,
                     .offsets = p.offsets,
                     .h0 = p.c.carried ? p.h0.data() : nullptr,
                     .low = p.c.low};
  selective_scan_fwd(in, y.m(), last.data(), par);
  row("y", y.dense(), p.y, kTolF32);
  row("last", last, p.last, kTolF32);
  const float* dlast = p.c.carried ? p.dlast.data() : nullptr;
  std::vector<float> scratch(selective_scan_bwd_scratch(p.D, p.S, p.offsets, par), NAN);
  selective_scan_bwd(in, dy.m(), dlast,
                     {.dx = dx.m(),
                      .ddt = ddt.m(),
                      .dB = dB.m(),
                      .dC = dC.m(),
                      .dA = dA.data(),
                      .dskip = dskip.data(),
                      .dh0 = dh0.data()},
                     scratch, par);
  row("dx", dx.dense(), p.dx, kTolF32Grad);
  row("ddt", ddt.dense(), p.ddt, kTolF32Grad);
  row("dA", dA, p.dA, kTolF32Grad);
  row("dB", dB.dense(), p.dB, kTolF32Grad);
  row("dC", dC.dense(), p.dC, kTolF32Grad);
  row("dskip", dskip, p.dskip, kTolF32Grad);
  row("dh0", dh0, p.dh0, kTolF32Grad);
  // In place: gradients over what they belong to.
  std::fill(scratch.begin(), scratch.end(), NAN);
  selective_scan_bwd(in, dy.m(), dlast, {.dx = x.m(), .ddt = dt.m(), .dB = dB.m(), .dC = dC.m()}, scratch,
                     par);
  row("dx over x", x.dense(), p.dx, kTolF32Grad);
  row("ddt over dt", dt.dense(), p.ddt, kTolF32Grad);
}

// One sequence cut at every place into two pieces, and as single steps, has the bits of the whole.
void check_cuts(const Case& c, std::vector<CheckRow>& rows, Par par) {
  const Problem p(c);
  const SelectiveScanIn all{.x = {p.x.data(), p.rows, p.D},
                            .dt = {p.dt.data(), p.rows, p.D},
                            .A = p.A.data(),
                            .B = {p.B.data(), p.rows, p.S},
                            .C = {p.C.data(), p.rows, p.S},
                            .skip = p.skip.data(),
                            .offsets = p.offsets,
                            .h0 = p.h0.data()};
  std::vector<float> whole(p.rows * p.D, NAN), end(p.each, NAN), got, want;
  selective_scan_fwd(all, {whole.data(), p.rows, p.D}, end.data(), par);
  const auto keep = [&](const std::vector<float>& y, const std::vector<float>& h) {
    got.insert(got.end(), y.begin(), y.end()), got.insert(got.end(), h.begin(), h.end());
    want.insert(want.end(), whole.begin(), whole.end()), want.insert(want.end(), end.begin(), end.end());
  };
  for (uint32_t cut = 0; cut <= p.rows; ++cut) {
    std::vector<float> y(p.rows * p.D, NAN), h = p.h0;
    const uint32_t pieces[] = {0, cut, static_cast<uint32_t>(p.rows)};
    for (const size_t i : {0, 1}) {
      SelectiveScanIn in = all;
      in.offsets = {pieces + i, 2};
      in.h0 = h.data();
      selective_scan_fwd(in, {y.data(), p.rows, p.D}, h.data(), par);
    }
    keep(y, h);
  }
  std::vector<float> y = p.x, h = p.h0;  // in place
  for (size_t t = 0; t < p.rows; ++t) {
    float* const states[] = {h.data()};
    const Mat<float> token{&y[t * p.D], 1, p.D};
    selective_scan_step({.x = token,
                         .dt = all.dt.row_range(t, t + 1),
                         .A = all.A,
                         .B = all.B.row_range(t, t + 1),
                         .C = all.C.row_range(t, t + 1),
                         .skip = all.skip,
                         .states = states},
                        token, par);
  }
  keep(y, h);
  rows.push_back({name_of(c) + "cut anywhere, same bits", compare<float, float>(got, want), {0, 0}});
}

}  // namespace

std::vector<CheckRow> selective_scan_check(Par par) {
  std::vector<CheckRow> rows;
  for (const Case& c : cases()) check_case(Problem(c), rows, par);
  check_cuts({{37}, 19, 16}, rows, par);
  check_cuts({{18}, 66, 5}, rows, par);
  return rows;
}

std::vector<BenchCase> selective_scan_bench() {
  struct Data {
    std::vector<float> x, dt, A, B, C, skip, y, dy, dx, ddt, dA, dB, dC, dskip, h, scratch;
    std::vector<uint32_t> offsets;
    std::vector<float*> states;
  };
  std::vector<BenchCase> out;
  const size_t S = 16;
  const auto make = [&](size_t rows, size_t D) {
    auto d = std::make_shared<Data>();
    d->x = random_vector(rows * D, 1), d->dt = random_vector(rows * D, 2), d->dy = random_vector(rows * D, 3);
    for (float& v : d->dt) v = 0.05f * std::exp(v);
    for (size_t i = 0; i < D * S; ++i) d->A.push_back(-1.0f - static_cast<float>(i % S));
    d->B = random_vector(rows * S, 4), d->C = random_vector(rows * S, 5), d->skip = random_vector(D, 6);
    d->y.resize(rows * D), d->dx.resize(rows * D), d->ddt.resize(rows * D);
    d->dA.resize(D * S), d->dB.resize(rows * S), d->dC.resize(rows * S), d->dskip.resize(D);
    return d;
  };
  // One exponential and 5 other operations per number of the state, backward 19 and two of them.
  const auto shape = [&](size_t seqs, size_t length, size_t D) {
    const size_t rows = seqs * length;
    auto d = make(rows, D);
    for (size_t s = 0; s <= seqs; ++s) d->offsets.push_back(static_cast<uint32_t>(s * length));
    const SelectiveScanIn in{.x = {d->x.data(), rows, D},
                             .dt = {d->dt.data(), rows, D},
                             .A = d->A.data(),
                             .B = {d->B.data(), rows, S},
                             .C = {d->C.data(), rows, S},
                             .skip = d->skip.data(),
                             .offsets = d->offsets};
    const SelectiveScanGrad grad{.dx = {d->dx.data(), rows, D},
                                 .ddt = {d->ddt.data(), rows, D},
                                 .dB = {d->dB.data(), rows, S},
                                 .dC = {d->dC.data(), rows, S},
                                 .dA = d->dA.data(),
                                 .dskip = d->dskip.data()};
    const double n = static_cast<double>(rows * D);
    const std::string name = fmt::format("{}xT{} D{} S16", seqs, length, D);
    out.push_back({"selective_scan fwd " + name, 6 * n * S, 12 * n, [=](Par par) {
                     selective_scan_fwd(in, {d->y.data(), rows, D}, nullptr, par);
                   }});
    out.push_back({"selective_scan bwd " + name, 21 * n * S, 20 * n, [=](Par par) {
                     d->scratch.resize(selective_scan_bwd_scratch(D, S, d->offsets, par));
                     selective_scan_bwd(in, {d->dy.data(), rows, D}, nullptr, grad, d->scratch, par);
                   }});
  };
  shape(1, 1024, 1536);
  shape(64, 40, 256);
  const size_t seqs = 8, D = 1536;
  auto d = make(seqs, D);
  d->h = random_vector(seqs * D * S, 7);
  for (size_t s = 0; s < seqs; ++s) d->states.push_back(d->h.data() + s * D * S);
  out.push_back({"selective_scan step of 8 D1536 S16", 6.0 * seqs * D * S,
                 4.0 * (seqs * (3 * D + 2 * D * S) + D * S), [=](Par par) {
                   selective_scan_step({.x = {d->x.data(), seqs, D},
                                        .dt = {d->dt.data(), seqs, D},
                                        .A = d->A.data(),
                                        .B = {d->B.data(), seqs, S},
                                        .C = {d->C.data(), seqs, S},
                                        .skip = d->skip.data(),
                                        .states = d->states},
                                       {d->y.data(), seqs, D}, par);
                 }});
  return out;
}

}  // namespace braid
