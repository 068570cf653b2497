#include "base/clock.h"
#include "cli/cli.h"
#include "io/folder.h"
#include "ops/op.h"

namespace braid {
namespace {

struct Options {
  std::string name, in, out, form;
  std::vector<std::string> set;
  int64_t threads = 0;
  bool backward = false, json = false;
};

std::string op_list() {
  std::string text;
  for (const CallableOp* op : all_callable_ops()) text += fmt::format("{:<16} {}\n", op->name, op->summary);
  return text + "\nbraid op NAME --help names an op's tensors, shapes, forms and settings.\n";
}

int run(const Options& o) {
  if (o.name.empty()) return say("{}", op_list()), kOk;
  const CallableOp* op = find_callable_op(o.name);
  if (!op) return wrong_use(no_such_op(o.name));
  std::vector<Problem> problems;
  if (o.in.empty()) problems.push_back({"--in", "is missing", "name a safetensors file"});
  if (o.out.empty()) problems.push_back({"--out", "is missing", "name the safetensors file to write"});
  if (!problems.empty()) return wrong_use(wrong_options(problems));
  if (Status s = check_output({"--out", o.out}, {{"--in", o.in}}); !s) return wrong_use(s.error());
  Result<OpCall> call =
      OpCall::make(*op, {.settings = o.set, .form = o.form, .backward = o.backward, .dashes = "--"});
  if (!call) return wrong_use(call.error());
  const Result<SafeTensors> file = SafeTensors::open(o.in);
  if (!file) return fail(file.error());
  if (Status s = call->read(*file, o.in); !s) return fail(s.error());

  Result<ThreadPool> started = start_threads(o.threads);
  if (!started) return fail(started.error());
  ThreadPool& pool = *started;
  const double start = seconds_now();
  call->run(Par(pool));
  const double seconds = seconds_now() - start;
  const std::vector<NamedTensor> results = call->results();
  if (Status s = write_safetensors(o.out, results); !s) return fail(s.error());
  if (o.json) {
    Json shapes = Json::object();
    for (const NamedTensor& t : results)
      for (int i = 0; i < t.view.shape.rank(); ++i) shapes[t.name].push_back(t.view.shape[i]);
    Json line{{"op", op->name},     {"form", call->form()}, {"threads", pool.threads()},
              {"seconds", seconds}, {"out", o.out},         {"tensors", shapes}};
    if (!call->impl().empty()) line["impl"] = call->impl();
    print_json(line);
    return kOk;
  }
  std::string list;
  for (const NamedTensor& t : results)
    list += fmt::format("{}{} {}", list.empty() ? "" : ", ", t.name, t.view.shape.text());
  const std::string by = call->impl().empty() ? "" : ", by " + call->impl();
  say("{}, {}{}: {} written to {}\n", op->name, call->form(), by, list, o.out);
  return kOk;
}

}  // namespace

std::string op_details() {
  std::string text;
  for (const CallableOp* op : all_callable_ops()) text += op_markdown(*op);
  return text;
}

std::function<int()> define_op(CLI::App& app) {
  auto o = std::make_shared<Options>();
  OptionAdder add(app);
  add("name", o->name, "op to run; none: list the ops");
  add("--in", o->in,
      "safetensors file with the op's inputs by name; with --backward also the cotangents, e.g. do");
  add("--out", o->out, "safetensors file to write: outputs, final state, gradients");
  add("--form", o->form, "form of the algorithm, e.g. step: token by token; default: the op's first");
  add("--backward", o->backward, "compute gradients, too");
  add.several("--set", o->set, "a setting of the op, e.g. scale=0.5; may be repeated or take several");
  add("--threads", o->threads, "threads; 0 = all cores", kThreads);
  add("--json", o->json, "print a summary as one JSON line");
  add.footer([o] {
    const CallableOp* op = find_callable_op(o->name);
    return op ? op_help(*op) : "\nOps:\n" + op_list();
  });
  return [o] { return run(*o); };
}

}  // namespace braid
