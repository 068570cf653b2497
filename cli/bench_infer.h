// `braid bench prefill,decode`: how fast a model reads a prompt and writes tokens.
#pragma once

#include <cstdint>
#include <string>

#include "base/number.h"
#include "base/parallel.h"
#include "cli/weight_flags.h"

namespace braid {

struct InferBench {
  std::string model, prompt = "512", depth = "0", batch = "1";
  int64_t gen = 128, repeat = 3;
  bool parts = false;
  InferenceFlags weights{"auto"};

  template <class V>
  void visit(V& v) {
    v("--model,-m", model, "prefill, decode: model folder");
    weights.visit(v);
    visit_prefill(v);
    visit_decode(v);
    v("--depth,-d", depth, "prefill, decode: tokens read before, or several numbers, e.g. 0,4096");
    v("--repeat,-r", repeat, "prefill, decode: runs of each test; the median counts",
      Bounds<int64_t>{1, 1000});
    v("--parts", parts, "prefill, decode: where the time goes, op by op, from one more pass");
  }
  template <class V>
  void visit_prefill(V& v) {
    v("--prompt,-p", prompt, "prefill: tokens of the prompt, or several numbers, e.g. 512,4096");
  }
  template <class V>
  void visit_decode(V& v) {
    v("--gen,-n", gen, "decode: tokens to write", Bounds<int64_t>{1, 1'000'000});
    v("--sequences", batch, "decode: sequences written together, or several numbers, e.g. 1,8");
  }
};

struct InferTests {
  bool prefill = false, decode = false;
};
int bench_infer(const InferBench& o, InferTests tests, ThreadPool& pool, bool json);

}  // namespace braid
