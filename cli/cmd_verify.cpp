#include <unistd.h>

#include <cstdlib>

#include "base/clock.h"
#include "base/cpu.h"
#include "base/progress.h"
#include "cli/cli.h"
#include "model/config_json.h"
#include "model/model.h"
#include "verify/long_check.h"
#include "kernels/registry.h"
#include "verify/ops.h"
#include "verify/model_check.h"
#include "model/presets.h"
#include "model/state_file.h"

namespace braid {
namespace {

class Table {
 public:
  // width: of the first column; parts: kernels and models to check.
  Table(bool json, size_t width, size_t parts) : json_(json), width_(width), bar_("verify", parts, 0, json) {}
  void part_done() { bar_.update(++parts_done_); }
  void row(const std::string& what, const std::string& how, size_t checks, size_t wrong, double worst,
           const std::string& detail) {
    if (wrong && failed_ == 0) first_ = what + ", " + how;
    failed_ += wrong, checks_ += checks;
    bar_.clear();
    if (json_)
      print_json({{"what", what},
                  {"how", how},
                  {"checks", checks},
                  {"wrong", wrong},
                  {"worst_rms", worst},
                  {"detail", detail}});
    else
      say("{:<{}}  {:<44} {:>5}  {}{}{}\n", what, width_, how, counted(checks, "check"),
          wrong ? red(STDOUT_FILENO, "WRONG") : fmt::format("ok, worst rms {:.1e}", worst),
          detail.empty() ? "" : "  ", detail);
    flush_output();
  }
  size_t failed() const { return failed_; }
  size_t checks() const { return checks_; }
  const std::string& first() const { return first_; }  // that failed

 private:
  bool json_;
  size_t width_;
  Progress bar_;
  size_t failed_ = 0, checks_ = 0, parts_done_ = 0;
  std::string first_;
};

void verify_ops(Table& table) {
  for (const OpEntry& op : all_ops()) {
    op.impls().each([&](std::string_view name, Par par) {
      const std::vector<CheckRow> rows = op_check(op.name).check(par);
      size_t wrong = 0;
      double worst = 0;
      std::string detail;
      for (const CheckRow& r : rows) {
        worst = std::max(worst, r.diff.rms);
        if (!r.ok() && wrong++ == 0)
          detail = fmt::format("{}: rms {:.3g}, max {:.3g}", r.what, r.diff.rms, r.diff.max);
      }
      table.row(std::string(op.name), std::string(name) + " = reference in double", rows.size(), wrong, worst,
                detail);
    });
    table.part_done();
  }
}

void verify_model(Table& table, Model& model, const std::string& name) {
  for (const ModelCheckRow& r : check_model(model, kernel_choice()))
    table.row(name, r.what, r.checks, r.wrong, r.worst, r.detail);
}

// A very long sequence; takes minutes.
Status verify_long(Table& table, Model& model, const std::string& name, size_t tokens) {
  ThreadPool pool(cpu_count(), kernel_choice());
  const char* folder = std::getenv("TMPDIR");
  const std::string file =
      fmt::format("{}/braid-verify-{}.state", folder && *folder ? folder : "/tmp", getpid());
  const Result<std::vector<LongRow>> rows = check_long(model, pool, tokens, file);
  unlink(file.c_str());
  if (!rows) return rows.error();
  for (const LongRow& r : *rows)
    table.row(name, fmt::format("{} tokens, {}", tokens, r.what), 1, !r.ok(), r.difference,
              fmt::format("{}{}, {:.0f} s", r.finite ? "" : "NOT FINITE, ",
                          r.same_bits ? "bit for bit" : "within the tolerance", r.seconds));
  return {};
}

int run(const std::string& dir, std::string arch, const std::string& size, bool json, int64_t long_tokens) {
  if (long_tokens && dir.empty() && arch.empty()) arch = "qwen3.5";
  const auto verify = [long_tokens](Table& table, Model& model, const std::string& name) {
    if (long_tokens) return verify_long(table, model, name, static_cast<size_t>(long_tokens));
    verify_model(table, model, name);
    return Status{};
  };
  const double start = seconds_now();
  const size_t models = dir.empty() && arch.empty() ? all_presets().size() : 1,
               kernels = dir.empty() && arch.empty() ? all_ops().size() : 0;
  Table table(json, dir.empty() ? 18 : dir.size(), kernels + models);
  if (!json)
    say("{}: {}, using {}\n", cpu_model(), isa_name(detected_isa()), isa_name(kernel_choice().isa()));
  if (!dir.empty()) {
    if (Status s = check_model_folder("--model", dir); !s) return fail(s.error());
    Result<std::unique_ptr<Model>> model = Model::load(dir, built_in_mixers(), loading_bar(dir));
    if (!model) return fail(model.error());
    if (Status s = verify(table, **model, dir); !s) return fail(s.error());
  } else {
    if (!arch.empty() && !find_preset(arch))
      return wrong_use({"--arch " + arch + ": is not an architecture", suggest(arch, preset_names())});
    if (arch.empty() && size != "tiny")
      return wrong_use(
          {"--size: is given without --arch", "give --arch, or leave out --size to check every tiny model"});
    if (arch.empty()) verify_ops(table);
    for (const Preset& p : all_presets()) {
      if (!arch.empty() && p.name != arch) continue;
      const Result<Json> j = preset_config(std::string(p.name), size, 256);
      if (!j) return fail(j.error());
      const Result<ModelConfig> config = parse_config(*j, std::string(p.name));
      if (!config) return fail(config.error());
      std::unique_ptr<Model> model = Model::create(*config);
      model->init(1);
      if (Status s = verify(table, *model, std::string(p.name)); !s) return fail(s.error());
      table.part_done();
    }
  }
  if (!json)
    say("{} checks, {} wrong, {}\n", table.checks(), table.failed(), human_time(seconds_now() - start));
  if (table.failed() == 0) return kOk;
  return fail({fmt::format("verify: {} of {} checks are wrong, first: {}", table.failed(), table.checks(),
                           table.first()),
               dir.empty() ? "report it with the lines above and the output of `braid kernels`"
                           : "fetch or write the weights again; check this machine with `braid verify`"});
}

}  // namespace

std::function<int()> define_verify(CLI::App& app) {
  struct Options {
    std::string model, arch, size = "tiny";
    int64_t long_tokens = 0;
    bool json = false;
  };
  auto o = std::make_shared<Options>();
  OptionAdder add(app);
  add("--model,-m", o->model, "model folder to check");
  add("--arch", o->arch, "architecture to check");
  add("--size", o->size, "size of --arch");
  add("--long", o->long_tokens,
      "instead: read this many tokens, e.g. 131072, in one pass, in pieces and through a state file (--arch "
      "or "
      "--model, else qwen3.5); takes minutes",
      Bounds<int64_t>{0, kMaxSavedPosition});
  add("--json", o->json, "one JSON line per row");
  return [o] { return run(o->model, o->arch, o->size, o->json, o->long_tokens); };
}

}  // namespace braid
