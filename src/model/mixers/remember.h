// The ops that remember, run on the memories of a call's sequences. They record what taking tokens back needs
// and copy states on the way where snapshots are asked for: a mixer that remembers only through these (and
// through caches of keys and values) can be rolled back.
#pragma once

#include "model/mixers/mixer.h"

namespace braid {

// Each x delayed by so many tokens; in LayerState::delayed, [by, width] one after the other.
std::vector<Var> remembered_delay(const MixerCall& call, std::span<const Var> xs, size_t by);
Var remembered_delay(const MixerCall& call, Var x, size_t by);
Var remembered_conv(const MixerCall& call, Var x, size_t w, const ConvOptions& options = {});
Var remembered_scan(const MixerCall& call, const ScanVars& in);
// `offsets`: the call's times per_token, if a token is several rows.
Var remembered_fast(const MixerCall& call, Memory LayerState::*which, const FastWeightShape& shape,
                    const FastWeightVars& in, std::span<const uint32_t> offsets, size_t per_token = 1);
// What wanted tokens read, a row for each of them. in.q: for every token, or for wanted ones alone. Where few
// read, they go back through the tokens before them and no state is made.
Var remembered_reads(const MixerCall& call, Memory LayerState::*which, const FastWeightShape& shape,
                     FastWeightVars in);
Var remembered_chunks(const MixerCall& call, const FastWeightShape& shape, const FastWeightVars& in,
                      size_t chunk);

// Where few rows of a mixer's result are wanted, memories are asked by few tokens, and others need no
// queries.
struct Asking {
  MixerCall call;  // those tokens, each behind the `before` tokens that its convolution sees, as sequences
  std::span<const uint32_t> last;  // the rows of these sequences that ask
};
std::optional<Asking> few_ask(const MixerCall& call, size_t before);

// New keys and values behind those of a sequence. Snapshots get them, too: call it once in a forward.
void append_kv(const MixerCall& call, size_t sequence, Mat<const float> k, Mat<const float> v, size_t window);

}  // namespace braid
