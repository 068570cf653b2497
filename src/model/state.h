// State of a model for one sequence. A value: it can be copied, compared and kept; copies share memory until
// one of them writes.
//
//   state.undo = 8;                                  // from here on the last 8 tokens can be rolled back
//   ...
//   model.rollback(exec, state, state.position - 3); // as if the last 3 had never been read, bit for bit
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "base/error.h"
#include "kernels/attention/attention.h"
#include "tensor/tensor.h"

namespace braid {

class Exec;

// Keys and values of the past, in pages of kPageTokens rows. With a window, pages that no future query can
// see are reused: a ring of pages.
class KvCache {
 public:
  static constexpr size_t kPageTokens = 128;

  KvCache() = default;
  explicit KvCache(int64_t first) : first_(first), end_(first) {}  // has forgotten all before `first`

  // Appends rows (all with the same strides as the Mats) at the next positions.
  void append(Mat<const float> k, Mat<const float> v);
  // Forgets pages that no query at position `from` or later can see; the newest always stays.
  void drop_before_window(size_t window, int64_t from);
  void truncate(int64_t end);  // forgets positions from `end` on; not before first()
  void segments(std::vector<KvSegment>& out) const;

  int64_t first() const { return first_; }  // the oldest position that is kept
  int64_t end() const { return end_; }      // position of the next token
  size_t bytes() const;
  template <class F>
  void each_block(const F& f) const {
    for (const auto& p : pages_) f(p.get(), p->k.bytes() + p->v.bytes());
  }
  bool operator==(const KvCache& other) const;

 private:
  struct Page {
    Tensor k, v;  // [kPageTokens, width]
  };
  int64_t first_ = 0, end_ = 0;  // positions held: [first_, end_); first_ is the start of pages_[0]
  std::vector<std::shared_ptr<Page>> pages_;
};

// Numbers of fixed count that a mixer carries from token to token; zeros until first written. Copies share
// them until one writes.
class Memory {
 public:
  float* write(size_t count);              // for this copy alone; narrowed numbers become f32 again
  std::span<const float> numbers() const;  // not of narrowed ones
  void narrow();                           // to bf16, for keeping: rounded to 8 bits
  size_t bytes() const { return numbers_ ? numbers_->bytes() : 0; }
  const void* block() const { return numbers_.get(); }
  bool operator==(const Memory& other) const;

 private:
  std::shared_ptr<Tensor> numbers_;
};

// Runs what wrote to a memory again: rows are what it was given from `position` on.
using Replay = std::function<void(Exec& exec, Mat<const float> rows, int64_t position, float* memory)>;

// State of one layer's mixer. A mixer uses some of these members.
struct LayerState {
  KvCache kv;         // keys and values
  Memory fast;        // fast-weight matrices [value_heads, dk, dv]
  Memory normaliser;  // of linear attention: sums of keys [heads, dk]
  Memory conv;        // the last inputs of a short convolution [channels, taps - 1]
  Memory scan;        // states of a selective scan [channels, state]
  Memory delayed;     // keys and values on their way to the fast weights [window, width]

  // Segment of the rollback log: copies of the states at its start and every input written since. Rollback
  // restores the copies and replays the inputs. Keys, values and strengths of a token are 64 times smaller
  // than the matrix that they change (heads of 128).
  struct Given {
    Memory before;
    std::vector<float> rows;      // [tokens, width]
    size_t width = 0, count = 0;  // count: numbers of the memory
    Replay replay;
  };
  static constexpr size_t kKinds = 5;  // of memories
  using Stretch = std::array<Given, kKinds>;
  std::vector<Stretch> trail;
  int64_t reach = INT64_MAX;  // the oldest position that a rollback may reach: its window is kept
  // The first position of later queries, a rollback to `reach` included.
  int64_t next_query() const { return std::min(reach, kv.end()); }

  size_t bytes() const;                            // without the rollback log
  bool operator==(const LayerState& other) const;  // compares states, not rollback logs
};
struct NamedMemory {
  const char* name;
  Memory LayerState::*which;
};
inline constexpr NamedMemory kMemories[] = {{"fast", &LayerState::fast},
                                            {"normaliser", &LayerState::normaliser},
                                            {"conv", &LayerState::conv},
                                            {"scan", &LayerState::scan},
                                            {"delayed", &LayerState::delayed}};
static_assert(std::size(kMemories) == LayerState::kKinds);

struct State {
  int64_t position = 0;  // tokens seen
  std::vector<LayerState> layers;
  // How many tokens can be taken back at least. What that needs is recorded from the next pass on; a long
  // prompt is best read before it is set.
  int64_t undo = 0;

  void begin_pass(size_t tokens);  // Model::hidden does
  // The oldest position that a rollback reaches now.
  int64_t oldest() const;
  // As if nothing from that position on had been read. An error changes nothing.
  Status rollback(Exec& exec, int64_t to);
  void forget_trail();  // nothing can be taken back; undo is 0
  void narrow();        // memories to bf16, keys and values stay shared: for keeping, not exact

  size_t bytes() const;
  // f(address, bytes) for all that is remembered: what states share has the same address.
  template <class F>
  void each_block(const F& f) const {
    for (const LayerState& l : layers) {
      l.kv.each_block(f);
      for (const NamedMemory& m : kMemories)
        if ((l.*m.which).block()) f((l.*m.which).block(), (l.*m.which).bytes());
    }
  }
  bool operator==(const State& other) const { return position == other.position && layers == other.layers; }

 private:
  struct Stretch {
    int64_t first;               // position of its start
    std::vector<size_t> passes;  // tokens of each
  };
  std::vector<Stretch> trail_;  // as in the layers
};

// States inside a pass over a prompt, without an extra pass. Positions are rounded down to a multiple of
// kCutRows tokens from the start of the pass (its end is exact). Results of the pass are bit-identical.
struct Snapshots {
  std::vector<int64_t> at;
  std::vector<State> taken;  // what Model::hidden adds, by position
};

}  // namespace braid
