// The generation loop: feed, sample, stream, stop.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "base/error.h"
#include "infer/sampler.h"
#include "infer/session.h"

namespace braid {

struct GenerateOptions {
  SamplerOptions sampler = {};
  int64_t max_tokens = 256;
  size_t known = 0;                      // tokens of the prompt that the session has read; fewer than all
  std::vector<int32_t> end_tokens = {};  // each of these ends the text and is not shown
  std::vector<std::string> stop = {};    // ends before the first of these would be shown
  std::function<Status(const State&)> after_prompt = {};  // may keep the state; its failure ends everything
};

struct Generated {
  std::vector<int32_t> tokens;
  std::string why;  // "end" (the last token is an end token), "stop", "length" or "interrupt"
  size_t read = 0;  // of prompt and tokens, what the session has read
  double prefill_seconds = 0, decode_seconds = 0;
};

// `text_of` gives what a token adds to the text, and once more, without a token, what is left at the end;
// `show` gets it as soon as it cannot be part of a stop string.
Result<Generated> generate(Session& session, std::span<const int32_t> prompt, const GenerateOptions& options,
                           const std::function<std::string(std::optional<int32_t>)>& text_of,
                           const std::function<void(std::string_view)>& show);

}  // namespace braid
