#include "train/trainer.h"

#include <fmt/format.h>

#include <bit>
#include <cmath>
#include <cstdio>
#include <numbers>
#include <utility>

#include "base/clock.h"
#include "base/interrupt.h"
#include "io/file.h"
#include "io/json.h"
#include "kernels/matmul/matmul.h"
#include "model/config_json.h"
#include "train/evaluation_json.h"

namespace braid {
namespace {

constexpr size_t kEvalBatch = 256;         // held-out sequences at a time
constexpr uint64_t kCurriculumSteps = 20;  // whose accuracy decides whether samples grow

GradientOptions gradient_options(const TrainOptions& o) {
  return {.precision = o.precision == "bf16" ? Precision::kBf16 : Precision::kF32,
          .seed = static_cast<uint64_t>(o.seed),
          .z_loss = o.z_loss,
          .recompute = o.recompute};
}

OptimizerOptions optimizer_options(const TrainOptions& o) {
  return {.kind = o.optimizer == "muon" ? OptimizerKind::kMuon : OptimizerKind::kAdamW,
          .beta1 = o.beta1,
          .beta2 = o.beta2,
          .eps = o.eps,
          .weight_decay = o.weight_decay,
          .clip = o.clip,
          .decay_norms = o.decay_norms,
          .momentum = o.momentum};
}

}  // namespace

double headline_score(const Source& source, const Evaluation& e) {
  for (const Metric& m : e.metrics)
    if (m.name == source.headline()) return m.value();
  return -e.outcome.loss;
}

// Loss in nats per token as bits per byte of text.
double bits_per_byte(double loss, size_t tokens, uint64_t bytes) {
  return loss * static_cast<double>(tokens) / (std::numbers::ln2 * static_cast<double>(bytes));
}

Json to_json(const Evaluation& e) {
  Json json{{"eval_loss", e.outcome.loss},
            {"eval_accuracy", e.outcome.accuracy()},
            {"eval_sequence_accuracy", e.outcome.sequence_accuracy()}};
  for (const Metric& m : e.metrics)
    if (m.total > 0) json["metrics"][m.name] = {{"value", m.value()}, {"chance", m.chance}, {"of", m.total}};
  if (e.text_bytes > 0)
    json["eval_bits_per_byte"] = bits_per_byte(e.outcome.loss, e.outcome.supervised, e.text_bytes);
  for (const Evaluation::Part& p : e.parts) {
    json["eval_sets"][p.name] = {{"loss", p.loss}, {"tokens", p.supervised}};
    if (p.text_bytes > 0)
      json["eval_sets"][p.name]["bits_per_byte"] = bits_per_byte(p.loss, p.supervised, p.text_bytes);
  }
  return json;
}

const char* stop_text(Stop stop) {
  switch (stop) {
    case Stop::kSteps:
      return "all steps done";
    case Stop::kTarget:
      return "target reached";
    case Stop::kPlateau:
      return "no better for a while";
    case Stop::kMinutes:
      return "time is up";
    case Stop::kInterrupted:
      return "interrupted";
    case Stop::kNotFinite:
      return "the loss was not finite";
  }
  return "";
}

Trainer::Trainer(Model& model, Source& source, ThreadPool& pool, const TrainOptions& options)
    : model_(model),
      source_(source),
      pool_(pool),
      options_(options),
      gradient_(model, pool, gradient_options(options)),
      optimizer_(model.params(), optimizer_options(options)),
      schedule_{.kind = options.schedule,
                .lr = options.lr,
                .min_lr = options.lr * options.min_lr_ratio,
                .warmup = static_cast<uint64_t>(options.warmup),
                .steps = static_cast<uint64_t>(options.steps)} {}

// Takes the folder and gives it a config; a run that goes on must have this model's.
Status Trainer::open_folder(bool resume) {
  const std::string& dir = options_.run;
  if (!folder_) {
    Result<RunFolder> folder = resume ? RunFolder::resume(dir) : RunFolder::start(dir, /*over=*/true);
    if (!folder) return folder.error();
    folder_ = *std::move(folder);
  }
  check(folder_->dir() == dir, "Trainer::use: the folder is not that of the options");
  const std::string file = dir + "/config.json";
  if (!resume || !path_exists(file)) return save_json(file, to_json(model_.config()));
  const Result<ModelConfig> config = load_config(file);
  if (!config) return config.error();
  // In whatever order the keys stand.
  if (nlohmann::json(to_json(*config)) != nlohmann::json(to_json(model_.config())))
    return Error{file + ": is not the config of this model", "resume with the model of the run"};
  return {};
}

Status Trainer::restore() {
  const Result<Restored> restored = load_newest_checkpoint(options_.run, model_, optimizer_);
  if (!restored) return restored.error();
  if (restored->progression) {
    p_ = *restored->progression;
    for (const std::string& what : restored->damaged)
      if (on_note_) on_note_(fmt::format("{}; going on from step {}", what, p_.step));
  } else if (path_exists(options_.run + "/model.safetensors")) {
    return Error{options_.run + ": has a model, but no checkpoint to resume from", "start a new run"};
  }
  while (source_.growths() < p_.growths)
    if (!source_.grow())
      return Error{"--task-set: the task cannot grow as far as in the checkpoint",
                   "resume with the settings of the run"};
  return trim_metrics(p_.step);
}

Result<TrainSummary> Trainer::run(const RunMode& how) {
  if (const std::vector<Problem> p = unusable(options_); !p.empty()) return wrong_options(p);
  const double start = seconds_now();
  const bool on_disk = !options_.run.empty();
  if (on_disk)
    if (Status s = open_folder(how.resume); !s) return s.error();
  const std::optional<RunFolder> held = std::exchange(folder_, std::nullopt);  // until the end of this call
  if (how.resume && on_disk)
    if (Status s = restore(); !s) return s.error();
  const auto steps = static_cast<uint64_t>(options_.steps);
  const double before = p_.seconds;
  const uint64_t first_step = p_.step;
  if (p_.step < steps) peak_ = 1e-9 * pool_.threads() * measure_fma_peak(pool_.kernels().isa());
  Progress bar("train", steps, p_.step, how.quiet);
  uint64_t evaluated = 0, saved = p_.step;  // at which step
  std::optional<Stop> stop;
  if (p_.step >= steps) stop = Stop::kSteps;
  while (!stop) {
    if (Status s = step(bar); !s) {
      // What the last parameters give is a result, too: an experiment may have expected it.
      if (p_.bad_in_a_row >= static_cast<uint64_t>(options_.bad_steps) && on_disk) {
        last_ = evaluate(source_, gradient_);
        if (Status w = write_result(Stop::kNotFinite); !w) return w.error();
      }
      return s.error();
    }
    p_.seconds = before + seconds_now() - start;
    if (p_.step >= steps) stop = Stop::kSteps;
    if (options_.minutes > 0 && p_.seconds >= 60 * options_.minutes) stop = Stop::kMinutes;
    if (interrupted()) stop = Stop::kInterrupted;
    if ((options_.eval_every > 0 && p_.step % static_cast<uint64_t>(options_.eval_every) == 0) ||
        (stop && *stop != Stop::kInterrupted)) {
      if (Status s = evaluate_and_log(bar); !s) return s.error();
      evaluated = p_.step;
      p_.seconds = before + seconds_now() - start;
      if (!stop && options_.stop_at > 0 && headline_score(source_, last_) >= options_.stop_at)
        stop = Stop::kTarget;
      if (!stop && options_.patience > 0 && p_.since_best >= static_cast<uint64_t>(options_.patience))
        stop = Stop::kPlateau;
    }
    // The best so far is kept, so it must be on disk too.
    if (on_disk && (stop || p_.step % static_cast<uint64_t>(options_.checkpoint_every) == 0 ||
                    (evaluated == p_.step && p_.best_step == p_.step))) {
      if (Status s = save(); !s) return s.error();
      saved = p_.step;
    }
  }
  bar.finish();
  if (*stop != Stop::kInterrupted && evaluated != p_.step) last_ = evaluate(source_, gradient_);
  if (on_disk && *stop != Stop::kInterrupted) {
    if (saved != p_.step)
      if (Status s = save(); !s) return s.error();
    if (Status s = write_result(*stop); !s) return s.error();
  }
  return TrainSummary{first_step, p_, last_, *stop, seconds_now() - start};
}

Status Trainer::write_result(Stop stop) {
  Json result = to_json(last_);
  p_.visit([&](const char* name, const auto& value) { result[name] = value; });
  result["stopped"] = stop_text(stop), result["parameters"] = model_.params().count();
  for (size_t i = 0; i < last_.by_position.size(); ++i)
    if (last_.by_position[i].second > 0)
      result["loss_by_position"].push_back({uint64_t{1} << i, last_.by_position[i].first});
  return save_json(options_.run + "/result.json", result);
}

// Samples are pure functions of their number, so another thread can make the next batch during this step.
Batch Trainer::next_batch(size_t sequences) {
  const auto make = [this, sequences](uint64_t from) { return source_.batch(from, sequences); };
  Batch batch = ahead_.valid() ? ahead_.get() : make(p_.sample);
  ahead_ = std::async(std::launch::async, make, p_.sample + sequences);
  return batch;
}

Status Trainer::step(Progress& bar) {
  const double start = seconds_now(), lr = schedule_.at(p_.step);
  const size_t sequences = static_cast<size_t>(options_.batch * options_.accumulate);
  const Batch batch = next_batch(sequences);
  const Outcome o = gradient_.run(batch, p_.step);
  const double norm = optimizer_.grad_norm(gradient_.grads(), Par(pool_));
  const bool good = std::isfinite(o.loss) && std::isfinite(norm);
  if (good) {
    optimizer_.step(gradient_.grads(), norm, lr, Par(pool_));
    gradient_.params_changed();
    p_.bad_in_a_row = 0;
  } else {
    ++p_.bad_in_a_row, ++p_.bad_total;
    bar.line(
        fmt::format("step {}: loss {} and gradient norm {} are not both finite; step skipped ({} in a row)",
                    p_.step + 1, o.loss, norm, p_.bad_in_a_row));
  }
  ++p_.step;
  p_.sample += sequences, p_.tokens += o.tokens;
  const double seconds = seconds_now() - start;
  if (p_.step % static_cast<uint64_t>(options_.log_every) == 0 ||
      p_.step == static_cast<uint64_t>(options_.steps) || !good) {
    const auto number = [](double x) { return std::isfinite(x) ? Json(x) : Json(nullptr); };
    const Json line{{"step", p_.step},
                    {"loss", number(o.loss)},
                    {"accuracy", o.accuracy()},
                    {"lr", lr},
                    {"grad_norm", number(norm)},
                    {"tokens", p_.tokens},
                    {"seconds", seconds},
                    {"tokens_per_second", static_cast<double>(o.tokens) / seconds},
                    {"gflops", gflops(o, seconds)}};
    if (Status s = log(line.dump()); !s) return s;
  }
  if (p_.bad_in_a_row >= static_cast<uint64_t>(options_.bad_steps)) {
    if (!options_.run.empty())
      if (Status s = save(); !s) return s;
    return Error{fmt::format("train: loss or gradient not finite in {} steps in a row; stopped at step {}",
                             p_.bad_in_a_row, p_.step),
                 "try a smaller --lr, more --warmup or --precision f32"};
  }
  bar.update(p_.step, fmt::format("loss {:.4f}  acc {:.1f} %  {:.0f} tok/s  {:.0f} % of peak", o.loss,
                                  100 * o.accuracy(), static_cast<double>(o.tokens) / seconds,
                                  100 * gflops(o, seconds) / peak_));
  look_at_curriculum(o, bar);
  return {};
}

// Forward and backward, by the model's own count.
double Trainer::gflops(const Outcome& o, double seconds) const {
  const auto length = static_cast<int64_t>(o.tokens / std::max<size_t>(1, o.sequences));
  return 3e-9 * model_.flops_per_token(length) * static_cast<double>(o.tokens) / seconds;
}

void Trainer::look_at_curriculum(const Outcome& o, Progress& bar) {
  if (options_.grow_at <= 0) return;
  p_.recent_right += o.correct, p_.recent_total += o.supervised;
  if (p_.step % kCurriculumSteps != 0) return;
  const double accuracy = share(p_.recent_right, p_.recent_total);
  p_.recent_right = p_.recent_total = 0;
  if (accuracy < options_.grow_at) return;
  if (ahead_.valid()) (void)ahead_.get();  // nobody reads the source while it changes
  if (!source_.grow()) return;
  p_.growths = source_.growths();
  bar.line(fmt::format("step {}: training accuracy {:.2f} %, samples grow longer", p_.step, 100 * accuracy));
}

Status Trainer::evaluate_and_log(Progress& bar) {
  last_ = evaluate(source_, gradient_);
  const Outcome& o = last_.outcome;
  if (std::isfinite(o.loss) && (p_.best_step == 0 || o.loss < p_.best_loss))
    p_.best_loss = o.loss, p_.best_step = p_.step;
  const double score = headline_score(source_, last_);
  ++p_.since_best;
  if (score > p_.best_score) p_.best_score = score, p_.since_best = 0;
  Json line = to_json(last_);
  line["step"] = p_.step;
  if (p_.growths > 0) line["growths"] = p_.growths;
  std::string sets;
  if (last_.parts.size() > 1)
    for (const Evaluation::Part& p : last_.parts) sets += fmt::format("  {} {:.4f}", p.name, p.loss);
  bar.line(fmt::format("step {}: held-out loss {:.4f}  accuracy {:.2f} %{}", p_.step, o.loss,
                       100 * o.accuracy(), sets));
  if (Status s = log(line.dump()); !s) return s;
  if (on_evaluation_)
    if (const std::string more = on_evaluation_(model_, p_.step); !more.empty()) bar.line(more);
  return {};
}

namespace {

// One batch of held-out data, added to sums: `all.outcome.loss` and the means by position are sums here.
void add_batch(const Source& source, const Batch& batch, Gradient& gradient, Evaluation& all) {
  Answers answers;
  const Outcome o = gradient.evaluate(batch, &answers);
  Outcome& sum = all.outcome;
  sum.loss += o.loss * static_cast<double>(o.supervised);
  sum.tokens += o.tokens, sum.supervised += o.supervised, sum.correct += o.correct;
  sum.sequences += o.sequences, sum.all_correct += o.all_correct;
  all.text_bytes += source.text_bytes(batch.targets);
  source.measure(batch, answers.predicted, all.metrics);
  for (size_t s = 0; s < batch.sequences(); ++s)
    for (size_t t = batch.offsets[s]; t < batch.offsets[s + 1]; ++t) {
      if (batch.targets[t] == kUnsupervised) continue;
      const auto bin = static_cast<size_t>(std::bit_width(t - batch.offsets[s]));
      if (all.by_position.size() <= bin) all.by_position.resize(bin + 1);
      all.by_position[bin].first += static_cast<double>(answers.loss[t]), ++all.by_position[bin].second;
    }
}

double mean(double sum, size_t count) { return count ? sum / static_cast<double>(count) : 0; }

}  // namespace

Evaluation evaluate(const Source& source, Gradient& gradient) {
  Evaluation all{.outcome = {}, .metrics = source.metrics()};
  std::vector<ValidationPart> parts = source.validation_parts();
  const bool named = !parts.empty();
  if (!named) parts = {{"", 0, source.validation_size()}};
  for (const ValidationPart& part : parts) {
    const double loss = all.outcome.loss;
    const size_t supervised = all.outcome.supervised;
    const uint64_t bytes = all.text_bytes;
    for (size_t at = part.begin; at < part.end; at += kEvalBatch)
      add_batch(source, source.validation(at, std::min(kEvalBatch, part.end - at)), gradient, all);
    const size_t count = all.outcome.supervised - supervised;
    if (named)
      all.parts.push_back({part.name, mean(all.outcome.loss - loss, count), count, all.text_bytes - bytes});
  }
  all.outcome.loss = mean(all.outcome.loss, all.outcome.supervised);
  for (auto& [total, count] : all.by_position) total = mean(total, count);
  return all;
}

Status Trainer::save() { return save_checkpoint(options_.run, model_, optimizer_, p_, options_.keep); }

Status Trainer::log(const std::string& line) {
  if (on_metrics_) on_metrics_(line);
  if (options_.run.empty()) return {};
  return append_line(options_.run + "/metrics.jsonl", line);
}

Status Trainer::trim_metrics(uint64_t last_step) {
  const std::string path = options_.run + "/metrics.jsonl";
  if (!path_exists(path)) return {};
  const Result<std::string> text = read_text(path, size_t{1} << 32);
  if (!text) return text.error();
  std::string kept;
  for (size_t at = 0; at < text->size();) {
    const size_t end = std::min(text->find('\n', at), text->size());
    const std::string line = text->substr(at, end - at);
    at = end + 1;
    const Result<Json> j = parse_ordered_json(line, path);
    if (j && j->is_object() && j->contains("step") && (*j)["step"].is_number_unsigned() &&
        (*j)["step"].get<uint64_t>() <= last_step)
      kept += line + "\n";
  }
  return write_atomic(path, std::as_bytes(std::span(kept)));
}

}  // namespace braid
