#include "kernels/delta_former/delta_former.h"

#include <fmt/format.h>

#include "ops/op.h"
#include "kernels/delta_former/names.h"

namespace braid {
namespace {

DeltaFormerShape shape_of(const OpCall& c) {
  const size_t d = c.dim("d");
  const auto kernel = [&](const std::string& name) {
    return delta_kernel(delta_kind(name), d, c.word("round") == "int" ? 1.0f : 100.0f, c.word("ste") == "1");
  };
  const std::string &kappa1 = c.word("kappa1"), &kappa2 = c.word("kappa2");
  return {.heads = c.dim("H"),
          .dk = d,
          .dv = d,
          .write = kernel(kappa1),
          .read = kernel(kappa2 == "kappa1" ? kappa1 : kappa2),
          .similarity = c.word("similarity") == "kk" ? DeltaSimilarity::kKey : DeltaSimilarity::kQuery,
          .solve = c.word("solve") == "product" ? DeltaSolve::kProduct : DeltaSolve::kSubstitution,
          .chunk = static_cast<size_t>(c.number("chunk"))};
}

void run(OpCall& c) {
  const DeltaFormerShape shape = shape_of(c);
  const auto memory = [](size_t n) { return Tensor(DType::kF32, {static_cast<int64_t>(n)}); };
  DeltaFormerIn in{c.tokens("q"), c.tokens("k"), c.tokens("v"), c.tokens("a"), c.tokens("b"), c.offsets()};
  const Mat<float> o = c.tokens_out("o"), u = c.tokens_out("u");
  Tensor scratch = memory(delta_former_fwd_scratch(shape, c.offsets(), c.par()));
  if (c.form() == "step") {  // the keys and u so far are the cache
    for (size_t s = 0; s + 1 < c.offsets().size(); ++s)
      for (uint32_t first = c.offsets()[s], t = first; t < c.offsets()[s + 1]; ++t) {
        const uint32_t token[] = {t, t + 1};
        const KvSegment cache{in.k.row(first), u.row(first), t - first, 0, in.k.stride, u.stride};
        const std::span<const KvSegment> past(&cache, 1);
        DeltaFormerIn one = in;
        one.offsets = token, one.past = {&past, 1};
        delta_former_fwd(shape, one, {.o = o, .u = u}, scratch.as<float>(), c.par());
      }
    return;
  }
  if (!c.backward()) return delta_former_fwd(shape, in, {.o = o, .u = u}, scratch.as<float>(), c.par());
  Tensor m(DType::kF32, {static_cast<int64_t>(u.rows), static_cast<int64_t>(u.cols)});
  Tensor lse_write = memory(c.rows() * shape.heads), lse_read = memory(c.rows() * shape.heads);
  float *const w = lse_write.as<float>().data(), *const r = lse_read.as<float>().data();
  const Mat<float> sums(m.as<float>().data(), u.rows, u.cols);
  delta_former_fwd(shape, in, {o, u, sums, w, r}, scratch.as<float>(), c.par());
  scratch = memory(delta_former_bwd_scratch(shape, c.offsets(), c.par()));
  delta_former_bwd(
      shape, in, {o, u, sums, w, r}, c.tokens("do"), {},
      {c.tokens_out("dq"), c.tokens_out("dk"), c.tokens_out("dv"), c.tokens_out("da"), c.tokens_out("db")},
      scratch.as<float>(), c.par());
}

}  // namespace

const CallableOp& delta_former_op() {
  static const CallableOp op{
      "delta_former",
      "u_t = a_t v_t - b_t sum_{i<t} kappa1(k_i, w_t) u_i, o_t = sum_{i<=t} kappa2(k_i, q_t) u_i; w = k or q",
      {{"q", "B T H d", OpNeed::kRequired, "the queries"},
       {"k", "B T H d", OpNeed::kRequired, "the keys"},
       {"v", "B T H d", OpNeed::kRequired, "the values"},
       {"a", "B T H", OpNeed::kOptional, "factor on v, else 1"},
       {"b", "B T H", OpNeed::kOptional, "factor on what is taken back, else 1"},
       lengths_input(),
       {"do", "B T H d", OpNeed::kCotangent, "the gradient of o"}},
      {{"o", "B T H d", "outputs"},
       {"u", "B T H d", "what was written to the memory"},
       {"dq", "like q", "gradient of q", true},
       {"dk", "like k", "gradient of k", true},
       {"dv", "like v", "gradient of v", true},
       {"da", "like a", "gradient of a, if given", true},
       {"db", "like b", "gradient of b, if given", true}},
      {choice_setting("kappa1", "softmax", delta_kind_names(),
                      "of writing; softmax is scaled by d^-1/2, the others are not"),
       choice_setting("kappa2", "softmax", {"softmax", "linear", "relu", "exp", "round", "kappa1"},
                      "of reading; kappa1: the same as that"),
       choice_setting("similarity", "kk", {"kk", "qk"},
                      "writing compares k with k (the paper) or with q (fla)"),
       choice_setting("round", "2dp", {"int", "2dp"}, "what round rounds to, ties to even"),
       choice_setting("ste", "1", {"0", "1"}, "gradient of round: 1 straight through, 0 none"),
       choice_setting("solve", "substitution", {"substitution", "product"},
                      "of a chunk's triangular system; product loses accuracy in long chunks"),
       whole_setting("chunk", "0", 0, kDeltaMaxChunk, "tokens per triangular system; 0 = chosen from d")},
      {{"chunk", "some tokens at a time, no T x T matrix", true},
       {"step", "one token at a time over the (k, u) cache", false}},
      nullptr,
      run};
  return op;
}

}  // namespace braid
