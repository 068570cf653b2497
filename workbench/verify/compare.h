// How far a result is from its reference. The tolerances of the whole project stand here and nowhere else.
#pragma once

#include <complex>
#include <cstddef>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "base/parallel.h"
#include "base/rng.h"
#include "tensor/tensor.h"

namespace braid {

// Relative to the rms of the reference; both must hold. NaN fails.
struct Tol {
  double rms, max;
};
inline constexpr Tol kTolF32{1e-5, 1e-4};      // f32 forward against double
inline constexpr Tol kTolF32Grad{5e-5, 5e-4};  // f32 backward against double
inline constexpr Tol kTolBf16{1e-2, 5e-2};     // bf16 inputs, f32 sums
inline constexpr Tol kTolSplit{1e-5, 1e-5};    // f32 against f32: the same sums, cut elsewhere
inline constexpr Tol kTol16{2e-3, 1e-2};       // models whose products round activations to 16 bits
inline constexpr Tol kTolOps{1e-6, 1e-6};      // a handful of f32 operations against double
inline constexpr Tol kTolF64{1e-12, 1e-10};    // double against complex step

struct Diff {
  double rms = 0, max = 0;
  size_t worst = 0;  // index of the worst element
};

template <class A, class B>
Diff compare(std::span<const A> got, std::span<const B> want);
bool within(const Diff& d, Tol t);

// One claim that was checked, for tests and `braid verify`.
struct CheckRow {
  std::string what;
  Diff diff;
  Tol tol;
  bool ok() const { return within(diff, tol); }
};

// What a memory-bound case is compared with: memory that is only read, or as much written as read.
enum class BenchTraffic : bool { kUpdate, kRead };

// One thing to time, for `braid bench kernels`.
struct BenchCase {
  std::string name;
  double flops, bytes;           // of one run; zero if it does not apply
  std::function<void(Par)> run;  // owns what it needs
  std::string form = {};         // e.g. "chunk forward"; empty: what the word fwd, bwd, fwd+bwd or step says
  BenchTraffic traffic = BenchTraffic::kUpdate;
};
std::string bench_form(const BenchCase& c);

// Random test data: normal numbers times `scale`.
std::vector<float> random_vector(size_t n, uint64_t seed, float scale = 1.0f);
std::vector<double> to_double(std::span<const float> x);
// Numbers in (-scale, scale) for timings: quickly made, in the kind of memory that models use.
Tensor bench_tensor(size_t n, float scale = 1.0f);

// The derivative of loss at x[i], exact to rounding: imaginary part after a step of 1e-30 i. `loss` is a dot
// product of the outputs with a random cotangent; a sum (cotangent of ones) would hide errors that permute
// rows.
double complex_step(std::vector<std::complex<double>>& x, size_t i,
                    const std::function<std::complex<double>()>& loss);

}  // namespace braid
