// DeltaFormer, arXiv:2505.19488: softmax attention whose values are first corrected by what the memory
// already answers to a token's key.
#include <cmath>

#include "kernels/delta_former/names.h"
#include "model/mixers/attend.h"
#include "model/mixers/heads.h"
#include "model/mixers/registry.h"
#include "model/mixers/remember.h"

namespace braid {
namespace {

enum class Rounding : uint8_t { kInteger, kTwoDecimals };
enum class Strength : uint8_t { kOne, kZero, kGate, kGates };
enum class KeyNorm : uint8_t { kNone, kL2 };

Choices<DeltaKind> delta_kinds() {
  std::vector<Choice<DeltaKind>> all;
  for (const std::string& name : delta_kind_names()) all.push_back({name, delta_kind(name)});
  return Choices<DeltaKind>(std::move(all));
}

struct DeltaFormerConfig {
  int64_t heads = 4, head_dim = 0;
  double rope_theta = 10000;
  DeltaKind kappa1 = DeltaKind::kSoftmax, kappa2 = DeltaKind::kSoftmax;
  DeltaSimilarity similarity = DeltaSimilarity::kKey;
  Rounding round = Rounding::kTwoDecimals;
  Strength strength = Strength::kOne;
  KeyNorm key_norm = KeyNorm::kNone;
  bool straight_through = true;
  template <class V>
  void visit(V& v) {
    v("heads", heads, {1, 4096}, "heads");
    v("head_dim", head_dim, {0, 512}, "elements per head; 0 = d_model / heads");
    v("rope_theta", rope_theta, {0, 1e12}, "base of the rotary embedding; 0 = no positions (NoPE)");
    v("kappa1", kappa1, delta_kinds(), "kernel of writing");
    v("kappa2", kappa2, delta_kinds(), "kernel of reading");
    v("similarity", similarity, {{"kk", DeltaSimilarity::kKey}, {"qk", DeltaSimilarity::kQuery}},
      "writing compares keys with keys (the paper) or with queries (fla)");
    v("round", round, {{"int", Rounding::kInteger}, {"2dp", Rounding::kTwoDecimals}},
      "resolution of the kernel round: integers or two decimals");
    v("straight_through", straight_through, "slope 1 for the gradient of a rounding instead of 0");
    v("strength", strength,
      {{"one", Strength::kOne},
       {"zero", Strength::kZero},
       {"gate", Strength::kGate},
       {"gates", Strength::kGates}},
      "b, share of the prediction that is subtracted: 1, 0 (softmax attention), a sigmoid per head and "
      "token, or a second one for the value, too");
    v("key_norm", key_norm, {{"none", KeyNorm::kNone}, {"l2", KeyNorm::kL2}},
      "normalisation of the keys; required by kernels other than softmax");
  }
};

DeltaKernel kernel(const DeltaFormerConfig& c, DeltaKind kind) {
  return delta_kernel(kind, static_cast<size_t>(c.head_dim), c.round == Rounding::kInteger ? 1.0f : 100.0f,
                      c.straight_through);
}

class DeltaFormer : public Mixer {
 public:
  using Config = DeltaFormerConfig;

  static Config resolve(Config c, const ModelConfig& model) {
    if (c.head_dim == 0) c.head_dim = model.d_model / c.heads;
    return c;
  }

  static void validate(const Config& c, const std::string& where, const ModelConfig& model,
                       std::vector<Problem>& problems) {
    check_rotated(check_head_dim(c.heads, c.head_dim, where, model, problems), c.rope_theta, where, problems);
  }

  DeltaFormer(const DeltaFormerConfig& c, const ModelConfig& model, Declare declare)
      : c_(c),
        shape_{.heads = static_cast<size_t>(c.heads),
               .dk = static_cast<size_t>(c.head_dim),
               .dv = static_cast<size_t>(c.head_dim),
               .write = kernel(c, c.kappa1),
               .read = kernel(c, c.kappa2),
               .similarity = c.similarity} {
    const size_t width = c.heads * c.head_dim, d = model.d_model;
    q_ = declare.matrix("q_proj.weight", width, d);
    k_ = declare.matrix("k_proj.weight", width, d);
    v_ = declare.matrix("v_proj.weight", width, d);
    if (c.strength == Strength::kGate || c.strength == Strength::kGates)
      b_ = declare.precise().matrix("b_proj.weight", c.heads, d);
    o_ = declare.matrix("o_proj.weight", d, width, Init::kOutput);
    if (c.rope_theta > 0) rope_ = std::make_unique<RopeTable>(c.head_dim, c.rope_theta);
  }

  Var forward(const MixerCall& call) const override {
    Exec& e = call.exec;
    const size_t ws[] = {q_, k_, v_}, width = shape_.heads * shape_.dk;
    auto [q, k, v] = split<3>(e, linear_concat(e, call.input, ws), {width, width, width});
    if (c_.key_norm == KeyNorm::kL2) k = l2norm(e, k, shape_.heads);
    const Qk qk =
        qk_prepare(e, q, k, call.positions,
                   {.heads = shape_.heads, .kv_heads = shape_.heads, .dk = shape_.dk, .rope = rope_.get()});
    DeltaFormerVars in{.q = qk.q, .k = qk.k, .v = v, .a = {}, .b = {}};
    if (c_.strength == Strength::kZero) {
      in.b = e.result_like(q, shape_.heads, false);
      std::fill_n(in.b.v.data, in.b.v.count(), 0.0f);
    } else if (c_.strength != Strength::kOne) {
      in.b = map(e, linear(e, call.input, b_), Map::kSigmoid);
      if (c_.strength == Strength::kGates) in.a = in.b;
    }
    return linear(e, remembered(call, in), o_, call.residual);
  }

  double flops_per_token(int64_t length) const override { return 2 * attend_flops(like_attention(), length); }
  StateSize state_size(int64_t length) const override {
    return {.memory = attend_numbers(like_attention(), length)};
  }

 private:
  AttentionShape like_attention() const {
    return {.heads = shape_.heads, .kv_heads = shape_.heads, .dk = shape_.dk, .dv = shape_.dv};
  }

  // With states the cache holds keys and what was written, u, in the place of values.
  Var remembered(const MixerCall& call, const DeltaFormerVars& in) const {
    Exec& e = call.exec;
    if (call.states.empty()) return delta_former(e, shape_, in, call.offsets).o;
    // Of a few tokens each is written before the next one looks, so that it gets the bits of a pass of its
    // own.
    if (in.q.v.rows <= kSkinnyRows) return one_by_one(call, in);
    const DeltaFormerResult r = with_past(e, in, call.offsets, call.states);
    for (size_t i = 0; i < call.states.size(); ++i)
      append_kv(call, i, in.k.v.row_range(call.offsets[i], call.offsets[i + 1]),
                r.u.row_range(call.offsets[i], call.offsets[i + 1]), 0);
    return r.o;
  }

  DeltaFormerResult with_past(Exec& e, const DeltaFormerVars& in, std::span<const uint32_t> offsets,
                              std::span<LayerState* const> states) const {
    std::vector<std::vector<KvSegment>> segments(states.size());
    std::vector<std::span<const KvSegment>> past;
    for (size_t i = 0; i < states.size(); ++i) {
      states[i]->kv.segments(segments[i]);
      past.emplace_back(segments[i]);
    }
    return delta_former(e, shape_, in, offsets, past);
  }

  Var one_by_one(const MixerCall& call, const DeltaFormerVars& in) const {
    Exec e = call.exec.every_row();
    const Var o = e.result(in.q.v.rows, shape_.heads * shape_.dv);
    const uint32_t one[] = {0, 1};
    for (size_t i = 0; i < call.states.size(); ++i)
      for (uint32_t t = call.offsets[i]; t < call.offsets[i + 1]; ++t) {
        const auto row = [t](Var x) { return x.present() ? Var{x.v.row_range(t, t + 1)} : x; };
        const DeltaFormerResult r = with_past(e, {row(in.q), row(in.k), row(in.v), row(in.a), row(in.b)}, one,
                                              call.states.subspan(i, 1));
        std::copy_n(r.o.v.data, r.o.v.cols, o.v.row(t));
        call.states[i]->kv.append(row(in.k).v, r.u);
      }
    return with_rows(call.exec, o, call.exec.output_rows());
  }

  DeltaFormerConfig c_;
  DeltaFormerShape shape_;
  size_t q_, k_, v_, b_ = 0, o_;
  std::unique_ptr<RopeTable> rope_;
};

}  // namespace

MixerEntry deltaformer_entry() {
  return mixer_entry<DeltaFormer>("deltaformer",
                                  "DeltaFormer: attention with a delta rule on its key-value memory", {},
                                  "arXiv:2505.19488");
}

}  // namespace braid
