// What every op's test uses.
#pragma once

#include <gtest/gtest.h>

#include <complex>
#include <functional>
#include <vector>

#include "verify/ops.h"
#include "kernels/common/impl_table.h"

namespace braid {

inline std::vector<std::complex<double>> random_complex(size_t n, uint64_t seed, double scale = 1.0) {
  std::vector<std::complex<double>> x(n);
  const std::vector<float> r = random_vector(n, seed);
  for (size_t i = 0; i < n; ++i) x[i] = scale * r[i];
  return x;
}

inline std::complex<double> dot(const std::vector<std::complex<double>>& a,
                                const std::vector<std::complex<double>>& b) {
  std::complex<double> s{};
  for (size_t i = 0; i < a.size(); ++i) s += a[i] * b[i];
  return s;
}

// grad holds d loss / d x; every element is compared with the complex step.
inline void expect_gradient(std::vector<std::complex<double>>& x,
                            const std::vector<std::complex<double>>& grad,
                            const std::function<std::complex<double>()>& loss) {
  std::vector<double> got(x.size()), want(x.size());
  for (size_t i = 0; i < x.size(); ++i) {
    got[i] = grad[i].real();
    want[i] = complex_step(x, i, loss);
  }
  const Diff d = compare<double, double>(got, want);
  EXPECT_TRUE(within(d, kTolF64)) << "rms " << d.rms << " max " << d.max << " at " << d.worst;
}

// Runs `check_op` with each implementation this machine can run.
inline void expect_all_impls(const ImplTable& table, std::vector<CheckRow> (*check_op)(Par)) {
  int ran = 0;
  table.each([&](std::string_view name, Par par) {
    ++ran;
    for (const CheckRow& r : check_op(par))
      EXPECT_TRUE(r.ok()) << table.op() << " " << name << ": " << r.what << " rms " << r.diff.rms << " max "
                          << r.diff.max << " at " << r.diff.worst;
  });
  EXPECT_GE(ran, 2);
}

}  // namespace braid
