// Parity-conditioned retrieval with weights that are written down: theory/construction.h, run.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "base/interrupt.h"
#include "infer/session.h"
#include "lab/theory.h"
#include "model/model.h"
#include "theory/construction.h"

namespace braid {
namespace {

struct Size {
  int64_t bits;
  size_t pairs;
  int64_t address_bits;
  size_t instances;   // in each arithmetic
  bool vary = false;  // every other instance has one bit more: a mutant may be right for all of one length
};

std::vector<Size> sizes(Effort e) {
  const auto many = at<size_t>(e, 100, 1000, 5000);
  std::vector<Size> all{{8, 4, 3, many}, {64, 32, 5, many / 2}, {1000, 250, 8, at<size_t>(e, 4, 40, 200)}};
  if (e != Effort::kQuick) all.push_back({10000, 1024, 10, 4});
  all.push_back({100000, 4096, 12, 1});
  return all;
}

PcrInstance instance(const Size& size, uint64_t i) {
  Rng rng(static_cast<uint64_t>(size.bits), "pcr construction");
  rng.seek(i);
  return draw_pcr(rng, size.bits + (size.vary ? static_cast<int64_t>(i % 2) : 0), size.pairs,
                  size.address_bits);
}

Result<std::vector<std::unique_ptr<NumberModel>>> in_all(const Model& model,
                                                         const std::vector<Arithmetic>& arithmetics) {
  std::vector<std::unique_ptr<NumberModel>> out;
  for (const Arithmetic& a : arithmetics) {
    Result<std::unique_ptr<NumberModel>> m = NumberModel::make(model, a);
    if (!m) return m.error();
    out.push_back(std::move(*m));
  }
  return out;
}

// Instances with a wrong token, and the smallest margin.
struct Count {
  size_t wrong = 0, parity = 0;  // of all tokens; of the first one, the parity
  double margin = HUGE_VAL;
};
Count count(const NumberModel& model, const PcrConstruction& c, const Size& size, ThreadPool& pool) {
  std::vector<Count> each(size.instances);
  pool.run(size.instances, [&](size_t i) {
    const PcrInstance x = instance(size, i);
    const PcrAnswer a = answer_pcr(model, x, c.steps());
    const std::vector<int32_t> right = pcr_answers(x, c.steps());
    each[i] = {a.tokens != right, a.tokens[0] != right[0], a.margin};
  });
  Count all;
  for (const Count& x : each)
    all.wrong += x.wrong, all.parity += x.parity, all.margin = std::min(all.margin, x.margin);
  return all;
}

Result<Json> run_size(const PcrConstruction& c, const Size& size, ThreadPool& pool) {
  const std::vector<Arithmetic> all = claimed_arithmetics();
  const std::unique_ptr<Model> model = pcr_model(c);
  const Result<std::vector<std::unique_ptr<NumberModel>>> models = in_all(*model, all);
  if (!models) return models.error();
  // All arithmetics and instances as one list of work.
  std::vector<Count> each(all.size() * size.instances);
  pool.run(each.size(), [&](size_t task) {
    if (interrupted()) return;
    const PcrInstance x = instance(size, task % size.instances);
    const PcrAnswer a = answer_pcr(*(*models)[task / size.instances], x, c.steps());
    each[task] = {a.tokens != pcr_answers(x, c.steps()), 0, a.margin};
  });
  if (interrupted()) return Stages::interruption();
  Json rows = Json::array();
  for (size_t a = 0; a < all.size(); ++a) {
    Count total;
    for (size_t i = 0; i < size.instances; ++i) {
      const Count& x = each[a * size.instances + i];
      total.wrong += x.wrong, total.margin = std::min(total.margin, x.margin);
    }
    Json row = arithmetic_json(all[a]);
    row.update({{"instances", size.instances},
                {"tokens", size.instances * c.steps()},
                {"wrong", total.wrong},
                {"margin", total.margin},
                {"largest", all[a].largest()}});
    rows.push_back(row);
  }
  return rows;
}

// The folder as any other model: the engine in float32, greedy.
Result<Json> run_engine(const std::string& dir, const PcrConstruction& c, const Size& size,
                        ThreadPool& pool) {
  Result<std::unique_ptr<Model>> model = Model::load(dir);
  if (!model) return model.error();
  Context context(pool);
  size_t wrong = 0;
  for (size_t i = 0; i < size.instances; ++i) {
    const PcrInstance x = instance(size, i);
    Session session(**model, context);
    std::vector<int32_t> said;
    std::span<const float> logits = session.feed(x.tokens);
    while (true) {
      said.push_back(static_cast<int32_t>(std::ranges::max_element(logits) - logits.begin()));
      if (said.size() == c.steps()) break;
      logits = session.feed({&said.back(), 1});
    }
    wrong += said != pcr_answers(x, c.steps());
  }
  return Json{{"bits", size.bits}, {"pairs", size.pairs}, {"instances", size.instances}, {"wrong", wrong}};
}

Result<Json> run_turned(const PcrConstruction& c, ThreadPool& pool) {
  const Size size{12, 6, c.address_bits, 40, true};
  Json rows = Json::array();
  for (const WeightGroup& g : pcr_weight_groups(c)) {
    const std::unique_ptr<Model> model = pcr_model(c);
    turn_round(*model, g);
    const Result<std::unique_ptr<NumberModel>> m = NumberModel::make(*model, {});
    if (!m) return m.error();
    rows.push_back(
        {{"group", g.name}, {"instances", size.instances}, {"wrong", count(**m, c, size, pool).wrong}});
  }
  return rows;
}

// Write strengths of at most 1: as they are, and with a flip that rounding makes.
Result<Json> run_beta(size_t instances, int64_t widest, ThreadPool& pool) {
  const Size size{40, 6, 3, instances};
  Json rows = Json::array();
  const auto wrong_in = [&](const PcrConstruction& c, const Arithmetic& a) -> Result<Count> {
    const std::unique_ptr<Model> model = pcr_model(c);
    const Result<std::unique_ptr<NumberModel>> m = NumberModel::make(*model, a);
    if (!m) return m.error();
    return count(**m, c, size, pool);
  };
  std::vector<Arithmetic> all = claimed_arithmetics();
  all.push_back(Arithmetic::f64());
  for (const Arithmetic& a : all) {
    const Result<Count> plain = wrong_in({.address_bits = 3, .beta_to_2 = false}, a);
    if (!plain) return plain.error();
    Json row = arithmetic_json(a);
    row.update({{"instances", instances}, {"wrong", plain->wrong}, {"parity_wrong", plain->parity}});
    row["flips"] = Json::array(), row["flips_run"] = 0;
    for (const RoundingFlip& f : find_flips(a, widest)) {
      row["flips"].push_back({{"width", f.width}, {"value", f.value}});
      if (row.contains("rescued")) continue;
      row["flips_run"] = row["flips_run"].get<int>() + 1;
      const Result<Count> rescued = wrong_in({.address_bits = 3, .beta_to_2 = false, .flip = f}, a);
      if (!rescued) return rescued.error();
      if (rescued->wrong == 0)
        row["rescued"] = {{"width", f.width}, {"value", f.value}, {"margin", rescued->margin}};
    }
    rows.push_back(row);
  }
  return rows;
}

// ---- The page

std::string quarters(double x) { return fmt::format("{:g}", x); }

// A small instance, step by step.
void add_pictures(Page& page, bool scratchpad) {
  const PcrConstruction c{.address_bits = 2, .scratchpad = scratchpad};
  const std::unique_ptr<Model> model = pcr_model(c);
  const Result<std::unique_ptr<NumberModel>> m = NumberModel::make(*model, {2, Tie::kEven});
  check(static_cast<bool>(m), "the construction runs in F_2");
  Rng rng(5, "pcr picture");
  const PcrInstance x = draw_pcr(rng, 4, 3, 2);
  std::vector<int32_t> tokens = x.tokens;
  const std::vector<int32_t> answers = pcr_answers(x, c.steps());
  tokens.insert(tokens.end(), answers.begin(), answers.end() - 1);
  std::vector<std::string> names;
  for (const int32_t t : tokens) names.push_back(pcr_token_text(t, 2));
  const size_t heads = 5;
  Grid states{.title = "State of Gated DeltaNet after each token, in F_2",
              .rows = {"parity", "address bit 0", "address bit 1", "mark 1", "mark 2"},
              .columns = names,
              .values = std::vector<std::vector<double>>(heads)};
  Grid looks{.title = scratchpad ? "Where attention looks (gate open)"
                                 : "Where ASK looks, in both layers of attention",
             .rows = {},
             .columns = names,
             .values = {}};
  PageTable said{.head = {"token read", "token said", "its logit", "next best"}, .rows = {}};
  const std::unique_ptr<NumberRun> run = (*m)->start();
  for (size_t t = 0; t < tokens.size(); ++t) {
    run->feed(tokens[t]);
    const std::vector<double> state = run->state();
    for (size_t h = 0; h < heads; ++h) states.values[h].push_back(state[h]);
    if (t + 1 < x.tokens.size()) continue;
    const std::vector<double> logits = run->logits();
    const Best b = best(logits);
    const double top = logits[static_cast<size_t>(b.token)];
    said.rows.push_back(
        {{names[t]}, {pcr_token_text(b.token, 2)}, {quarters(top)}, {quarters(top - b.margin)}});
    for (size_t layer = 1; layer < (scratchpad ? 2u : 3u); ++layer) {
      if (scratchpad && tokens[t] == pcr::kAsk) continue;  // its gate is closed
      looks.rows.push_back(scratchpad ? names[t] : layer == 1 ? "first" : "second");
      looks.values.push_back(run->attention(layer, 0));
    }
  }
  if (scratchpad) {
    page.paragraph(fmt::format(
        "The instance: {}. The parity of the bits is {}, so the address behind {} counts.",
        fmt::join(std::span(names).first(x.tokens.size()), " "),
        x.answers[0] == pcr::kParity ? "even" : "odd", x.answers[0] == pcr::kParity ? "Q0" : "Q1"));
    page.grid(states);
  }
  page.grid(looks);
  said.caption = scratchpad ? "Greedy decoding after ASK. The largest number of F_2 is 3.75."
                            : "Without a scratchpad: the answer at once.";
  page.table(said);
}

void add_words(Page& page) {
  page.heading("The arithmetic");
  page.paragraph(
      "F_s has the numbers k / 2^s up to B_s = 2^s - 2^-s: in F_2 these are the 31 quarters from -3.75 to "
      "3.75. Every "
      "single operation is rounded to the nearest of them and saturates at the ends, and sums run from left "
      "to right. A "
      "sum of many terms is then not what it would be: what was added after saturation is lost. Nothing in "
      "the model may "
      "count, and nothing may be averaged over many tokens.");
  page.paragraph(
      "exp, sigmoid, softplus and silu are rounded once. It matters: 1 / (1 + exp(-x)) with a rounding after "
      "each step "
      "cannot become 0, since exp saturates at B_s; at x = -B_2 it is 0.25, the write gate of the "
      "construction would not "
      "close, and parity would leak. exp(x) / (1 + exp(x)), the same function, does reach 0 and 1.");
  page.heading("The construction in words");
  page.paragraph(
      "Layer 1, Gated DeltaNet, is the state. Its heads have one-dimensional keys that are always 1, no "
      "decay, and a write "
      "strength beta = 2 sigmoid(b) that each token's type sets to 0 (leave alone), 1 (overwrite) or 2. With "
      "beta = 2 and "
      "value 0 the state S becomes S - 2 S = -S: the parity head starts at 1 and turns its sign at every 1 "
      "of the "
      "input, which is exact for any number of bits. The other heads overwrite: L registers keep the last "
      "address, "
      "two marks remember whether we are in the table, behind Q0 or behind Q1. A norm over a single number "
      "gives its "
      "sign, and the output gate makes it plus or minus B_s.");
  page.paragraph(
      "Layer 2, one head of gated attention, is the memory. Queries say which bits a key must have: 'is an "
      "address', 'is a "
      "value', the two marks, the address in the registers. For every bit there are two numbers in the key, "
      "B_s times the bit and "
      "B_s, against the wanted bit and -1 in the query. A match adds B_s - B_s = 0. A mismatch sends the sum "
      "to -B_s, and "
      "there it stays: a later match adds B_s, which gives 0, and takes it away again. So the score is 0 for "
      "the one token "
      "that has all the bits and -B_s for every other, exp makes that exactly 1 and 0, and softmax copies "
      "one value out of a "
      "table of any size. Braid's attention multiplies scores with 1 / sqrt(dk), which for the 2 (L + 4) "
      "numbers of a key is "
      "not 0 even in F_2 as long as L <= 27; the queries' weights make up for it.");
  page.paragraph(
      "At ASK the head of the model reads the parity and says P0 or P1. At P the attention finds the address "
      "behind Q0 or Q1 and the "
      "model says it as S. At S it finds the value beside this address in the table and says it. Each "
      "look-up that depends on "
      "another needs a layer of attention or a token of scratchpad; with a second layer of attention ASK can "
      "look twice, and no scratchpad is "
      "needed. Width 4 L + 18 for 2^L addresses; neither width nor precision depends on the number of bits.");
}

const char* variant(bool scratchpad) { return scratchpad ? "scratchpad" : "direct"; }

struct Totals {
  size_t instances = 0, tokens = 0;
};
// Every arithmetic and size, with the scratchpad or without; `totals` are of both.
Status add_variant(Stages& stages, bool scratchpad, Findings& out, Totals& totals) {
  PageTable table{.head = {"bits", "pairs", "arithmetic", "instances", "wrong", "smallest margin"},
                  .rows = {}};
  size_t wrong = 0, all = 0, written = 0;
  bool margins = true;
  std::map<int, double> smallest;
  Json figures = Json::array();
  for (const Size& size : sizes(stages.effort())) {
    const PcrConstruction c{.address_bits = size.address_bits, .scratchpad = scratchpad};
    const Result<Json> rows =
        stages(fmt::format("run-{}-{}", variant(scratchpad), size.bits),
               {{"pairs", size.pairs}, {"address_bits", size.address_bits}, {"instances", size.instances}},
               [&] { return run_size(c, size, stages.pool()); });
    if (!rows) return rows.error();
    for (const Json& r : *rows) {
      const size_t bad = r["wrong"];
      const double margin = r["margin"], largest = r["largest"];
      wrong += bad, all += r["instances"].get<size_t>(), written += r["tokens"].get<size_t>();
      margins &= margin >= largest;
      const auto it = smallest.emplace(r["s"].get<int>(), margin).first;
      it->second = std::min(it->second, margin);
      table.rows.push_back({{fmt::format("{}", size.bits)},
                            {fmt::format("{}", size.pairs)},
                            {r["text"].get<std::string>()},
                            {r["instances"].dump()},
                            zero_verdict(bad),
                            {quarters(margin)}});
      Json figure = r;
      figure["bits"] = size.bits, figure["pairs"] = size.pairs;
      figures.push_back(figure);
    }
  }
  std::string least;
  for (const auto& [s, margin] : smallest) add_item(least, fmt::format("{:g} in F_{}", margin, s), ", ");
  out.claims.push_back(
      {scratchpad ? "With two scratch tokens every token is right, in F_2, F_3 and F_4 with every tie "
                    "rule, up to 100,000 bits and 4,096 pairs"
                  : "With one more layer of attention the answer is right without a scratchpad",
       fmt::format("{} instances, {} tokens, {} instances with a wrong one", all, written, wrong),
       wrong == 0});
  out.claims.push_back({fmt::format("The margin between the right token and the next is at least B_s ({})",
                                    variant(scratchpad)),
                        least, margins});
  Page& page = out.page;
  page.heading(scratchpad ? "With the scratchpad" : "Without a scratchpad");
  table.caption =
      "Instances with a wrong token, and the smallest margin between the logits of the right token and any "
      "other.";
  page.begin_details("All sizes and arithmetics");
  page.table(table);
  page.end_details();
  page.paragraph(fmt::format("{} instances, {} with a wrong token. Smallest margin: {}.", all, wrong, least));
  out.figures[variant(scratchpad)] = figures;
  totals.instances += all, totals.tokens += written;
  return {};
}

Status add_all_sizes(Stages& stages, Findings& out) {
  Totals totals;
  for (const bool scratchpad : {true, false})
    if (Status s = add_variant(stages, scratchpad, out, totals); !s) return s;
  out.figures["instances"] = totals.instances, out.figures["tokens"] = totals.tokens;
  return {};
}

// A command that a reader can copy, and what it says.
std::string example_command(const std::string& dir) {
  Rng rng(5, "pcr picture");
  const PcrInstance x = draw_pcr(rng, 6, 4, 5);
  std::vector<std::string> words;
  for (const int32_t t : x.tokens) words.push_back(pcr_token_text(t, 5));
  return fmt::format(
      "braid generate --model {}/model-5 --greedy --max-tokens 3 --tokens {}\n# {} -> {} {} {}, tokens {}",
      dir, fmt::join(x.tokens, ","), fmt::join(words, " "), pcr_token_text(x.answers[0], 5),
      pcr_token_text(x.answers[1], 5), pcr_token_text(x.answers[2], 5), fmt::join(x.answers, ","));
}

// The weights as model folders, run by the engine.
Status add_engine(Stages& stages, Findings& out) {
  size_t wrong = 0, all = 0;
  for (const bool scratchpad : {true, false}) {
    const char* name = scratchpad ? "model" : "model-direct";
    std::vector<Size> runs{{64, 32, 5, 40}};
    if (scratchpad) runs.push_back({at<int64_t>(stages.effort(), 5000, 100000, 100000), 1024, 10, 1});
    for (const Size& size : runs) {
      const PcrConstruction c{.address_bits = size.address_bits, .scratchpad = scratchpad};
      const std::string dir = fmt::format("{}/{}-{}", stages.dir(), name, size.address_bits);
      const Result<Json> r =
          stages(fmt::format("engine-{}-{}", variant(scratchpad), size.bits),
                 {{"instances", size.instances}, {"pairs", size.pairs}}, [&]() -> Result<Json> {
                   if (Status s = pcr_model(c)->save(dir); !s) return s.error();
                   return run_engine(dir, c, size, stages.pool());
                 });
      if (!r) return r.error();
      wrong += (*r)["wrong"].get<size_t>(), all += (*r)["instances"].get<size_t>();
      out.figures["engine"].push_back(*r);
    }
  }
  out.page.heading("The same weights in float32, by the engine");
  out.page.paragraph(
      "The model is an ordinary folder, and the two scratch tokens come from ordinary greedy decoding:");
  out.page.code(example_command(stages.dir()));
  out.claims.push_back({"The same folder is right in float32, decoded greedily by the engine",
                        fmt::format("{} instances, {} wrong", all, wrong), wrong == 0});
  return {};
}

// Each group of weights with its sign turned.
Status add_mutants(Stages& stages, Findings& out) {
  std::map<std::string, std::array<std::string, 2>> seen;
  std::vector<std::string> order;
  size_t groups = 0, caught = 0;
  for (const bool scratchpad : {true, false}) {
    const PcrConstruction c{.address_bits = 3, .scratchpad = scratchpad};
    const Result<Json> rows =
        stages(fmt::format("turned-{}", variant(scratchpad)), {{"instances", 40}, {"vary", true}},
               [&] { return run_turned(c, stages.pool()); });
    if (!rows) return rows.error();
    for (const Json& r : *rows) {
      const std::string name = r["group"];
      if (!seen.contains(name)) order.push_back(name);
      seen[name][scratchpad ? 0 : 1] =
          fmt::format("{} of {}", r["wrong"].get<size_t>(), r["instances"].get<size_t>());
      ++groups, caught += r["wrong"].get<size_t>() > 0;
    }
    out.figures["turned"][variant(scratchpad)] = *rows;
  }
  out.page.heading("Every part is needed");
  out.page.paragraph(
      "Each group of weights with its sign turned, one at a time: how many of the instances become wrong. "
      "They have 12 or 13 bits. With 12 alone one mutant would pass: with the "
      "write strength of the parity head turned, the sign turns at every token that is not a 1, and where "
      "the number of all tokens is even that is the same parity.");
  PageTable mutants{.head = {"turned round", "scratchpad", "direct"}, .rows = {}};
  for (const std::string& name : order) mutants.rows.push_back({{name}, {seen[name][0]}, {seen[name][1]}});
  out.page.table(mutants);
  out.claims.push_back({"Each gate and group of weights, turned round, is caught by wrong answers",
                        fmt::format("{} of {} caught", caught, groups), caught == groups});
  return {};
}

// "2, 3, 5, 7, 8, 9 .. (11 of 64)": at most six widths are named.
std::string widths_text(const Json& flips, int64_t widest) {
  if (flips.empty()) return "none";
  std::string list;
  for (size_t i = 0; i < std::min<size_t>(6, flips.size()); ++i)
    add_item(list, flips[i]["width"].dump(), ", ");
  if (flips.size() > 6) list += fmt::format(" .. ({} of {})", flips.size(), widest);
  return list;
}

PageCell rescue_cell(const Json& r) {
  if (!r.contains("rescued")) return {"-", PageCell::Mark::kMissing};
  return verdict(true, fmt::format("width {}, value {:g} ({} run)", r["rescued"]["width"].get<int64_t>(),
                                   r["rescued"]["value"].get<double>(), r["flips_run"].get<int>()));
}

// Write strength below 1, and heads whose state rounding turns.
Status add_beta(Stages& stages, Findings& out) {
  const auto tries = at<size_t>(stages.effort(), 100, 400, 1000);
  const int64_t widest = at<int64_t>(stages.effort(), 32, 64, 128);
  const Result<Json> beta = stages("beta", {{"instances", tries}, {"widest", widest}, {"version", 2}},
                                   [&] { return run_beta(tries, widest, stages.pool()); });
  if (!beta) return beta.error();
  Page& page = out.page;
  page.heading("Write strength below 1, as Qwen3-Next has it");
  page.paragraph(
      "With beta = sigmoid(b) the state is multiplied with 1 - beta >= 0: no sign is ever turned, the first "
      "1 of the input "
      "erases the parity. In real arithmetic no choice of keys of length 1 helps, since 1 - beta |k|^2 >= 0. "
      "But in F_s a key "
      "that was normalised and rounded can be longer than 1. In F_2, 1 / sqrt(2) becomes 0.75: the key "
      "(0.75, 0.75) has "
      "|k|^2 = 1.125, and with the roundings of the product the state 0.25 (1, 1) turns into its negative at "
      "every write of 0, "
      "exactly and for ever. The search below runs the L2 norm and the delta rule on the keys (1, .., 1) of "
      "every width.");
  PageTable flips{.head = {"arithmetic", "beta < 1: wrong", "flips at key widths", "rescued with"},
                  .rows = {}};
  bool lost = true;
  std::string where, not_where;
  for (const Json& r : *beta) {
    const std::string text = r["text"];
    lost &= r["parity_wrong"].get<size_t>() > r["instances"].get<size_t>() / 4;
    add_item(r.contains("rescued") ? where : not_where, text);
    flips.rows.push_back({{text},
                          {fmt::format("{} of {}", r["wrong"].get<size_t>(), r["instances"].get<size_t>())},
                          {widths_text(r["flips"], widest)},
                          rescue_cell(r)});
  }
  flips.caption = fmt::format(
      "'Rescued': the whole construction with such a head, beta at most 1, is right on all {} instances; in "
      "brackets, how many of the "
      "heads found were run in it until one was. "
      "Where it says none, no key of equal entries up to width {} does it.",
      tries, widest);
  page.table(flips);
  out.figures["beta"] = *beta;
  out.claims.push_back(
      {"With write strength below 1 the parity is lost, in every arithmetic",
       lost ? "more than a quarter of the parities wrong everywhere" : "not everywhere: see the table",
       lost});
  out.claims.push_back(
      {"Rounding can turn the sign with write strength at most 1, and then the construction is right again",
       fmt::format("holds in: {}. No such head found in: {}", where.empty() ? "none" : where,
                   not_where.empty() ? "none" : not_where),
       !where.empty()});
  return {};
}

}  // namespace

Result<Findings> pcr_construction(Stages& stages) {
  Findings out;
  add_words(out.page);
  out.page.heading("A small instance, step by step");
  add_pictures(out.page, true);
  add_pictures(out.page, false);
  for (const auto add : {add_all_sizes, add_engine, add_mutants, add_beta})
    if (Status s = add(stages, out); !s) return s.error();
  return out;
}

}  // namespace braid
