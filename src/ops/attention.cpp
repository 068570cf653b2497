#include "kernels/attention/attention.h"

#include <fmt/format.h>

#include <cmath>

#include "ops/op.h"

namespace braid {
namespace {

void validate(const OpCall& c, std::vector<Problem>& problems) {
  if (c.dim("H") % c.dim("Hkv") != 0)
    problems.push_back({"q", fmt::format("has {} heads", c.dim("H")),
                        fmt::format("give a multiple of the {} heads of k", c.dim("Hkv"))});
}

void run(OpCall& c) {
  const size_t d = c.dim("d");
  const AttentionShape shape{
      .heads = c.dim("H"),
      .kv_heads = c.dim("Hkv"),
      .dk = d,
      .dv = d,
      .window = static_cast<size_t>(c.number("window")),
      .scale = static_cast<float>(c.is_set("scale") ? c.number("scale") : 1 / std::sqrt(d))};
  c.ran_by(attention_impl(shape, c.par()));
  const AttentionPacked in{c.tokens("q"), c.tokens("k"), c.tokens("v"), c.offsets()};
  const Mat<float> o = c.tokens_out("o");
  if (c.form() == "step") {  // the keys so far are the cache
    for (size_t s = 0; s < in.seqs(); ++s)
      for (size_t first = c.offsets()[s], t = first; t < c.offsets()[s + 1]; ++t) {
        const KvSegment cache{in.k.row(first), in.v.row(first), t - first + 1, 0, in.k.stride, in.v.stride};
        const AttentionSeq token{t, 1, static_cast<int64_t>(t - first), {&cache, 1}};
        attention_fwd(shape, in.q, {&token, 1}, o, nullptr, c.par());
      }
    return;
  }
  Tensor lse(DType::kF32, {static_cast<int64_t>(c.rows() * shape.heads)});
  attention_packed_fwd(shape, in, o, lse.as<float>().data(), {}, c.par());
  if (!c.backward()) return;
  Tensor scratch(DType::kF32, {static_cast<int64_t>(attention_bwd_scratch(shape, c.offsets(), c.par()))});
  attention_packed_bwd(shape, in, {o, lse.as<float>().data()}, c.tokens("do"),
                       {c.tokens_out("dq"), c.tokens_out("dk"), c.tokens_out("dv")}, scratch.as<float>(),
                       c.par());
}

}  // namespace

const CallableOp& attention_op() {
  static const CallableOp op{
      "attention",
      "causal softmax attention with grouped queries and a sliding window",
      {{"q", "B T H d", OpNeed::kRequired, "the queries"},
       {"k", "B T Hkv d", OpNeed::kRequired,
        "the keys; Hkv divides H, query head h reads head h / (H / Hkv)"},
       {"v", "B T Hkv d", OpNeed::kRequired, "the values"},
       lengths_input(),
       {"do", "B T H d", OpNeed::kCotangent, "the gradient of o"}},
      {{"o", "B T H d", "outputs"},
       {"dq", "like q", "gradient of q", true},
       {"dk", "like k", "gradient of k", true},
       {"dv", "like v", "gradient of v", true}},
      {whole_setting("window", "0", 0, 1e15,
                     "a query sees itself and the window - 1 tokens before it; 0 = all"),
       number_setting("scale", "", -1e30, 1e30, "factor on the scores; default d^-1/2")},
      {{"chunk", "whole sequences in tiles, no T x T matrix", true},
       {"step", "one query at a time over the keys so far", false}},
      validate,
      run};
  return op;
}

}  // namespace braid
