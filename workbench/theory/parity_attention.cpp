#include "theory/parity_attention.h"

#include <bit>
#include <map>

#include "io/json.h"
#include "base/rng.h"
#include "kernels/attention/attention_ref.h"
#include "model/config_json.h"

namespace braid {
namespace {

// What one head with equal scores gives for these bits, as the values +-1.
template <class T>
double looked(const std::vector<int>& bits) {
  const size_t n = bits.size();
  const std::vector<T> q(1, T(0)), k(n, T(0));
  std::vector<T> v;
  for (const int b : bits) v.push_back(T(b ? 1 : -1));
  T o;
  const ref::AttentionDims<T> d{1, 1, 1, 1, 0, T(1)};
  ref::attention_fwd<T>(d, q.data(), k.data(), v.data(), 1, n, static_cast<int64_t>(n) - 1, nullptr, &o,
                        nullptr);
  return static_cast<double>(o);
}

template <int s>
double looked(Tie tie, const std::vector<int>& bits) {
  return tie == Tie::kZero   ? looked<Fixed<s, Tie::kZero>>(bits)
         : tie == Tie::kEven ? looked<Fixed<s, Tie::kEven>>(bits)
                             : looked<Fixed<s, Tie::kAway>>(bits);
}

double looked(const Arithmetic& a, const std::vector<int>& bits) {
  switch (a.s) {
    case 0:
      return looked<float>(bits);
    case -1:
      return looked<double>(bits);
    case 2:
      return looked<2>(a.tie, bits);
    case 3:
      return looked<3>(a.tie, bits);
    case 4:
      return looked<4>(a.tie, bits);
    case 6:
      return looked<6>(a.tie, bits);
    default:
      return looked<8>(a.tie, bits);
  }
}

int parity(const std::vector<int>& bits) {
  int p = 0;
  for (const int b : bits) p ^= b;
  return p;
}

constexpr float kVanishing = 100;  // exp(-100) is 0 next to 1

// Places in the residual stream. Facts that the head tests stand before a constant one each.
struct ParityFields {
  size_t places, steps, block;
  size_t is_x = 0, place = 1, val = place + places, want = val + 1, step = want + block * places,
         par = step + 2 * steps, got = par + 2, one = got + 2 * block, width = one + 1;
};

size_t bits_for(int64_t n) { return std::max<size_t>(1, std::bit_width(static_cast<uint64_t>(n - 1))); }
float sign_of(int64_t number, size_t i) { return number >> i & 1 ? 1.0f : -1.0f; }

}  // namespace

double counting_error(const Arithmetic& a, int64_t n, size_t samples, uint64_t seed) {
  std::map<double, std::array<size_t, 2>> seen;  // output -> how often with either parity
  std::vector<int> bits(static_cast<size_t>(n));
  if (n <= kCountAll) {
    for (int64_t x = 0; x < int64_t{1} << n; ++x) {
      for (size_t i = 0; i < bits.size(); ++i) bits[i] = static_cast<int>(x >> i & 1);
      ++seen[looked(a, bits)][static_cast<size_t>(parity(bits))];
    }
    size_t wrong = 0;
    for (const auto& [unused, count] : seen) wrong += std::min(count[0], count[1]);
    return static_cast<double>(wrong) / std::ldexp(1.0, static_cast<int>(n));
  }
  Rng rng(seed, "counting");
  size_t wrong = 0;
  for (size_t i = 0; i < 2 * samples; ++i) {
    for (int& b : bits) b = static_cast<int>(rng.below(2));
    const auto p = static_cast<size_t>(parity(bits));
    std::array<size_t, 2>& count = seen[looked(a, bits)];
    if (i < samples)
      ++count[p];
    else  // an output never seen, or seen equally often with both: a guess, half right
      wrong += count[p] < count[1 - p] ? 2 : count[p] == count[1 - p] ? 1 : 0;
  }
  return static_cast<double>(wrong) / static_cast<double>(2 * samples);
}

int ParityScratch::parity_of(int32_t token) const {
  const auto y = static_cast<uint64_t>(token - 1 - 2 * bits) & ((uint64_t{2} << block) - 1);
  return std::popcount(y) % 2;  // the parity before and the block's bits
}

std::unique_ptr<Model> parity_model(const ParityScratch& c) {
  check(c.block > 0 && c.bits % c.block == 0, "parity_model: the blocks must fill the input");
  const auto h = static_cast<size_t>(c.block);
  const ParityFields f{.places = bits_for(c.bits), .steps = bits_for(c.steps() + 1), .block = h};
  const size_t dk = 2 * (f.places + 1);
  const Json config{
      {"model_type", "braid"},
      {"vocab_size", c.vocabulary()},
      {"d_model", f.width},
      {"n_layers", 1},
      {"norm_eps", 1e-12},
      {"pattern",
       {{{"mixer", {{"type", "attention"}, {"heads", c.block}, {"head_dim", dk}, {"rope_theta", 0}}},
         {"mlp", {{"type", "none"}}},
         {"norm", "none"}}}}};
  const Result<ModelConfig> parsed = parse_config(config, "parity_model");
  check(static_cast<bool>(parsed), "parity_model: " + (parsed ? std::string() : parsed.error().what));
  std::unique_ptr<Model> model = Model::create(*parsed);
  ParamSet& params = model->params();
  params.allocate();
  const auto matrix = [&](const std::string& name) {
    for (size_t i = 0; i < params.all().size(); ++i)
      if (params[i].name == name) return params.mat(i);
    check(false, "parity_model: there is no parameter " + name);
    return Mat<float>();
  };
  const Mat<float> embedding = matrix("embedding.weight"), head = matrix("head.weight");
  for (size_t i = 0; i < f.width; ++i) matrix("final_norm.weight").data[i] = 1;

  for (size_t t = 0; t < embedding.rows; ++t) {
    float* e = embedding.row(t);
    e[f.one] = 1, e[f.is_x] = -1, e[f.par + 1] = 1;
    for (size_t i = 0; i < f.steps; ++i) e[f.step + 2 * i + 1] = 1;
    for (size_t i = 0; i < h; ++i) e[f.got + 2 * i + 1] = 1;
    const auto id = static_cast<int64_t>(t);
    if (id >= 1 && id <= 2 * c.bits) {
      e[f.is_x] = 1, e[f.val] = (id - 1) % 2 ? 1.0f : -1.0f;
      for (size_t i = 0; i < f.places; ++i) e[f.place + i] = sign_of((id - 1) / 2, i);
      continue;
    }
    // ASK stands before step 0, a scratch token of step k before step k + 1.
    const int64_t next = id == 0 ? 0 : c.step_of(static_cast<int32_t>(t)) + 1;
    e[f.par] = id != 0 && c.parity_of(static_cast<int32_t>(t)) ? 1.0f : -1.0f;
    for (size_t i = 0; i < f.steps; ++i) e[f.step + 2 * i] = sign_of(next, i);
    for (size_t j = 0; j < h; ++j)
      for (size_t i = 0; i < f.places; ++i)
        e[f.want + j * f.places + i] = sign_of(next * c.block + static_cast<int64_t>(j), i);
  }

  // Head j finds the bit at the wanted place; pairs as in the construction of retrieval.
  const std::string at = "layers.0.mixer.";
  const Mat<float> q = matrix(at + "q_proj.weight"), k = matrix(at + "k_proj.weight"),
                   v = matrix(at + "v_proj.weight"), o = matrix(at + "o_proj.weight");
  for (size_t j = 0; j < h; ++j) {
    const auto pair = [&](size_t i, size_t key, size_t wanted) {
      const size_t row = j * dk + 2 * i;
      k.row(row)[key] = k.row(row + 1)[f.one] = kVanishing;
      q.row(row)[wanted] = kVanishing, q.row(row + 1)[f.one] = -kVanishing;
    };
    pair(0, f.is_x, f.one);
    for (size_t i = 0; i < f.places; ++i) pair(1 + i, f.place + i, f.want + j * f.places + i);
    v.row(j * dk)[f.val] = 1;
    o.row(f.got + 2 * j)[j * dk] = 1;
  }

  // A scratch token follows if step, parity and all bits are as it says.
  for (size_t t = 0; t < head.rows; ++t) {
    float* w = head.row(t);
    const auto id = static_cast<int64_t>(t);
    if (id <= 2 * c.bits) {
      w[f.one] = -kVanishing;
      continue;
    }
    const int64_t step = c.step_of(static_cast<int32_t>(t)),
                  y = (id - 1 - 2 * c.bits) & ((int64_t{2} << c.block) - 1);
    const auto test = [&](size_t field, float sign) {
      w[field] = kVanishing * sign, w[field + 1] = -kVanishing;
    };
    for (size_t i = 0; i < f.steps; ++i) test(f.step + 2 * i, sign_of(step, i));
    test(f.par, sign_of(y, h));
    for (size_t j = 0; j < h; ++j) test(f.got + 2 * j, sign_of(y, j));
    w[f.one] = kVanishing;
  }
  return model;
}

int parity_by_scratchpad(const NumberModel& model, const ParityScratch& c, std::span<const int> bits) {
  const std::unique_ptr<NumberRun> run = model.start();
  for (size_t i = 0; i < bits.size(); ++i) run->feed(c.input(static_cast<int64_t>(i), bits[i]));
  int32_t token = 0;
  for (int64_t step = 0; step < c.steps(); ++step) {
    run->feed(token);
    token = best(run->logits()).token;
    if (token <= 2 * c.bits || c.step_of(token) != step) return -1;
  }
  return c.parity_of(token);
}

}  // namespace braid
