#include "infer/generate.h"

#include <algorithm>

#include "base/clock.h"
#include "base/interrupt.h"
#include "infer/stop_strings.h"

namespace braid {

Result<Generated> generate(Session& session, std::span<const int32_t> prompt, const GenerateOptions& options,
                           const std::function<std::string(std::optional<int32_t>)>& text_of,
                           const std::function<void(std::string_view)>& show) {
  Generated out;
  Sampler sampler(options.sampler);
  Result<StopStrings> stop = StopStrings::make(options.stop);
  if (!stop) return stop.error();
  std::vector<int32_t> history(prompt.begin(), prompt.end());
  double start = seconds_now();
  check(options.known < prompt.size(), "generate: a prompt without a token to read");
  std::span<const float> logits = session.feed(prompt.subspan(options.known));
  out.read = prompt.size();
  out.prefill_seconds = seconds_now() - start;
  if (options.after_prompt)
    if (Status s = options.after_prompt(session.state()); !s) return s.error();
  start = seconds_now();
  out.why = "length";
  while (static_cast<int64_t>(out.tokens.size()) < options.max_tokens) {
    if (interrupted()) {
      out.why = "interrupt";
      break;
    }
    const Result<int32_t> token = sampler(logits, history, history.size());
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
    if (static_cast<int64_t>(out.tokens.size()) < options.max_tokens) {
      logits = session.feed({&history.back(), 1});
      out.read = history.size();
    }
  }
  show(stop->feed(text_of(std::nullopt)));
  show(stop->finish());
  out.decode_seconds = seconds_now() - start;
  return out;
}

}  // namespace braid
