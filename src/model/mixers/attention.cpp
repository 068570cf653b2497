#include "model/mixers/attention.h"

#include <cmath>

namespace braid {
namespace {

// Zeros in the settings stand for values that follow from others.
AttentionConfig resolve(AttentionConfig c, const ModelConfig& model) {
  if (c.kv_heads == 0) c.kv_heads = c.heads;
  if (c.head_dim == 0) c.head_dim = model.d_model / c.heads;
  if (c.rotary_dim == 0) c.rotary_dim = c.head_dim;
  return c;
}

void validate(const Json& settings, const std::string& where, const ModelConfig& model,
              std::vector<Problem>& problems) {
  const size_t before = problems.size();
  const AttentionConfig raw = parse_fields<AttentionConfig>(settings, where, problems),
                        c = resolve(raw, model);
  if (problems.size() > before) return;
  if (raw.head_dim == 0 && model.d_model % c.heads != 0)
    problems.push_back({where + ".heads",
                        fmt::format("{} does not divide d_model {}", c.heads, model.d_model),
                        "give a divisor, or set head_dim"});
  if (c.heads % c.kv_heads != 0)
    problems.push_back({where + ".kv_heads", fmt::format("{} does not divide heads {}", c.kv_heads, c.heads),
                        "give a divisor of heads"});
  if (c.head_dim > 512)
    problems.push_back({where + ".head_dim", fmt::format("comes out at {}", c.head_dim),
                        "use more heads, so that it is at most 512"});
  if (c.rope_theta > 0 && (c.rotary_dim > c.head_dim || c.rotary_dim % 2 != 0))
    problems.push_back({where + ".rotary_dim",
                        fmt::format("is {} with head_dim {}", c.rotary_dim, c.head_dim),
                        "give an even number up to head_dim"});
}

class Attention : public Mixer {
 public:
  Attention(const AttentionConfig& c, const ModelConfig& model, Declare declare)
      : c_(c), eps_(model.norm_eps) {
    const size_t q = c.heads * c.head_dim, kv = c.kv_heads * c.head_dim, d = model.d_model;
    q_ = declare.matrix("q_proj.weight", q, d);
    k_ = declare.matrix("k_proj.weight", kv, d);
    v_ = declare.matrix("v_proj.weight", kv, d);
    o_ = declare.matrix("o_proj.weight", d, q, Init::kOutput);
    if (c.qk_norm != "none") {
      const bool head = c.qk_norm == "head";
      q_norm_ = static_cast<int>(declare.vector("q_norm.weight", head ? c.head_dim : q));
      k_norm_ = static_cast<int>(declare.vector("k_norm.weight", head ? c.head_dim : kv));
    }
    if (c.rope_theta > 0) rope_ = std::make_unique<RopeTable>(c.rotary_dim, c.rope_theta);
  }

  void prepare(int64_t positions) override {
    if (rope_) rope_->ensure(positions);
  }

  Var forward(const MixerCall& call) const override {
    Exec& e = call.exec;
    const size_t ws[] = {q_, k_, v_};
    Var qkv = linear_concat(e, call.x, ws);
    const AttentionShape shape{.heads = size(c_.heads),
                               .kv_heads = size(c_.kv_heads),
                               .dk = size(c_.head_dim),
                               .dv = size(c_.head_dim),
                               .window = size(c_.window),
                               .scale = 1.0f / std::sqrt(static_cast<float>(c_.head_dim))};
    qkv = qk_prepare(e, qkv, call.positions,
                     {.heads = shape.heads,
                      .kv_heads = shape.kv_heads,
                      .dk = shape.dk,
                      .dv = shape.dv,
                      .q_norm = q_norm_,
                      .k_norm = k_norm_,
                      .norm_heads = c_.qk_norm == "head",
                      .norm = {.eps = static_cast<float>(eps_)},
                      .rope = rope_.get()});
    const Var o = call.states.empty() ? attention(e, qkv, call.offsets, shape) : with_cache(call, qkv, shape);
    return linear(e, o, o_, call.residual);
  }

  double flops_per_token(int64_t length) const override {
    // Scores and weighted values over the visible half (or window) of the sequence.
    const double seen = c_.window ? std::min<double>(c_.window, (length + 1) / 2.0) : (length + 1) / 2.0;
    return 4.0 * c_.heads * c_.head_dim * seen;
  }

  size_t state_numbers(int64_t length) const override {
    const int64_t kept = c_.window ? std::min(c_.window, length) : length;
    return 2 * c_.kv_heads * c_.head_dim * kept;
  }

 private:
  static size_t size(int64_t x) { return static_cast<size_t>(x); }

  // New keys and values go to each sequence's cache, then its queries look at all of it.
  Var with_cache(const MixerCall& call, Var qkv, const AttentionShape& s) const {
    Exec& e = call.exec;
    check(!e.recording(), "attention: gradients through a cache are not recorded");
    const size_t q = s.heads * s.dk, k = s.kv_heads * s.dk, v = s.kv_heads * s.dv, n = call.states.size();
    std::vector<std::vector<KvSegment>> segments(n);
    std::vector<AttentionSeq> seqs;
    for (size_t i = 0; i < n; ++i) {
      const size_t begin = call.offsets[i], end = call.offsets[i + 1];
      KvCache& kv = call.states[i]->kv;
      const int64_t first = kv.end();
      kv.append(qkv.v.row_range(begin, end).col_range(q, q + k),
                qkv.v.row_range(begin, end).col_range(q + k, q + k + v));
      kv.segments(segments[i]);
      seqs.push_back({.begin = begin, .count = end - begin, .first = first, .kv = segments[i]});
    }
    const Var o = e.result(qkv.v.rows, s.heads * s.dv);
    attention_fwd(s, qkv.v.col_range(0, q), seqs, o.v, nullptr, e.par());
    for (LayerState* state : call.states) state->kv.drop_before_window(s.window);
    return o;
  }

  AttentionConfig c_;
  double eps_;
  size_t q_, k_, v_, o_;
  int q_norm_ = -1, k_norm_ = -1;
  std::unique_ptr<RopeTable> rope_;
};

std::unique_ptr<Mixer> make(const Json& settings, const ModelConfig& model, Declare declare) {
  std::vector<Problem> none;
  return std::make_unique<Attention>(resolve(parse_fields<AttentionConfig>(settings, "", none), model), model,
                                     declare);
}

}  // namespace

MixerEntry attention_entry() {
  return {"attention", "causal softmax attention: full or windowed, grouped queries, RoPE or none, QK-norm",
          validate, make, list_fields<AttentionConfig>};
}

}  // namespace braid
