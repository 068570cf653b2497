// Softmax attention with or without a cache, for the mixers that have a key-value memory.
#pragma once

#include "model/mixers/mixer.h"

namespace braid {

// Training: the sequences of the batch, each by itself. With states: new keys and values go to each
// sequence's cache, then its queries look at all of it.
// p: the share of the weights dropped in training.
Var attend(const MixerCall& call, Var q, Var k, Var v, const AttentionShape& shape, float p = 0);

double attend_flops(const AttentionShape& shape, int64_t length);    // per token
size_t attend_numbers(const AttentionShape& shape, int64_t length);  // keys and values kept

}  // namespace braid
