#include <fmt/format.h>

#include <cmath>
#include <limits>
#include <memory>

#include "verify/ops.h"
#include "kernels/elementwise/elementwise.h"
#include "kernels/elementwise/elementwise_ref.h"

namespace braid {
namespace {

struct Case {
  size_t rows, cols;
};
constexpr Case kCases[] = {{1, 1}, {3, 7}, {33, 16}, {5, 37}, {2, 4099}};

// Bits as numbers: the comparison must see every one of them, also in NaN.
template <class T>
std::vector<double> bits_of(const std::vector<T>& x) {
  std::vector<double> out;
  for (const T& v : x) {
    if constexpr (std::is_same_v<T, bf16>)
      out.push_back(v.bits);
    else
      out.push_back(std::bit_cast<uint32_t>(v));
  }
  return out;
}

void check_case(const Case& c, std::vector<CheckRow>& rows, Par par) {
  const size_t n = c.rows * c.cols, stride = c.cols + 3;
  const std::string name = fmt::format("{}x{}", c.rows, c.cols);
  const std::vector<float> a = random_vector(n, 1), wide = random_vector(c.rows * stride, 2);
  const Mat<const float> am{a.data(), c.rows, c.cols}, bm{wide.data(), c.rows, c.cols, stride};
  const std::vector<double> ad = to_double(a);
  std::vector<double> b(n), sum(n), scaled(n);
  for (size_t i = 0; i < n; ++i) b[i] = bm.row(i / c.cols)[i % c.cols];
  ref::add(ad.data(), b.data(), sum.data(), n);
  ref::scale(ad.data(), -0.3, scaled.data(), n);
  const auto row = [&](const char* what, const std::vector<float>& got, const std::vector<double>& want) {
    rows.push_back({name + " " + what, compare<float, double>(got, want), kTolF32});
  };
  std::vector<float> y(n, NAN);
  const Mat<float> ym{y.data(), c.rows, c.cols};
  add(am, bm, ym, par);
  row("add", y, sum);
  y = a;
  add_to(bm, ym, par);
  row("add_to", y, sum);
  scale(am, -0.3f, ym, par);
  row("scale", y, scaled);
  std::vector<double> partials(sum_partials(n), NAN);
  const double got = sum_squares(a, partials, par), want = ref::sum_squares(a.data(), n);
  rows.push_back({name + " sum_squares", compare<double, double>({&got, 1}, {&want, 1}), kTolF64});
}

// Every special case of rounding: ties to even and odd, carries into the exponent, overflow, NaN with its
// payload only in the lower half, denormals.
std::vector<float> rounding_cases() {
  std::vector<float> x = random_vector(100, 3);
  const float nan = std::numeric_limits<float>::quiet_NaN(), inf = std::numeric_limits<float>::infinity();
  for (const float v :
       {0.0f, -0.0f, inf, -inf, nan, -nan, std::bit_cast<float>(0x7f800001u),
        std::bit_cast<float>(0xff80ffffu), std::bit_cast<float>(0x7fffffffu), 3.4e38f, 1e-40f})
    x.push_back(v);
  for (const uint32_t high : {0x3f800000u, 0x3f810000u, 0x3fff0000u, 0xc07f0000u, 0x00000000u, 0x7f7f0000u})
    for (const uint32_t low : {0x0000u, 0x0001u, 0x7fffu, 0x8000u, 0x8001u, 0xffffu})
      x.push_back(std::bit_cast<float>(high | low));
  return x;
}

void check_bf16(std::vector<CheckRow>& rows, Par par) {
  const std::vector<float> x = rounding_cases();
  const size_t n = x.size(), cols = 37;
  for (const size_t r : {size_t{1}, n / cols}) {
    const size_t c = r == 1 ? n : cols, count = r * c;
    std::vector<bf16> half(count, bf16{0xffff}), half_ref(count);
    std::vector<float> back(count, NAN), back_ref(count);
    convert({x.data(), r, c}, Mat<bf16>{half.data(), r, c}, par);
    for (size_t i = 0; i < count; ++i) half_ref[i] = to_bf16(x[i]), back_ref[i] = to_f32(half_ref[i]);
    convert(Mat<const bf16>{half_ref.data(), r, c}, Mat<float>{back.data(), r, c}, par);
    rows.push_back({fmt::format("{}x{} f32 to bf16, same bits", r, c),
                    compare<double, double>(bits_of(half), bits_of(half_ref)),
                    {0, 0}});
    rows.push_back({fmt::format("{}x{} bf16 to f32, same bits", r, c),
                    compare<double, double>(bits_of(back), bits_of(back_ref)),
                    {0, 0}});
  }
}

}  // namespace

std::vector<CheckRow> elementwise_check(Par par) {
  std::vector<CheckRow> rows;
  for (const Case& c : kCases) check_case(c, rows, par);
  check_bf16(rows, par);
  return rows;
}

std::vector<BenchCase> elementwise_bench() {
  struct Data {
    std::vector<float> a, b, y;
    std::vector<bf16> half;
    std::vector<double> partials;
  };
  const size_t rows = 4096, cols = 1024, n = rows * cols;
  auto d = std::make_shared<Data>(Data{random_vector(n, 1), random_vector(n, 2), std::vector<float>(n),
                                       std::vector<bf16>(n), std::vector<double>(sum_partials(n))});
  const Mat<const float> a{d->a.data(), rows, cols}, b{d->b.data(), rows, cols};
  const Mat<float> y{d->y.data(), rows, cols};
  const Mat<bf16> half{d->half.data(), rows, cols};
  return {{"add 4096x1024", 0, 12.0 * n, [=, keep = d](Par par) { add(a, b, y, par); }},
          {"add_to 4096x1024", 0, 12.0 * n, [=, keep = d](Par par) { add_to(a, y, par); }},
          {"scale 4096x1024", 0, 8.0 * n, [=, keep = d](Par par) { scale(a, 0.5f, y, par); }},
          {"f32 to bf16 4096x1024", 0, 6.0 * n, [=, keep = d](Par par) { convert(a, half, par); }},
          {"bf16 to f32 4096x1024", 0, 6.0 * n, [=, keep = d](Par par) { convert(half, y, par); }},
          {"sum_squares 4194304",
           0,
           4.0 * n,
           [=](Par par) { sum_squares(d->a, d->partials, par); },
           {},
           BenchTraffic::kRead}};
}

}  // namespace braid
