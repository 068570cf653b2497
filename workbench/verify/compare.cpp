#include "verify/compare.h"

#include <cmath>
#include <utility>

#include "base/check.h"

namespace braid {

template <class A, class B>
Diff compare(std::span<const A> got, std::span<const B> want) {
  check(got.size() == want.size(), "compare: sizes differ");
  double square = 0, error = 0, worst = 0;
  Diff d;
  bool bad = false;
  for (size_t i = 0; i < got.size(); ++i) {
    const double w = static_cast<double>(want[i]), e = std::fabs(static_cast<double>(got[i]) - w);
    square += w * w, error += e * e;
    if (!std::isfinite(e)) bad = true;
    if (!(e <= worst)) worst = e, d.worst = i;
  }
  const size_t n = got.size() ? got.size() : 1;
  // An all-zero reference is compared absolutely.
  const double scale = square > 0 ? std::sqrt(square / n) : 1.0;
  d.rms = bad ? NAN : std::sqrt(error / n) / scale;
  d.max = bad ? NAN : worst / scale;
  return d;
}

template Diff compare(std::span<const float>, std::span<const float>);
template Diff compare(std::span<const float>, std::span<const double>);
template Diff compare(std::span<const double>, std::span<const double>);

bool within(const Diff& d, Tol t) { return d.rms <= t.rms && d.max <= t.max; }

std::string bench_form(const BenchCase& c) {
  if (!c.form.empty()) return c.form;
  constexpr std::pair<const char*, const char*> kWords[] = {
      {" fwd+bwd ", "forward+backward"}, {" fwd ", "forward"}, {" bwd ", "backward"}, {" step ", "step"}};
  for (const auto& [word, form] : kWords)
    if (c.name.find(word) != std::string::npos) return form;
  return "forward";
}

std::vector<float> random_vector(size_t n, uint64_t seed, float scale) {
  Rng rng(seed, "test data");
  std::vector<float> x(n);
  for (float& v : x) v = rng.normal() * scale;
  return x;
}

Tensor bench_tensor(size_t n, float scale) {
  Tensor t(DType::kF32, {static_cast<int64_t>(n)});
  uint64_t x = n;
  for (float& y : t.as<float>()) {
    x = x * 6364136223846793005u + 1442695040888963407u;
    y = scale * (static_cast<float>(x >> 40) * 0x1p-23f - 1.0f);
  }
  return t;
}

std::vector<double> to_double(std::span<const float> x) { return {x.begin(), x.end()}; }

double complex_step(std::vector<std::complex<double>>& x, size_t i,
                    const std::function<std::complex<double>()>& loss) {
  constexpr double h = 1e-30;  // no subtraction follows, hence no cancellation
  x[i] += std::complex<double>(0, h);
  const double g = loss().imag() / h;
  x[i] = x[i].real();
  return g;
}

}  // namespace braid
