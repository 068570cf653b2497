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

Series curve(const std::vector<Json>& lines, const std::string& title, const char* field, double factor = 1) {
  Series s{.name = title};
  for (const Json& line : lines)
    if (line.contains(field)) {
      s.x.push_back(number_in(line, "step"));
      s.y.push_back(factor * number_in(line, field));
    }
  s.markers = s.x.size() < 50;
  return s;
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
  Chart chart{.title = "Held-out samples, by what is asked",
              .x_label = "step",
              .y_label = "right answers, %",
              .y_range = std::pair(0.0, 100.0)};
  for (auto& [name, series] : all)
    if (chart.series.size() < kMost) chart.series.push_back(std::move(series));
  page.chart(chart);
}

void add_result(const Json& result, Page& page) {
  if (result.empty()) return page.paragraph("The run is not finished.");
  PageTable table{.head = {"", ""}, .rows = {}, .caption = "At the end."};
  const auto row = [&](const char* name, const std::string& text) { table.rows.push_back({{name}, {text}}); };
  row("stopped", text_in(result, "stopped"));
  row("steps", fmt::format("{:.0f}", number_in(result, "step")));
  row("tokens", fmt::format("{:.0f}", number_in(result, "tokens")));
  row("time", human_time(number_in(result, "seconds")));
  row("parameters", fmt::format("{:.0f}", number_in(result, "parameters")));
  row("held-out loss", fmt::format("{:.4f}", number_in(result, "eval_loss")));
  row("held-out accuracy", fmt::format("{:.2f} %", 100 * number_in(result, "eval_accuracy")));
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
  const Json record = object_in(run + "/run.json");
  const std::vector<Json> lines = metric_lines(run);
  Page page("Training run " + std::filesystem::path(run).filename().string());
  if (live) page.refresh_every(10);
  if (const auto data = record.find("data"); data != record.end() && data->is_object())
    page.paragraph(text_in(*data, "source"));
  add_result(object_in(run + "/result.json"), page);
  page.chart({.title = "Loss",
              .x_label = "step",
              .y_label = "nats",
              .series = {curve(lines, "training", "loss"), curve(lines, "held out", "eval_loss")}});
  page.chart({.title = "Accuracy",
              .x_label = "step",
              .y_label = "right answers, %",
              .series = {curve(lines, "training", "accuracy", 100),
                         curve(lines, "held out", "eval_accuracy", 100)}});
  add_metrics(lines, page);
  page.begin_details("Learning rate, gradient norm and speed");
  page.chart({.title = "Learning rate", .x_label = "step", .series = {curve(lines, "learning rate", "lr")}});
  page.chart({.title = "Norm of the gradient",
              .x_label = "step",
              .log_y = true,
              .series = {curve(lines, "before clipping", "grad_norm")}});
  page.chart({.title = "Tokens per second",
              .x_label = "step",
              .series = {curve(lines, "training", "tokens_per_second")}});
  page.end_details();
  page.heading("Do it again");
  page.code(text_in(record, "command"));
  if (const auto resumed = record.find("resumed"); resumed != record.end() && resumed->is_array())
    page.paragraph(
        fmt::format("It was stopped and resumed {} times; the commands are below.", resumed->size()));
  page.begin_details("Options, program and machine");
  page.code(record.dump(2));
  page.end_details();
  return page;
}

}  // namespace braid
