// A very long sequence read in one pass, in pieces, and with a state that went through a file in the middle:
// the same state, and nothing that is not finite.
#pragma once

#include <string>
#include <vector>

#include "infer/session.h"

namespace braid {

struct LongRow {
  std::string what;
  bool same_bits = false;  // state and last logits are those of one pass
  double difference = 0;   // of the last logits: rms relative to theirs
  bool finite = false;
  bool exact = false;  // whether the bits must be the same: cuts where chunks and pages end
  double seconds = 0;
  bool ok() const;
};

// file: where a state may be written.
Result<std::vector<LongRow>> check_long(const Model& model, ThreadPool& pool, size_t tokens,
                                        const std::string& file);

}  // namespace braid
