// `braid bench prefill,decode`: how fast a model reads a prompt and writes tokens.
#pragma once

#include <cstdint>
#include <string>

#include "cli/weight_flags.h"

namespace braid {

struct InferBench {
  std::string model, prompt = "512", depth = "0", batch = "1";
  int64_t gen = 128, repeat = 3;
  bool parts = false;
  InferenceFlags weights{"auto"};

  template <class V>
  void visit(V& v) {
    v("--model", model, "prefill, decode: model folder");
    weights.visit(v);
    v("--prompt,-p", prompt, "prefill: tokens of the prompt, or several numbers, e.g. 512,4096");
    v("--gen,-n", gen, "decode: tokens to write");
    v("--depth,-d", depth, "prefill, decode: tokens read before, or several numbers, e.g. 0,4096");
    v("--sequences", batch, "decode: sequences written together, or several numbers, e.g. 1,8");
    v("--repeat,-r", repeat, "prefill, decode: runs of each test; the median counts");
    v("--parts", parts, "prefill, decode: where the time goes, op by op, from one more pass");
  }
};

struct InferTests {
  bool prefill = false, decode = false;
};
int bench_infer(const InferBench& o, InferTests tests, int threads, bool json);

}  // namespace braid
