// Two tables that a recurrent model cannot tell apart: theory/collision.h, run on given models.
#include <fmt/format.h>

#include <cmath>

#include "io/json.h"
#include "base/interrupt.h"
#include "io/hash.h"
#include "lab/theory.h"
#include "model/config_json.h"
#include "model/presets.h"
#include "tasks/pcr.h"
#include "tasks/task_source.h"
#include "theory/collision.h"

namespace braid {
namespace {

constexpr int64_t kAddressBits = 6;  // 64 addresses

// A small Gated DeltaNet for the tokens of the task.
struct Build {
  int64_t layers, heads, head_dim;
  std::string text() const {
    return fmt::format("{} layer{}, {} head{} of {} x {}", layers, layers > 1 ? "s" : "", heads,
                       heads > 1 ? "s" : "", head_dim, head_dim);
  }
};
constexpr Build kSmall{1, 1, 2}, kLarge{2, 2, 4};

Result<std::unique_ptr<Model>> small_model(const Build& shape, double init_std) {
  const Json json{{"model_type", "braid"},
                  {"vocab_size", pcr_vocabulary(kAddressBits)},
                  {"d_model", 16},
                  {"n_layers", shape.layers},
                  {"init_std", init_std},
                  {"pattern",
                   {{{"mixer",
                      {{"type", "gated_deltanet"},
                       {"heads", shape.heads},
                       {"head_dim", shape.head_dim},
                       {"conv", 0},
                       {"negative_eigenvalues", true}}},
                     {"mlp", {{"type", "swiglu"}, {"d_ff", 32}}}}}}};
  const Result<ModelConfig> config = parse_config(json, "a small Gated DeltaNet");
  if (!config) return config.error();
  std::unique_ptr<Model> model = Model::create(*config);
  model->init(1);
  return model;
}

struct Given {
  std::string name, file;
  Arithmetic arithmetic;
  std::function<Result<std::unique_ptr<Model>>()> model;
  bool claimed = true;  // false: searched and shown, but a collision is not promised
};

// Trained on the task itself, with its scratchpad.
Result<std::unique_ptr<Model>> trained_model(const Stages& stages, const Build& shape, int64_t steps) {
  Result<std::unique_ptr<Model>> model = small_model(shape, 0.2);
  if (!model) return model;
  Result<std::unique_ptr<Task>> task =
      make_task("pcr", {"train_max=8", "test_min=1", "test_max=8", "train_pairs=4", "test_pairs=4",
                        fmt::format("address_bits={}", kAddressBits)});
  if (!task) return task.error();
  TaskSource source(std::move(*task), {.seed = 1, .validation_size = 256});
  TrainOptions o;
  o.task = "pcr", o.steps = steps, o.warmup = steps / 10, o.batch = 64, o.lr = 5e-3, o.eval_every = 0,
  o.eval_size = 256;
  if (Status s = train_in_stage(stages, **model, source, o); !s) return s.error();
  return model;
}

// From the folder of the computation if it is there, else trained and kept.
Result<std::unique_ptr<Model>> kept_model(const Stages& stages, const Build& shape, int64_t steps) {
  const std::string dir = fmt::format("{}/trained-{}-{}", stages.dir(), shape.layers, steps);
  if (Result<std::unique_ptr<Model>> kept = Model::load(dir)) return kept;
  Result<std::unique_ptr<Model>> model = trained_model(stages, shape, steps);
  if (!model) return model;
  if (Status saved = (*model)->save(dir); !saved) return saved.error();
  return model;
}

int64_t training_steps(Effort e) { return at<int64_t>(e, 200, 1500, 6000); }

// What is searched: the folder that was given, or small models of this file.
std::vector<Given> searched_models(Stages& stages) {
  std::vector<Given> all;
  if (!stages.model().empty()) {
    for (const int s : {2, 4, 6})
      all.push_back({stages.model(), fmt::format("given-{}", s), {s, Tie::kEven}, [&stages] {
                       return Model::load(stages.model());
                     }});
    return all;
  }
  for (const Build& shape : {kSmall, kLarge})
    all.push_back(
        {"random weights, " + shape.text(), fmt::format("random-{}", shape.layers), {2, Tie::kEven}, [shape] {
           return small_model(shape, 0.8);
         }});
  // The large one with more bits per number, too: there the search has found nothing so far.
  const std::pair<Build, int> trained[] = {{kSmall, 3}, {kLarge, 2}, {kLarge, 3}};
  for (const auto& [shape, s] : trained)
    all.push_back(
        {"trained on the task, " + shape.text(),
         fmt::format("trained-{}-F{}", shape.layers, s),
         {s, Tie::kEven},
         [&stages, shape = shape] { return kept_model(stages, shape, training_steps(stages.effort())); },
         !(shape.layers == kLarge.layers && s == 3)});
  return all;
}

const char* how_text(CollisionSearch::How how) {
  switch (how) {
    case CollisionSearch::How::kAll:
      return "all tables";
    case CollisionSearch::How::kContinued:
      return "beginnings, then the same pairs";
    case CollisionSearch::How::kRandom:
      return "random tables";
    case CollisionSearch::How::kNone:
      break;
  }
  return "not found";
}

Result<Json> search(const Given& given, size_t pairs, size_t most) {
  const Result<std::unique_ptr<Model>> model = given.model();
  if (!model) return model.error();
  const Result<std::unique_ptr<NumberModel>> m = NumberModel::make(**model, given.arithmetic);
  if (!m) return m.error();
  int64_t address_bits = 0;
  while (pcr_vocabulary(address_bits + 1) <= (*model)->config().vocab_size) ++address_bits;
  if (address_bits < 2)
    return Error{"--model: has too few tokens for the task pcr", "train it on pcr: braid train --task pcr"};
  const CollisionSearch found = find_collision(**m, address_bits, pairs, most, 1);
  const size_t numbers = (*m)->start()->state().size();
  const StateSize size = (*model)->state_size(0);
  Json out = arithmetic_json(given.arithmetic);
  out.update({{"parameters", (*model)->params().count()},
              {"numbers", std::max(numbers, size.memory + size.tails)},
              {"address_bits", address_bits},
              {"states", found.states},
              {"tried", found.tried},
              {"how", how_text(found.how)},
              {"pairs", found.pairs},
              {"found", found.how != CollisionSearch::How::kNone}});
  if (found.how == CollisionSearch::How::kNone) return out;
  const CollisionProof proof = prove_collision(**m, address_bits, found, true);
  out["proof"] = {{"same_logits", proof.same_logits}, {"holds", proof.holds()}};
  for (size_t i = 0; i < 2; ++i)
    out["proof"]["runs"].push_back({{"tokens", proof.input[i]},
                                    {"said", pcr_token_text(proof.said[i], address_bits)},
                                    {"right", pcr_token_text(proof.right[i], address_bits)}});
  return out;
}

bool pure_recurrent(const Model& model) {
  const StateSize a = model.state_size(1000), b = model.state_size(1 << 20);
  return a.memory == b.memory && a.tails == b.tails;
}

std::string tokens_text(const Json& tokens, int64_t address_bits) {
  std::string out;
  for (const Json& t : tokens) out += (out.empty() ? "" : " ") + pcr_token_text(t, address_bits);
  return out;
}

// ---- The page

void add_argument(Page& page) {
  page.heading("The argument");
  page.paragraph(
      "A table of m pairs can say 2^m different things. A recurrent model reads it into a state of N "
      "numbers; in F_s these have "
      "(2^(2s+1) - 1)^N values. The rest of the run depends on the state and the question alone, and a "
      "scratchpad does not "
      "help: what is written into it is a function of the state, too. As soon as there are more tables than "
      "states, two tables share a "
      "state; they differ at some address, and when it is asked for, the model gives the same answer after "
      "both, which is wrong after "
      "one. For a given model one need not wait until m exceeds the bits of the state: most states are never "
      "reached.");
}

bool proof_holds(const Json& r) { return r["found"].get<bool>() && r["proof"]["holds"].get<bool>(); }

std::vector<PageCell> search_row(size_t number, const Given& g, const Json& r, double bits) {
  const bool has = r["found"], holds = proof_holds(r);
  return {{fmt::format("{}. {}, {}", number, g.name, r["text"].get<std::string>())},
          {fmt::format("{:.0f}", bits)},
          {fmt::format("{}: {}", r["tried"].get<size_t>(), r["how"].get<std::string>())},
          {has ? fmt::format("{} pairs", r["pairs"].get<size_t>()) : "not found"},
          has ? verdict(holds, holds ? "wrong" : "not shown") : PageCell{"-", PageCell::Mark::kMissing}};
}

Chart states_chart(const std::vector<Json>& searches) {
  Chart chart{
      .title = "Different states after m pairs", .x_label = "pairs m", .y_label = "states", .log_y = true};
  size_t longest = 1;
  for (const Json& r : searches) {
    Series series{.name = fmt::format("model {}", chart.series.size() + 1)};
    for (const Json& states : r["states"])
      series.x.push_back(static_cast<double>(series.x.size() + 1)), series.y.push_back(states);
    longest = std::max(longest, series.x.size());
    chart.series.push_back(std::move(series));
  }
  Series every{.name = "tables, 2^m", .markers = false};
  for (size_t m = 1; m <= std::min<size_t>(longest, 16); ++m)
    every.x.push_back(static_cast<double>(m)), every.y.push_back(std::exp2(m));
  chart.series.push_back(std::move(every));
  return chart;
}

// The two inputs in words, and what the model says after each.
std::string proof_text(const Json& r) {
  std::string text;
  for (const Json& run : r["proof"]["runs"])
    text += fmt::format("{}\n    said {}, right is {}\n", tokens_text(run["tokens"], r["address_bits"]),
                        run["said"].get<std::string>(), run["right"].get<std::string>());
  return text + (r["proof"]["same_logits"].get<bool>() ? "the logits of both runs are equal, all of them\n"
                                                       : "the logits differ\n");
}

// What the searches gave, in numbers; `open`: those that found nothing.
struct Tally {
  size_t found = 0, proved = 0, claimed = 0, kept = 0;
  std::string open;
  void add(const Given& g, const Json& r, double bits) {
    const bool has = r["found"];
    found += has, proved += proof_holds(r), claimed += g.claimed, kept += g.claimed && has;
    if (!has)
      add_item(open, fmt::format("{} in {}, {:.0f} bits of state: none in {} tables tried", g.name,
                                 r["text"].get<std::string>(), bits, r["tried"].get<size_t>()));
  }
};

void add_claims(const Tally& t, bool given, Findings& out) {
  out.claims.push_back(
      {given ? "Two tables that lead to the same state are found for the given model, in each arithmetic"
             : "Two tables that lead to the same state are found for each of four small models",
       fmt::format(
           "{} of {}{}", t.kept, t.claimed,
           t.open.empty() ? "" : (given ? ". Not found: " : ". Not found, and not claimed: ") + t.open),
       t.kept == t.claimed});
  out.claims.push_back({"Run on both inputs, the model gives the same logits, and one answer is wrong",
                        fmt::format("{} of {} pairs of inputs", t.proved, t.found),
                        t.proved == t.found && t.found > 0});
}

// Two tables for each model: searched, run to the end, shown. `given`: the model of --model, or null.
Status add_searches(Stages& stages, const Model* given, Findings& out) {
  const auto most = at<size_t>(stages.effort(), 2048, 16384, 131072);
  Json settings{{"most", most}, {"model", stages.model()}, {"steps", training_steps(stages.effort())}};
  if (given) settings["weights"] = Hash().bytes(std::as_bytes(given->params().block())).hex();
  PageTable table{.head = {"model", "state, bits", "tables tried", "two tables of", "after one of them"},
                  .rows = {}};
  std::vector<Json> searches;
  Tally tally;
  Page details{""};
  for (const Given& g : searched_models(stages)) {
    const Result<Json> r =
        stages("collision-" + g.file, settings, [&] { return search(g, kMostPairs, most); });
    if (!r) return r.error();
    const double bits = state_bits((*r)["numbers"], (*r)["s"]);
    tally.add(g, *r, bits);
    table.rows.push_back(search_row(table.rows.size() + 1, g, *r, bits));
    searches.push_back(*r);
    out.figures["models"].push_back(
        {{"model", g.name}, {"arithmetic", (*r)["text"]}, {"state_bits", bits}, {"search", *r}});
    if (!(*r)["found"].get<bool>()) continue;
    details.paragraph(fmt::format("{}, {}:", g.name, (*r)["text"].get<std::string>()));
    details.code(proof_text(*r));
  }
  Page& page = out.page;
  page.heading("Searched");
  table.caption =
      "Both inputs were run to the end: the same logits after both, while different answers are right.";
  page.table(table);
  page.chart(states_chart(searches));
  page.heading("The tables");
  page.paragraph(
      "Two inputs each that differ in the table alone. The model reads them, writes its scratchpad P and S, "
      "and answers.");
  page.append(details);
  if (!tally.open.empty())
    page.paragraph("Not found: " + tally.open +
                   ". With 64 addresses there are 64 bits of table, fewer than this state has, so the "
                   "counting argument promises nothing here, "
                   "and the search is no proof that there is none.");
  add_claims(tally, given != nullptr, out);
  return {};
}

// Bits of state against bits of table: of the given model, if any, and of presets.
Status add_counts(const std::string& given_name, const Model* given, Findings& out) {
  out.page.heading("Bits of state against bits of table, for any config");
  PageTable counts{.head = {"model", "numbers in the state", "F_2", "F_4", "float32"}, .rows = {}};
  const auto count = [&](const std::string& name, const Model& model) {
    const StateSize s = model.state_size(0);
    const size_t numbers = s.memory + s.tails;
    const double in32 = 32.0 * static_cast<double>(numbers);
    counts.rows.push_back({{name},
                           {fmt::format("{}", numbers)},
                           {fmt::format("{:.0f}", std::floor(state_bits(numbers, 2)) + 1)},
                           {fmt::format("{:.0f}", std::floor(state_bits(numbers, 4)) + 1)},
                           {fmt::format("{:.0f}", in32 + 1)}});
    out.figures["counts"].push_back({{"model", name},
                                     {"numbers", numbers},
                                     {"bits_F2", state_bits(numbers, 2)},
                                     {"bits_F4", state_bits(numbers, 4)},
                                     {"bits_float32", in32}});
  };
  if (given) count(given_name, *given);
  for (const char* size : {"1M", "100M", "1.3B"})
    for (const char* arch : {"deltanet", "gated-deltanet", "mamba2", "retnet", "gla", "kda"}) {
      const Result<Json> json = preset_config(arch, size, 32000);
      if (!json) continue;  // not every size has every architecture
      const Result<ModelConfig> config = parse_config(*json, arch);
      if (!config) return config.error();
      const std::unique_ptr<Model> model = Model::create(*config);
      if (pure_recurrent(*model)) count(fmt::format("{} {}", arch, size), *model);
    }
  counts.caption =
      "From so many pairs on, no weights at all can answer every question about a table of one-bit values: "
      "the state has fewer bits. "
      "Attention keeps every pair, so its memory grows with the table.";
  out.page.table(counts);
  return {};
}

}  // namespace

Result<Findings> pcr_collision(Stages& stages) {
  std::unique_ptr<Model> given;
  if (!stages.model().empty()) {
    Result<std::unique_ptr<Model>> loaded = Model::load(stages.model());
    if (!loaded) return loaded.error();
    given = std::move(*loaded);
    if (!pure_recurrent(*given))
      return Error{stages.model() + ": state size depends on sequence length (full attention)",
                   "use a model with a state of fixed size"};
  }
  Findings out;
  add_argument(out.page);
  if (Status s = add_searches(stages, given.get(), out); !s) return s.error();
  if (Status s = add_counts(stages.model(), given.get(), out); !s) return s.error();
  return out;
}

}  // namespace braid
