// A session: a model and its state for one sequence.
//
//   Context context;                                    // all processors
//   Session s(model, context);
//   std::span<const float> logits = s.feed(prompt);     // prefill
//   while (...) logits = s.feed({{token}});             // one step
//   State saved = s.state();                            // a value: restore with s.set_state(saved)
#pragma once

#include <span>
#include <vector>

#include "infer/context.h"
#include "model/state.h"

namespace braid {

class Model;

// A prompt is read in pieces, so that the memory of a pass does not grow with it: enough tokens for products
// at full speed, and a multiple of pages and chunks, so that the cuts change no bit of the state.
inline constexpr size_t kPromptPiece = 512;

class Session {
 public:
  // pass_tokens: how long prompts are cut; 0: not at all. Model and context must outlive it.
  Session(const Model& model, Context& context, size_t pass_tokens = kPromptPiece);

  // Reads tokens and returns the logits after the last one. At least one token. Logits are valid until the
  // next call of anything that has the same context.
  std::span<const float> feed(std::span<const int32_t> tokens, Snapshots* snapshots = nullptr);
  // The same with the logits after every token: [tokens, vocab]. One pass.
  Mat<const float> feed_all(std::span<const int32_t> tokens);

  const State& state() const { return state_; }
  void set_state(State s) { state_ = std::move(s); }
  void restart();  // as if it had read nothing

  void set_undo(int64_t tokens) { state_.undo = tokens; }  // so many can be taken back
  Status rollback(int64_t position);                       // as if nothing from there on had been read
  const Model& model() const { return model_; }
  Context& context() { return context_; }

 private:
  Mat<float> run(std::span<const int32_t> tokens, std::span<const uint32_t> rows,
                 Snapshots* snapshots = nullptr);

  const Model& model_;
  Context& context_;
  State state_;
  size_t pass_tokens_;
};

// One step of several sequences, each with a state of its own: logits [sequences, vocab], valid until the
// next step. Each has the bits that it would have alone, whichever others there are. Model and context must
// outlive it.
class BatchDecoder {
 public:
  BatchDecoder(const Model& model, Context& context) : model_(model), context_(context) {}
  Mat<const float> step(std::span<State* const> states, std::span<const int32_t> tokens);

 private:
  const Model& model_;
  Context& context_;
  std::vector<float> logits_;
};

}  // namespace braid
