#include "lab/sweep.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "base/nearest.h"
#include "base/number.h"
#include "base/split.h"
#include "io/json.h"
#include "tasks/make_source.h"
#include "train/setup.h"

namespace braid {
namespace {

constexpr size_t kMostRuns = 10'000;
// The runner's own.
constexpr std::array kNotSwept{"run", "resume", "seed", "threads"};

struct Axis {
  std::string option;
  std::vector<Json> values;  // of the option's type
  std::vector<std::string> words;
};

// A word of the command line as the value of an option that now has the value `like`.
Result<Json> value_of(const std::string& word, const Json& like, const std::string& where) {
  if (like.is_array()) return Json::array({word});
  if (like.is_boolean()) {
    if (word == "true" || word == "false") return Json(word == "true");
    return Error{fmt::format("{}: is '{}'", where, word), "give true or false"};
  }
  if (like.is_number_integer()) {
    const Result<int64_t> number = parse_number<int64_t>(word, where);
    return number ? Result<Json>(*number) : number.error();
  }
  if (like.is_number()) {
    const Result<double> number = parse_number<double>(word, where);
    return number ? Result<Json>(*number) : number.error();
  }
  return Json(word);
}

Result<Axis> parse_axis(const std::string& text, const Json& base) {
  const size_t equals = text.find('=');
  Axis axis{.option = text.substr(0, equals), .values = {}, .words = {}};
  if (axis.option.starts_with("--")) axis.option = axis.option.substr(2);
  if (equals == std::string::npos || equals + 1 == text.size())
    return Error{fmt::format("--grid {}: has no values", text), "write NAME=VALUE,VALUE, e.g. lr=1e-3,2e-3"};
  std::vector<std::string> names;
  for (const auto& [name, value] : base.items())
    if (!std::ranges::count(kNotSwept, name)) names.push_back(name);
  if (!std::ranges::count(names, axis.option))
    return Error{fmt::format("--grid {}: '{}' is no option that can be swept", text, axis.option),
                 axis.option == "seed" ? "use --seeds N" : suggest(axis.option, names)};
  for (const std::string& word : split_at_commas(text.substr(equals + 1))) {
    Result<Json> value = value_of(word, base[axis.option], "--grid " + axis.option);
    if (!value) return value.error();
    axis.values.push_back(*std::move(value)), axis.words.push_back(word);
  }
  return axis;
}

// Mistakes are told before the first run.
Status check_run(const TrainOptions& o) {
  if (Status s = validate(o); !s) return s;
  if (!o.model.empty()) return {};
  const Result<ModelConfig> config = make_config(o, /*vocab_size=*/1);  // any will do
  return config ? Status() : config.error();
}

}  // namespace

Result<std::unique_ptr<Sweep>> Sweep::make(const SweepOptions& o) {
  if (o.grid.empty()) return Error{"--grid: is missing", "give at least one, e.g. --grid lr=1e-3,2e-3"};
  const Json base = options_json(o.base);
  std::vector<Axis> axes;
  size_t rows = 1;
  for (const std::string& text : o.grid) {
    Result<Axis> axis = parse_axis(text, base);
    if (!axis) return axis.error();
    rows *= axis->values.size();
    if (rows * static_cast<size_t>(o.seeds) > kMostRuns)
      return Error{fmt::format("--grid: makes more than {} runs", kMostRuns), "use fewer values or seeds"};
    axes.push_back(*std::move(axis));
  }
  std::unique_ptr<Sweep> sweep(new Sweep);
  std::string column, swept;
  for (const Axis& axis : axes) swept += (swept.empty() ? "" : ", ") + axis.option;
  for (size_t row = 0; row < rows; ++row) {
    Json options = base;
    std::string label;
    size_t rest = row;
    for (const Axis& axis : axes) {
      const size_t i = rest % axis.values.size();
      rest /= axis.values.size();
      if (options[axis.option].is_array())
        options[axis.option].push_back(axis.values[i][0]);
      else
        options[axis.option] = axis.values[i];
      label += fmt::format("{}{}={}", label.empty() ? "" : " ", axis.option, axis.words[i]);
    }
    Result<TrainOptions> trained = options_from_json(options, "--grid");
    if (!trained) return trained.error();
    if (Status s = check_run(*trained); !s)
      return Error{fmt::format("--grid {}: {}", label, s.error().what), s.error().fix};
    if (row == 0) {
      const Result<std::unique_ptr<Source>> source = make_source(*trained);
      if (!source) return source.error();
      const std::string headline = (*source)->headline();
      Measure& m = sweep->experiment_.measure;
      if (headline.empty())
        m.kind = Measure::Kind::kLoss, m.unit = "held-out nats per token";
      else
        m.metric = headline, m.unit = headline + ", %";
      column = headline.empty() ? "held-out loss" : headline;
    }
    for (int64_t seed = 0; seed < o.seeds; ++seed) {
      trained->seed = o.base.seed + seed;
      sweep->trials_.push_back({label, column, fmt::format("seed {}", trained->seed), *trained});
    }
  }
  sweep->name_ = o.name, sweep->title_ = "Sweep over " + swept;
  sweep->shows_ = fmt::format("{} combinations, {} {} each.", rows, o.seeds, o.seeds == 1 ? "seed" : "seeds");
  Experiment& e = sweep->experiment_;
  e.name = sweep->name_, e.title = sweep->title_, e.shows = sweep->shows_;
  e.trials = [all = &sweep->trials_](Effort) { return *all; };
  return sweep;
}

}  // namespace braid
