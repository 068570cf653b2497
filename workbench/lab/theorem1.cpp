// Theorem 1 of DeltaFormer: theory/swaps.h, run.
#include <fmt/format.h>

#include <cmath>

#include "base/clock.h"
#include "base/interrupt.h"
#include "base/progress.h"
#include "lab/theory.h"
#include "tasks/keys.h"
#include "theory/swaps.h"

namespace braid {
namespace {

constexpr uint64_t kSeed = 1;

// Where keys come from: unit vectors and a Hadamard matrix, or the recipe.
struct Keys {
  size_t n, d;
  bool hadamard;
  std::string text() const {
    return fmt::format("{} slots, {} dimensions, {}", n, d, hadamard ? "Hadamard" : "recipe");
  }
};

Result<Tensor> make_keys(const Keys& k, Par par) {
  if (k.hadamard) return hadamard_keys(k.d);
  KeySearch found = spread_keys(k.n, k.d, 2000, kSeed, par);
  if (!found.keys) return Error{fmt::format("no keys for {}: coherence {:.4f}", k.text(), found.coherence)};
  return std::move(*found.keys);
}

Json report_json(const SwapReport& r) {
  return {{"swaps", r.swaps},
          {"reads", r.reads},
          {"wrong", r.wrong},
          {"inexact", r.inexact},
          {"first_wrong", r.first_wrong ? Json(*r.first_wrong) : Json(nullptr)},
          {"most_rows", r.most_rows}};
}
SwapReport report_of(const Json& j) {
  SwapReport r;
  r.swaps = j.value("swaps", uint64_t{0}), r.reads = j.value("reads", uint64_t{0}),
  r.wrong = j.value("wrong", uint64_t{0});
  r.inexact = j.value("inexact", uint64_t{0}), r.most_rows = j.value("most_rows", size_t{0});
  if (j.contains("first_wrong") && !j["first_wrong"].is_null())
    r.first_wrong = j["first_wrong"].get<uint64_t>();
  return r;
}

// Swaps in blocks of n, the cache compressed after each. Kept every few seconds, so that it can be
// interrupted.
Result<Json> many_swaps(Stages& stages, const std::string& name, const Json& settings, const Keys& k,
                        uint64_t swaps) {
  const Result<Tensor> keys = make_keys(k, Par(stages.pool()));
  if (!keys) return keys.error();
  SwapMemory memory(*keys, {});
  SwapReport total;
  const double start = seconds_now();
  double before = 0;
  const Result<Json> kept = stages.partial(name, settings);
  if (!kept) return kept;
  if (kept->contains("report")) {
    total = report_of((*kept)["report"]), before = (*kept)["seconds"];
    memory.restore((*kept)["contents"], (*kept)["cached"]);
  }
  Progress bar("swaps", swaps, total.swaps, stages.quiet());
  double saved = seconds_now();
  while (total.swaps < swaps) {
    total.add(memory.swap(std::min<uint64_t>(k.n, swaps - total.swaps), kSeed, total.swaps / k.n));
    bar.update(total.swaps);
    const bool stop = interrupted();
    if (!stop && seconds_now() - saved < 5) continue;
    saved = seconds_now();
    const Json state{{"report", report_json(total)},
                     {"contents", memory.contents()},
                     {"cached", memory.cached()},
                     {"seconds", before + seconds_now() - start}};
    if (Status s = stages.keep_partial(name, settings, state); !s) return s.error();
    if (stop && total.swaps < swaps) return Stages::interruption();
  }
  Json out = report_json(total);
  out["coherence"] = coherence(keys->mat());
  out["bytes"] = SwapMemory::cache_bytes(total.most_rows, k.d);
  out["bytes_without"] = SwapMemory::cache_bytes(k.n + swaps, k.d);
  return out;
}

// Until the first wrong read, or `most` swaps.
Result<Json> first_error(const Tensor& keys, const SwapKernel& kernel, uint64_t most, bool quiet) {
  SwapMemory memory(keys, kernel);
  SwapReport total;
  Progress bar("swaps", most, 0, quiet);
  while (total.swaps < most && !total.first_wrong) {
    if (interrupted()) return Stages::interruption();
    total.add(memory.swap(std::min<uint64_t>(memory.slots(), most - total.swaps), kSeed,
                          total.swaps / memory.slots()));
    bar.update(total.swaps);
  }
  return report_json(total);
}

// The smallest width at which the recipe finds keys: by halving between Welch's bound and a width that works.
Result<Json> smallest_width(size_t n, int rounds, Par par) {
  const size_t low = welch_width(n);
  size_t fails = low - 1, works = 0;
  float coherence_there = 0;
  int rounds_there = 0;
  const auto try_width = [&](size_t d) {
    const KeySearch s = spread_keys(n, d, rounds, kSeed, par);
    if (s.keys) works = d, coherence_there = s.coherence, rounds_there = s.rounds;
    return s.keys.has_value();
  };
  for (size_t d = std::max<size_t>(low, 4); works == 0; d += std::max<size_t>(1, d / 4)) {
    if (interrupted()) return Stages::interruption();
    if (!try_width(d)) fails = d;
  }
  while (works - fails > std::max<size_t>(1, works / 64)) {
    if (interrupted()) return Stages::interruption();
    const size_t middle = (works + fails) / 2;
    if (!try_width(middle)) fails = middle;
  }
  return Json{{"slots", n},
              {"width", works},
              {"fails", fails},
              {"welch", low},
              {"coherence", coherence_there},
              {"rounds", rounds_there}};
}

const char* kind_name(DeltaKind k) {
  switch (k) {
    case DeltaKind::kLinear:
      return "linear";
    case DeltaKind::kRelu:
      return "relu";
    case DeltaKind::kExp:
      return "exp";
    case DeltaKind::kSoftmax:
      return "softmax";
    case DeltaKind::kRound:
      return "round";
  }
  return "";
}

// Four of the slots, three swaps: similarities, what rounding makes of them, and contents.
void add_pictures(Page& page) {
  page.heading("Four slots, three swaps");
  page.paragraph(
      "Four of 256 keys in 128 dimensions, with the contents 10, 20, 30 and 40. Rows are tokens in the order "
      "they come, the last three are swaps.");
  constexpr size_t kWidth = 128, kSlots = 4;
  const Tensor all = hadamard_keys(kWidth);
  const size_t slot[kSlots] = {1, 2, kWidth + 3, kWidth + 9};
  const std::pair<size_t, size_t> swaps[] = {{0, 2}, {1, 2}, {0, 3}};
  std::vector<std::vector<float>> keys;
  std::vector<std::string> names;
  for (size_t i = 0; i < kSlots; ++i) {
    keys.emplace_back(all.mat().row(slot[i]), all.mat().row(slot[i]) + kWidth);
    names.push_back(fmt::format("k{}", i + 1));
  }
  for (const auto& [a, b] : swaps) {
    std::vector<float> k(kWidth);
    for (size_t e = 0; e < kWidth; ++e) k[e] = keys[b][e] - keys[a][e];
    keys.push_back(k), names.push_back(fmt::format("k{}-k{}", b + 1, a + 1));
  }
  const size_t rows = keys.size();
  Grid raw{.title = "Inner product of each token's key with the earlier ones",
           .rows = names,
           .columns = names,
           .values = std::vector<std::vector<double>>(rows, std::vector<double>(rows, NAN)),
           .largest = 2};
  Grid rounded = raw;
  rounded.title = "Rounded to whole numbers: what the kernel takes";
  for (size_t t = 0; t < rows; ++t)
    for (size_t i = 0; i < t; ++i) {
      double dot = 0;
      for (size_t e = 0; e < kWidth; ++e) dot += static_cast<double>(keys[t][e]) * keys[i][e];
      raw.values[t][i] = dot, rounded.values[t][i] = std::rint(dot);
    }
  page.grid(raw);
  page.grid(rounded);
  // u by substitution; contents read with both.
  for (const bool rounds : {false, true}) {
    std::vector<double> u(rows);
    Grid contents{.title = rounds ? "Read after each token, rounded similarities"
                                  : "Read after each token, similarities as they are",
                  .rows = {"slot 1", "slot 2", "slot 3", "slot 4"},
                  .columns = names,
                  .values = std::vector<std::vector<double>>(kSlots, std::vector<double>(rows, NAN)),
                  .largest = 40};
    for (size_t t = 0; t < rows; ++t) {
      u[t] = t < kSlots ? 10.0 * static_cast<double>(t + 1) : 0;
      for (size_t i = 0; i < t; ++i) u[t] -= (rounds ? rounded : raw).values[t][i] * u[i];
      for (size_t s = 0; s < std::min(kSlots, t + 1); ++s) {
        double sum = 0;
        for (size_t i = 0; i <= t; ++i) {
          double dot = 0;
          for (size_t e = 0; e < kWidth; ++e) dot += static_cast<double>(keys[s][e]) * keys[i][e];
          sum += (rounds ? std::rint(dot) : dot) * u[i];
        }
        contents.values[s][t] = sum;
      }
    }
    page.grid(contents);
  }
}

void add_theorem_words(Page& page) {
  page.heading("The construction in words");
  page.paragraph(
      "DeltaFormer writes u_t = v_t - sum over earlier i of kappa(k_i, k_t) u_i into its cache, and reads "
      "the sum of kappa(k_i, q) u_i. Let every slot have a "
      "unit key, all inner products below 1/8 in size, and let kappa be the inner product rounded to the "
      "nearest whole number. Between two slots it is 0, of a slot with "
      "itself 1: as if the keys were orthogonal, although there are more of them than dimensions. To swap "
      "the contents x_a and x_b, append the key k_a - k_b with value "
      "0. It reads x_a - x_b, so its u is x_b - x_a; from now on k_a reads x_a + u = x_b and k_b reads x_b - "
      "u = x_a. Differences of keys have inner products with one "
      "another within 4/8 of a whole number, so rounding stays right, and nothing ever accumulates: every "
      "read is exact.");
  page.paragraph(
      "After n swaps the n contents are read and written anew as n pairs. The cache never has more than 2 n "
      "rows of d + 2 numbers; the theorem needs d of order log n.");
}

std::string megabytes(const Json& bytes, int digits) {
  return fmt::format("{:.{}f}", bytes.get<double>() / 1e6, digits);
}

const char* keys_name(const Keys& k) { return k.hadamard ? "hadamard" : "recipe"; }

std::vector<PageCell> swaps_row(const Keys& k, const SwapReport& s, const Json& r) {
  return {{fmt::format("{}", k.n)},
          {fmt::format("{}", k.d)},
          {k.hadamard ? "Hadamard" : "recipe"},
          {fmt::format("{:.4f}", r["coherence"].get<double>())},
          {fmt::format("{}", s.swaps)},
          {fmt::format("{}", s.reads)},
          zero_verdict(s.wrong),
          zero_verdict(s.inexact),
          {megabytes(r["bytes"], 2)},
          {megabytes(r["bytes_without"], 0)}};
}

// The rounding kernel, with the cache compressed every n swaps.
Status add_million(Stages& stages, Findings& out) {
  std::vector<Keys> runs{{256, 128, true}, {256, 112, false}};
  if (stages.effort() != Effort::kQuick)
    runs.push_back({512, 128, false}), runs.push_back({2048, 192, false});
  const uint64_t swaps = stages.effort() == Effort::kPaper ? 10'000'000 : 1'000'000;
  PageTable million{.head = {"slots", "dimensions", "keys", "coherence", "swaps", "reads", "wrong", "inexact",
                             "cache, MB", "plain, MB"},
                    .rows = {}};
  bool exact = true, small = true, coherent = true;
  std::string coherences;
  uint64_t reads = 0, wrong = 0;
  double memory = 0, without = 0;
  for (const Keys& k : runs) {
    const std::string name = fmt::format("swaps-{}-{}-{}", k.n, k.d, keys_name(k));
    const Json settings{{"swaps", swaps}};
    const Result<Json> r =
        stages(name, settings, [&] { return many_swaps(stages, name, settings, k, swaps); });
    if (!r) return r.error();
    const SwapReport s = report_of(*r);
    exact &= s.inexact == 0 && s.swaps == swaps, small &= s.most_rows <= 2 * k.n;
    const double c = (*r)["coherence"];
    coherent &= c < kTheoremCoherence;
    add_item(coherences, fmt::format("{:.4f} ({})", c, k.text()), ", ");
    reads += s.reads, wrong += s.inexact;
    memory = std::max(memory, (*r)["bytes"].get<double>()),
    without = std::max(without, (*r)["bytes_without"].get<double>());
    million.rows.push_back(swaps_row(k, s, *r));
    Json figure = *r;
    figure["slots"] = k.n, figure["width"] = k.d, figure["keys"] = keys_name(k);
    out.figures["swaps"].push_back(figure);
  }
  million.caption =
      "Through the kernel in f32, kappa rounding to whole numbers for writing and reading: a random slot is "
      "read after every swap, all slots after every compression.";
  out.page.heading("A million swaps");
  out.page.table(million);
  out.claims.push_back({"Keys from both recipes have inner products below 1/8", coherences, coherent});
  out.claims.push_back(
      {fmt::format("{} swaps in fewer dimensions than slots, every read exact to the last bit", swaps),
       fmt::format("{} reads, {} not exact", reads, wrong), exact});
  out.claims.push_back({"Compression every n swaps keeps the cache at 2 n rows",
                        fmt::format("at most {:.2f} MB; {:.0f} MB without", memory / 1e6, without / 1e6),
                        small});
  return {};
}

// Until the first wrong read, by kernel, precision and slots.
Status add_first_errors(Stages& stages, Findings& out) {
  const uint64_t most = at<uint64_t>(stages.effort(), 100000, 1000000, 10000000),
                 most_bf16 = at<uint64_t>(stages.effort(), 20000, 100000, 1000000);
  PageTable errors{.head = {"kernel", "precision", "64 slots", "128 slots", "256 slots"}, .rows = {}};
  bool linear_fails = true, round_holds = true;
  std::string linear_found;
  for (const DeltaKind kind :
       {DeltaKind::kRound, DeltaKind::kLinear, DeltaKind::kRelu, DeltaKind::kExp, DeltaKind::kSoftmax})
    for (const bool bf16 : {false, true}) {
      const char* precision = bf16 ? "bf16" : "f32";
      const uint64_t limit = bf16 ? most_bf16 : most;
      std::vector<PageCell> row{{kind_name(kind)}, {precision}};
      for (const size_t n : {64u, 128u, 256u}) {
        const Result<Json> r =
            stages(fmt::format("first-{}-{}-{}", kind_name(kind), precision, n), {{"most", limit}},
                   [&]() -> Result<Json> {
                     // Up to 128 keys: orthonormal, in no special direction.
                     return first_error(n <= 128 ? near_orthogonal_keys(n, 128, kSeed) : hadamard_keys(128),
                                        {kind, bf16}, limit, stages.quiet());
                   });
        if (!r) return r.error();
        const SwapReport s = report_of(*r);
        const bool held = !s.first_wrong;
        row.push_back({held ? fmt::format("none in {}", s.swaps) : fmt::format("{}", *s.first_wrong),
                       held ? PageCell::Mark::kGood : PageCell::Mark::kNone});
        if (kind == DeltaKind::kRound) round_holds &= held;
        if (kind == DeltaKind::kLinear && n > 128) {
          linear_fails &= !held;
          add_item(
              linear_found,
              fmt::format("{}: {}", precision, held ? "none" : fmt::format("after {} swaps", *s.first_wrong)),
              ", ");
        }
        Json figure = *r;
        figure["kernel"] = kind_name(kind), figure["precision"] = precision, figure["slots"] = n;
        out.figures["first_error"].push_back(figure);
      }
      errors.rows.push_back(std::move(row));
    }
  errors.caption =
      "Keys of 128 dimensions; up to 128 slots they are orthonormal, for 256 the Hadamard keys. The number "
      "of swaps after which a read is first nearest to a wrong value; the same "
      "kernel writes and reads, and the cache is compressed every n swaps. bf16: keys and cached values are "
      "rounded to bf16 after every swap. relu cuts the negative similarities "
      "that swaps need; exp and softmax are not 0 for orthogonal keys: these are no memories of this kind.";
  out.page.heading("Swaps to the first error");
  out.page.table(errors);
  out.claims.push_back({"On the same data the linear kernel fails when there are more slots than dimensions",
                        linear_found, linear_fails});
  out.claims.push_back({"The rounding kernel has no error, with caches in f32 or in bf16",
                        fmt::format("up to {} swaps in f32, {} in bf16", most, most_bf16), round_holds});
  return {};
}

// How many dimensions the recipe needs for n slots.
Status add_widths(Stages& stages, Findings& out) {
  std::vector<size_t> counts{16, 32, 64, 128, 256, 512};
  if (stages.effort() != Effort::kQuick) counts.insert(counts.end(), {1024, 2048, 4096});
  const int rounds = at(stages.effort(), 400, 600, 2000);
  PageTable widths{.head = {"slots n", "smallest d found", "fails at", "Welch's bound", "d / log2 n"},
                   .rows = {}};
  Chart chart{.title = "Smallest d found with inner products below 1/8",
              .x_label = "slots n",
              .y_label = "dimensions d",
              .log_x = true};
  Series found{.name = "found"}, welch{.name = "Welch's bound"}, identity{.name = "d = n", .markers = false};
  for (const size_t n : counts) {
    const Result<Json> r = stages(fmt::format("width-{}", n), {{"rounds", rounds}},
                                  [&] { return smallest_width(n, rounds, Par(stages.pool())); });
    if (!r) return r.error();
    const auto d = (*r)["width"].get<double>(), x = static_cast<double>(n);
    widths.rows.push_back({{fmt::format("{}", n)},
                           {(*r)["width"].dump()},
                           {(*r)["fails"].dump()},
                           {(*r)["welch"].dump()},
                           {fmt::format("{:.1f}", d / std::log2(x))}});
    found.x.push_back(x), found.y.push_back(d), welch.x.push_back(x), welch.y.push_back((*r)["welch"]);
    if (n <= 128) identity.x.push_back(x), identity.y.push_back(x);
    out.figures["widths"].push_back(*r);
  }
  chart.series = {found, welch, identity};
  widths.caption = fmt::format(
      "The recipe: clip inner products that are too large, let the keys follow, up to {} rounds. 'Fails at' "
      "is the largest width tried below where it did not get there.",
      rounds);
  Page& page = out.page;
  page.heading("How many dimensions are needed");
  page.chart(chart);
  page.paragraph(
      "The theorem says that d of order log n is enough. In this range d / log2 n still rises: what the "
      "recipe finds grows faster than log n "
      "here, though far slower than n, and Welch's bound itself flattens only near 64 dimensions, where it "
      "ends. Logarithmic growth is not shown by these sizes.");
  page.table(widths);
  // Signs at random: a pair is off with probability 2 exp(-d / 128), so that n^2 exp(-d / 128) < 1 is enough.
  bool fewer = true;
  for (size_t i = 0; i < counts.size(); ++i)
    fewer &= found.y[i] < std::min(found.x[i], 256 * std::log(found.x[i]));
  out.claims.push_back(
      {"For every n the recipe finds keys in fewer than n dimensions, and fewer than the 256 ln n that "
       "random signs are sure to need at most",
       fmt::format("d = {:g} for n = {}, {:.1f} % of it", found.y.back(), counts.back(),
                   100 * found.y.back() / found.x.back()),
       fewer});
  return {};
}

}  // namespace

Result<Findings> deltaformer_theorem1(Stages& stages) {
  Findings out;
  add_theorem_words(out.page);
  add_pictures(out.page);
  for (const auto add : {add_million, add_first_errors, add_widths})
    if (Status s = add(stages, out); !s) return s.error();
  return out;
}

}  // namespace braid
