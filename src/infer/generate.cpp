#include "infer/generate.h"

#include <algorithm>

#include "base/clock.h"
#include "infer/draft.h"
#include "infer/stop_strings.h"

namespace braid {

double Generated::acceptance() const {
  return drafted ? static_cast<double>(accepted) / static_cast<double>(drafted) : 0;
}

double Generated::speed_up() const {
  if (single_passes == 0 || decode_seconds <= 0) return 0;
  const double each = single_seconds / static_cast<double>(single_passes);
  return each * static_cast<double>(passes + accepted) / decode_seconds;
}

namespace {

// Reads the newest token and guesses behind it, and hands out the logits of those that turn out right.
class Decoder {
 public:
  Decoder(Session& session, std::span<const float> first, size_t draft, Generated& out)
      : session_(session), logits_(first), draft_(draft), out_(out) {
    if (draft) session.set_undo(static_cast<int64_t>(draft) + 1);
  }

  std::span<const float> logits() const { return logits_; }

  // `history` has grown by the token chosen from logits(). most: tokens that may still follow it.
  Status next(std::span<const int32_t> history, size_t most) {
    if (right_ < guesses_.size() && guesses_[right_] == history.back()) {
      logits_ = row(++right_);
      ++out_.accepted;
      return {};
    }
    // Wrong guesses cost time: fewer after a pass with some, more again after one without.
    if (!guesses_.empty()) reach_ = right_ < guesses_.size() ? right_ + 1 : std::min(draft_, 2 * reach_);
    if (Status s = take_back(); !s) return s;
    const std::span<const int32_t> guesses = look_up_draft(history, std::min({draft_, reach_, most}));
    guesses_.assign(guesses.begin(), guesses.end());
    std::vector<int32_t> tokens{history.back()};
    tokens.insert(tokens.end(), guesses_.begin(), guesses_.end());
    const double start = seconds_now();
    all_ = session_.feed_all(tokens);
    if (guesses_.empty()) ++out_.single_passes, out_.single_seconds += seconds_now() - start;
    ++out_.passes, out_.drafted += guesses_.size();
    right_ = 0;
    logits_ = row(0);
    return {};
  }

  // The guesses that were not right have never been read.
  Status take_back() {
    const auto wrong = static_cast<int64_t>(guesses_.size() - right_);
    guesses_.resize(right_);
    return session_.rollback(session_.state().position - wrong);
  }

 private:
  std::span<const float> row(size_t i) const { return {all_.row(i), all_.cols}; }

  Session& session_;
  std::span<const float> logits_;
  size_t draft_;
  Generated& out_;
  Mat<const float> all_;
  std::vector<int32_t> guesses_;
  size_t right_ = 0;       // guesses that were chosen
  size_t reach_ = draft_;  // guesses to make next
};

}  // namespace

Result<Generated> generate(Session& session, std::span<const int32_t> prompt,
                           const std::function<std::string(std::optional<int32_t>)>& text_of,
                           const std::function<void(std::string_view)>& show,
                           const GenerateOptions& options) {
  Generated out;
  Sampler sampler(options.sampler);
  Result<StopStrings> stop = StopStrings::make(options.stop);
  if (!stop) return stop.error();
  check(options.known < prompt.size(), "generate: a prompt without a token to read");
  check(options.draft >= 0 && options.draft <= kMostDraft, "generate: too many guesses");
  std::vector<int32_t> history = options.before;
  history.insert(history.end(), prompt.begin(), prompt.end());
  double start = seconds_now();
  const int64_t first = session.state().position - static_cast<int64_t>(options.known);  // of the prompt
  Snapshots snapshots;
  for (const size_t at : options.snapshots_at) snapshots.at.push_back(first + static_cast<int64_t>(at));
  Decoder decoder(session, session.feed(prompt.subspan(options.known), &snapshots),
                  static_cast<size_t>(options.draft), out);
  out.read = prompt.size();
  out.prefill_seconds = seconds_now() - start;
  if (options.snapshot)
    for (State& s : snapshots.taken) {
      const auto tokens = static_cast<size_t>(s.position - first);
      options.snapshot(tokens, std::move(s));
    }
  if (options.after_prompt)
    if (Status s = options.after_prompt(session.state()); !s) return s.error();
  start = seconds_now();
  out.why = "length";
  while (static_cast<int64_t>(out.tokens.size()) < options.max_tokens) {
    if (options.cancelled && options.cancelled()) {
      out.why = "cancelled";
      break;
    }
    const Result<int32_t> token = sampler(decoder.logits(), history, history.size());
    if (!token) return token.error();
    out.tokens.push_back(*token);
    history.push_back(*token);
    if (std::ranges::find(options.end_tokens, *token) != options.end_tokens.end()) {
      out.why = "end";
      break;
    }
    show(stop->feed(text_of(*token)));
    if (stop->stopped()) {
      out.why = "stop";
      break;
    }
    const int64_t left = options.max_tokens - static_cast<int64_t>(out.tokens.size());
    if (left > 0) {
      if (Status s = decoder.next(history, static_cast<size_t>(left - 1)); !s) return s.error();
      out.read = prompt.size() + out.tokens.size();
    }
  }
  if (Status s = decoder.take_back(); !s) return s.error();
  if (options.draft) session.set_undo(0);
  show(stop->feed(text_of(std::nullopt)));
  show(stop->finish());
  out.decode_seconds = seconds_now() - start;
  return out;
}

}  // namespace braid
