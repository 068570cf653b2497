#include <fmt/format.h>

#include <cmath>

#include "ops/op.h"
#include "kernels/fast_weight/fast_weight.h"
#include "kernels/l2norm/l2norm.h"

namespace braid {
namespace {

void validate(const OpCall& c, std::vector<Problem>& problems) {
  if (c.dim("Hv") % c.dim("Hk") != 0)
    problems.push_back({"v", fmt::format("has {} heads", c.dim("Hv")),
                        fmt::format("give a multiple of the {} heads of k", c.dim("Hk"))});
  if (c.number("chunk") > 0 && (c.form() == "recurrent" || c.form() == "step"))
    problems.push_back({c.setting("chunk"), "has no meaning for " + c.option("form") + " " + c.form(),
                        "use " + c.option("form") + " chunk"});
  if (c.word("precision") == "bf16" && (c.form() == "recurrent" || c.form() == "step"))
    problems.push_back({c.setting("precision"),
                        "bf16 has no meaning for " + c.option("form") + " " + c.form(),
                        "use " + c.option("form") + " chunk"});
}

FastWeightShape shape_of(const OpCall& c) {
  FastWeightShape s{.value_heads = c.dim("Hv"),
                    .key_heads = c.dim("Hk"),
                    .dk = c.dim("dk"),
                    .dv = c.dim("dv"),
                    .decay = FastWeightDecay::kNone,
                    .write = c.has("beta") ? FastWeightWrite::kDelta : FastWeightWrite::kAdditive};
  if (c.has("g"))
    s.decay = c.shape("g").rank() == 1   ? FastWeightDecay::kHead
              : c.shape("g").rank() == 3 ? FastWeightDecay::kToken
                                         : FastWeightDecay::kChannel;
  s.form = c.form() == "chunk"  ? FastWeightForm::kChunk
           : c.form() == "auto" ? FastWeightForm::kAuto
                                : FastWeightForm::kRecurrent;
  s.chunk = static_cast<size_t>(c.number("chunk"));
  s.precision = c.word("precision") == "bf16" ? Precision::kBf16 : Precision::kF32;
  s.scale = static_cast<float>(c.is_set("scale") ? c.number("scale") : 1 / std::sqrt(c.dim("dk")));
  return s;
}

// q or k scaled to length one, and how to get back.
struct Normed {
  L2NormIn in;
  Tensor y, rstd;
  Normed(const OpCall& c, const char* name) : in{.x = c.tokens(name), .groups = c.dim("Hk")} {
    const auto n = static_cast<int64_t>(in.x.rows);
    y = Tensor(DType::kF32, {n, static_cast<int64_t>(in.x.cols)});
    rstd = Tensor(DType::kF32, {n * static_cast<int64_t>(in.groups)});
    l2norm_fwd(in, mat(), rstd.as<float>().data(), c.par());
  }
  Mat<float> mat() { return {y.as<float>().data(), in.x.rows, in.x.cols}; }
  void backward(Mat<float> dx, Par par) {  // dx holds the gradient of y
    l2norm_bwd(in, {rstd.as<float>().data()}, dx, dx, Into::kOverwrite, par);
  }
};

void run(OpCall& c) {
  const FastWeightShape shape = shape_of(c);
  c.ran_by(fast_weight_impl(shape, c.par()));
  const std::vector<const float*> s0 = c.each("S0");
  const std::vector<float*> s_end = c.each_out("S");
  Mat<const float> g = c.has("g") && c.shape("g").rank() > 1 ? c.tokens("g") : Mat<const float>{};
  if (shape.decay == FastWeightDecay::kHead) g = {c.data("g"), 1, c.dim("Hv")};
  FastWeightIn in{c.tokens("q"), c.tokens("k"), c.tokens("v"), g, c.tokens("beta"), c.offsets(), s0};
  std::optional<Normed> q, k;
  if (c.word("l2norm") == "1") {
    in.q = q.emplace(c, "q").mat();
    in.k = k.emplace(c, "k").mat();
  }
  const Mat<float> o = c.tokens_out("o");
  if (c.form() == "step") {
    for (size_t s = 0; s < s_end.size(); ++s) {
      if (!s0.empty()) std::copy_n(s0[s], shape.value_heads * shape.dk * shape.dv, s_end[s]);
      for (uint32_t t = c.offsets()[s]; t < c.offsets()[s + 1]; ++t) {
        const uint32_t token[] = {t, t + 1};
        FastWeightIn one = in;
        one.offsets = token;
        const float* const state = s_end[s];
        one.s0 = {&state, 1};
        fast_weight_fwd(shape, one, o, {&s_end[s], 1}, {}, {}, c.par());
      }
    }
    return;
  }
  Tensor fwd_scratch(DType::kF32, {static_cast<int64_t>(fast_weight_fwd_scratch(shape, c.par()))});
  fast_weight_fwd(shape, in, o, s_end, {}, fwd_scratch.as<float>(), c.par());
  if (!c.backward()) return;
  const std::vector<const float*> ds_end = c.each("dS");
  const std::vector<float*> ds0 = c.each_out("dS0");
  FastWeightGrad grad{
      c.tokens_out("dq"), c.tokens_out("dk"), c.tokens_out("dv"), {}, c.tokens_out("dbeta"), ds0};
  if (g.data) grad.dg = {c.data_out("dg"), g.rows, g.cols};
  Tensor scratch(DType::kF32,
                 {static_cast<int64_t>(fast_weight_bwd_scratch(shape, c.offsets(), {}, c.par()))});
  fast_weight_bwd(shape, in, {}, c.tokens("do"), ds_end, grad, scratch.as<float>(), c.par());
  if (q) q->backward(grad.dq, c.par()), k->backward(grad.dk, c.par());
}

}  // namespace

const CallableOp& fast_weight_op() {
  static const CallableOp op{
      "fast_weight",
      "linear recurrence: S = exp(g) S + k u^T, o = scale S^T q; u = v or, with beta, beta (v - (exp(g) S)^T "
      "k)",
      {{"q", "B T Hk dk", OpNeed::kRequired, "the queries"},
       {"k", "B T Hk dk", OpNeed::kRequired, "the keys"},
       {"v", "B T Hv dv", OpNeed::kRequired,
        "the values; Hk divides Hv, value head h reads key head h / (Hv / Hk)"},
       {"g", "Hv | B T Hv | B T Hv dk", OpNeed::kOptional, "log-decay <= 0 per head, token or key channel"},
       {"beta", "B T Hv", OpNeed::kOptional, "write strength; makes it the delta rule"},
       {"S0", "B Hv dk dv", OpNeed::kOptional, "initial state, else zeros"},
       lengths_input(),
       {"do", "B T Hv dv", OpNeed::kCotangent, "the gradient of o"},
       {"dS", "B Hv dk dv", OpNeed::kOptionalCotangent, "the gradient of S, else zeros"}},
      {{"o", "B T Hv dv", "outputs"},
       {"S", "B Hv dk dv", "state after the last token"},
       {"dq", "like q", "gradient of q, through the norm if there is one", true},
       {"dk", "like k", "gradient of k, through the norm if there is one", true},
       {"dv", "like v", "gradient of v", true},
       {"dg", "like g", "gradient of g, if given", true},
       {"dbeta", "like beta", "gradient of beta, if given", true},
       {"dS0", "B Hv dk dv", "gradient of the initial state", true}},
      {whole_setting("chunk", "0", 0, kFastWeightMaxChunk,
                     fmt::format("tokens per chunk; 0 = {}, with precision bf16 32 or 64", kFastWeightChunk)),
       choice_setting("precision", "f32", {"f32", "bf16"},
                      "of the numbers that the chunk form multiplies; sums and states are f32"),
       number_setting("scale", "", -1e30, 1e30, "factor on q; default dk^-1/2"),
       choice_setting("l2norm", "0", {"0", "1"},
                      "1: q and k are first divided by sqrt(sum x^2 + 1e-6), per head")},
      {{"auto", "chunk or recurrent, whichever is faster for a sequence's length", true},
       {"chunk", "several tokens at a time, as matrix products", true},
       {"recurrent", "token by token", true},
       {"step", "one call per token on a state that advances in place", false}},
      validate,
      run};
  return op;
}

}  // namespace braid
