#include "infer/score.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <numeric>

#include "kernels/cross_entropy/cross_entropy.h"
#include "model/model.h"

namespace braid {
namespace {

constexpr size_t kLogitFloats = size_t{1} << 22;  // logits at a time: 16 MB

size_t common(std::span<const int32_t> a, std::span<const int32_t> b) {
  return static_cast<size_t>(std::ranges::mismatch(a, b).in1 - a.begin());
}

// Neighbours in the order of their tokens that continue one prefix. A sequence alone is a group with none.
struct Group {
  size_t begin, end;  // places in that order
  size_t prefix;      // tokens
};

// `tokens(i)` are those at place i, `most(i)` how long a prefix it may share.
template <class Tokens, class Most>
std::vector<Group> group(size_t count, size_t least, const Tokens& tokens, const Most& most) {
  std::vector<Group> out;
  for (size_t i = 0; i < count;) {
    Group g{i, i + 1, 0};
    for (; g.end < count; ++g.end) {
      const size_t shared = std::min({common(tokens(g.end - 1), tokens(g.end)), most(g.end), most(i)});
      // One that shares much less would shorten the prefix of all.
      if (shared < least || (g.prefix && 4 * shared < 3 * g.prefix)) break;
      g.prefix = g.prefix ? std::min(g.prefix, shared) : shared;
    }
    out.push_back(g);
    i = g.end;
  }
  return out;
}

template <class Requests>
std::vector<size_t> by_tokens(const Requests& requests) {
  std::vector<size_t> order(requests.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::ranges::stable_sort(order, [&](size_t a, size_t b) {
    return std::ranges::lexicographical_compare(requests[a].tokens, requests[b].tokens);
  });
  return order;
}

}  // namespace

// What one thread computes with.
class Scorer::Worker {
 public:
  // What a token sequence of a pass is read for: the logits behind `row` score `token` for request `score`.
  struct Target {
    size_t row;
    int32_t token;
    size_t score;
  };
  struct Read {
    std::span<const int32_t> tokens = {};
    State* state = nullptr;            // continues from there; null: from the start, and nothing is kept
    std::vector<Target> targets = {};  // by row
    bool last = false;                 // the likeliest token behind its last row is needed
  };

  Worker(const Model& model, ThreadPool& pool, const ScorerOptions& options)
      : model_(model), context_(pool, options.activations), options_(options) {}

  // All of the reads, in as many passes as their tokens need.
  Status read(std::vector<Read>& reads, std::span<SequenceScore> to) {
    return in_passes(reads, [&](std::span<const Read> pass) { return score_pass(pass, to); });
  }
  // The likeliest token behind each of the reads with `last`.
  Status read(std::vector<Read>& reads, std::vector<int32_t>& best) {
    best.clear();
    return in_passes(reads, [&](std::span<const Read> pass) { return best_pass(pass, best); });
  }

 private:
  // Calls pass(reads) with at most pass_tokens tokens each. A longer read is cut: its state continues.
  template <class F>
  Status in_passes(std::vector<Read>& reads, const F& pass) {
    std::vector<Read> pack;
    size_t tokens = 0;
    const auto flush = [&]() -> Status {
      if (pack.empty()) return {};
      const Status s = pass(std::span<const Read>(pack));
      pack.clear(), tokens = 0;
      return s;
    };
    for (Read& r : reads) {
      if (r.tokens.size() > options_.pass_tokens) {
        if (Status s = flush(); !s) return s;
        if (Status s = in_pieces(r, pass); !s) return s;
        continue;
      }
      if (tokens + r.tokens.size() > options_.pass_tokens)
        if (Status s = flush(); !s) return s;
      tokens += r.tokens.size();
      pack.push_back(std::move(r));
    }
    return flush();
  }

  template <class F>
  Status in_pieces(const Read& r, const F& pass) {
    State own = r.state ? State() : model_.new_state();
    State* state = r.state ? r.state : &own;
    for (size_t at = 0; at < r.tokens.size(); at += options_.pass_tokens) {
      const size_t n = std::min(options_.pass_tokens, r.tokens.size() - at);
      Read piece{.tokens = r.tokens.subspan(at, n), .state = state};
      for (const Target& t : r.targets)
        if (t.row >= at && t.row < at + n) piece.targets.push_back({t.row - at, t.token, t.score});
      piece.last = r.last && at + n == r.tokens.size();
      if (Status s = pass(std::span<const Read>(&piece, 1)); !s) return s;
    }
    return {};
  }

  Exec begin() {
    context_.arena().reset();
    return Exec({.arena = &context_.arena(),
                 .params = &model_.params(),
                 .par = context_.par(),
                 .activations = context_.activations()});
  }

  Var hidden(Exec& exec, std::span<const Read> reads, std::span<const uint32_t> rows) {
    tokens_.clear(), offsets_.assign(1, 0), states_.clear();
    for (const Read& r : reads) {
      tokens_.insert(tokens_.end(), r.tokens.begin(), r.tokens.end());
      offsets_.push_back(static_cast<uint32_t>(tokens_.size()));
      if (r.state) states_.push_back(r.state);
    }
    check(states_.empty() || states_.size() == reads.size(), "Scorer: a pass with and without states");
    return model_.hidden(exec, {.tokens = tokens_, .offsets = offsets_, .states = states_}, rows);
  }

  // Calls f(logits, first) for the logits of consecutive rows.
  template <class F>
  void each_logits(Exec& exec, Var h, const F& f) {
    const auto vocab = static_cast<size_t>(model_.config().answers());
    const size_t most = std::max<size_t>(1, kLogitFloats / vocab);
    for (size_t first = 0; first < h.v.rows; first += most) {
      const size_t n = std::min(most, h.v.rows - first);
      const Arena::Mark mark = exec.arena().mark();
      Var part = h;
      part.v.data = h.v.row(first), part.v.rows = n;
      f(model_.logits(exec, part), first);
      exec.arena().release(mark);
    }
  }

  Status score_pass(std::span<const Read> reads, std::span<SequenceScore> to) {
    rows_.clear(), targets_.clear();
    size_t base = 0;
    for (const Read& r : reads) {
      for (const Target& t : r.targets) {
        const auto row = static_cast<uint32_t>(base + t.row);
        if (rows_.empty() || rows_.back() != row) rows_.push_back(row);
        targets_.push_back({rows_.size() - 1, t.token, t.score});
      }
      base += r.tokens.size();
    }
    Exec exec = begin();
    const Var h = hidden(exec, reads, rows_);
    Status status;
    size_t next = 0;  // of targets_
    each_logits(exec, h, [&](Mat<const float> logits, size_t first) {
      const size_t begin = next;
      first_target_.assign(logits.rows, 0);
      for (; next < targets_.size() && targets_[next].row < first + logits.rows; ++next)
        first_target_[targets_[next].row - first] = targets_[next].token;
      loss_.resize(logits.rows), argmax_.resize(logits.rows);
      cross_entropy({.logits = logits, .target = first_target_.data()},
                    {.loss = loss_.data(), .argmax = argmax_.data()}, exec.par());
      for (size_t i = begin; i < next; ++i) {
        const Target& t = targets_[i];
        const size_t row = t.row - first;
        // The loss is that of the row's last target; the difference of two logits makes it another's.
        const float *x = logits.row(row), other = x[first_target_[row]];
        const double lp = static_cast<double>(x[t.token]) - other - loss_[row];
        if (!std::isfinite(lp))
          status =
              Error{"a token has no finite probability",
                    "the weights are damaged or the model overflows; check them with `braid verify --model`"};
        to[t.score].log_likelihood += lp;
        if (argmax_[row] != t.token) to[t.score].greedy = false;
      }
    });
    return status;
  }

  Status best_pass(std::span<const Read> reads, std::vector<int32_t>& best) {
    rows_.clear();
    size_t end = 0;
    for (const Read& r : reads)
      if (end += r.tokens.size(); r.last) rows_.push_back(static_cast<uint32_t>(end - 1));
    Exec exec = begin();
    const Var h = hidden(exec, reads, rows_);
    Status status;
    if (!rows_.empty())
      each_logits(exec, h, [&](Mat<const float> logits, size_t) {
        for (size_t i = 0; i < logits.rows; ++i) {
          const std::span<const float> row(logits.row(i), logits.cols);
          const auto top = std::ranges::max_element(row);
          if (!std::isfinite(*top))
            status = Error{
                "a logit is not finite",
                "the weights are damaged or the model overflows; check them with `braid verify --model`"};
          best.push_back(static_cast<int32_t>(top - row.begin()));
        }
      });
    return status;
  }

  const Model& model_;
  Context context_;
  ScorerOptions options_;
  std::vector<int32_t> tokens_, first_target_, argmax_;
  std::vector<uint32_t> offsets_, rows_;
  std::vector<State*> states_;
  std::vector<Target> targets_;
  std::vector<float> loss_;
};

Scorer::Scorer(const Model& model, ThreadPool& pool, const ScorerOptions& options)
    : model_(model), pool_(pool), options_(options) {}
Scorer::~Scorer() = default;

// Runs task(i, worker) for each i; the first error stops those that have not begun.
template <class F>
Status Scorer::run_tasks(size_t count, const F& task) {
  std::atomic<bool> failed = false;
  Status first;
  Par(pool_).tasks(count, [&](size_t i) {
    if (failed) return;
    std::unique_ptr<Worker> worker;
    {
      const std::lock_guard lock(mutex_);
      if (!idle_.empty()) worker = std::move(idle_.back()), idle_.pop_back();
    }
    if (!worker) worker = std::make_unique<Worker>(model_, pool_, options_);
    const Status s = task(i, *worker);
    const std::lock_guard lock(mutex_);
    idle_.push_back(std::move(worker));
    if (s) return;
    if (!failed) first = s;
    failed = true;
  });
  return first;
}

Status Scorer::score(std::span<const ScoreRequest> requests, std::span<SequenceScore> to, const Tick& tick) {
  check(requests.size() == to.size(), "Scorer::score: a score for each request");
  for (const ScoreRequest& r : requests)
    check(r.from >= 1 && r.from < r.tokens.size(), "Scorer::score: nothing is scored");
  std::ranges::fill(to, SequenceScore());
  const std::vector<size_t> order = by_tokens(requests);
  const auto at = [&](size_t place) -> const ScoreRequest& { return requests[order[place]]; };
  const std::vector<Group> groups = group(
      order.size(), options_.state_from, [&](size_t i) { return std::span<const int32_t>(at(i).tokens); },
      [&](size_t i) { return at(i).from; });

  // Tasks of about a pass each; their borders depend on the requests alone.
  std::vector<size_t> ends;
  std::vector<size_t> sizes;
  size_t size = 0;
  for (size_t g = 0; g < groups.size(); ++g) {
    size += groups[g].prefix;
    for (size_t i = groups[g].begin; i < groups[g].end; ++i) size += at(i).tokens.size() - groups[g].prefix;
    if (size < options_.pass_tokens && g + 1 < groups.size()) continue;
    ends.push_back(g + 1), sizes.push_back(size);
    size = 0;
  }
  return run_tasks(ends.size(), [&](size_t t, Worker& worker) -> Status {
    using Read = Worker::Read;
    using Target = Worker::Target;
    std::vector<Read> alone, prefixes, rests;
    std::vector<State> states, copies;  // no growth: reads point to them
    size_t shared = 0;
    for (size_t g = t ? ends[t - 1] : 0; g < ends[t]; ++g) shared += groups[g].prefix > 0;
    states.reserve(shared), copies.reserve(options_.lanes);
    // Rows [first, last) of a request, of which those that score something are targets.
    const auto targets = [&](size_t place, size_t first, size_t last, std::vector<Target>& out) {
      const ScoreRequest& r = at(place);
      for (size_t row = std::max(first, r.from - 1); row < last; ++row)
        out.push_back({row - first, r.tokens[row + 1], order[place]});
    };
    for (size_t g = t ? ends[t - 1] : 0; g < ends[t]; ++g) {
      const Group& group = groups[g];
      if (group.prefix == 0) {
        const std::span<const int32_t> tokens = at(group.begin).tokens;
        alone.push_back({.tokens = tokens.first(tokens.size() - 1)});
        targets(group.begin, 0, tokens.size() - 1, alone.back().targets);
        continue;
      }
      states.push_back(model_.new_state());
      prefixes.push_back(
          {.tokens = std::span(at(group.begin).tokens).first(group.prefix), .state = &states.back()});
      for (size_t i = group.begin; i < group.end; ++i)
        targets(i, 0, std::min(group.prefix, at(i).tokens.size() - 1), prefixes.back().targets);
    }
    if (Status s = worker.read(alone, to); !s) return s;
    if (Status s = worker.read(prefixes, to); !s) return s;
    size_t next = 0;
    for (size_t g = t ? ends[t - 1] : 0; g < ends[t]; ++g) {
      const Group& group = groups[g];
      if (group.prefix == 0) continue;
      const State& state = states[next++];
      for (size_t i = group.begin; i < group.end; ++i) {
        const std::span<const int32_t> tokens = at(i).tokens;
        if (tokens.size() <= group.prefix + 1) continue;  // the prefix has scored its one token
        if (copies.size() == options_.lanes) {            // states can be large
          if (Status s = worker.read(rests, to); !s) return s;
          rests.clear(), copies.clear();
        }
        copies.push_back(state);
        rests.push_back({.tokens = tokens.subspan(group.prefix, tokens.size() - 1 - group.prefix),
                         .state = &copies.back()});
        targets(i, group.prefix, tokens.size() - 1, rests.back().targets);
      }
    }
    if (Status s = worker.read(rests, to); !s) return s;
    if (!tick) return {};
    const std::lock_guard lock(mutex_);
    return tick(sizes[t]) ? Status() : Error{"stopped"};
  });
}

Status Scorer::generate(std::span<const PromptRequest> prompts, const Next& next, const Tick& tick) {
  for (const PromptRequest& p : prompts) check(!p.tokens.empty(), "Scorer::generate: an empty prompt");
  const std::vector<size_t> order = by_tokens(prompts);
  const auto at = [&](size_t place) -> const PromptRequest& { return prompts[order[place]]; };
  const std::vector<Group> groups = group(
      order.size(), options_.state_from, [&](size_t i) { return std::span<const int32_t>(at(i).tokens); },
      [&](size_t i) { return at(i).tokens.size() - 1; });
  // Tasks have several times as many prompts as lanes where there are enough of them.
  const size_t each = std::clamp(prompts.size() / 16, options_.lanes / 4 + 1, 4 * options_.lanes);
  std::vector<size_t> ends;
  for (size_t g = 0, count = 0; g < groups.size(); ++g) {
    count += groups[g].end - groups[g].begin;
    if (count < each && g + 1 < groups.size()) continue;
    ends.push_back(g + 1);
    count = 0;
  }
  return run_tasks(ends.size(), [&](size_t t, Worker& worker) -> Status {
    struct Lane {
      size_t request;
      int64_t left;  // tokens that may follow
      int32_t token;
      State state;
    };
    std::vector<Lane> lanes;
    std::vector<int32_t> best;
    std::vector<Worker::Read> reads;
    size_t g = t ? ends[t - 1] : 0, done = 0;
    // Hands out the token of each lane from `first` on, and drops the lanes that end with it.
    const auto hand_out = [&](size_t first) {
      for (size_t i = first; i < lanes.size(); ++i) lanes[i].token = best[i - first];
      std::erase_if(lanes, [&](Lane& l) {
        if (&l < lanes.data() + first) return false;
        return next(l.request, l.token) || --l.left <= 0;
      });
    };
    while (g < ends[t] || !lanes.empty()) {
      if (g < ends[t] && lanes.size() < options_.lanes) {
        // As many new prompts as there are free lanes, or a whole group.
        const size_t first_group = g, first = lanes.size();
        for (size_t count = first; g < ends[t] && count < options_.lanes; ++g)
          count += groups[g].end - groups[g].begin;
        std::vector<State> states(g - first_group, model_.new_state());
        reads.clear();
        for (size_t k = first_group; k < g; ++k)
          if (groups[k].prefix)
            reads.push_back({.tokens = std::span(at(groups[k].begin).tokens).first(groups[k].prefix),
                             .state = &states[k - first_group]});
        for (const Worker::Read& r : reads) done += r.tokens.size();
        if (Status s = worker.read(reads, best); !s) return s;
        for (size_t k = first_group; k < g; ++k)
          for (size_t i = groups[k].begin; i < groups[k].end; ++i)
            lanes.push_back({order[i], at(i).max_tokens, 0, states[k - first_group]});
        reads.clear();
        size_t lane = first;
        for (size_t k = first_group; k < g; ++k)
          for (size_t i = groups[k].begin; i < groups[k].end; ++i) {
            reads.push_back({.tokens = std::span(at(i).tokens).subspan(groups[k].prefix),
                             .state = &lanes[lane++].state,
                             .last = true});
            done += reads.back().tokens.size();
          }
        if (Status s = worker.read(reads, best); !s) return s;
        hand_out(first);
      }
      if (!lanes.empty()) {
        reads.clear();
        for (Lane& l : lanes) reads.push_back({.tokens = {&l.token, 1}, .state = &l.state, .last = true});
        if (Status s = worker.read(reads, best); !s) return s;
        done += lanes.size();
        hand_out(0);
      }
      if (!tick) continue;
      const std::lock_guard lock(mutex_);
      if (!tick(std::exchange(done, 0))) return Error{"stopped"};
    }
    return {};
  });
}

}  // namespace braid
