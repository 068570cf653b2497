// What the experiments' files share.
#pragma once

#include <fmt/format.h>

#include "data/text.h"
#include "lab/experiment.h"

namespace braid {

// A value for each effort.
template <class T>
T at(Effort e, T quick, T usual, T paper) {
  return e == Effort::kQuick ? quick : e == Effort::kPaper ? paper : usual;
}

// A model by name: an architecture at exact dimensions, with changes to its config.
struct ModelChoice {
  std::string row, arch;
  std::vector<std::string> set = {};
};

// The trials of one cell: every learning rate with every seed.
inline void add_trials(std::vector<Trial>& out, const std::string& row, const std::string& column,
                       const TrainOptions& base, const std::vector<double>& rates, int64_t seeds) {
  for (const double lr : rates)
    for (int64_t seed = 0; seed < seeds; ++seed) {
      TrainOptions o = base;
      o.lr = lr, o.seed = seed;
      out.push_back({row, column, fmt::format("lr {:g} seed {}", lr, seed), o});
    }
}

// A small model on text, or the paper's size and amount of it.
struct PaperText {
  const char* size;
  int64_t length, batch, steps;
};
inline TrainOptions on_text(Effort e, const PaperText& paper) {
  TrainOptions o;
  o.text = kShakespeare, o.size = at<std::string>(e, "tiny", "1M", paper.size);
  o.length = at<int64_t>(e, 256, 256, paper.length), o.batch = at<int64_t>(e, 16, 16, paper.batch);
  o.steps = at<int64_t>(e, 400, 1500, paper.steps), o.warmup = o.steps / 20;
  o.eval_every = o.steps / 10, o.checkpoint_every = o.eval_every, o.keep = 1;
  o.recompute = e == Effort::kPaper;
  return o;
}

// The lists that registry.cpp joins, one per file.
std::span<const Experiment> hqlt_experiments();
std::span<const Experiment> deltaformer_experiments();
std::span<const Experiment> recall_experiments();
std::span<const Experiment> gdn_experiments();
std::span<const Experiment> scaling_experiments();
std::span<const Experiment> theory_experiments();

}  // namespace braid
