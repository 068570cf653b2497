#include "report/run_page.h"

#include <fmt/format.h>

#include <cmath>
#include <filesystem>
#include <map>

#include "base/progress.h"
#include "io/file.h"

namespace braid {
namespace {

Json object_in(const std::string& path) {
  if (!path_exists(path)) return Json::object();
  const Result<Json> json = load_json(path);
  return json && json->is_object() ? *json : Json::object();
}

double number_in(const Json& line, const char* name) {
  const auto it = line.find(name);
  return it != line.end() && it->is_number() ? it->get<double>() : NAN;
}

std::string text_in(const Json& object, const char* name) {
  const auto it = object.find(name);
  return it != object.end() && it->is_string() ? it->get<std::string>() : std::string();
}

Series curve(const std::vector<Json>& lines, const std::string& name, const char* field, double factor = 1) {
  Series s{.name = name};
  for (const Json& line : lines)
    if (line.contains(field)) {
      s.x.push_back(number_in(line, "step"));
      s.y.push_back(factor * number_in(line, field));
    }
  s.markers = s.x.size() < 50;
  return s;
}

double last_of(const std::vector<Json>& lines, const char* field) {
  for (size_t i = lines.size(); i-- > 0;)
    if (const double v = number_in(lines[i], field); std::isfinite(v)) return v;
  return NAN;
}

// On a task accuracy tells, on text the loss.
std::string found(const Json& result, const std::vector<Json>& lines, bool task) {
  const bool done = !result.empty();
  const double loss = done ? number_in(result, "eval_loss") : last_of(lines, "eval_loss"),
               accuracy = 100 * (done ? number_in(result, "eval_accuracy") : last_of(lines, "eval_accuracy")),
               step = done ? number_in(result, "step") : last_of(lines, "step");
  const std::string after = std::isfinite(step) ? fmt::format("after {:.0f} steps", step)
                                                : "before the first step",
                    state = done ? "" : " (not finished)";
  if (task && std::isfinite(accuracy)) return fmt::format("Accuracy {:.1f} % {}{}", accuracy, after, state);
  if (std::isfinite(loss)) return fmt::format("Loss {:.2f} {}{}", loss, after, state);
  return fmt::format("No held-out result {}{}", after, state);
}

// Accuracies of the task, by name; those by length are many and have their own chart in a study.
void add_metrics(const std::vector<Json>& lines, Page& page) {
  constexpr size_t kMost = 8;
  std::map<std::string, Series> all;
  for (const Json& line : lines) {
    const auto metrics = line.find("metrics");
    if (metrics == line.end() || !metrics->is_object()) continue;
    for (const auto& [name, metric] : metrics->items())
      if (metric.is_object()) {
        Series& s = all[name];
        s.name = name;
        s.x.push_back(number_in(line, "step")), s.y.push_back(100 * number_in(metric, "value"));
      }
  }
  if (all.empty()) return;
  Chart chart{.title = "Held-out accuracy, by part of the task",
              .x_label = "step",
              .y_label = "accuracy, %",
              .y_range = std::pair(0.0, 100.0)};
  for (auto& [name, series] : all)
    if (chart.series.size() < kMost) chart.series.push_back(std::move(series));
  page.chart(chart);
}

void add_result(const Json& result, Page& page) {
  if (result.empty()) return page.paragraph("The run is not finished.");
  PageTable table{.head = {"at the end", "value"}, .rows = {}};
  const auto row = [&](const char* name, const std::string& text) { table.rows.push_back({{name}, {text}}); };
  const auto number = [&](const char* name, const char* field, int digits, double factor = 1,
                          const char* unit = "") {
    const double value = factor * number_in(result, field);
    row(name, std::isfinite(value) ? fmt::format("{:.{}f}{}", value, digits, unit) : std::string("-"));
  };
  row("stopped", text_in(result, "stopped"));
  number("steps", "step", 0);
  number("tokens", "tokens", 0);
  const double seconds = number_in(result, "seconds");
  row("time", std::isfinite(seconds) ? human_time(seconds) : "-");
  number("parameters", "parameters", 0);
  number("held-out loss", "eval_loss", 4);
  number("held-out accuracy", "eval_accuracy", 2, 100, " %");
  page.table(table);
}

}  // namespace

std::vector<Json> metric_lines(const std::string& run) {
  std::vector<Json> lines;
  const std::string path = run + "/metrics.jsonl";
  if (!path_exists(path)) return lines;
  const Result<std::string> text = read_text(path, size_t{1} << 32);
  if (!text) return lines;
  for (size_t at = 0; at < text->size();) {
    const size_t end = std::min(text->find('\n', at), text->size());
    Result<Json> line = parse_ordered_json(std::string_view(*text).substr(at, end - at), path);
    at = end + 1;
    if (line && line->is_object()) lines.push_back(*std::move(line));
  }
  return lines;
}

Page run_page(const std::string& run, bool live) {
  const Json record = object_in(run + "/run.json"), result = object_in(run + "/result.json");
  const std::vector<Json> lines = metric_lines(run);
  const auto options = record.find("options");
  const bool task = options != record.end() && options->is_object() && !text_in(*options, "task").empty();
  Page page(found(result, lines, task));
  if (live) page.refresh_every(10);
  page.topic("Training run " + std::filesystem::path(run).filename().string());
  // A difference of losses below this is noise.
  const Chart loss{.title = "Loss",
                   .x_label = "training step",
                   .y_label = "nats",
                   .least_span = 0.2,
                   .series = {curve(lines, "training", "loss"), curve(lines, "held out", "eval_loss")}};
  const Chart accuracy{
      .title = "Accuracy",
      .x_label = "training step",
      .y_label = "accuracy, %",
      .y_range = std::pair(0.0, 100.0),
      .series = {curve(lines, "training", "accuracy", 100), curve(lines, "held out", "eval_accuracy", 100)}};
  page.chart(task ? accuracy : loss);
  if (const auto data = record.find("data"); data != record.end() && data->is_object())
    page.paragraph(text_in(*data, "source"));
  add_result(result, page);
  page.chart(task ? loss : accuracy);
  add_metrics(lines, page);
  page.begin_details("Learning rate, gradient norm and speed");
  page.chart({.title = "Learning rate", .x_label = "training step", .series = {curve(lines, "", "lr")}});
  page.chart({.title = "Norm of the gradient, before clipping",
              .x_label = "training step",
              .log_y = true,
              .series = {curve(lines, "", "grad_norm")}});
  page.chart({.title = "Training speed",
              .x_label = "training step",
              .y_label = "tokens per second",
              .series = {curve(lines, "", "tokens_per_second")}});
  page.end_details();
  page.begin_details("Do it again: command, options, program and machine");
  page.code(text_in(record, "command"));
  if (const auto resumed = record.find("resumed"); resumed != record.end() && resumed->is_array())
    page.paragraph(
        fmt::format("It was stopped and resumed {} times; the commands are below.", resumed->size()));
  page.code(record.dump(2));
  page.end_details();
  return page;
}

}  // namespace braid
