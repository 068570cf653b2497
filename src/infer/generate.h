// The generation loop: feed, sample, stream, stop.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "base/error.h"
#include "infer/sampler.h"
#include "infer/session.h"

namespace braid {

struct GenerateOptions {
  SamplerOptions sampler = {};
  int64_t max_tokens = 256;
  std::vector<std::string> stop = {};                     // ends before the first of these would be shown
  std::function<Status(const State&)> after_prompt = {};  // may keep the state; its failure ends everything
};

struct Generated {
  std::vector<int32_t> tokens;
  std::string why;  // "length", "stop" or "interrupt"
  double prefill_seconds = 0, decode_seconds = 0;
};

// `text_of` gives a token's bytes; `show` gets them as soon as they cannot be part of a stop string.
Result<Generated> generate(Session& session, std::span<const int32_t> prompt, const GenerateOptions& options,
                           const std::function<std::string(int32_t)>& text_of,
                           const std::function<void(std::string_view)>& show);

}  // namespace braid
