#include "cli/markdown.h"

#include <algorithm>
#include <array>

#include "cli/archs.h"
#include "cli/cli.h"
#include "eval/task.h"
#include "lab/results_page.h"
#include "model/families/families.h"
#include "model/model.h"
#include "tasks/task.h"

namespace braid {
namespace {

std::string code(std::string_view text) {
  return text.empty() ? std::string() : "`" + markdown_cell(text) + "`";
}

template <class Texts>
std::string codes(const Texts& texts) {
  std::string out;
  for (const auto& t : texts) out += (out.empty() ? "" : ", ") + code(t);
  return out;
}

void print_head(const std::vector<std::string_view>& columns) {
  std::string names = "|", rule = "|";
  for (const std::string_view c : columns) names += fmt::format(" {} |", c), rule += "---|";
  say("{}\n{}\n", names, rule);
}

std::string millions(size_t n) { return fmt::format("{:.2f} M", static_cast<double>(n) * 1e-6); }
std::string thousands(size_t n) {
  return n >= 1'000'000 ? millions(n) : fmt::format("{:.1f} K", static_cast<double>(n) * 1e-3);
}
std::string billions(size_t n) { return fmt::format("{:.2f} B", static_cast<double>(n) * 1e-9); }

// ---- Models

// A setting of several mixers that have the same settings: the most frequent default, then the exceptions.
std::string defaults_of(const std::vector<const MixerEntry*>& mixers, size_t field) {
  std::vector<std::pair<std::string, std::vector<std::string>>> values;  // value, mixers that have it
  for (const MixerEntry* m : mixers) {
    const std::string value = m->fields()[field].value;
    auto at = std::ranges::find(values, value, [](const auto& v) { return v.first; });
    if (at == values.end()) at = values.insert(values.end(), {value, {}});
    at->second.push_back(m->name);
  }
  std::ranges::stable_sort(values, std::ranges::greater(), [](const auto& v) { return v.second.size(); });
  std::string text = markdown_cell(values[0].first);
  for (size_t i = 1; i < values.size(); ++i)
    text += fmt::format("; {}: {}", codes(values[i].second), markdown_cell(values[i].first));
  return text;
}

bool same_settings(const MixerEntry& a, const MixerEntry& b) {
  const auto same = [](const FieldDoc& x, const FieldDoc& y) { return x.name == y.name && x.help == y.help; };
  return std::ranges::equal(a.fields(), b.fields(), same);
}

int print_mixers() {
  print_head({"mixer", "summary", "paper", "parameters per layer", "state per layer"});
  std::vector<std::vector<const MixerEntry*>> groups;
  for (const MixerEntry& m : built_in_mixers().all()) {
    const PerLayer size = per_layer(m);
    say("| `{}` | {} | {} | {} | {} |\n", m.name, markdown_cell(m.summary), markdown_cell(m.paper),
        millions(size.parameters), thousands(size.state));
    const auto at = std::ranges::find_if(groups, [&](const auto& g) { return same_settings(*g[0], m); });
    if (at == groups.end())
      groups.push_back({&m});
    else
      at->push_back(&m);
  }
  say("\nParameters and state elements of one layer: `d_model` 1024, 8 heads, 2048 tokens.\n");
  for (const std::vector<const MixerEntry*>& group : groups) {
    std::vector<std::string> names;
    for (const MixerEntry* m : group) names.push_back(m->name);
    say("\n### Settings of {}\n\n", codes(names));
    print_head({"setting", "default", "meaning"});
    const std::vector<FieldDoc> fields = group[0]->fields();
    for (size_t i = 0; i < fields.size(); ++i)
      say("| `{}` | {} | {} |\n", fields[i].name, defaults_of(group, i), markdown_cell(fields[i].help));
  }
  return kOk;
}

// Fields of config.json: those of the model, and those of an entry of its "params".
int print_config() {
  const auto table = [](const char* title, const std::vector<FieldDoc>& fields) {
    print_head({title, "default", "meaning"});
    for (const FieldDoc& f : fields)
      say("| `{}` | {} | {} |\n", f.name, markdown_cell(f.value), markdown_cell(f.help));
  };
  table("field of the model", list_fields(ModelConfig()));
  say("\n");
  table("field of an entry of `params`", list_fields(ParamConfig()));
  return kOk;
}

int print_mlps() {
  print_head({"MLP", "computes", "paper", "settings (default)"});
  for (const MlpDoc& m : all_mlps()) {
    std::string settings;
    for (const FieldDoc& f : m.fields)
      settings += fmt::format("{}`{}` ({}): {}", settings.empty() ? "" : "; ", f.name, f.value,
                              markdown_cell(f.help));
    say("| `{}` | {} | {} | {} |\n", m.name, markdown_cell(m.summary), markdown_cell(m.paper), settings);
  }
  return kOk;
}

// "3 x `gated_deltanet`, `attention`"
std::string pattern_text(const Preset& p) {
  std::vector<std::pair<std::string, int>> runs;
  for (const Json& layer : p.pattern({1024, 24, 8})) {
    const std::string type = layer["mixer"]["type"];
    if (runs.empty() || runs.back().first != type) runs.emplace_back(type, 0);
    ++runs.back().second;
  }
  std::string text;
  for (const auto& [type, count] : runs)
    text +=
        fmt::format("{}{}`{}`", text.empty() ? "" : ", ", count > 1 ? fmt::format("{} x ", count) : "", type);
  return text;
}

int print_presets() {
  print_head({"`--arch`", "mixers of the pattern", "summary", "paper", "sizes of released models"});
  for (const Preset& p : all_presets()) {
    std::string sizes;
    if (p.own_sizes)
      for (const OwnSize& s : p.own_sizes()) {
        const Result<size_t> n = preset_parameters(p, std::string(s.name));
        if (!n) return fail(n.error());
        sizes += fmt::format("{}`{}` ({})", sizes.empty() ? "" : ", ", s.name, billions(*n));
      }
    say("| `{}` | {} | {} | {} | {} |\n", p.name, pattern_text(p), markdown_cell(p.summary),
        markdown_cell(p.paper), sizes);
  }
  say("\n");
  print_head(
      {"`--size`", "width", "layers", "heads", "MLP width", "vocabulary", "parameters of `transformer`"});
  const Preset& transformer = *find_preset("transformer");
  for (const Size& s : all_sizes()) {
    const Result<size_t> n = preset_parameters(transformer, std::string(s.name));
    if (!n) return fail(n.error());
    say("| `{}` | {} | {} | {} | {} | {} | {} |\n", s.name, s.dims.d_model, s.dims.n_layers, s.dims.heads,
        s.dims.d_ff, s.vocab_size ? fmt::format("{}", s.vocab_size) : "of the data (here 256)", millions(*n));
  }
  return kOk;
}

int print_families() {
  print_head({"`model_type`", "also reads", "class", "model", "paper"});
  for (const Family& f : all_families())
    say("| `{}` | {} | `{}` | {} | {} |\n", f.model_type, codes(f.also_reads), f.architecture,
        markdown_cell(f.summary), markdown_cell(f.paper));
  return kOk;
}

// ---- Tasks and experiments

std::string token_range(const Task& task, Split split) {
  const size_t least = task.min_length(split), most = task.max_length(split);
  return least == most ? fmt::format("{}", most) : fmt::format("{}-{}", least, most);
}

int print_tasks() {
  print_head({"task", "what is learned", "paper", "vocabulary", "tokens, train", "tokens, test", "chance",
              "headline metric"});
  for (const TaskEntry& e : all_tasks()) {
    const std::unique_ptr<Task> task = *make_task(e.name);
    say("| [`{}`](#{}) | {} | {} | {} | {} | {} | {:.3g} % | {} |\n", e.name, e.name,
        markdown_cell(e.description), markdown_cell(e.paper), task->vocab_size(),
        token_range(*task, Split::kTrain), token_range(*task, Split::kTest), 100 * task->chance(),
        markdown_cell(task->headline()));
  }
  return kOk;
}

int print_settings() {
  print_head({"task", "setting", "default", "range", "meaning"});
  for (const TaskEntry& e : all_tasks()) {
    const std::unique_ptr<Task> task = *make_task(e.name);
    for (const Setting& setting : task->settings())
      say("| {} | `{}` | {} | {} | {} |\n", e.name, setting.name, value_text(setting),
          markdown_cell(range_text(setting)), markdown_cell(setting.help));
  }
  return kOk;
}

// Rows and columns of a study's table.
std::string table_size(const std::vector<Trial>& trials) {
  std::vector<std::string> rows, columns;
  const auto note = [](std::vector<std::string>& all, const std::string& one) {
    if (std::ranges::find(all, one) == all.end()) all.push_back(one);
  };
  for (const Trial& t : trials) note(rows, t.row), note(columns, t.column);
  return fmt::format("{} x {}", rows.size(), columns.size());
}

int print_experiments() {
  print_head({"experiment", "paper", "what is trained or computed", "rows x columns",
              "runs: `--quick` / default / `--paper`", "`--quick`, minutes"});
  for (const Experiment& e : all_experiments()) {
    std::string size = "-", runs = "none (computation)";
    if (e.trials) {
      const std::vector<Trial> usual = e.trials(Effort::kDefault);
      size = table_size(usual);
      runs = fmt::format("{} / {} / {}", e.trials(Effort::kQuick).size(), usual.size(),
                         e.trials(Effort::kPaper).size());
    }
    say("| [`{}`](../results/{}.md) | {} | {}. {} | {} | {} | {} |\n", e.name, e.name, markdown_cell(e.paper),
        markdown_cell(e.title), markdown_cell(e.shows), size, runs, quick_minutes(e));
  }
  return kOk;
}

// ---- Benchmarks

std::string request_name(const Benchmark& t) {
  if (t.kind == RequestKind::kGenerate) return "generation";
  if (t.kind == RequestKind::kRolling) return "text";
  return t.several_contexts                                          ? "choice of context"
         : t.metrics.size() > 1 && t.metrics[0].name == "perplexity" ? "last word"
                                                                     : "choice";
}

int print_benchmarks() {
  print_head({"`--tasks`", "contents", "request", "metrics", "file below `--data`", "source"});
  size_t blimp = 0;
  for (const Benchmark& t : all_eval_tasks()) {
    const bool is_blimp = in_group(t, "blimp");
    if (is_blimp && blimp++) continue;
    std::vector<std::string> metrics;
    for (const TaskMetric& m : t.metrics) metrics.push_back(m.name);
    if (metrics.empty()) metrics.push_back("LENGTH");
    std::vector<std::string> files = is_blimp ? std::vector<std::string>{"blimp/NAME.jsonl"} : t.files;
    say("| `{}` | {} | {} | {} | {} | {} |\n", is_blimp ? "blimp_NAME" : t.name, markdown_cell(t.summary),
        request_name(t), codes(metrics), codes(files), markdown_cell(t.source));
  }
  say("\n");
  print_head({"group", "contents", "tasks"});
  for (const TaskGroup& g : eval_groups()) {
    const auto n =
        std::ranges::count_if(all_eval_tasks(), [&](const Benchmark& t) { return in_group(t, g.name); });
    say("| `{}` | {} | {} |\n", g.name, markdown_cell(g.summary), n);
  }
  return kOk;
}

struct Topic {
  std::string_view name;
  int (*print)();
};
constexpr std::array kTopics{Topic{"config", print_config},
                             Topic{"mixers", print_mixers},
                             Topic{"mlps", print_mlps},
                             Topic{"presets", print_presets},
                             Topic{"families", print_families},
                             Topic{"tasks", print_tasks},
                             Topic{"settings", print_settings},
                             Topic{"experiments", print_experiments},
                             Topic{"benchmarks", print_benchmarks}};

}  // namespace

int print_markdown(const std::string& topic, const std::function<void()>& cli) {
  if (topic.empty() || topic == "cli") return cli(), kOk;
  std::vector<std::string> names{"cli"};
  for (const Topic& t : kTopics) {
    if (t.name == topic) return t.print();
    names.emplace_back(t.name);
  }
  return wrong_use({fmt::format("--markdown: there is no topic '{}'", topic), suggest(topic, names)});
}

}  // namespace braid
