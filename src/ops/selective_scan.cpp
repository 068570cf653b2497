#include "kernels/selective_scan/selective_scan.h"

#include <fmt/format.h>

#include "ops/op.h"

namespace braid {
namespace {

void validate(const OpCall& c, std::vector<Problem>& problems) {
  if (c.dim("N") > kSelectiveScanMaxState)
    problems.push_back({"A", fmt::format("has N = {}", c.dim("N")),
                        fmt::format("give 1 to {} states per channel", kSelectiveScanMaxState)});
}

void run(OpCall& c) {
  const size_t D = c.dim("D"), N = c.dim("N");
  const SelectiveScanIn in{.x = c.tokens("x"),
                           .dt = c.tokens("dt"),
                           .A = c.data("A"),
                           .B = c.tokens("Bm"),
                           .C = c.tokens("Cm"),
                           .skip = c.data("Dskip"),
                           .offsets = c.offsets(),
                           .h0 = c.data("h0"),
                           .low = c.word("negative") == "1" ? -1.0f : 0.0f};
  const Mat<float> y = c.tokens_out("y");
  float* h = c.data_out("h");
  if (c.form() == "step") {
    if (in.h0) std::copy_n(in.h0, c.dim("B") * D * N, h);
    for (size_t s = 0; s < in.seqs(); ++s)
      for (size_t t = c.offsets()[s]; t < c.offsets()[s + 1]; ++t) {
        float* const states[] = {h + s * D * N};
        const auto row = [&](auto m) { return m.row_range(t, t + 1); };
        selective_scan_step({.x = row(in.x),
                             .dt = row(in.dt),
                             .A = in.A,
                             .B = row(in.B),
                             .C = row(in.C),
                             .skip = in.skip,
                             .states = states,
                             .low = in.low},
                            row(y), c.par());
      }
    return;
  }
  selective_scan_fwd(in, y, h, c.par());
  if (!c.backward()) return;
  Tensor scratch(DType::kF32, {static_cast<int64_t>(selective_scan_bwd_scratch(D, N, c.offsets(), c.par()))});
  selective_scan_bwd(in, c.tokens("dy"), nullptr,
                     {.dx = c.tokens_out("dx"),
                      .ddt = c.tokens_out("ddt"),
                      .dB = c.tokens_out("dBm"),
                      .dC = c.tokens_out("dCm"),
                      .dA = c.data_out("dA"),
                      .dskip = c.data_out("dDskip"),
                      .dh0 = c.data_out("dh0")},
                     scratch.as<float>(), c.par());
}

}  // namespace

const CallableOp& selective_scan_op() {
  static const CallableOp op{
      "selective_scan",
      "the diagonal state-space recurrence of Mamba 1: h = exp(dt A) h + dt Bm x, y = Cm . h + Dskip x",
      {{"x", "B T D", OpNeed::kRequired, "the inputs"},
       {"dt", "B T D", OpNeed::kRequired, "the step sizes, after their softplus"},
       {"A", "D N", OpNeed::kRequired, "the rates, negative, not as a logarithm; N up to 64"},
       {"Bm", "B T N", OpNeed::kRequired, "what is written"},
       {"Cm", "B T N", OpNeed::kRequired, "what is read"},
       {"Dskip", "D", OpNeed::kRequired, "the factor on x that bypasses the state"},
       {"h0", "B D N", OpNeed::kOptional, "initial state, else zeros"},
       lengths_input(),
       {"dy", "B T D", OpNeed::kCotangent, "the gradient of y"}},
      {{"y", "B T D", "outputs"},
       {"h", "B D N", "state after the last token"},
       {"dx", "like x", "gradient of x", true},
       {"ddt", "like dt", "gradient of dt", true},
       {"dA", "like A", "gradient of A", true},
       {"dBm", "like Bm", "gradient of Bm", true},
       {"dCm", "like Cm", "gradient of Cm", true},
       {"dDskip", "like Dskip", "gradient of Dskip", true},
       {"dh0", "B D N", "gradient of the initial state", true}},
      {choice_setting("negative", "0", {"0", "1"},
                      "1: the factor on h is 2 exp(dt A) - 1 instead of exp(dt A)")},
      {{"recurrent", "token by token", true},
       {"step", "one call per token on a state that advances in place", false}},
      validate,
      run};
  return op;
}

}  // namespace braid
