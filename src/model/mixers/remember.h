// Ops with state, on the states of a call's sequences. They log what rollback needs and copy states at the
// requested snapshots. A mixer that keeps state only through these (and through KV caches) can be rolled
// back.
#pragma once

#include "model/mixers/mixer.h"

namespace braid {

// Each x delayed by so many tokens; in LayerState::delayed, [by, width] one after the other.
std::vector<Var> remembered_delay(const MixerCall& call, std::span<const Var> xs, size_t by);
Var remembered_delay(const MixerCall& call, Var x, size_t by);
Var remembered_conv(const MixerCall& call, Var x, size_t w, const ConvOptions& options = {});
Var remembered_scan(const MixerCall& call, const ScanVars& in);
Var remembered_fast(const MixerCall& call, Memory LayerState::*which, const FastWeightShape& shape,
                    const FastWeightVars& in);
Var remembered_chunks(const MixerCall& call, const FastWeightShape& shape, const FastWeightVars& in,
                      size_t chunk);

// Appends keys and values to the cache of a sequence and of its snapshots: call it once per forward.
void append_kv(const MixerCall& call, size_t sequence, Mat<const float> k, Mat<const float> v, size_t window);

}  // namespace braid
