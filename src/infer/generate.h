// The generation loop: feed, sample, stream, stop.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "base/error.h"
#include "infer/sampler.h"
#include "infer/session.h"
#include "kernels/matmul/matmul.h"

namespace braid {

inline constexpr int64_t kMostDraft =
    kSkinnyRows - 1;  // as many rows in a pass have the bits of single steps

struct GenerateOptions {
  SamplerOptions sampler = {};
  int64_t max_tokens = 256;
  size_t known = 0;                  // tokens of the prompt that the session has read; fewer than all
  std::vector<int32_t> before = {};  // what it read before the prompt: for penalties, draws and guesses
  // Most guesses per pass, up to kMostDraft: tokens that followed the same words earlier are read together
  // with the newest one, and taken back from the first that is not what the sampler chooses. The tokens are
  // exactly those without it, sampled ones, too.
  int64_t draft = 0;
  std::vector<int32_t> end_tokens = {};                   // each of these ends the text and is not shown
  std::vector<std::string> stop = {};                     // ends before the first of these would be shown
  std::function<Status(const State&)> after_prompt = {};  // may keep the state; its failure ends everything
  // Snapshots while the prompt is read: about where (in tokens of the prompt), and who gets them, with how
  // many tokens of the prompt each has read.
  std::vector<size_t> snapshots_at = {};
  std::function<void(size_t tokens, State state)> snapshot = {};
  std::function<bool()> cancelled = {};  // asked before each token
};

struct Generated {
  std::vector<int32_t> tokens;
  std::string why;  // "end" (the last token is an end token), "stop", "length" or "cancelled"
  size_t read = 0;  // of prompt and tokens, what the session has read
  double prefill_seconds = 0, decode_seconds = 0;
  size_t passes = 0, drafted = 0, accepted = 0;  // of decoding; guesses made and found right
  size_t single_passes = 0;                      // passes of one token
  double single_seconds = 0;                     // all of them together
  double acceptance() const;                     // share of the guesses that were right
  double speed_up() const;  // against as many passes of one token, as long as the measured ones; 0: none was
};

// `text_of` gives what a token adds to the text, and once more, without a token, what is left at the end;
// `show` gets it as soon as it cannot be part of a stop string.
Result<Generated> generate(Session& session, std::span<const int32_t> prompt,
                           const std::function<std::string(std::optional<int32_t>)>& text_of,
                           const std::function<void(std::string_view)>& show,
                           const GenerateOptions& options = {});

}  // namespace braid
