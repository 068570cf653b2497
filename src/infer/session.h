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

// A prompt is read in pieces, so that the memory of a pass does not grow with it.
inline constexpr size_t kPromptPiece = 512;

class Session {
 public:
  Session(Model& model, ThreadPool& pool) : model_(model), pool_(pool), state_(model.new_state()) {}

  // Reads tokens and returns the logits after the last one (valid until the next call). At least one token.
  std::span<const float> feed(std::span<const int32_t> tokens);
  // The same with the logits after every token: [tokens, vocab].
  Mat<const float> feed_all(std::span<const int32_t> tokens);

  const State& state() const { return state_; }
  void set_state(State s) { state_ = std::move(s); }
  void restart() { state_ = model_.new_state(); }  // as if it had read nothing

 private:
  Mat<float> run(std::span<const int32_t> tokens, std::span<const uint32_t> rows);

  Model& model_;
  ThreadPool& pool_;
  State state_;
  Arena arena_;
};

}  // namespace braid
