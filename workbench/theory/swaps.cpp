#include "theory/swaps.h"

#include <bit>
#include <cmath>

#include "base/rng.h"
#include "kernels/matmul/matmul.h"

namespace braid {
namespace {

constexpr size_t kDigits = 2;
constexpr uint32_t kBase = 64;  // digits and their differences are exact in bf16

void put_value(uint32_t object, float* to) {
  to[0] = static_cast<float>(object % kBase), to[1] = static_cast<float>(object / kBase);
}

void normalise(float* row, size_t n) {
  double square = 0;
  for (size_t i = 0; i < n; ++i) square += static_cast<double>(row[i]) * row[i];
  const auto r = static_cast<float>(1 / std::sqrt(square));
  for (size_t i = 0; i < n; ++i) row[i] *= r;
}

}  // namespace

Tensor hadamard_keys(size_t d) {
  check(std::has_single_bit(d), "hadamard_keys: d is not a power of two");
  Tensor keys(DType::kF32, {static_cast<int64_t>(2 * d), static_cast<int64_t>(d)});
  const Mat<float> k = keys.mat();
  for (size_t i = 0; i < d; ++i)
    for (size_t j = 0; j < d; ++j) {
      k.row(i)[j] = i == j ? 1.0f : 0.0f;
      k.row(d + i)[j] = (std::popcount(i & j) % 2 ? -1.0f : 1.0f) / std::sqrt(static_cast<float>(d));
    }
  return keys;
}

KeySearch spread_keys(size_t n, size_t d, int rounds, uint64_t seed, Par par) {
  Tensor keys(DType::kF32, {static_cast<int64_t>(n), static_cast<int64_t>(d)}), gram, change = keys;
  gram = Tensor(DType::kF32, {static_cast<int64_t>(n), static_cast<int64_t>(n)});
  const Mat<float> k = keys.mat(), g = gram.mat(), c = change.mat();
  Rng rng(seed, "spread keys");
  for (float& x : keys.as<float>()) x = rng.normal();
  for (size_t i = 0; i < n; ++i) normalise(k.row(i), d);
  KeySearch out{std::nullopt, 1, 0};
  // Clipped a little below what is wanted, since a step only halves what is too large; the step cannot
  // overshoot: the largest eigenvalue of K^T K is about (1 + sqrt(n / d))^2.
  const float bound = 0.94f * kTheoremCoherence;
  const double root = 1 + std::sqrt(static_cast<double>(n) / static_cast<double>(d));
  const auto step = static_cast<float>(1.6 / (root * root));
  std::vector<float> largest(n);
  for (out.rounds = 0; out.rounds < rounds; ++out.rounds) {
    matmul(MatmulForm::kNT, k, k, g, Into::kOverwrite, par);
    par.blocks(n, 16, [&](size_t begin, size_t end) {
      for (size_t i = begin; i < end; ++i) {
        float* row = g.row(i);
        row[i] = 0;
        float top = 0;
        for (size_t j = 0; j < n; ++j) {
          const float x = row[j];
          top = std::max(top, std::fabs(x));
          row[j] = step * (x - std::clamp(x, -bound, bound));
        }
        largest[i] = top;
      }
    });
    const float now = *std::ranges::max_element(largest);
    out.coherence = std::min(out.coherence, now);
    if (now < kTheoremCoherence) {
      out.keys = keys;
      return out;
    }
    matmul(MatmulForm::kNN, g, k, c, Into::kOverwrite, par);
    for (size_t i = 0; i < n; ++i) {
      for (size_t j = 0; j < d; ++j) k.row(i)[j] -= c.row(i)[j];
      normalise(k.row(i), d);
    }
  }
  return out;
}

// Welch: the largest inner product squared is at least (n - d) / (d (n - 1)).
size_t welch_width(size_t n) {
  const double e = kTheoremCoherence, count = static_cast<double>(n);
  return static_cast<size_t>(std::floor(count / (1 + e * e * (count - 1)))) + 1;
}

void SwapReport::add(const SwapReport& next) {
  if (!first_wrong && next.first_wrong) first_wrong = swaps + *next.first_wrong;
  swaps += next.swaps, reads += next.reads, wrong += next.wrong, inexact += next.inexact;
  most_rows = std::max(most_rows, next.most_rows);
}

SwapMemory::SwapMemory(Tensor keys, const SwapKernel& kernel)
    : n_(keys.mat().rows),
      d_(keys.mat().cols),
      kernel_(kernel),
      shape_{1, d_, kDigits, delta_kernel(kernel.kind, d_), delta_kernel(kernel.kind, d_)},
      keys_(keys.as<float>().begin(), keys.as<float>().end()),
      u_(n_ * kDigits) {
  check(n_ <= kBase * kBase, "SwapMemory: more objects than two digits can tell");
  round_rows(keys_);
  std::vector<float> v(n_ * kDigits);
  for (uint32_t i = 0; i < n_; ++i) contents_.push_back(i), put_value(i, &v[i * kDigits]);
  run({}, {keys_.data(), n_, d_}, {}, nullptr, u_.data(), v.data());
  round_rows(u_);
}

void SwapMemory::round_rows(std::vector<float>& x) const {
  if (kernel_.bf16)
    for (float& e : x) e = to_f32(to_bf16(e));
}

void SwapMemory::run(Mat<const float> q, Mat<const float> k, std::span<const KvSegment> past, float* o,
                     float* u, const float* v) const {
  const uint32_t offsets[] = {0, static_cast<uint32_t>(k.rows)};
  std::vector<float> scratch(delta_former_fwd_scratch(shape_, offsets));
  delta_former_fwd(shape_,
                   {.q = q, .k = k, .v = {v, k.rows, kDigits}, .offsets = offsets, .past = {&past, 1}},
                   {.o = {o, o ? k.rows : 0, kDigits}, .u = {u, k.rows, kDigits}}, scratch);
}

SwapReport SwapMemory::swap(size_t count, uint64_t seed, uint64_t block) {
  check(count <= n_, "SwapMemory: more swaps than slots at once");
  Rng rng(seed, "swaps");
  rng.seek(block);
  SwapReport out;
  out.swaps = count;
  std::vector<float> k(count * d_), q(count * d_), v(count * kDigits), o(count * kDigits), u(count * kDigits);
  std::vector<uint32_t> want;
  for (size_t t = 0; t < count; ++t) {
    const size_t a = rng.below(n_), other = rng.below(n_ - 1), b = other + (other >= a);
    for (size_t e = 0; e < d_; ++e)
      k[t * d_ + e] = keys_[std::max(a, b) * d_ + e] - keys_[std::min(a, b) * d_ + e];
    std::swap(contents_[a], contents_[b]);
    const size_t read = rng.below(n_);
    std::copy_n(&keys_[read * d_], d_, &q[t * d_]);
    want.push_back(contents_[read]);
  }
  round_rows(k);
  // In f32 the kernel takes all swaps at once. A cache in bf16 is rounded after every single one.
  KvSegment all[] = {{keys_.data(), u_.data(), n_, 0, d_, kDigits},
                     {k.data(), u.data(), count, 0, d_, kDigits}};
  if (!kernel_.bf16) {
    run({q.data(), count, d_}, {k.data(), count, d_}, {all, 1}, o.data(), u.data(), v.data());
  } else {
    for (size_t t = 0; t < count; ++t) {
      all[1].count = t;
      run({&q[t * d_], 1, d_}, {&k[t * d_], 1, d_}, {all, t > 0 ? size_t{2} : 1}, &o[t * kDigits],
          &u[t * kDigits], &v[t * kDigits]);
      for (size_t e = 0; e < kDigits; ++e) u[t * kDigits + e] = to_f32(to_bf16(u[t * kDigits + e]));
    }
    all[1].count = count;
  }
  out.most_rows = n_ + count;
  const auto judge = [&](const float* got, uint32_t object, uint64_t after) {
    float right[kDigits];
    put_value(object, right);
    bool wrong = false, inexact = false;
    for (size_t e = 0; e < kDigits; ++e) {
      wrong |= !(std::fabs(got[e] - right[e]) < 0.5f);
      inexact |= got[e] != right[e];
    }
    ++out.reads, out.wrong += wrong, out.inexact += inexact;
    if (wrong && !out.first_wrong) out.first_wrong = after;
  };
  for (size_t t = 0; t < count; ++t) judge(&o[t * kDigits], want[t], t + 1);
  std::vector<float> compressed(n_ * kDigits);
  const uint32_t offsets[] = {0, static_cast<uint32_t>(n_)};
  std::vector<float> scratch(delta_former_fwd_scratch(shape_, offsets));
  delta_former_compress(shape_, {keys_.data(), n_, d_}, all, {compressed.data(), n_, kDigits}, scratch);
  u_ = std::move(compressed);
  round_rows(u_);
  std::vector<float> now(n_ * kDigits);
  const KvSegment cache{keys_.data(), u_.data(), n_, 0, d_, kDigits};
  const std::span<const KvSegment> past(&cache, 1);
  delta_former_fwd(shape_, {.q = {keys_.data(), n_, d_}, .offsets = offsets, .past = {&past, 1}},
                   {.o = {now.data(), n_, kDigits}}, scratch);
  for (size_t i = 0; i < n_; ++i) judge(&now[i * kDigits], contents_[i], count);
  return out;
}

void SwapMemory::restore(std::vector<uint32_t> contents, std::vector<float> cached) {
  check(contents.size() == n_ && cached.size() == n_ * kDigits, "SwapMemory: another memory's contents");
  contents_ = std::move(contents), u_ = std::move(cached);
}

size_t SwapMemory::cache_bytes(size_t rows, size_t d) { return rows * (d + kDigits) * sizeof(float); }

}  // namespace braid
