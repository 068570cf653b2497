// Checkpoints of a run: RUN/state/step-00000200/ with model.safetensors, optimizer.safetensors and
// trainer.json. A checkpoint is written under a temporary name, flushed and renamed, so a folder with this
// name is whole; trainer.json has the hashes of the tensor files and of itself, so that later damage is seen.
// RUN/model.safetensors is the newest.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/error.h"
#include "model/model.h"
#include "train/optimizer.h"

namespace braid {

struct Progression {    // all that changes while training, besides parameters and moments
  uint64_t step = 0;    // updates attempted
  uint64_t sample = 0;  // position in the training stream
  uint64_t tokens = 0;  // tokens seen
  uint64_t bad_in_a_row = 0, bad_total = 0;
  uint64_t best_step = 0;
  double best_loss = 0;        // of the held-out data at best_step; best_step 0: none yet that is finite
  double best_score = -1e300;  // the source's headline metric, or minus the loss, at its best
  uint64_t since_best = 0;     // evaluations without a better score
  uint64_t growths = 0;        // of the training stream
  uint64_t recent_right = 0, recent_total = 0;  // training answers since the curriculum last looked
  double seconds = 0;                           // of training, evaluations included

  template <class V>
  void visit(V&& v) {
    v("step", step), v("sample", sample), v("tokens", tokens);
    v("bad_in_a_row", bad_in_a_row), v("bad_total", bad_total);
    v("best_step", best_step), v("best_loss", best_loss), v("best_score", best_score);
    v("since_best", since_best), v("growths", growths);
    v("recent_right", recent_right), v("recent_total", recent_total), v("seconds", seconds);
  }
};

// Keeps the `keep` newest checkpoints and the best. Those of later steps go: the run went back behind them.
Status save_checkpoint(const std::string& run, const Model& model, Optimizer& optimizer, const Progression& p,
                       int64_t keep);
std::optional<uint64_t> latest_checkpoint(const std::string& run);  // whole or not
Result<Progression> load_checkpoint(const std::string& run, uint64_t step, Model& model,
                                    Optimizer& optimizer);

// The newest checkpoint that is whole. None at all is no error; none whole is.
struct Restored {
  std::optional<Progression> progression;
  std::vector<std::string> damaged;  // what is wrong with newer ones
};
Result<Restored> load_newest_checkpoint(const std::string& run, Model& model, Optimizer& optimizer);

void clean_checkpoints(const std::string& run);     // what a killed run left behind, unfinished
Status remove_checkpoints(const std::string& run);  // all; what else is in RUN/state stays

}  // namespace braid
