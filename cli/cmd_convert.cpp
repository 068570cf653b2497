#include "base/interrupt.h"
#include "base/progress.h"
#include "cli/cli.h"
#include "cli/weight_flags.h"
#include "model/families/convert.h"

namespace braid {
namespace {

struct Options {
  std::string model, from, tokenizer, out, to, family, random;
  int64_t threads = 0;
  WeightFlags weights;
  double shard_size = 0;
  bool force = false, check = false, quiet = false, json = false;
  template <class V>
  void visit(V& v) {
    v("--model", model, "model folder to read (a run folder is one); sharded files are fine");
    v("--from", from, "llama2c: --model is a .bin file of llama2.c, which becomes a folder of Braid's");
    v("--tokenizer", tokenizer, "llama2c: its tokenizer, which goes along");
    v("--to", to, "hf: names and config of Hugging Face transformers or fla; braid: Braid's own");
    v("--out", out, "folder to write; it appears when it is whole");
    v("--family", family, "hf: write as this family; else the first that computes the same");
    weights.visit(v);
    v("--random", random,
      "instead of --model: a model with random weights and the shape of a released one, for timings");
    v("--threads", threads, "--random: threads; 0 = all cores", kThreads);
    v("--shard-size", shard_size, "hf: cut the weights into files of at most so many MB; 0 = one file",
      Bounds<double>{0, 1e9});
    v("--force", force, "replace the files that an earlier convert wrote in --out; all others there stay");
    v("--check", check, "read and compare names, shapes and settings, write nothing");
    v("--quiet", quiet, "no progress");
    v("--json", json, "print a summary as one JSON line");
  }
};

// Runs a conversion with a bar and tells what was done.
int perform(const Options& o, Conversion c,
            const std::function<Result<Converted>(const Conversion&)>& convert) {
  catch_interrupts();
  Progress bar("convert", 100, 0, o.quiet || o.json);
  uint64_t shown = 0;
  c.progress = [&](uint64_t done, uint64_t all) {
    if (const uint64_t percent = all ? done * 100 / all : 100; percent != shown)
      bar.update(shown = percent, fmt::format("{:.2f} of {:.2f} GB", 1e-9 * static_cast<double>(done),
                                              1e-9 * static_cast<double>(all)));
    return !interrupted();
  };
  const Result<Converted> done = convert(c);
  bar.finish();
  if (!done) return fail(done.error());
  if (o.json) {
    print_json({{"family", done->family},
                {"tensors", done->tensors},
                {"bytes", done->bytes},
                {"out", o.out},
                {"notes", done->notes}});
    return kOk;
  }
  for (const std::string& note : done->notes) say("note: {}\n", note);
  say("{}: {} tensors, {:.1f} MB{}\n", done->family, done->tensors, 1e-6 * static_cast<double>(done->bytes),
      o.check ? "; nothing written" : ", in " + o.out);
  return kOk;
}

int run_random(const Options& o, std::optional<WeightFormat> format) {
  std::vector<std::string> names;
  const RandomShape* shape = nullptr;
  for (const RandomShape& s : random_shapes()) {
    names.emplace_back(s.name);
    if (s.name == o.random) shape = &s;
  }
  if (!shape) return wrong_use({"convert: there is no shape '" + o.random + "'", suggest(o.random, names)});
  if (!o.model.empty() || !o.from.empty() || !o.to.empty() || !o.family.empty() || !o.tokenizer.empty() ||
      format)
    return wrong_use({"convert: --random takes --out, --shard-size, --force, --check and --threads",
                      "convert the folder that it writes"});
  if (o.out.empty() != o.check) return wrong_use({"convert: give one of --out and --check"});
  Result<ThreadPool> started = start_threads(o.threads);
  if (!started) return fail(started.error());
  ThreadPool& pool = *started;
  const Conversion c{.in = "",
                     .out = o.out,
                     .replace = o.force,
                     .check_only = o.check,
                     .shard_bytes = static_cast<uint64_t>(1e6 * o.shard_size)};
  return perform(o, c, [&](const Conversion& with) { return convert_random(with, *shape, Par(pool)); });
}

int run(const Options& o) {
  const Result<std::optional<WeightFormat>> format = o.weights.resolve();
  if (!format) return wrong_use(format.error());
  if (!o.random.empty()) return run_random(o, *format);
  if (o.model.empty()) return wrong_use({"convert: --model is missing", "give a model folder"});
  if (!o.from.empty() && o.from != "llama2c")
    return wrong_use({"convert: --from is '" + o.from + "'", "use llama2c; other models say what they are"});
  const bool llama2c = !o.from.empty();
  if (llama2c ? o.to != "" && o.to != "braid" : o.to != "hf" && o.to != "braid")
    return wrong_use({o.to.empty() ? "convert: --to is missing" : "convert: --to is '" + o.to + "'",
                      llama2c ? "--from llama2c gives braid" : "use hf or braid"});
  if (!llama2c && !o.tokenizer.empty())
    return wrong_use(
        {"convert: --tokenizer is for --from llama2c", "other models have theirs in the folder"});
  if (o.out.empty() != o.check) return wrong_use({"convert: give one of --out and --check"});
  Conversion c{.tokenizer = o.tokenizer,
               .in = o.model,
               .out = o.out,
               .format = *format,
               .replace = o.force,
               .check_only = o.check};
  const bool to_hf = o.to == "hf";
  if (to_hf && *format && has_scales(**format))
    return wrong_use({"convert: --quant is for --to braid", "no family stores numbers in this way"});
  if (!to_hf && !o.family.empty())
    return wrong_use({"convert: --family is for --to hf", "a family's config.json says what it is"});
  if (o.shard_size > 0 && !to_hf)
    return wrong_use({"convert: --shard-size is for --to hf", "leave it out"});
  c.shard_bytes = static_cast<uint64_t>(1e6 * o.shard_size);

  if (llama2c) return perform(o, c, convert_llama2c);

  const std::string path = o.model + "/config.json";
  const Result<Json> json = load_config_json(path);
  if (!json) return fail(json.error());
  const Result<const Family*> family = family_of(*json, path);
  if (!family) return fail(family.error());
  const bool again = !to_hf && !*family && *format;  // Braid's own, in another format
  if (!again && to_hf == (*family != nullptr))
    return wrong_use({fmt::format("{} is a model of {} already", o.model,
                                  to_hf ? std::string((*family)->architecture) : "Braid"),
                      to_hf ? "use --to braid" : "use --to hf, or give --dtype or --quant"});
  const Result<ModelConfig> config = read_config(*json, path);
  if (!config) return fail(config.error());
  const std::unique_ptr<Model> model = Model::create(*config);

  if (again) return perform(o, c, [&](const Conversion& with) { return convert_format(with, *model); });
  if (!to_hf)
    return perform(o, c, [&](const Conversion& with) { return convert_to_braid(with, *model, **family); });
  const Result<HfConfigFile> hf = hf_config(*config, o.family);
  if (!hf) return wrong_use(hf.error());
  return perform(o, c, [&](const Conversion& with) { return convert_to_hf(with, *model, *hf); });
}

}  // namespace

std::string convert_details() {
  std::string text = "\n| family | class | what |\n|---|---|---|\n";
  for (const Family& f : all_families())
    text += fmt::format("| `{}` | `{}` | {} |\n", f.model_type, f.architecture, f.summary);
  text += "\n| --random | what |\n|---|---|\n";
  for (const RandomShape& s : random_shapes()) text += fmt::format("| `{}` | {} |\n", s.name, s.summary);
  return text;
}

std::function<int()> define_convert(CLI::App& app) {
  auto o = std::make_shared<Options>();
  OptionAdder add(app);
  o->visit(add);
  return [o] { return run(*o); };
}

}  // namespace braid
