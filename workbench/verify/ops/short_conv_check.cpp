// What is checked by the tests and by `braid verify`, and what `braid bench kernels` times.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <memory>

#include "verify/ops.h"
#include "kernels/short_conv/short_conv.h"
#include "kernels/short_conv/short_conv_ref.h"

namespace braid {
namespace {

struct Case {
  std::vector<uint32_t> lengths;
  size_t channels, width;
  bool silu, state;
  float scale = 1;  // of x: 30 reaches the flat ends of silu
  size_t l2_dim = 0, l2_channels = 0;
};

// Channels around the vectors and the block of 64; lengths around the width and the rows taken at once.
const std::vector<Case>& cases() {
  static const std::vector<Case> all{
      {{1}, 1, 2, false, false},
      {{0}, 5, 4, true, true},
      {{0, 0}, 3, 2, false, false},
      {{5}, 3, 2, true, true},
      {{7}, 4, 3, false, true},
      {{1, 2, 3, 4, 5}, 8, 4, true, true},
      {{1, 2, 3, 4, 5}, 7, 4, true, false},
      {{0, 2, 0, 9, 1, 0}, 17, 5, false, true},
      {{63}, 15, 6, true, true},
      {{64}, 16, 7, true, false},
      {{65}, 33, 8, true, true},
      {{3, 6, 7, 8, 1, 0, 15}, 65, 8, false, true},
      {{130, 17}, 64, 4, true, true},
      {{40, 0, 1, 41}, 200, 4, true, true, 30},
      {{12, 9}, 100, 3, false, false},
      {{9, 0, 1}, 24, 4, true, true, 1, 8, 16},
      {{30, 11}, 300, 4, true, true, 1, 100, 200},
      {{17}, 384, 4, true, false, 1, 128, 256},
      {{40, 3}, 70, 2, false, true, 1, 5, 70},
      {{19}, 512, 8, true, true, 1, 256, 512},
      {{6}, 10, 3, true, true, 1, 1, 3},
  };
  return all;
}

struct Problem {
  Case c;
  std::vector<uint32_t> offsets{0};
  size_t rows, D, W, each;
  std::vector<float> x, w, state, dy, dlast;
  std::vector<double> y, last, dx, dw, dstate;

  explicit Problem(const Case& of) : c(of), D(of.channels), W(of.width), each(D * (W - 1)) {
    for (const uint32_t n : c.lengths) offsets.push_back(offsets.back() + n);
    rows = offsets.back();
    const size_t n = c.lengths.size();
    x = random_vector(rows * D, 1, c.scale), w = random_vector(D * W, 2), dy = random_vector(rows * D, 4);
    state = random_vector(n * each, 3), dlast = random_vector(n * each, 5);
    y.resize(rows * D), dx.resize(rows * D), dw = to_double(random_vector(D * W, 6));
    last.resize(n * each), dstate.resize(n * each);
    const std::vector<double> xd = to_double(x), wd = to_double(w), sd = to_double(state),
                              dyd = to_double(dy), dld = to_double(dlast);
    for (size_t s = 0; s < n; ++s) {
      const size_t at = offsets[s] * D, of_state = s * each;
      const ref::ShortConvDims dims{c.lengths[s], D, W, c.silu, c.l2_dim, c.l2_channels};
      const double* in = c.state ? sd.data() + of_state : nullptr;
      ref::short_conv_fwd<double>(dims, xd.data() + at, wd.data(), in, y.data() + at, last.data() + of_state);
      ref::short_conv_bwd<double>(dims, xd.data() + at, wd.data(), in, dyd.data() + at,
                                  c.state ? dld.data() + of_state : nullptr, dx.data() + at, dw.data(),
                                  dstate.data() + of_state);
    }
  }

  ShortConvIn in(Mat<const float> from) const {
    return {.x = from,
            .w = w.data(),
            .width = W,
            .offsets = offsets,
            .state = c.state ? state.data() : nullptr,
            .silu = c.silu,
            .l2_dim = c.l2_dim,
            .l2_channels = c.l2_channels};
  }
};

// Rows with NaN between them.
struct Strided {
  std::vector<float> data;
  Mat<float> m;
  Strided(size_t rows, size_t cols, const float* from) : data(rows * (cols + 3), NAN) {
    m = {data.data(), rows, cols, cols + 3};
    if (from) copy<float>({from, rows, cols}, m);
  }
  std::vector<float> dense() const {
    std::vector<float> to;
    for (size_t r = 0; r < m.rows; ++r) to.insert(to.end(), m.row(r), m.row(r) + m.cols);
    return to;
  }
};

std::string name_of(const Case& c) {
  std::string name;
  for (const uint32_t n : c.lengths) name += fmt::format("{}{}", name.empty() ? "" : ",", n);
  if (c.l2_dim) name += fmt::format(" l2 {} of {}", c.l2_channels, c.l2_dim);
  return name +
         fmt::format(" D{} W{}{}{} ", c.channels, c.width, c.silu ? " silu" : "", c.state ? " state" : "");
}

void check_case(const Problem& p, std::vector<CheckRow>& rows, Par par) {
  const auto row = [&](const char* what, const std::vector<float>& got, const std::vector<double>& want,
                       Tol tol) {
    rows.push_back({name_of(p.c) + what, compare<float, double>(got, want), tol});
  };
  const Strided x(p.rows, p.D, p.x.data()), dy(p.rows, p.D, p.dy.data());
  Strided y(p.rows, p.D, nullptr), dx(p.rows, p.D, nullptr);
  std::vector<float> last(p.last.size(), NAN), dstate(p.dstate.size(), NAN), dw = random_vector(p.D * p.W, 6);
  short_conv_fwd(p.in(x.m), y.m, last.data(), par);
  row("y", y.dense(), p.y, kTolF32);
  row("last", last, p.last, kTolF32);
  Strided in_place = x;
  in_place.m.data = in_place.data.data();
  short_conv_fwd(p.in(in_place.m), in_place.m, last.data(), par);
  row("y over x", in_place.dense(), p.y, kTolF32);
  const float* dlast = p.c.state ? p.dlast.data() : nullptr;
  short_conv_bwd(p.in(x.m), dy.m, dlast, {.dx = dx.m, .dw = dw.data(), .dstate = dstate.data()}, par);
  row("dx", dx.dense(), p.dx, kTolF32Grad);
  row("dw", dw, p.dw, kTolF32Grad);
  row("dstate", dstate, p.dstate, kTolF32Grad);
  Strided over_x = x, over_dy = dy;
  over_x.m.data = over_x.data.data(), over_dy.m.data = over_dy.data.data();
  short_conv_bwd(p.in(over_x.m), dy.m, dlast, {.dx = over_x.m}, par);
  short_conv_bwd(p.in(x.m), over_dy.m, dlast, {.dx = over_dy.m}, par);
  row("dx over x", over_x.dense(), p.dx, kTolF32Grad);
  row("dx over dy", over_dy.dense(), p.dx, kTolF32Grad);
}

// One sequence cut at every place into two pieces, and as single steps, has the bits of the whole.
void check_cuts(const Case& c, std::vector<CheckRow>& rows, Par par) {
  const Problem p(c);
  const Mat<const float> x{p.x.data(), p.rows, p.D};
  std::vector<float> whole(p.rows * p.D, NAN), end(p.each, NAN), got, want;
  short_conv_fwd(p.in(x), {whole.data(), p.rows, p.D}, end.data(), par);
  const auto keep = [&](const std::vector<float>& y, const std::vector<float>& state) {
    got.insert(got.end(), y.begin(), y.end()), got.insert(got.end(), state.begin(), state.end());
    want.insert(want.end(), whole.begin(), whole.end()), want.insert(want.end(), end.begin(), end.end());
  };
  for (uint32_t cut = 0; cut <= p.rows; ++cut) {
    std::vector<float> y(p.rows * p.D, NAN), state = p.state;
    const uint32_t pieces[] = {0, cut, static_cast<uint32_t>(p.rows)};
    for (const size_t i : {0, 1}) {
      ShortConvIn in = p.in(x);
      in.offsets = {pieces + i, 2};
      in.state = state.data();
      short_conv_fwd(in, {y.data(), p.rows, p.D}, state.data(), par);
    }
    keep(y, state);
  }
  std::vector<float> y = p.x, state = p.state;  // in place
  for (size_t t = 0; t < p.rows; ++t) {
    float* const states[] = {state.data()};
    const Mat<float> token{&y[t * p.D], 1, p.D};
    short_conv_step({.x = token,
                     .w = p.w.data(),
                     .width = p.W,
                     .states = states,
                     .silu = c.silu,
                     .l2_dim = c.l2_dim,
                     .l2_channels = c.l2_channels},
                    token, par);
  }
  keep(y, state);
  rows.push_back({name_of(c) + "cut anywhere, same bits", compare<float, float>(got, want), {0, 0}});
}

}  // namespace

std::vector<CheckRow> short_conv_check(Par par) {
  std::vector<CheckRow> rows;
  for (const Case& c : cases()) check_case(Problem(c), rows, par);
  for (const size_t width : {2, 3, 4, 5, 6, 7, 8}) {
    check_cuts({{21}, 19, width, true, true}, rows, par);
    check_cuts({{9}, 33, width, false, true}, rows, par);
    check_cuts({{9}, 50, width, true, true, 1, 20, 40}, rows, par);
  }
  return rows;
}

std::vector<BenchCase> short_conv_bench() {
  struct Data {
    Tensor x{}, y{}, dy{}, dx{};  // on large pages, as in a model
    std::vector<float> w, dw, state;
    std::vector<uint32_t> offsets;
    std::vector<float*> states;
  };
  std::vector<BenchCase> out;
  const size_t W = 4;
  enum class Y { kOther, kOverX };
  const auto shape = [&](size_t seqs, size_t length, size_t D, bool silu, size_t l2_channels = 0,
                         Y place = Y::kOther) {
    const size_t rows = seqs * length, l2_dim = l2_channels ? 128 : 0;
    auto d = std::make_shared<Data>();
    // Made by the first run, since the large ones take gigabytes.
    const auto make = [=](Tensor& t) {
      if (t.data()) return t.mat();
      t = Tensor(DType::kF32, {static_cast<int64_t>(rows), static_cast<int64_t>(D)});
      const std::vector<float> some = random_vector(1 << 16, 1);
      for (size_t i = 0; float& v : t.as<float>()) v = some[i++ * 7919 % some.size()];
      return t.mat();
    };
    const auto in = [=] {
      if (d->w.empty()) {
        d->w = random_vector(D * W, 2), d->dw.resize(D * W);
        for (size_t s = 0; s <= seqs; ++s) d->offsets.push_back(static_cast<uint32_t>(s * length));
      }
      return ShortConvIn{.x = make(d->x),
                         .w = d->w.data(),
                         .width = W,
                         .offsets = d->offsets,
                         .silu = silu,
                         .l2_dim = l2_dim,
                         .l2_channels = l2_channels};
    };
    const double n = static_cast<double>(rows * D);
    const std::string name =
        fmt::format("{}xT{} D{} W4{}{}", seqs, length, D, silu ? " silu" : "",
                    l2_channels ? fmt::format(" l2 {}x{}", l2_channels / l2_dim, l2_dim) : "");
    if (place == Y::kOverX) {
      out.push_back({"short_conv fwd in place " + name, 0, 8 * n,
                     [=](Par par) { short_conv_fwd(in(), make(d->x), nullptr, par); }});
      return;
    }
    out.push_back({"short_conv fwd " + name, 0, 8 * n,
                   [=](Par par) { short_conv_fwd(in(), make(d->y), nullptr, par); }});
    out.push_back({"short_conv bwd " + name, 0, 12 * n, [=](Par par) {
                     const ShortConvIn from = in();
                     short_conv_bwd(from, make(d->dy), nullptr, {.dx = make(d->dx), .dw = d->dw.data()}, par);
                   }});
  };
  shape(1, 4096, 2048, false);
  shape(1, 4096, 2048, true);
  shape(256, 40, 256, true);
  shape(1, 16384, 6144, true, 4096);
  shape(1, 16384, 6144, true, 4096, Y::kOverX);
  const size_t seqs = 8, D = 2048, each = D * (W - 1);
  auto d = std::make_shared<Data>();
  d->w = random_vector(D * W, 2), d->state = random_vector(seqs * each, 3);
  d->x = Tensor(DType::kF32, {seqs, D}), d->y = d->x;
  std::ranges::copy(random_vector(seqs * D, 1), d->x.as<float>().begin());
  for (size_t s = 0; s < seqs; ++s) d->states.push_back(d->state.data() + s * each);
  out.push_back(
      {"short_conv step of 8 D2048 W4 silu", 0, 4.0 * (seqs * (2 * D + 2 * each) + D * W), [=](Par par) {
         short_conv_step({.x = d->x.mat(), .w = d->w.data(), .width = W, .states = d->states, .silu = true},
                         d->y.mat(), par);
       }});
  return out;
}

}  // namespace braid
