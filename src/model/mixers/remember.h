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
Var remembered_fast(const MixerCall& call, Memory LayerState::*which, const FastWeightShape& shape,
                    const FastWeightVars& in);
Var remembered_chunks(const MixerCall& call, const FastWeightShape& shape, const FastWeightVars& in,
                      size_t chunk);

// New keys and values behind those of a sequence. Snapshots get them, too: call it once in a forward.
void append_kv(const MixerCall& call, size_t sequence, Mat<const float> k, Mat<const float> v, size_t window);

}  // namespace braid
