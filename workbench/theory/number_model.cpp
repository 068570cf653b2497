#include "theory/number_model.h"

#include <fmt/format.h>

#include <cmath>

#include "kernels/attention/attention_ref.h"
#include "kernels/delta_gates/delta_gates_ref.h"
#include "kernels/fast_weight/fast_weight_ref.h"
#include "kernels/l2norm/l2norm_ref.h"
#include "kernels/matmul/matmul_ref.h"
#include "kernels/pointwise/pointwise_ref.h"
#include "kernels/rmsnorm/rmsnorm_ref.h"
#include "kernels/rope/rope.h"
#include "kernels/rope/rope_ref.h"
#include "kernels/short_conv/short_conv_ref.h"
#include "kernels/swiglu/swiglu_ref.h"
#include "model/mixers/attention.h"
#include "model/mixers/fast_weight.h"

namespace braid {
namespace {

template <class T>
using Row = std::vector<T>;

template <class T>
struct Matrix {
  size_t rows = 0, cols = 0;
  std::vector<T> data;

  Row<T> operator()(const Row<T>& x) const {  // W x, sums from left to right
    Row<T> y(rows);
    ref::matmul<T, T>(MatmulForm::kNT, 1, rows, cols, x.data(), cols, data.data(), cols, y.data(), rows,
                      Into::kOverwrite);
    return y;
  }
};

// Parameters by name, rounded to T.
template <class T>
struct Weights {
  const Model& model;
  Matrix<T> operator()(const std::string& name) const {
    const ParamSet& params = model.params();
    for (size_t i = 0; i < params.all().size(); ++i)
      if (params[i].name == name) {
        const Mat<const float> m = params.mat(i);
        Matrix<T> out{m.rows, m.cols, {}};
        for (size_t x = 0; x < m.count(); ++x) out.data.push_back(T(m.data[x]));
        return out;
      }
    check(false, "NumberModel: there is no parameter " + name);
    return {};
  }
};

template <class T>
struct Memories {  // of one layer
  std::vector<T> fast, conv, keys, values;
  std::vector<T> query;  // the last one, for pictures
};

template <class T>
class NumberLayer {
 public:
  virtual ~NumberLayer() = default;
  virtual Row<T> mix(const Row<T>& x, int64_t position, Memories<T>& memory) const = 0;
  virtual std::vector<double> weights(size_t, const Memories<T>&) const { return {}; }
};

template <class T>
void rms_norm(const Row<T>& w, T eps, T offset, size_t groups, Row<T>& x) {
  const size_t n = x.size() / groups;
  const Row<T> before = x;
  for (size_t g = 0; g < groups; ++g)
    ref::rmsnorm_fwd<T>(&before[g * n], &w[w.size() == n ? 0 : g * n], nullptr, &x[g * n], nullptr, n, eps,
                        offset);
}

// A causal convolution of q, k and v, side by side; `tail` is what the next token needs of those before it.
template <class T>
void convolve(const Matrix<T>& taps, bool silu, Row<T>& q, Row<T>& k, Row<T>& v, std::vector<T>& tail) {
  Row<T> all = q;
  all.insert(all.end(), k.begin(), k.end()), all.insert(all.end(), v.begin(), v.end());
  if (tail.empty()) tail.assign(all.size() * (taps.cols - 1), T(0));
  const Row<T> in = all;
  const std::vector<T> before = tail;
  ref::short_conv_fwd<T>({1, all.size(), taps.cols, silu}, in.data(), taps.data.data(), before.data(),
                         all.data(), tail.data());
  std::copy_n(all.begin(), q.size(), q.begin());
  std::copy_n(all.begin() + static_cast<ptrdiff_t>(q.size()), k.size(), k.begin());
  std::copy_n(all.end() - static_cast<ptrdiff_t>(v.size()), v.size(), v.begin());
}

// Notes the settings that are not what the references here compute.
class Unknown {
 public:
  Unknown(std::string where, std::vector<Problem>& out) : where_(std::move(where)), out_(out) {}
  void operator()(bool other, const char* name, const std::string& value) {
    if (other) out_.push_back({where_ + "." + name, "is " + value, "the theory's models do without"});
  }

 private:
  std::string where_;
  std::vector<Problem>& out_;
};

// ---- Fast weights

template <class T>
class FastLayer final : public NumberLayer<T> {
 public:
  FastLayer(const FastWeightConfig& c, const Weights<T>& w, const std::string& at)
      : heads_(static_cast<size_t>(c.heads)),
        key_heads_(static_cast<size_t>(c.key_heads)),
        dk_(static_cast<size_t>(c.head_dim)),
        dv_(static_cast<size_t>(c.value_dim)),
        conv_(c.conv > 0),
        decays_(c.rule.decay == RuleDecay::kToken),
        l2_(c.features.feature_norm == FeatureNorm::kL2),
        normed_(c.output.out_norm == OutNorm::kHead),
        gate_(c.output.gate),
        feature_(c.features.feature),
        value_feature_(c.features.value_feature),
        beta_max_(c.rule.negative_eigenvalues ? 2 : 1),
        eps_(c.output.out_eps),
        q_(w(at + "q_proj.weight")),
        k_(w(at + "k_proj.weight")),
        v_(w(at + "v_proj.weight")),
        b_(w(at + "b_proj.weight")),
        o_(w(at + "o_proj.weight")) {
    if (conv_) taps_ = w(at + "conv1d.weight");
    if (decays_) a_ = w(at + "a_proj.weight"), a_log_ = w(at + "A_log").data, dt_ = w(at + "dt_bias").data;
    if (normed_) norm_ = w(at + "o_norm.weight").data;
    if (gate_ != OutGate::kNone) g_ = w(at + "g_proj.weight");
  }

  static void problems(const FastWeightConfig& c, const std::string& where, std::vector<Problem>& out) {
    Unknown unknown(where, out);
    unknown(c.rule.write != FastWeightWrite::kDelta, "write", "additive");
    unknown(c.rule.decay != RuleDecay::kNone && c.rule.decay != RuleDecay::kToken, "decay",
            rule_decays().word(c.rule.decay));
    unknown(c.rule.steps != 1, "steps", std::to_string(c.rule.steps));
    unknown(c.rope_theta != 0, "rope_theta", fmt::format("{}", c.rope_theta));
    unknown(c.normalise, "normalise", "true");
    unknown(c.features.feature_norm == FeatureNorm::kL1, "feature_norm", "l1");
    unknown(c.output.out_norm == OutNorm::kFull, "out_norm", "full");
    unknown(c.output.gate_rank != 0, "gate_rank", std::to_string(c.output.gate_rank));
  }

  Row<T> mix(const Row<T>& x, int64_t, Memories<T>& m) const override {
    Row<T> q = q_(x), k = k_(x), v = v_(x);
    const bool fused = conv_ && feature_ == Map::kSilu && value_feature_ == Map::kSilu;
    if (conv_) convolve(taps_, fused, q, k, v, m.conv);
    if (!fused) {
      for (T& e : q) e = ref::map(feature_, e);
      for (T& e : k) e = ref::map(feature_, e);
      for (T& e : v) e = ref::map(value_feature_, e);
    }
    if (l2_) l2_norm(q), l2_norm(k);
    Row<T> g(heads_), beta = b_(x);
    if (decays_) {
      const Row<T> a = a_(x);
      for (size_t h = 0; h < heads_; ++h)
        ref::delta_gates_fwd<T>(a[h], beta[h], a_log_[h], dt_[h], beta_max_, &g[h], &beta[h]);
    } else {
      for (T& b : beta) b = beta_max_ * ref::map(Map::kSigmoid, b);
    }
    if (m.fast.empty()) m.fast.assign(heads_ * dk_ * dv_, T(0));
    const ref::FastWeightDims<T> d{heads_,
                                   key_heads_,
                                   dk_,
                                   dv_,
                                   decays_ ? FastWeightDecay::kToken : FastWeightDecay::kNone,
                                   FastWeightWrite::kDelta,
                                   T(1.0 / std::sqrt(static_cast<double>(dk_)))};
    Row<T> o(heads_ * dv_);
    const std::vector<T> before = m.fast;
    ref::fast_weight_fwd<T>(
        d, 1, {q.data(), k.data(), v.data(), decays_ ? g.data() : nullptr, beta.data(), before.data()},
        o.data(), m.fast.data());
    return o_(finish(x, o));
  }

 private:
  void l2_norm(Row<T>& x) const {
    const Row<T> before = x;
    for (size_t h = 0; h < key_heads_; ++h)
      ref::l2norm_fwd<T>(&before[h * dk_], &x[h * dk_], nullptr, dk_, T(1e-6));
  }
  Row<T> finish(const Row<T>& x, const Row<T>& o) const {
    Row<T> y = o, z;
    if (gate_ != OutGate::kNone) z = g_(x);
    if (normed_) {
      const ref::RmsNormGating f{.gate =
                                     gate_ == OutGate::kSilu ? RmsNormGate::kSilu : RmsNormGate::kSigmoid};
      for (size_t h = 0; h < heads_; ++h)
        ref::rmsnorm_fwd<T>(&o[h * dv_], norm_.data(), z.empty() ? nullptr : &z[h * dv_], &y[h * dv_],
                            nullptr, dv_, eps_, T(0), f);
    } else if (!z.empty()) {
      ref::swiglu_fwd<T>(gate_ == OutGate::kSilu ? Gate::kSilu : Gate::kSigmoid, z.data(), o.data(), y.data(),
                         y.size());
    }
    return y;
  }

  size_t heads_, key_heads_, dk_, dv_;
  bool conv_, decays_, l2_, normed_;
  OutGate gate_;
  Map feature_, value_feature_;
  T beta_max_, eps_;
  Matrix<T> q_, k_, v_, b_, o_, a_, g_, taps_;
  Row<T> a_log_, dt_, norm_;
};

// ---- Attention

// Whether every number is finite, so that 0 times anything is 0.
template <class T>
constexpr bool kAlwaysFinite = !std::is_floating_point_v<T>;

template <class T>
class AttentionLayer final : public NumberLayer<T> {
 public:
  AttentionLayer(const AttentionConfig& c, const ModelConfig& model, const Weights<T>& w,
                 const std::string& at)
      : heads_(static_cast<size_t>(c.heads)),
        kv_heads_(static_cast<size_t>(c.kv_heads)),
        dk_(static_cast<size_t>(c.head_dim)),
        rot_(static_cast<size_t>(c.rotary_dim)),
        theta_(c.rope_theta),
        conv_(c.conv > 0),
        gated_(c.gate == AttentionGate::kSigmoid),
        dims_{heads_,
              kv_heads_,
              dk_,
              dk_,
              static_cast<size_t>(c.window),
              T(1.0 / std::sqrt(static_cast<double>(dk_)))},
        eps_(c.qk_eps),
        offset_(model.zero_centred_norms ? 1 : 0),
        q_(w(at + "q_proj.weight")),
        k_(w(at + "k_proj.weight")),
        v_(w(at + "v_proj.weight")),
        o_(w(at + "o_proj.weight")) {
    if (conv_) taps_ = w(at + "conv1d.weight");
    if (gated_) g_ = w(at + "g_proj.weight");
    if (c.qk_norm == QkNorm::kHead)
      q_norm_ = w(at + "q_norm.weight").data, k_norm_ = w(at + "k_norm.weight").data;
  }

  static void problems(const AttentionConfig& c, const std::string& where, std::vector<Problem>& out) {
    Unknown unknown(where, out);
    unknown(c.bias != AttentionBias::kNone, "bias", attention_biases().word(c.bias));
    unknown(c.qk_norm == QkNorm::kFull, "qk_norm", "full");
    unknown(c.scaling.scaling != RopeKind::kNone, "rope_scaling", rope_kinds().word(c.scaling.scaling));
  }

  Row<T> mix(const Row<T>& x, int64_t position, Memories<T>& m) const override {
    Row<T> q = q_(x), k = k_(x), v = v_(x), z;
    if (conv_) convolve(taps_, /*silu=*/false, q, k, v, m.conv);
    if (!q_norm_.empty())
      rms_norm(q_norm_, eps_, offset_, heads_, q), rms_norm(k_norm_, eps_, offset_, kv_heads_, k);
    if (theta_ > 0) rotate(position, heads_, q), rotate(position, kv_heads_, k);
    m.keys.insert(m.keys.end(), k.begin(), k.end());
    m.values.insert(m.values.end(), v.begin(), v.end());
    m.query = q;
    Row<T> o(heads_ * dk_), y(o.size());
    if (gated_) z = g_(x);
    // Behind gates that are all exactly zero nothing can be seen of what attention gives.
    bool seen = !gated_ || !kAlwaysFinite<T>;
    for (size_t i = 0; !seen && i < z.size(); ++i) seen = ref::map(Map::kSigmoid, z[i]) != T(0);
    if (!seen) return o_(y);
    ref::attention_fwd<T>(dims_, q.data(), m.keys.data(), m.values.data(), 1, keys(m), position, nullptr,
                          o.data(), nullptr);
    if (!gated_) return o_(o);
    ref::swiglu_fwd<T>(Gate::kSigmoid, z.data(), o.data(), y.data(), y.size());
    return o_(y);
  }

  // Reads one-hot values: what comes out are the weights.
  std::vector<double> weights(size_t head, const Memories<T>& m) const override {
    const size_t n = keys(m), hk = dims_.kv_head(head);
    Row<T> q(m.query.begin() + static_cast<ptrdiff_t>(head * dk_),
             m.query.begin() + static_cast<ptrdiff_t>((head + 1) * dk_)),
        k, v(n * n), o(n);
    for (size_t j = 0; j < n; ++j) {
      const T* row = &m.keys[(j * kv_heads_ + hk) * dk_];
      k.insert(k.end(), row, row + dk_);
      v[j * n + j] = T(1);
    }
    const ref::AttentionDims<T> d{1, 1, dk_, n, dims_.window, dims_.scale};
    ref::attention_fwd<T>(d, q.data(), k.data(), v.data(), 1, n, static_cast<int64_t>(n) - 1, nullptr,
                          o.data(), nullptr);
    std::vector<double> out;
    for (const T p : o) out.push_back(static_cast<double>(p));
    return out;
  }

 private:
  size_t keys(const Memories<T>& m) const { return m.keys.size() / (kv_heads_ * dk_); }
  void rotate(int64_t position, size_t heads, Row<T>& x) const {
    Row<T> cos, sin;
    for (size_t i = 0; i < rot_ / 2; ++i) {
      const double angle = static_cast<double>(position) *
                           std::pow(theta_, -2.0 * static_cast<double>(i) / static_cast<double>(rot_));
      cos.push_back(T(std::cos(angle))), sin.push_back(T(std::sin(angle)));
    }
    for (size_t h = 0; h < heads; ++h)
      ref::rope_fwd<T>(&x[h * dk_], cos.data(), sin.data(), &x[h * dk_], rot_, dk_);
  }

  size_t heads_, kv_heads_, dk_, rot_;
  double theta_;
  bool conv_, gated_;
  ref::AttentionDims<T> dims_;
  T eps_, offset_;
  Matrix<T> q_, k_, v_, o_, g_, taps_;
  Row<T> q_norm_, k_norm_;
};

// ---- The stack

template <class T>
struct Block {
  NormPlace norm;
  Row<T> mixer_norm, mlp_norm;
  std::unique_ptr<NumberLayer<T>> mixer;
  Matrix<T> gate, up, down;  // SwiGLU, or empty
};

template <class T>
struct Stack {
  size_t d;
  T eps, offset;
  Matrix<T> embedding, head;
  Row<T> final_norm;
  std::vector<Block<T>> blocks;
};

template <class T>
class Run final : public NumberRun {
 public:
  explicit Run(std::shared_ptr<const Stack<T>> stack)
      : stack_(std::move(stack)), memories_(stack_->blocks.size()) {}

  void feed(int32_t token) override {
    const Stack<T>& s = *stack_;
    const T* row = &s.embedding.data[static_cast<size_t>(token) * s.d];
    x_.assign(row, row + s.d);
    for (size_t i = 0; i < s.blocks.size(); ++i) {
      const Block<T>& b = s.blocks[i];
      beside(b, b.mixer_norm, [&](const Row<T>& x) { return b.mixer->mix(x, position_, memories_[i]); });
      if (b.down.rows == 0) continue;
      beside(b, b.mlp_norm, [&](const Row<T>& x) {
        const Row<T> g = b.gate(x), u = b.up(x);
        Row<T> y(g.size());
        ref::swiglu_fwd<T>(Gate::kSilu, g.data(), u.data(), y.data(), y.size());
        return b.down(y);
      });
    }
    ++position_;
  }

  std::vector<double> logits() const override {
    Row<T> x = x_;
    rms_norm(stack_->final_norm, stack_->eps, stack_->offset, 1, x);
    return doubles(stack_->head(x));
  }
  std::vector<double> residual() const override { return doubles(x_); }
  std::vector<double> state() const override {
    std::vector<double> out;
    for (const Memories<T>& m : memories_)
      for (const std::vector<T>* part : {&m.fast, &m.conv, &m.keys, &m.values})
        for (const T x : *part) out.push_back(static_cast<double>(x));
    return out;
  }
  std::vector<double> attention(size_t layer, size_t head) const override {
    return stack_->blocks[layer].mixer->weights(head, memories_[layer]);
  }
  std::unique_ptr<NumberRun> copy() const override { return std::make_unique<Run>(*this); }

 private:
  static std::vector<double> doubles(const Row<T>& x) {
    std::vector<double> out;
    out.reserve(x.size());
    for (const T e : x) out.push_back(static_cast<double>(e));
    return out;
  }
  template <class F>
  void beside(const Block<T>& b, const Row<T>& norm, const F& branch) {
    Row<T> x = x_;
    if (b.norm == NormPlace::kPre) rms_norm(norm, stack_->eps, stack_->offset, 1, x);
    Row<T> y = branch(x);
    if (b.norm == NormPlace::kPost) rms_norm(norm, stack_->eps, stack_->offset, 1, y);
    for (size_t i = 0; i < y.size(); ++i) x_[i] += y[i];
  }

  std::shared_ptr<const Stack<T>> stack_;
  std::vector<Memories<T>> memories_;
  Row<T> x_;
  int64_t position_ = 0;
};

template <class T>
class Made final : public NumberModel {
 public:
  explicit Made(const Model& model) {
    const ModelConfig& c = model.config();
    const Weights<T> w{model};
    auto s = std::make_shared<Stack<T>>();
    s->d = static_cast<size_t>(c.d_model), s->eps = T(c.norm_eps),
    s->offset = T(c.zero_centred_norms ? 1 : 0);
    s->embedding = w("embedding.weight");
    s->head = c.tie_embeddings ? s->embedding : w("head.weight");
    s->final_norm = w("final_norm.weight").data;
    for (int64_t i = 0; i < c.n_layers; ++i) {
      const LayerConfig& l = c.layer(static_cast<size_t>(i));
      const std::string at = fmt::format("layers.{}.", i);
      Block<T> b;
      b.norm = l.norm;
      if (l.norm != NormPlace::kNone) b.mixer_norm = w(at + "mixer_norm.weight").data;
      if (const std::optional<AttentionConfig> attention = l.mixer.settings<AttentionConfig>(c))
        b.mixer = std::make_unique<AttentionLayer<T>>(*attention, c, w, at + "mixer.");
      else
        b.mixer = std::make_unique<FastLayer<T>>(*l.mixer.settings<FastWeightConfig>(c), w, at + "mixer.");
      if (l.mlp.as<SwigluConfig>()) {
        b.gate = w(at + "mlp.gate_proj.weight"), b.up = w(at + "mlp.up_proj.weight");
        b.down = w(at + "mlp.down_proj.weight");
        if (l.norm != NormPlace::kNone) b.mlp_norm = w(at + "mlp_norm.weight").data;
      }
      s->blocks.push_back(std::move(b));
    }
    stack_ = std::move(s);
  }
  std::unique_ptr<NumberRun> start() const override { return std::make_unique<Run<T>>(stack_); }

 private:
  std::shared_ptr<const Stack<T>> stack_;
};

std::vector<Problem> not_covered(const ModelConfig& c) {
  std::vector<Problem> out;
  for (size_t i = 0; i < c.pattern.size(); ++i) {
    const LayerConfig& l = c.pattern[i];
    const std::string where = fmt::format("pattern[{}]", i);
    if (const std::optional<AttentionConfig> attention = l.mixer.settings<AttentionConfig>(c))
      AttentionLayer<double>::problems(*attention, where + ".mixer", out);
    else if (const std::optional<FastWeightConfig> fast = l.mixer.settings<FastWeightConfig>(c))
      FastLayer<double>::problems(*fast, where + ".mixer", out);
    else
      out.push_back(
          {where + ".mixer.type", "is " + l.mixer.type(), "use attention, deltanet or gated_deltanet"});
    const SwigluConfig* const swiglu = l.mlp.as<SwigluConfig>();
    if (!l.mlp.as<NoMlp>() && (!swiglu || swiglu->bias))
      out.push_back({where + ".mlp", fmt::format("is {}{}", l.mlp.type(), swiglu ? " with biases" : ""),
                     "use swiglu without biases, or none"});
  }
  return out;
}

template <int s>
std::unique_ptr<NumberModel> with_tie(const Model& model, Tie tie) {
  if (tie == Tie::kZero) return std::make_unique<Made<Fixed<s, Tie::kZero>>>(model);
  if (tie == Tie::kAway) return std::make_unique<Made<Fixed<s, Tie::kAway>>>(model);
  return std::make_unique<Made<Fixed<s, Tie::kEven>>>(model);
}

}  // namespace

double Arithmetic::largest() const { return std::ldexp(1.0, s) - std::ldexp(1.0, -s); }

const char* tie_name(Tie tie) { return tie == Tie::kZero ? "zero" : tie == Tie::kEven ? "even" : "away"; }

std::string Arithmetic::text() const {
  return s == 0 ? "float" : s < 0 ? "double" : fmt::format("F_{}, ties to {}", s, tie_name(tie));
}

Result<std::unique_ptr<NumberModel>> NumberModel::make(const Model& model, const Arithmetic& a) {
  if (const std::vector<Problem> problems = not_covered(model.config()); !problems.empty())
    return to_error("this model cannot run in another arithmetic", problems);
  switch (a.s) {
    case -1:
      return std::unique_ptr<NumberModel>(std::make_unique<Made<double>>(model));
    case 0:
      return std::unique_ptr<NumberModel>(std::make_unique<Made<float>>(model));
    case 2:
      return with_tie<2>(model, a.tie);
    case 3:
      return with_tie<3>(model, a.tie);
    case 4:
      return with_tie<4>(model, a.tie);
    case 6:
      return with_tie<6>(model, a.tie);
    case 8:
      return with_tie<8>(model, a.tie);
    case 12:
      return with_tie<12>(model, a.tie);
    default:
      return Error{fmt::format("F_{} is not compiled", a.s), "use s = 2, 3, 4, 6, 8 or 12"};
  }
}

Best best(std::span<const double> logits) {
  Best out{0, 0};
  double second = -HUGE_VAL;
  for (size_t i = 1; i < logits.size(); ++i) {
    const double top = logits[static_cast<size_t>(out.token)];
    if (logits[i] > top)
      second = top, out.token = static_cast<int32_t>(i);
    else
      second = std::max(second, logits[i]);
  }
  out.margin = logits[static_cast<size_t>(out.token)] - second;
  return out;
}

}  // namespace braid
