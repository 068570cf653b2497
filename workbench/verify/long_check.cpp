#include "verify/long_check.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/clock.h"
#include "model/model.h"
#include "verify/compare.h"
#include "model/state_file.h"

namespace braid {
namespace {

struct End {
  State state;
  std::vector<float> logits;
  double seconds;
};

bool finite(const End& end) {
  const auto good = [](std::span<const float> x) {
    return std::ranges::all_of(x, [](float v) { return std::isfinite(v); });
  };
  bool ok = good(end.logits);
  for (const LayerState& l : end.state.layers) {
    for (const NamedMemory& m : kMemories) ok = ok && good((l.*m.which).numbers());
    std::vector<KvSegment> segments;
    l.kv.segments(segments);
    for (const KvSegment& s : segments)
      ok = ok && good({s.k, s.count * s.k_stride}) && good({s.v, s.count * s.v_stride});
  }
  return ok;
}

}  // namespace

bool LongRow::ok() const { return finite && (same_bits || (!exact && difference <= kTolF32.rms)); }

Result<std::vector<LongRow>> check_long(const Model& model, ThreadPool& pool, size_t count,
                                        const std::string& file) {
  Rng rng(1, "long check");
  std::vector<int32_t> tokens(count);
  for (int32_t& t : tokens) t = static_cast<int32_t>(rng.below(model.config().vocab_size));
  // Passes of these lengths, repeating; with `save` the state goes through a file before the pass that
  // reaches the middle.
  const auto run = [&](const std::vector<size_t>& passes, bool save) -> Result<End> {
    const double start = seconds_now();
    Context context(pool);
    Session s(model, context, 0);
    std::span<const float> last;
    for (size_t at = 0, i = 0; at < count; ++i) {
      const size_t n = std::min(count - at, passes[i % passes.size()]);
      if (save && at + n > count / 2) {
        if (Status status = save_state(s.state(), model, file, std::span(tokens).first(at)); !status)
          return status.error();
        Result<State> again = load_state(model, file);
        if (!again) return again.error();
        s.restart();
        s.set_state(*std::move(again));
        save = false;
      }
      last = s.feed(std::span(tokens).subspan(at, n));
      at += n;
    }
    return End{s.state(), {last.begin(), last.end()}, seconds_now() - start};
  };
  const Result<End> whole = run({count}, false);
  if (!whole) return whole.error();
  std::vector<LongRow> rows{{"one pass", true, 0, finite(*whole), true, whole->seconds}};
  // An expert that gets few rows of a pass takes another product for them.
  bool experts = false;
  for (int64_t i = 0; i < model.config().n_layers; ++i)
    experts = experts || model.config().layer(i).mlp.as<MoeConfig>();
  struct Way {
    std::string what;
    std::vector<size_t> passes;
    bool save, exact;
  };
  const Way ways[] = {{fmt::format("passes of {}", kPromptPiece), {kPromptPiece}, false, !experts},
                      {"the same, through a file in the middle", {kPromptPiece}, true, !experts},
                      {"passes of 1000 and 77, through a file", {1000, 77}, true, false}};
  for (const Way& w : ways) {
    const Result<End> end = run(w.passes, w.save);
    if (!end) return end.error();
    rows.push_back({w.what, end->state == whole->state && end->logits == whole->logits,
                    compare<float, float>(end->logits, whole->logits).rms, finite(*end), w.exact,
                    end->seconds});
  }
  return rows;
}

}  // namespace braid
