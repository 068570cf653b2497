#include "verify/state_check.h"

#include <fmt/format.h>

#include <algorithm>

namespace braid {
namespace {

using Tokens = std::vector<int32_t>;

class Checker {
 public:
  Checker(const Model& model, Par par) : model_(model), par_(par) {}

  std::vector<StateCheck> run() {
    together_or_alone();
    rolled_back();
    batches();
    snapshots();
    return std::move(all_);
  }

 private:
  Tokens random(size_t n, uint64_t seed) const {
    Rng rng(seed, "state check");
    Tokens t(n);
    for (int32_t& x : t) x = static_cast<int32_t>(rng.below(model_.config().vocab_size));
    return t;
  }

  void begin(const char* what) { all_.push_back({what, 0, {}}); }
  void expect(bool good, const std::string& what) {
    ++all_.back().checks;
    if (!good) all_.back().wrong.push_back(what);
  }

  Exec exec() {
    arena_.reset();
    return Exec({.arena = &arena_, .params = &model_.params(), .par = par_});
  }

  // Logits of all tokens of one pass.
  std::vector<float> pass(const std::vector<Tokens>& batch, const std::vector<State*>& states,
                          Snapshots* snapshots = nullptr) {
    Tokens tokens;
    std::vector<uint32_t> offsets{0}, rows;
    for (size_t s = 0; s < batch.size(); ++s) {
      tokens.insert(tokens.end(), batch[s].begin(), batch[s].end());
      offsets.push_back(static_cast<uint32_t>(tokens.size()));
    }
    for (uint32_t r = 0; r < tokens.size(); ++r) rows.push_back(r);
    Exec e = exec();
    Model::Input in{.tokens = tokens, .offsets = offsets, .states = states};
    if (snapshots) in.snapshots = {&snapshots, 1};
    const Mat<float> logits = model_.logits(e, model_.hidden(e, in, rows));
    return {logits.data, logits.data + logits.count()};
  }
  // One sequence in passes of these lengths; the logits of all.
  std::vector<float> feed(State& state, std::span<const int32_t> tokens, const std::vector<size_t>& passes) {
    std::vector<float> out;
    for (const size_t n : passes) {
      const std::vector<float> part = pass({Tokens(tokens.begin(), tokens.begin() + n)}, {&state});
      out.insert(out.end(), part.begin(), part.end());
      tokens = tokens.subspan(n);
    }
    return out;
  }
  State after(std::span<const int32_t> tokens, const std::vector<size_t>& passes) {
    State s = model_.new_state();
    feed(s, tokens, passes);
    return s;
  }

  void together_or_alone() {
    begin("a few tokens together = one by one");
    const Tokens tokens = random(40, 1);
    for (const size_t prompt : {0, 1, 20}) {
      State one = model_.new_state();
      if (prompt) feed(one, tokens, {prompt});
      const State start = one;
      const std::span<const int32_t> rest = std::span(tokens).subspan(prompt);
      const std::vector<float> want = feed(one, rest, std::vector<size_t>(16, 1));
      for (const std::vector<size_t>& passes :
           {std::vector<size_t>{8, 8}, {2, 3, 4, 7}, {5, 6, 1, 4}, {1, 7, 8}}) {
        State many = start;
        expect(feed(many, rest, passes) == want && many == one,
               fmt::format("after {} tokens, passes of {}, {}, ...", prompt, passes[0], passes[1]));
      }
    }
  }

  void rolled_back() {
    begin("rolled back = never read");
    const Tokens tokens = random(90, 2), other = random(20, 3);
    const State start = after(tokens, {33});
    const std::span<const int32_t> rest = std::span(tokens).subspan(33);
    // Passes that are read, and how many of their tokens are taken back.
    struct Case {
      std::vector<size_t> passes;
      size_t back;
    };
    for (const Case& c : {Case{{5}, 0},
                          {{5}, 1},
                          {{5}, 5},
                          {{1, 1, 1, 1}, 3},
                          {{8, 8}, 3},
                          {{3, 8, 2}, 8},
                          {{1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1}, 8},
                          {{40}, 8},
                          {{4, 20, 1}, 5}}) {
      State state = start;
      state.undo = 8;
      feed(state, rest, c.passes);
      // What would have been read: whole passes, the last one shorter.
      size_t keep = 0;
      for (const size_t n : c.passes) keep += n;
      keep -= c.back;
      std::vector<size_t> kept;
      for (size_t i = 0, at = 0; at < keep; at += kept.back())
        kept.push_back(std::min(c.passes[i++], keep - at));
      const std::string name =
          fmt::format("{} passes from {}, {} back", c.passes.size(), c.passes[0], c.back);
      Exec e = exec();
      const Status s = model_.rollback(e, state, 33 + static_cast<int64_t>(keep));
      State never = never_read(start, rest, c.passes, kept);
      expect(s && same(state, never), name + ": state");
      if (!s) continue;
      // Elsewhere, back again, and elsewhere: from what was rolled back, too.
      const std::vector<float> want = feed(never, other, {2, 3});
      expect(feed(state, other, {2, 3}) == want && same(state, never), name + ": going on");
      Exec again = exec();
      const bool back = static_cast<bool>(model_.rollback(again, state, state.position - 5));
      expect(back && feed(state, other, {2, 3}) == want && same(state, never), name + ": twice");
    }
    State state = start;
    state.undo = 4;
    feed(state, rest, {4, 4, 4, 4, 4});
    const State before = state;
    Exec e = exec();
    // Farther than was promised: refused, unless caches alone can be cut.
    const bool far = static_cast<bool>(model_.rollback(e, state, 10));
    expect(far ? same(state, after(tokens, {10})) : state == before, "too far");
  }
  // What is left of a pass of more than kSkinnyRows tokens has its bits, not those of a shorter one: the
  // state that was there, taken by a snapshot.
  State never_read(const State& start, std::span<const int32_t> tokens, const std::vector<size_t>& passes,
                   const std::vector<size_t>& kept) {
    State state = start;
    if (kept.empty()) return state;
    const size_t last = passes[kept.size() - 1];
    feed(state, tokens, {kept.begin(), kept.end() - 1});
    const size_t before = static_cast<size_t>(state.position - start.position);
    if (last == kept.back() || last <= kSkinnyRows) {
      feed(state, tokens.subspan(before), {kept.back()});
      return state;
    }
    Snapshots there{.at = {state.position + static_cast<int64_t>(kept.back())}, .taken = {}};
    pass({Tokens(tokens.begin() + static_cast<ptrdiff_t>(before),
                 tokens.begin() + static_cast<ptrdiff_t>(before + last))},
         {&state}, &there);
    return there.taken.at(0);
  }
  // With a way back a cache keeps pages that it would have dropped: what counts is what is seen.
  static bool same(const State& a, const State& b) {
    if (a.position != b.position) return false;
    for (size_t i = 0; i < a.layers.size(); ++i) {
      for (const NamedMemory& m : kMemories)
        if (!(a.layers[i].*m.which == b.layers[i].*m.which)) return false;
      const KvCache &x = a.layers[i].kv, &y = b.layers[i].kv;
      if (x.first() == y.first() ? !(x == y) : x.end() != y.end()) return false;
    }
    return true;
  }

  void batches() {
    begin("sequences together = each alone");
    constexpr size_t kMany = 8, kSteps = 12;
    const auto likeliest = [](std::span<const float> row) {
      return static_cast<int32_t>(std::ranges::max_element(row) - row.begin());
    };
    const auto vocab = static_cast<size_t>(model_.config().answers());
    std::vector<Tokens> prompts;  // the last two are alike
    for (size_t i = 0; i < kMany; ++i) prompts.push_back(random(3 + 5 * i, 10 + std::min(i, kMany - 2)));
    prompts[kMany - 1] = prompts[kMany - 2];
    // Each alone: tokens and logits.
    std::vector<Tokens> tokens(kMany);
    std::vector<std::vector<float>> logits(kMany);
    std::vector<State> ends;
    for (size_t i = 0; i < kMany; ++i) {
      State& s = ends.emplace_back(model_.new_state());
      std::vector<float> row = feed(s, prompts[i], {prompts[i].size()});
      row.erase(row.begin(), row.end() - static_cast<ptrdiff_t>(vocab));
      for (size_t t = 0; t < kSteps; ++t) {
        tokens[i].push_back(likeliest(row) % static_cast<int32_t>(model_.config().vocab_size));
        row = feed(s, std::span(tokens[i]).last(1), {1});
        logits[i].insert(logits[i].end(), row.begin(), row.end());
      }
    }
    // Together: sequence i is there from step i / 2 on, for kSteps steps.
    std::vector<State> states;
    for (size_t i = 0; i < kMany; ++i) states.push_back(after(prompts[i], {prompts[i].size()}));
    std::vector<std::vector<float>> got(kMany);
    for (size_t step = 0; step < kSteps + kMany; ++step) {
      std::vector<Tokens> batch;
      std::vector<State*> at;
      std::vector<size_t> who;
      for (size_t i = 0; i < kMany; ++i) {
        if (step < i / 2 || step - i / 2 >= kSteps) continue;
        batch.push_back({tokens[i][step - i / 2]}), at.push_back(&states[i]), who.push_back(i);
      }
      if (batch.empty()) continue;
      const std::vector<float> rows = pass(batch, at);
      for (size_t i = 0; i < who.size(); ++i)
        got[who[i]].insert(got[who[i]].end(), rows.begin() + static_cast<ptrdiff_t>(i * vocab),
                           rows.begin() + static_cast<ptrdiff_t>((i + 1) * vocab));
    }
    for (size_t i = 0; i < kMany; ++i)
      expect(got[i] == logits[i] && states[i] == ends[i], fmt::format("sequence {}", i));
    expect(got[kMany - 1] == got[kMany - 2], "the same sequence twice");
  }

  // Far enough from both ends of a pass that fast weights take the same form in all of them.
  void snapshots() {
    begin("snapshots on the way = passes that end there");
    const Tokens tokens = random(330, 4);
    State plain = after(tokens, {5}), state = plain;
    const std::span<const int32_t> rest = std::span(tokens).subspan(5, 320);
    const std::vector<float> want = feed(plain, rest, {320});
    // 20 is at the start, 90 at 85, 160 at 149.
    Snapshots wanted{.at = {325, 5, 20, 85, 90, 160, 261}, .taken = {}};
    const std::vector<float> got = pass({Tokens(rest.begin(), rest.end())}, {&state}, &wanted);
    expect(got == want && state == plain, "they change something");
    const int64_t positions[] = {85, 149, 261, 325};
    expect(wanted.taken.size() == std::size(positions), "another number");
    for (size_t i = 0; i < std::min(wanted.taken.size(), std::size(positions)); ++i) {
      State& s = wanted.taken[i];
      expect(s.position == positions[i], fmt::format("position {}", s.position));
      State there = after(tokens, {5, static_cast<size_t>(s.position - 5)});
      expect(s == there, fmt::format("state at {}", s.position));
      expect(feed(s, std::span(tokens).first(9), {6, 3}) == feed(there, std::span(tokens).first(9), {6, 3}),
             fmt::format("going on from {}", s.position));
    }
  }

  const Model& model_;
  Par par_;
  Arena arena_;
  std::vector<StateCheck> all_;
};

}  // namespace

std::vector<StateCheck> check_states(const Model& model, Par par) { return Checker(model, par).run(); }

}  // namespace braid
