#include "infer/session.h"

#include <algorithm>
#include <numeric>

#include "model/model.h"

namespace braid {
namespace {

// Gives back what the last call took.
Exec begin(const Model& model, Context& context) {
  context.arena().reset();
  return Exec({.arena = &context.arena(),
               .params = &model.params(),
               .par = context.par(),
               .activations = context.activations()});
}

}  // namespace

Session::Session(const Model& model, Context& context, size_t pass_tokens)
    : model_(model), context_(context), state_(model.new_state()), pass_tokens_(pass_tokens) {}

void Session::restart() { state_ = model_.new_state(); }

std::span<const float> Session::feed(std::span<const int32_t> tokens, Snapshots* snapshots) {
  check(!tokens.empty(), "Session::feed needs a token");
  for (; pass_tokens_ > 0 && tokens.size() > pass_tokens_; tokens = tokens.subspan(pass_tokens_))
    run(tokens.first(pass_tokens_), {}, snapshots);
  const uint32_t last[] = {static_cast<uint32_t>(tokens.size() - 1)};
  const Mat<float> logits = run(tokens, last, snapshots);
  return {logits.data, logits.cols};
}

Mat<const float> Session::feed_all(std::span<const int32_t> tokens) {
  check(!tokens.empty(), "Session::feed needs a token");
  std::vector<uint32_t> rows(tokens.size());
  std::iota(rows.begin(), rows.end(), 0u);
  return run(tokens, rows);
}

Mat<float> Session::run(std::span<const int32_t> tokens, std::span<const uint32_t> rows,
                        Snapshots* snapshots) {
  Exec exec = begin(model_, context_);
  const uint32_t offsets[] = {0, static_cast<uint32_t>(tokens.size())};
  State* states[] = {&state_};
  Model::Input in{.tokens = tokens, .offsets = offsets, .states = states};
  if (snapshots) in.snapshots = {&snapshots, 1};
  const Var h = model_.hidden(exec, in, rows);
  return rows.empty() ? Mat<float>{} : model_.logits(exec, h);
}

Status Session::rollback(int64_t position) {
  Exec exec = begin(model_, context_);
  return model_.rollback(exec, state_, position);
}

Mat<const float> BatchDecoder::step(std::span<State* const> states, std::span<const int32_t> tokens) {
  check(states.size() == tokens.size(), "BatchDecoder::step: a token for each state");
  const auto vocab = static_cast<size_t>(model_.config().answers());
  logits_.resize(states.size() * vocab);
  for (size_t first = 0; first < states.size(); first += kSkinnyRows) {
    const size_t n = std::min(kSkinnyRows, states.size() - first);
    std::vector<uint32_t> rows(n + 1);
    std::iota(rows.begin(), rows.end(), 0u);
    Exec exec = begin(model_, context_);
    const Var h = model_.hidden(
        exec, {.tokens = tokens.subspan(first, n), .offsets = rows, .states = states.subspan(first, n)},
        std::span(rows).first(n));
    const Mat<float> out = model_.logits(exec, h);
    std::copy_n(out.data, out.count(), logits_.data() + first * vocab);
  }
  return {logits_.data(), states.size(), vocab};
}

}  // namespace braid
