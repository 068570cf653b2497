// Parity by attention alone at constant precision: theory/parity_attention.h, and small models that are
// trained.
#include <fmt/format.h>

#include <cmath>

#include "io/json.h"
#include "base/interrupt.h"
#include "data/source.h"
#include "lab/theory.h"
#include "model/config_json.h"
#include "model/presets.h"
#include "theory/parity_attention.h"

namespace braid {
namespace {

// Strings of n bits, then the parities of the first n/t, 2n/t, .. bits, each of which is asked: a scratchpad
// of t tokens, the last of which is the answer. Tokens: 0 ASK, 1 and 2 the bits, 3 and 4 the parities.
class ParityStrings final : public Source {
 public:
  ParityStrings(int64_t bits, int64_t steps) : bits_(bits), steps_(steps) {}
  size_t validation_size() const override { return 1024; }
  size_t vocab_size() const override { return 5; }
  size_t max_length() const override { return static_cast<size_t>(bits_ + steps_); }
  std::string fingerprint() const override { return fmt::format("parity-{}-{}", bits_, steps_); }
  std::string describe() const override {
    return fmt::format("parity of {} bits in {} steps", bits_, steps_);
  }
  std::vector<Metric> metrics() const override { return {{"sequences", 0}}; }
  std::string headline() const override { return "sequences"; }
  void measure(const Batch& batch, std::span<const int32_t> predicted, std::span<Metric> m) const override {
    const BatchView all = batch.view();
    for (size_t i = 0; i < all.sequences(); ++i) {
      bool right = true;
      for (size_t t = all.begin(i); t < all.begin(i) + all.length(i); ++t)
        right &= all.targets[t] == kUnsupervised || all.targets[t] == predicted[t];
      m[0].add(right);
    }
  }
  struct String {
    std::vector<int32_t> tokens, answers;  // bits and ASK; the parities
  };
  String draw(const char* purpose, uint64_t i) const {
    Rng rng(static_cast<uint64_t>(bits_), purpose);
    rng.seek(i);
    String s;
    int32_t parity = 0;
    for (int64_t b = 0; b < bits_; ++b) {
      const auto bit = static_cast<int32_t>(rng.below(2));
      parity ^= bit, s.tokens.push_back(1 + bit);
      if ((b + 1) % (bits_ / steps_) == 0) s.answers.push_back(3 + parity);
    }
    s.tokens.push_back(0);
    return s;
  }

 protected:
  void append_train(Batch& out, uint64_t i) const override { append(out, draw("train", i)); }
  void append_validation(Batch& out, size_t i) const override { append(out, draw("held out", i)); }

 private:
  static void append(Batch& out, const String& s) {
    for (const int32_t t : s.tokens) out.tokens.push_back(t), out.targets.push_back(kUnsupervised);
    out.targets.back() = s.answers[0];
    for (size_t i = 0; i + 1 < s.answers.size(); ++i)
      out.tokens.push_back(s.answers[i]), out.targets.push_back(s.answers[i + 1]);
    out.close();
  }
  int64_t bits_, steps_;
};

// A Transformer of two layers with RoPE on strings of one length; then the same weights in F_s.
Result<Json> train(Stages& stages, int64_t bits, int64_t steps, int64_t updates) {
  Result<Json> json = preset_config("transformer", "d64-l2-h4-f128", 5);
  if (!json) return json.error();
  const Result<ModelConfig> config = parse_config(*json, "transformer");
  if (!config) return config.error();
  std::unique_ptr<Model> model = Model::create(*config);
  model->init(1);
  ParityStrings source(bits, steps);
  TrainOptions o;
  o.steps = updates, o.warmup = updates / 10, o.batch = 64, o.lr = 2e-3, o.weight_decay = 0.01;
  o.eval_every = std::max<int64_t>(1, updates / 10), o.eval_size = 512, o.stop_at = 0.999;
  if (Status s = train_in_stage(stages, *model, source, o); !s) return s.error();
  if (Status s = model->save(fmt::format("{}/trained-{}-{}", stages.dir(), bits, steps)); !s)
    return s.error();
  // The last parity by greedy decoding, in each arithmetic.
  Json out{{"bits", bits}, {"steps", steps}, {"errors", Json::array()}};
  constexpr size_t kTests = 100;
  for (const Arithmetic& a :
       {Arithmetic::f32(), Arithmetic{12, Tie::kEven}, Arithmetic{8, Tie::kEven}, Arithmetic{6, Tie::kEven},
        Arithmetic{4, Tie::kEven}, Arithmetic{2, Tie::kEven}}) {
    const Result<std::unique_ptr<NumberModel>> m = NumberModel::make(*model, a);
    if (!m) return m.error();
    const size_t wrong = count_in_parallel(stages.pool(), kTests, [&](size_t i) {
      const ParityStrings::String s = source.draw("test", i);
      const std::unique_ptr<NumberRun> run = (*m)->start();
      for (const int32_t t : s.tokens) run->feed(t);
      int32_t said = best(run->logits()).token;
      for (size_t step = 1; step < s.answers.size(); ++step)
        run->feed(said), said = best(run->logits()).token;
      return said != s.answers.back();
    });
    Json row = arithmetic_json(a);
    row["error"] = static_cast<double>(wrong) / kTests;
    out["errors"].push_back(row);
  }
  return out;
}

Result<Json> counting(size_t samples, const std::vector<int64_t>& lengths) {
  Json rows = Json::array();
  for (const Arithmetic& a : {Arithmetic{2, Tie::kEven}, Arithmetic{3, Tie::kEven}, Arithmetic{4, Tie::kEven},
                              Arithmetic{6, Tie::kEven}, Arithmetic::f32()}) {
    Json row = arithmetic_json(a);
    for (const int64_t n : lengths) {
      if (interrupted()) return Stages::interruption();
      row["errors"].push_back(counting_error(a, n, samples, 1));
    }
    rows.push_back(row);
  }
  return rows;
}

// The most bits that one head counts without any error.
Result<Json> reach() {
  Json rows = Json::array();
  for (const Arithmetic& a : claimed_arithmetics()) {
    int64_t n = 1;
    while (n < kCountAll && counting_error(a, n + 1, 0, 0) == 0) ++n;
    Json row = arithmetic_json(a);
    row.update({{"bits", n}, {"at_least", n == kCountAll}});
    rows.push_back(row);
  }
  return rows;
}

// The written-down decoder that copies `block` bits into each scratch token.
Result<Json> scratchpads(const std::vector<int64_t>& lengths, int64_t block, size_t instances,
                         ThreadPool& pool) {
  Json rows = Json::array();
  for (const int64_t n : lengths) {
    const ParityScratch c{n, block};
    const std::unique_ptr<Model> model = parity_model(c);
    for (const Arithmetic& a : claimed_arithmetics()) {
      if (interrupted()) return Stages::interruption();
      const Result<std::unique_ptr<NumberModel>> m = NumberModel::make(*model, a);
      if (!m) return m.error();
      const size_t wrong = count_in_parallel(pool, instances, [&](size_t i) {
        Rng rng(static_cast<uint64_t>(n), "parity scratchpad");
        rng.seek(i);
        std::vector<int> bits(static_cast<size_t>(n));
        int parity = 0;
        for (int& b : bits) b = static_cast<int>(rng.below(2)), parity ^= b;
        return parity_by_scratchpad(**m, c, bits) != parity;
      });
      Json row = arithmetic_json(a);
      row.update(
          {{"bits", n}, {"block", block}, {"steps", c.steps()}, {"instances", instances}, {"wrong", wrong}});
      rows.push_back(row);
    }
  }
  return rows;
}

// ---- The page

constexpr int64_t kBlock = 3;  // bits that each scratch token of the construction copies

void add_why(Page& page) {
  page.heading("Why");
  page.paragraph(
      "A head of attention that looks at n bits alike gives their mean, and the parity could be read from "
      "it, if it were exact. At constant "
      "precision it is not: the sum of the weights saturates at B_s, and so does the sum of the values. "
      "Looking at one bit alone, on "
      "the other hand, is exact for any n. So attention can copy, but it cannot count. One step of a decoder "
      "of constant depth is a circuit of "
      "constant depth, which cannot compute parity (Furst, Saxe, Sipser; Hastad); with t tokens of "
      "scratchpad and depth D it needs t of "
      "about n^(1/(D+1)) or more. The paper proves that; here is what happens to models.");
}

std::vector<int64_t> counting_lengths(Effort e) {
  std::vector<int64_t> lengths{1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 16};
  if (e == Effort::kQuick)
    lengths.insert(lengths.end(), {32, 128, 512, 4096});
  else
    lengths.insert(lengths.end(), {20, 32, 64, 128, 256, 512, 1024, 2048, 4096});
  return lengths;
}

// Without a scratchpad, with the best read-out.
Status add_counting(Stages& stages, Findings& out) {
  Page& page = out.page;
  const std::vector<int64_t> lengths = counting_lengths(stages.effort());
  const auto samples = at<size_t>(stages.effort(), 2000, 10000, 50000);
  const Result<Json> counted = stages("counting", {{"samples", samples}, {"lengths", lengths}},
                                      [&] { return counting(samples, lengths); });
  if (!counted) return counted.error();
  page.heading("Counting without a scratchpad");
  page.paragraph(
      "One head looks at all bits alike, written as +1 and -1. What it gives goes to the best read-out there "
      "is: for each value the more frequent "
      "parity, as if the rest of the model could compute any function. All inputs up to 18 bits, random ones "
      "beyond.");
  Chart chart{.title = "Error of the best read-out",
              .x_label = "bits n",
              .y_label = "error",
              .log_x = true,
              .y_range = std::pair(-0.02, 0.55)};
  chart.rules.push_back({0.5, "guessing"});
  bool lost = true;
  double worst = 1;
  for (const Json& r : *counted) {
    Series s{.name = r["text"]};
    for (size_t i = 0; i < lengths.size(); ++i)
      s.x.push_back(static_cast<double>(lengths[i])), s.y.push_back(r["errors"][i]);
    if (r["s"].get<int>() > 0 && r["s"].get<int>() <= 4)
      lost &= s.y.back() > 0.4, worst = std::min(worst, s.y.back());
    chart.series.push_back(std::move(s));
  }
  page.chart(chart);
  page.paragraph(
      "With bits as +1 and -1 the sum is a random walk that forgets only when it meets an end, after about "
      "B_s^2 steps: in F_4 the error is still small at 128 bits. It "
      "does come, at a length that depends on the arithmetic and not on the model.");
  out.figures["counting"] = {{"lengths", lengths}, {"rows", *counted}};
  out.claims.push_back({fmt::format("Without a scratchpad the error of a counting head in F_2, F_3 and F_4 "
                                    "approaches guessing: above 0.4 at {} bits",
                                    lengths.back()),
                        fmt::format("smallest of the three: {:.3f}", worst), lost});
  return {};
}

// With a scratchpad, by weights that are written down.
Status add_scratchpads(Stages& stages, Findings& out) {
  const std::vector<int64_t> sizes = stages.effort() == Effort::kQuick
                                         ? std::vector<int64_t>{12, 48, 192}
                                         : std::vector<int64_t>{12, 48, 192, 768};
  const size_t instances = at<size_t>(stages.effort(), 4, 20, 100);
  const Result<Json> padded =
      stages("scratchpads", {{"sizes", sizes}, {"instances", instances}, {"block", kBlock}},
             [&] { return scratchpads(sizes, kBlock, instances, stages.pool()); });
  if (!padded) return padded.error();
  size_t wrong = 0, all = 0;
  for (const Json& r : *padded) wrong += r["wrong"].get<size_t>(), all += r["instances"].get<size_t>();
  out.page.heading("With a scratchpad, written down");
  out.page.paragraph(
      fmt::format("A decoder of one layer of attention with {} heads. Every scratch token names the parity "
                  "so far; its {} heads find the next {} bits by "
                  "their positions, exactly; the next scratch token is the one whose name has this parity "
                  "and these bits. The exclusive or is computed by "
                  "nobody: it stands in the embedding of the scratch tokens. It is right in every "
                  "arithmetic, and writes n / {} tokens.",
                  kBlock, kBlock, kBlock, kBlock));
  out.claims.push_back(
      {"With a scratchpad of n / 3 tokens attention of three heads is right in F_2, F_3 and F_4 with every "
       "tie rule",
       fmt::format("{} strings of up to {} bits, {} wrong", all, sizes.back(), wrong), wrong == 0});
  out.figures["scratchpads"] = *padded;
  return {};
}

// The shortest scratchpad by n, if each of its tokens has the parity of one more block of bits.
Status add_shortest(Stages& stages, Findings& out) {
  const Result<Json> reached = stages("reach", {{"most", kCountAll}}, [&] { return reach(); });
  if (!reached) return reached.error();
  struct Reader {
    std::string column, curve;
    int64_t block;
  };
  std::vector<Reader> readers;
  std::string most;
  bool bounded = true;
  for (const Json& r : *reached) {
    const int s = r["s"];
    const int64_t bits = r["bits"];
    const bool open = r["at_least"];
    bounded &= !open || s >= 4;
    add_item(most, fmt::format("{}: {}{}", r["text"].get<std::string>(), open ? "at least " : "", bits));
    if (r["ties"] == "even")
      readers.push_back({fmt::format("counting, F_{}", s), fmt::format("counting in F_{}", s), bits});
  }
  readers.push_back({"copying 3 bits", "copying 3 bits", kBlock});
  PageTable shortest{.head = {"bits n"}, .rows = {}};
  Chart grows{.title = "Scratch tokens needed",
              .x_label = "bits n",
              .y_label = "tokens t",
              .log_x = true,
              .log_y = true};
  for (const Reader& r : readers)
    shortest.head.push_back(r.column), grows.series.push_back({.name = r.curve});
  for (const int64_t n : {16, 64, 256, 1024, 4096, 16384}) {
    std::vector<PageCell> row{{fmt::format("{}", n)}};
    for (size_t i = 0; i < readers.size(); ++i) {
      const int64_t t = (n + readers[i].block - 1) / readers[i].block;
      row.push_back({fmt::format("{}", t)});
      grows.series[i].x.push_back(static_cast<double>(n));
      grows.series[i].y.push_back(static_cast<double>(t));
    }
    shortest.rows.push_back(std::move(row));
  }
  shortest.caption =
      "The shortest scratchpad of parities of blocks: a step reads as many bits as one head can count "
      "without error in this arithmetic "
      "(found with all inputs up to 18 bits), or copies three. It grows in proportion to n; the hybrid's "
      "stays at two tokens.";
  out.page.table(shortest);
  out.page.chart(grows);
  out.page.paragraph(fmt::format("Bits that one head counts without error: {}.", most));
  out.figures["reach"] = *reached;
  out.claims.push_back(
      {"The bits that one head counts without error are a constant of the arithmetic, so blocks, and with "
       "them the scratchpad, grow with n",
       most, bounded});
  return {};
}

// Transformers that are trained.
Status add_trained(Stages& stages, Findings& out) {
  const Effort e = stages.effort();
  Page& page = out.page;
  const std::vector<int64_t> trained_bits =
      e == Effort::kQuick ? std::vector<int64_t>{8, 16} : std::vector<int64_t>{8, 16, 32};
  const int64_t updates = at<int64_t>(e, 400, 3000, 10000);
  page.heading("Trained");
  page.paragraph(
      fmt::format("Transformers of two layers, width 64, with RoPE, each trained on strings of one length "
                  "for at most {} steps of 64 strings, without a scratchpad "
                  "(t = 1: the parity at once) and with the parities of t beginnings. Error of the last "
                  "parity on 100 new strings, decoded greedily by the references: in float, and with "
                  "the same weights in F_s.",
                  updates));
  PageTable trained{.head = {"bits n", "tokens t", "float", "F_12", "F_8", "F_6", "F_4", "F_2"}, .rows = {}};
  std::string works;
  for (const int64_t n : trained_bits) {
    int64_t least = 0;
    std::vector<int64_t> steps{1, n / 4, n / 2, n};
    if (e == Effort::kQuick) steps = {1, n / 2, n};
    for (const int64_t t : steps) {
      const Result<Json> r =
          stages(fmt::format("trained-{}-{}", n, t), {{"updates", updates}, {"finest", 12}},
                 [&] { return train(stages, n, t, updates); });
      if (!r) return r.error();
      std::vector<PageCell> row{{fmt::format("{}", n)}, {fmt::format("{}", t)}};
      for (const Json& x : (*r)["errors"]) {
        const double error = x["error"];
        row.push_back(error == 0 ? verdict(true, "0") : PageCell{fmt::format("{:.2f}", error)});
      }
      if (least == 0 && (*r)["errors"][0]["error"].get<double>() == 0) least = t;
      trained.rows.push_back(std::move(row));
      out.figures["trained"].push_back(*r);
    }
    add_item(works, fmt::format("{} bits: {}", n,
                                least ? fmt::format("t = {}", least) : std::string("none of those tried")));
    out.figures["trained_shortest"].push_back({{"bits", n}, {"tokens", least}});
  }
  trained.caption =
      "What is learned in this time is no lower bound; that no training could do without a scratchpad as n "
      "grows is the theorem.";
  page.table(trained);
  page.paragraph("The shortest scratchpad with which training succeeded, in float: " + works + ".");
  return {};
}

}  // namespace

Result<Findings> pcr_attention(Stages& stages) {
  Findings out;
  add_why(out.page);
  for (const auto add : {add_counting, add_scratchpads, add_shortest, add_trained})
    if (Status s = add(stages, out); !s) return s.error();
  return out;
}

}  // namespace braid
