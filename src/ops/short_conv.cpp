#include "kernels/short_conv/short_conv.h"

#include <fmt/format.h>

#include "ops/op.h"

namespace braid {
namespace {

void validate(const OpCall& c, std::vector<Problem>& problems) {
  if (c.dim("W") < kShortConvMinWidth || c.dim("W") > kShortConvMaxWidth)
    problems.push_back({"w", fmt::format("has W = {}", c.dim("W")),
                        fmt::format("give {} to {} taps", kShortConvMinWidth, kShortConvMaxWidth)});
}

void run(OpCall& c) {
  const size_t D = c.dim("D"), each = D * (c.dim("W") - 1);
  const ShortConvIn in{.x = c.tokens("x"),
                       .w = c.data("w"),
                       .width = c.dim("W"),
                       .offsets = c.offsets(),
                       .state = c.data("state"),
                       .silu = c.word("silu") == "1"};
  const Mat<float> y = c.tokens_out("y");
  float* state = c.data_out("state");
  if (c.form() == "step") {
    if (in.state) std::copy_n(in.state, c.dim("B") * each, state);
    for (size_t s = 0; s < in.seqs(); ++s)
      for (size_t t = c.offsets()[s]; t < c.offsets()[s + 1]; ++t) {
        float* const states[] = {state + s * each};
        short_conv_step(
            {.x = in.x.row_range(t, t + 1), .w = in.w, .width = in.width, .states = states, .silu = in.silu},
            y.row_range(t, t + 1), c.par());
      }
    return;
  }
  short_conv_fwd(in, y, state, c.par());
  if (c.backward())
    short_conv_bwd(in, c.tokens("dy"), nullptr,
                   {.dx = c.tokens_out("dx"), .dw = c.data_out("dw"), .dstate = c.data_out("dstate")},
                   c.par());
}

}  // namespace

const CallableOp& short_conv_op() {
  static const CallableOp op{
      "short_conv",
      "depthwise causal convolution over the last W tokens",
      {{"x", "B T D", OpNeed::kRequired, "the inputs"},
       {"w", "D W", OpNeed::kRequired, "the taps; the last is for the newest token; W from 2 to 8"},
       {"state", "B D W-1", OpNeed::kOptional, "the W - 1 inputs before, oldest first, else zeros"},
       lengths_input(),
       {"dy", "B T D", OpNeed::kCotangent, "the gradient of y"}},
      {{"y", "B T D", "outputs"},
       {"state", "B D W-1", "the last W - 1 inputs, oldest first"},
       {"dx", "like x", "gradient of x", true},
       {"dw", "like w", "gradient of w", true},
       {"dstate", "B D W-1", "gradient of the state before", true}},
      {choice_setting("silu", "0", {"0", "1"}, "1: y = silu of the sum")},
      {{"chunk", "whole sequences", true},
       {"step", "one call per token on a state that advances in place", false}},
      validate,
      run};
  return op;
}

}  // namespace braid
