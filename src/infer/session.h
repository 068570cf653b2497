// A session: a model and what it remembers of one sequence.
//
//   Session s(model, pool);
//   std::span<const float> logits = s.feed(prompt);     // prefill
//   while (...) logits = s.feed({{token}});             // one step
//   State saved = s.state();                            // a value: restore with s.set_state(saved)
#pragma once

#include <span>

#include "base/parallel.h"
#include "model/model.h"

namespace braid {

// A prompt is read in pieces, so that the memory of a pass does not grow with it: enough tokens for products
// at full speed, and a multiple of pages and chunks, so that the cuts change no bit of the state.
inline constexpr size_t kPromptPiece = 512;

class Session {
 public:
  // pass_tokens: how long prompts are cut; 0: not at all.
  Session(Model& model, ThreadPool& pool, size_t pass_tokens = kPromptPiece)
      : model_(model), pool_(pool), state_(model.new_state()), pass_tokens_(pass_tokens) {}

  // Reads tokens and returns the logits after the last one (valid until the next call). At least one token.
  std::span<const float> feed(std::span<const int32_t> tokens, Snapshots* snapshots = nullptr);
  // The same with the logits after every token: [tokens, vocab]. One pass.
  Mat<const float> feed_all(std::span<const int32_t> tokens);

  const State& state() const { return state_; }
  void set_state(State s) { state_ = std::move(s); }
  void restart() { state_ = model_.new_state(); }  // as if it had read nothing

  void set_undo(int64_t tokens) { state_.undo = tokens; }  // so many can be taken back
  Status rollback(int64_t position);                       // as if nothing from there on had been read
  Model& model() { return model_; }

 private:
  Mat<float> run(std::span<const int32_t> tokens, std::span<const uint32_t> rows,
                 Snapshots* snapshots = nullptr);

  Model& model_;
  ThreadPool& pool_;
  State state_;
  size_t pass_tokens_;
  Arena arena_;
};

// One step of several sequences, each with a state of its own, which nobody gathers: logits [sequences,
// vocab], valid until the next call. Each has the bits that it would have alone, whoever else is there.
class BatchDecoder {
 public:
  BatchDecoder(Model& model, ThreadPool& pool) : model_(model), pool_(pool) {}
  Mat<const float> step(std::span<State* const> states, std::span<const int32_t> tokens);

 private:
  Model& model_;
  ThreadPool& pool_;
  Arena arena_;
  std::vector<float> logits_;
};

}  // namespace braid
