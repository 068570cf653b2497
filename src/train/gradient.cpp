#include "train/gradient.h"

#include <algorithm>
#include <cstring>
#include <numeric>

#include "autograd/late.h"
#include "kernels/elementwise/elementwise.h"

namespace braid {
namespace {

constexpr size_t kLaneBytes = size_t{512} << 20;  // all lanes' gradients together
constexpr size_t kParamRow = 16;  // the block is a multiple of this; rows give conversion its parallel blocks
constexpr size_t kReduceBlock = 16384;  // floats per task when lanes are added up

// A slice reads and writes all of a lane's gradient once. While that stays in the caches, as of a small
// model, short slices are better: their activations do, too. (0.6 M parameters, 1024 x 21 tokens, Zen 4: 264
// ms with 128 tokens, 300 with 384; 384 tokens have 17 MB of activations.)
size_t slice_tokens_for(size_t gradient_bytes) {
  constexpr size_t kSmall = size_t{4} << 20;
  return gradient_bytes <= kSmall ? 128 : 384;
}

}  // namespace

// What a slice needs while it runs. Taken by whoever works on a lane and handed on still warm: a workspace
// per lane would be cold in cache at every change of lane.
struct Gradient::Workspace {
  explicit Workspace(Par par) : tape(arena, par) {}
  Arena arena;
  Tape tape;
  LateGradients late;
  Profile profile;
};

class Gradient::Lease {
 public:
  explicit Lease(Gradient& owner) : owner_(owner) {
    const std::lock_guard lock(owner.idle_mutex_);
    if (owner.idle_.empty()) {
      owner.workspaces_.push_back(std::make_unique<Workspace>(Par(owner.pool_)));
      owner.idle_.push_back(owner.workspaces_.back().get());
    }
    workspace_ = owner.idle_.back();
    owner.idle_.pop_back();
  }
  ~Lease() {
    const std::lock_guard lock(owner_.idle_mutex_);
    owner_.idle_.push_back(workspace_);
  }
  Lease(const Lease&) = delete;
  Lease& operator=(const Lease&) = delete;
  Workspace& operator*() const { return *workspace_; }

 private:
  Gradient& owner_;
  Workspace* workspace_;
};

Gradient::Gradient(Model& model, ThreadPool& pool, const GradientOptions& options)
    : model_(model), pool_(pool), options_(options), dropout_rng_(options.seed, "dropout") {
  const size_t bytes = std::max<size_t>(1, model.params().block_size() * sizeof(float));
  const size_t lanes = std::clamp<size_t>(kLaneBytes / bytes, 1, options.lanes);
  lanes_.resize(lanes);
  if (options_.slice_tokens == 0) options_.slice_tokens = slice_tokens_for(bytes);
  if (options.precision == Precision::kBf16)
    params_bf16_ = Tensor(DType::kBF16, {static_cast<int64_t>(model.params().block_size())});
}

Gradient::~Gradient() = default;

std::span<float> Gradient::grads() { return lanes_[0].as<float>(); }
void Gradient::params_changed() { stale_ = true; }

size_t Gradient::arena_bytes() const {
  size_t n = 0;
  for (const auto& w : workspaces_) n += w->arena.peak_bytes();
  return n;
}

std::vector<Gradient::Slice> Gradient::cut(const Batch& batch) const {
  std::vector<Slice> slices;
  for (size_t begin = 0; begin < batch.sequences();) {
    size_t end = begin + 1;
    while (end < batch.sequences() && batch.offsets[end + 1] - batch.offsets[begin] <= options_.slice_tokens)
      ++end;
    slices.push_back({begin, end});
    begin = end;
  }
  return slices;
}

namespace {

// The same sequences, those that begin alike beside each other: in a slice they share rows (Model::hidden).
Batch sorted(const Batch& batch) {
  const BatchView all = batch.view();
  std::vector<size_t> order(all.sequences());
  std::iota(order.begin(), order.end(), size_t{0});
  std::ranges::stable_sort(order, [&](size_t a, size_t b) {
    return std::ranges::lexicographical_compare(all.tokens_of(a), all.tokens_of(b));
  });
  Batch out;
  out.tokens.reserve(batch.tokens.size()), out.targets.reserve(batch.tokens.size());
  for (const size_t s : order) out.append(all.tokens_of(s), all.targets_of(s));
  return out;
}

}  // namespace

Outcome Gradient::run(const Batch& batch, uint64_t step, Profile* profile) {
  return run_all(sorted(batch), true, step, profile, nullptr);
}
Outcome Gradient::evaluate(const Batch& batch, Answers* answers) {
  return run_all(batch, false, 0, nullptr, answers);
}

Outcome Gradient::run_all(const Batch& batch, bool record, uint64_t step, Profile* profile,
                          Answers* answers) {
  if (answers)
    answers->predicted.assign(batch.tokens.size(), -1), answers->loss.assign(batch.tokens.size(), 0);
  const size_t block = model_.params().block_size();
  if (stale_) {
    const OpTimer timer(profile, "pack weights", false);
    if (options_.precision == Precision::kBf16)
      convert(Mat<const float>(model_.params().block().data(), block / kParamRow, kParamRow),
              Mat<bf16>(params_bf16_.as<bf16>().data(), block / kParamRow, kParamRow), Par(pool_));
    packed_.refresh(model_.params(), params_bf16(), Par(pool_));
    stale_ = false;
  }
  const std::vector<Slice> slices = cut(batch);
  const size_t lanes = std::min(lanes_.size(), std::max<size_t>(1, slices.size()));
  const double scale = 1.0 / std::max<size_t>(1, batch.supervised());
  std::vector<Outcome> outcomes(slices.size());
  const auto run_lane = [&](size_t l, Par par) {
    const Lease memory(*this);
    float* grads = nullptr;
    if (record) {
      Tensor& g = lanes_[l];
      if (g.bytes() == 0) g = Tensor(DType::kF32, {static_cast<int64_t>(block)});
      grads = g.as<float>().data();
      par.blocks(block, kReduceBlock,
                 [&](size_t b, size_t e) { std::memset(grads + b, 0, (e - b) * sizeof(float)); });
    }
    for (size_t i = l; i < slices.size(); i += lanes)
      outcomes[i] = run_slice(batch, slices[i], *memory, grads, par, scale, step, i,
                              profile ? &(*memory).profile : nullptr, answers);
    if (record)
      (*memory).late.add_all(executor(*memory, grads, par, step, 0, profile ? &(*memory).profile : nullptr));
  };
  // A lane per thread if there are enough of them; otherwise one after the other, each with all threads
  // inside its ops.
  if (lanes >= static_cast<size_t>(pool_.threads()))
    pool_.run(lanes, [&](size_t l) { run_lane(l, Par(pool_).alone()); });
  else
    for (size_t l = 0; l < lanes; ++l) run_lane(l, Par(pool_));

  if (record) {
    const OpTimer timer(profile, "lane sum", true);
    Par(pool_).blocks(block, kReduceBlock, [&](size_t b, size_t e) {
      Mat<float> sum(lanes_[0].as<float>().data() + b, 1, e - b);
      for (size_t l = 1; l < lanes; ++l)
        add_to(Mat<const float>(lanes_[l].as<float>().data() + b, 1, e - b), sum, Par(pool_).alone());
    });
    for (const Param& p : model_.params().all())  // its norm is of what can move
      if (!p.train) std::memset(grads().data() + p.offset, 0, p.count() * sizeof(float));
  }
  Outcome total;
  for (const Outcome& o : outcomes) {
    total.loss += o.loss;
    total.tokens += o.tokens, total.supervised += o.supervised, total.correct += o.correct;
    total.sequences += o.sequences, total.all_correct += o.all_correct;
  }
  if (profile)
    for (const auto& w : workspaces_) {
      profile->add(w->profile);
      w->profile = {};
    }
  return total;
}

Outcome Gradient::run_slice(const Batch& batch, const Slice& slice, Workspace& memory, float* grads, Par par,
                            double scale, uint64_t step, size_t index, Profile* profile, Answers* answers) {
  memory.arena.reset();
  const BatchView view = batch.slice(slice.begin, slice.end);
  const std::span<uint32_t> offsets = memory.arena.take<uint32_t>(view.offsets.size());
  for (size_t i = 0; i < offsets.size(); ++i) offsets[i] = view.offsets[i] - view.base();
  // The head sees only the positions that are supervised.
  const size_t n = view.supervised();
  const std::span<uint32_t> rows = memory.arena.take<uint32_t>(n);
  const std::span<int32_t> targets = memory.arena.take<int32_t>(n);
  const std::span<float> weights = memory.arena.take<float>(n);
  for (size_t i = 0, r = 0; i < view.targets.size(); ++i)
    if (view.targets[i] != kUnsupervised)
      rows[r] = static_cast<uint32_t>(i), targets[r] = view.targets[i],
      weights[r++] = static_cast<float>(scale);

  Exec exec = executor(memory, grads, par, step, index, profile);
  const Var h = model_.hidden(exec, {.tokens = view.tokens, .offsets = offsets}, rows);
  const LossResult loss =
      linear_cross_entropy(exec, h, model_.head(), targets, weights, static_cast<float>(options_.z_loss));
  Outcome o{.loss = loss.loss,
            .tokens = view.tokens.size(),
            .supervised = n,
            .correct = 0,
            .sequences = view.sequences(),
            .all_correct = 0};
  for (size_t s = 0, r = 0; s < view.sequences(); ++s) {
    bool all = true;
    for (; r < n && rows[r] < offsets[s + 1]; ++r) {
      const bool right = loss.row_argmax[r] == targets[r];
      o.correct += right, all &= right;
    }
    o.all_correct += all;
  }
  if (answers)
    for (size_t r = 0; r < n; ++r) {
      answers->predicted[view.base() + rows[r]] = loss.row_argmax[r];
      answers->loss[view.base() + rows[r]] = loss.row_loss[r];
    }
  if (grads) memory.tape.backward(profile);
  return o;
}

// Without gradients nothing is recorded.
Exec Gradient::executor(Workspace& memory, float* grads, Par par, uint64_t step, size_t slice,
                        Profile* profile) const {
  const bool record = grads != nullptr;
  return Exec({.arena = &memory.arena,
               .params = &model_.params(),
               .par = par,
               .precision = options_.precision,
               .params_bf16 = params_bf16(),
               .packed = &packed_,
               .grads = grads,
               .tape = record ? &memory.tape : nullptr,
               .late = record ? &memory.late : nullptr,
               .profile = profile,
               .dropout_rng = record ? &dropout_rng_ : nullptr,
               .dropout_index = (step << 20) + slice,
               .recompute = options_.recompute});
}

}  // namespace braid
