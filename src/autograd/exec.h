// The executor runs ops; with a tape attached it records what backward needs, without one it keeps nothing.
// Training and inference call the same model code through it.
//
//   Arena arena;
//   Tape tape(arena);
//   Exec exec({.arena = &arena, .params = &params, .grads = grads, .tape = &tape});
//   Var y = linear(exec, x, w);            // ops.h
//   tape.backward();                       // adds to grads
//
// The formulas are in kernels/<op>: nothing here knows any.
#pragma once

#include <array>
#include <functional>
#include <map>
#include <string_view>
#include <utility>
#include <vector>

#include "autograd/param.h"
#include "autograd/row_map.h"
#include "base/clock.h"
#include "base/parallel.h"
#include "base/rng.h"
#include "kernels/common/into.h"
#include "kernels/matmul/matmul.h"
#include "tensor/arena.h"

namespace braid {

// A value and, when recording, the slot its gradient will have.
struct Var {
  Mat<float> v;
  int slot = -1;                 // -1: no gradient flows here
  const RowMap* rows = nullptr;  // which tokens its rows belong to; null: row t is token t
  bool present() const { return v.data != nullptr; }
};

// Time by op and direction, for `braid bench train`.
struct Profile {
  struct Entry {
    double forward = 0, backward = 0;
    size_t calls = 0;
  };
  std::map<std::string_view, Entry> ops;
  void add(const Profile& other);
};

// Adds the time until its end to a profile; does nothing without one.
class OpTimer {
 public:
  OpTimer(Profile* profile, std::string_view op, bool backward)
      : profile_(profile), op_(op), backward_(backward), start_(profile ? seconds_now() : 0) {}
  ~OpTimer() {
    if (!profile_) return;
    Profile::Entry& e = profile_->ops[op_];
    (backward_ ? e.backward : e.forward) += seconds_now() - start_;
    e.calls += !backward_;
  }
  OpTimer(const OpTimer&) = delete;
  OpTimer& operator=(const OpTimer&) = delete;

 private:
  Profile* profile_;
  std::string_view op_;
  bool backward_;
  double start_;
};

// The recorded ops of one pass and the gradients of their results. Gradient buffers are recycled as soon as
// the op that made the value has run backward, so that the ones in use stay in cache.
class Tape {
 public:
  // par: which kernels add gradients up; no threads.
  explicit Tape(Arena& arena, Par par = {}) : arena_(arena), par_(par.alone()) {}

  Par par() const { return par_; }

  int new_slot(size_t rows, size_t cols);
  // Creates a view of columns [begin, end) of `slot`; its gradient is that range of the parent's. Do not also
  // read the parent directly. Views must not overlap; uncovered columns get zero gradient.
  int new_part(int slot, size_t begin, size_t end);

  // `backward` runs when the gradient of slot `out` is complete; it is dropped if nothing contributed to it.
  // Without a name it is not timed: what it runs is.
  void record(std::string_view op, int out, std::function<void()> backward);
  // For an op that changed the value of `slot` in place: `backward` changes its gradient in place, too.
  void record_in_place(std::string_view op, int slot, std::function<void()> backward);

  // For use inside a backward function:
  Mat<float> grad(int slot) const;  // the complete gradient of a slot
  struct Target {
    Mat<float> to;  // data == nullptr: not needed
    Into into;
  };
  Target target(int slot);  // where to write a contribution, and whether to add
  void give(int from,
            int to);  // from's gradient is all that flows to `to`: handed over, or added if `to` has one
  void set_grad(int slot, Mat<float> grad);   // the gradient is in the caller's memory
  Mat<float> take(size_t rows, size_t cols);  // a temporary, to be put back
  void put(Mat<float> m) { free_[m.count()].push_back(m.data); }

  void backward(Profile* profile = nullptr);  // runs everything recorded, last first, and clears the tape
  void clear();

 private:
  struct Slot {
    size_t rows, cols;
    Mat<float> grad = {};
    bool written = false, borrowed = false;
    int whole = -1;               // of a part: the slot it lies in
    size_t begin = 0;             // of a part: its first column there
    std::vector<int> parts = {};  // slots that are parts of this one
  };
  void complete(Slot& s);  // zeros in the columns that no part has written
  struct Node {
    std::string_view op;
    int out;
    std::function<void()> backward;
    bool in_place = false;
  };
  Arena& arena_;
  Par par_;
  std::vector<Slot> slots_;
  std::vector<Node> nodes_;
  std::map<size_t, std::vector<float*>> free_;  // by number of floats
};

// Every matrix of a parameter set, packed for products forward (nt) and backward (nn).
class PackedParams {
 public:
  // After the parameters have changed. With their block in bf16: for products of that.
  void refresh(const ParamSet& params, const bf16* block, Par par);
  PackedWeight get(size_t param, MatmulForm form) const {
    return form == MatmulForm::kNT   ? forward_[param]
           : form == MatmulForm::kNN ? backward_[param]
                                     : PackedWeight{};
  }

 private:
  std::vector<PackedWeight> forward_, backward_;
  Tensor memory_;
};

class Exact;
class LateGradients;

class Exec {
 public:
  struct Options {
    Arena* arena = nullptr;
    const ParamSet* params = nullptr;
    Par par = {};
    Precision precision = Precision::kF32;
    const bf16* params_bf16 = nullptr;     // the block in bf16; needed for Precision::kBf16
    const PackedParams* packed = nullptr;  // optional
    float* grads = nullptr;                // block of gradients, added to; needed when recording
    Tape* tape = nullptr;
    LateGradients* late = nullptr;  // optional: see late.h
    Profile* profile = nullptr;
    const Rng* dropout_rng = nullptr;  // null: no dropout (evaluation)
    uint64_t dropout_index = 0;        // substream of this pass; each site takes the next
    Exact* exact = nullptr;            // every op runs there, too: see exact.h
    Activations activations = {};      // how they enter products with stored weights
    bool recompute = false;            // layers run again in backward instead of keeping what it needs
  };
  explicit Exec(const Options& o) : o_(o) {}

  // The same executor with another tape, and back: `after` is where the numbering of dropout sites goes on.
  Exec on(Tape& tape) const {
    Exec e = *this;
    e.o_.tape = &tape;
    return e;
  }
  void go_on(const Exec& after) { dropout_site_ = after.dropout_site_; }

  bool recording() const { return o_.tape != nullptr; }
  bool recompute() const { return o_.recompute; }
  Tape& tape() const { return *o_.tape; }
  Arena& arena() const { return *o_.arena; }
  const Par& par() const { return o_.par; }
  Precision precision() const { return o_.precision; }
  Activations activations() const { return o_.activations; }
  Profile* profile() const { return o_.profile; }
  const Rng* dropout_rng() const { return o_.dropout_rng; }
  Exact* exact() const { return o_.exact; }
  LateGradients* late() const { return o_.late; }
  uint64_t next_dropout_site() { return o_.dropout_index + (uint64_t{dropout_site_++} << 48); }

  const Param& param(size_t i) const { return (*o_.params)[i]; }
  const StoredMatrix* stored(size_t i) const { return o_.params->stored(i); }  // null: in the block
  Mat<const float> weight(size_t param) const { return o_.params->mat(param); }
  PackedWeight weight_packed(size_t param, MatmulForm form) const {
    return o_.packed ? o_.packed->get(param, form) : PackedWeight{};
  }
  Mat<const bf16> weight_bf16(size_t param) const {
    const Param& p = (*o_.params)[param];
    return {o_.params_bf16 + p.offset, p.rows(), p.cols()};
  }
  Mat<float> weight_grad(size_t param) const {
    const Param& p = (*o_.params)[param];
    return {o_.grads + p.offset, p.rows(), p.cols()};
  }

  // Output rows: what ops that move information between tokens (attention, fast weights, scan) return.
  // Null: a row per token.
  const RowMap* output_rows() const { return output_rows_; }
  void set_output_rows(const RowMap* rows) { output_rows_ = rows; }
  Exec every_row() const {  // the same executor without output rows
    Exec e = *this;
    e.output_rows_ = nullptr;
    return e;
  }

  // A result: memory from the arena, and a slot if its gradient can matter.
  Var result(size_t rows, size_t cols, bool needs_grad = true) const {
    const Mat<float> m = o_.arena->mat(rows, cols);
    if (o_.exact) forget_exact(m);
    return {m, recording() && needs_grad ? o_.tape->new_slot(rows, cols) : -1};
  }
  // The result of a row-wise op on x: rows of the same tokens.
  Var result_like(Var x, size_t cols, bool needs_grad = true) const {
    Var y = result(x.v.rows, cols, needs_grad);
    y.rows = x.rows;
    return y;
  }

 private:
  void forget_exact(Mat<const float> m) const;

  Options o_;
  const RowMap* output_rows_ = nullptr;
  uint32_t dropout_site_ = 0;
};

}  // namespace braid
