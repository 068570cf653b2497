#include "train/trainer.h"

#include <fmt/format.h>

#include <cmath>
#include <cstdio>
#include <filesystem>

#include "base/clock.h"
#include "base/interrupt.h"
#include "io/file.h"
#include "io/json.h"

namespace braid {
namespace {

constexpr size_t kEvalBatch = 256;  // held-out sequences at a time

GradientOptions gradient_options(const TrainOptions& o) {
  return {.precision = o.precision == "bf16" ? Precision::kBf16 : Precision::kF32,
          .seed = static_cast<uint64_t>(o.seed),
          .recompute = o.recompute};
}

AdamWOptions adamw_options(const TrainOptions& o) {
  return {.beta1 = o.beta1, .beta2 = o.beta2, .eps = o.eps, .weight_decay = o.weight_decay, .clip = o.clip};
}

}  // namespace

Trainer::Trainer(Model& model, const Source& source, ThreadPool& pool, const TrainOptions& options)
    : model_(model),
      source_(source),
      pool_(pool),
      options_(options),
      gradient_(model, pool, gradient_options(options)),
      optimizer_(model.params(), adamw_options(options)),
      schedule_{.kind = options.schedule,
                .lr = options.lr,
                .min_lr = options.lr * options.min_lr_ratio,
                .warmup = static_cast<uint64_t>(options.warmup),
                .steps = static_cast<uint64_t>(options.steps)} {}

Result<TrainSummary> Trainer::run(bool resume, bool quiet) {
  if (const std::vector<Problem> p = unusable(options_); !p.empty())
    return to_error("these options cannot be used", p);
  const double start = seconds_now();
  const bool on_disk = !options_.run.empty();
  if (on_disk) {
    remove_unfinished(options_.run);
    if (Status s = make_dirs(options_.run); !s) return s.error();
    if (Status s = save_json(options_.run + "/config.json", to_json(model_.config())); !s) return s.error();
  }
  if (resume) {
    const std::optional<uint64_t> latest = latest_checkpoint(options_.run);
    if (latest) {
      const Result<Progression> p = load_checkpoint(options_.run, *latest, model_, optimizer_);
      if (!p) return p.error();
      p_ = *p;
    }
    if (Status s = trim_metrics(p_.step); !s) return s.error();
  }
  const auto steps = static_cast<uint64_t>(options_.steps);
  Progress bar("train", steps, p_.step, quiet);
  const size_t per_step = static_cast<size_t>(options_.batch * options_.accumulate);
  Outcome last_eval;
  bool evaluated = false;
  while (p_.step < steps && !interrupted()) {
    const double step_start = seconds_now(), lr = schedule_.at(p_.step);
    const Batch batch = source_.batch(p_.sample, per_step);
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
    p_.sample += per_step, p_.tokens += o.tokens;
    evaluated = false;
    const double seconds = seconds_now() - step_start;
    if (p_.step % static_cast<uint64_t>(options_.log_every) == 0 || p_.step == steps || !good) {
      const auto number = [](double x) { return std::isfinite(x) ? Json(x) : Json(nullptr); };
      if (Status s = log({{"step", p_.step},
                          {"loss", number(o.loss)},
                          {"accuracy", o.accuracy()},
                          {"lr", lr},
                          {"grad_norm", number(norm)},
                          {"tokens", p_.tokens},
                          {"seconds", seconds},
                          {"tokens_per_second", static_cast<double>(o.tokens) / seconds}});
          !s)
        return s.error();
    }
    if (p_.bad_in_a_row >= static_cast<uint64_t>(options_.bad_steps)) {
      if (on_disk)
        if (Status s = save(); !s) return s.error();
      return Error{fmt::format("the loss or gradient was not finite {} steps in a row; stopped at step {}",
                               p_.bad_in_a_row, p_.step),
                   "try a smaller --lr, more --warmup or --precision f32"};
    }
    bar.update(p_.step, fmt::format("loss {:.4f}  acc {:.1f} %  {:.0f} tok/s", o.loss, 100 * o.accuracy(),
                                    static_cast<double>(o.tokens) / seconds));
    if ((options_.eval_every > 0 && p_.step % static_cast<uint64_t>(options_.eval_every) == 0) ||
        p_.step == steps) {
      last_eval = evaluate();
      evaluated = true;
      if (p_.best_step == 0 || last_eval.loss < p_.best_loss)
        p_.best_loss = last_eval.loss, p_.best_step = p_.step;
      const Json line{{"step", p_.step},
                      {"eval_loss", last_eval.loss},
                      {"eval_accuracy", last_eval.accuracy()},
                      {"eval_sequence_accuracy", last_eval.sequence_accuracy()}};
      if (Status s = log(line); !s) return s.error();
      bar.line(fmt::format("step {}: held-out loss {:.4f}  accuracy {:.2f} %", p_.step, last_eval.loss,
                           100 * last_eval.accuracy()));
    }
    // The best so far is kept, so it must be on disk too.
    if (on_disk && (p_.step % static_cast<uint64_t>(options_.checkpoint_every) == 0 || p_.step == steps ||
                    (evaluated && p_.best_step == p_.step)))
      if (Status s = save(); !s) return s.error();
  }
  bar.finish();
  const bool early = p_.step < steps;
  if (early && on_disk)
    if (Status s = save(); !s) return s.error();
  if (!early && !evaluated) last_eval = evaluate();
  return TrainSummary{p_, last_eval, early, seconds_now() - start};
}

Outcome Trainer::evaluate() {
  Outcome all;
  double sum = 0;
  for (size_t at = 0; at < source_.validation_size(); at += kEvalBatch) {
    const Outcome o =
        gradient_.evaluate(source_.validation(at, std::min(kEvalBatch, source_.validation_size() - at)));
    sum += o.loss * static_cast<double>(o.supervised);
    all.tokens += o.tokens, all.supervised += o.supervised, all.correct += o.correct;
    all.sequences += o.sequences, all.all_correct += o.all_correct;
  }
  all.loss = all.supervised ? sum / static_cast<double>(all.supervised) : 0;
  return all;
}

Status Trainer::save() { return save_checkpoint(options_.run, model_, optimizer_, p_, options_.keep); }

Status Trainer::log(const Json& line) {
  if (on_metrics_) on_metrics_(line);
  if (options_.run.empty()) return {};
  return append_line(options_.run + "/metrics.jsonl", line.dump());
}

Status Trainer::trim_metrics(uint64_t last_step) {
  const std::string path = options_.run + "/metrics.jsonl";
  if (!std::filesystem::exists(path)) return {};
  const Result<std::string> text = read_text(path, size_t{1} << 32);
  if (!text) return text.error();
  std::string kept;
  for (size_t at = 0; at < text->size();) {
    const size_t end = std::min(text->find('\n', at), text->size());
    const std::string line = text->substr(at, end - at);
    at = end + 1;
    const Json j = Json::parse(line, nullptr, false);
    if (j.is_object() && j.contains("step") && j["step"].is_number_unsigned() &&
        j["step"].get<uint64_t>() <= last_step)
      kept += line + "\n";
  }
  return write_atomic(path, std::as_bytes(std::span(kept)));
}

}  // namespace braid
