#include <cmath>

#include "base/interrupt.h"
#include "base/progress.h"
#include "cli/cli.h"
#include "cli/sampling.h"
#include "cli/weight_flags.h"
#include "infer/text_model.h"
#include "model/families/convert.h"
#include "tokenizer/train.h"

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
    v("--model,-m", model, "model folder to read (a run folder is one); sharded files are fine");
    v("--from", from, "llama2c: --model is a .bin file of llama2.c; the result is a Braid folder");
    v("--tokenizer", tokenizer, "llama2c: file of its tokenizer, copied to --out");
    v("--to", to,
      "hf: tensors and config as transformers or fla name them; braid: Braid's own (default unless --model "
      "is Braid's)");
    v("--out", out, "folder to write; it appears when it is complete");
    v("--family", family, "hf: family to write; default: the first that computes the same");
    weights.visit(v);
    v("--random", random, "instead of --model: random weights in the shape of a released model, for timings");
    v("--threads", threads, "--random: threads; 0 = all cores", kThreads);
    v("--shard-size", shard_size, "hf: largest size of a weight file, MB; 0 = one file",
      Bounds<double>{0, 1e9});
    v("--force", force, "replace the files that an earlier convert wrote in --out; others stay");
    v("--check", check, "read and compare names, shapes and settings; write nothing");
    v("--quiet", quiet, "no progress");
    v("--json", json, "print a summary as one JSON line");
  }
};

double rounded(float x) {
  return std::round(1e4 * static_cast<double>(x)) / 1e4;
}  // 0.8, not 0.800000011920929

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
  say("{}: {} tensors, {}{}\n", done->family, done->tensors, human_bytes(static_cast<double>(done->bytes)),
      o.check ? "; nothing written" : ", in " + o.out);
  return kOk;
}

// Other engines have no tokenizer of bytes of their own, nor Braid's usual sampling: a model of bytes gets
// both as files.
Status add_byte_files(const std::string& dir, const ModelConfig& config, Conversion& c) {
  const Result<std::optional<Tokenizer>> tokenizer = load_tokenizer(dir, config.vocab_size);
  if (!tokenizer) return tokenizer.error();
  if (!*tokenizer || (*tokenizer)->kind() != Tokenizer::bytes().kind()) return {};
  const SamplerOptions usual = *SamplingFlags().resolve({});
  const auto text = [](const Json& j) { return j.dump(2) + "\n"; };
  c.files["tokenizer.json"] = byte_tokenizer_json();
  Json settings{{"tokenizer_class", "PreTrainedTokenizerFast"}, {"clean_up_tokenization_spaces", false}};
  if (config.train_length > 0) settings["model_max_length"] = config.train_length;
  c.files["tokenizer_config.json"] = text(settings);
  c.files["generation_config.json"] = text({{"do_sample", true},
                                            {"temperature", rounded(usual.temperature)},
                                            {"top_k", usual.top_k},
                                            {"top_p", rounded(usual.top_p)},
                                            {"min_p", rounded(usual.min_p)},
                                            {"bos_token_id", nullptr},
                                            {"eos_token_id", nullptr},
                                            {"pad_token_id", nullptr}});
  return {};
}

int run_random(const Options& o, std::optional<WeightFormat> format) {
  std::vector<std::string> names;
  const RandomShape* shape = nullptr;
  for (const RandomShape& s : random_shapes()) {
    names.emplace_back(s.name);
    if (s.name == o.random) shape = &s;
  }
  if (!shape) return wrong_use({"--random " + o.random + ": is not a shape", suggest(o.random, names)});
  if (!o.model.empty() || !o.from.empty() || !o.to.empty() || !o.family.empty() || !o.tokenizer.empty() ||
      format)
    return wrong_use({"--random: excludes --model, --from, --to, --family, --tokenizer, --dtype and --quant",
                      "leave them out; convert the folder that --random writes"});
  if (o.out.empty() != o.check)
    return wrong_use({o.out.empty() ? "--out: is missing" : "--out, --check: exclude each other",
                      "give a folder to write with --out, or --check to write nothing"});
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
  if (o.model.empty()) return wrong_use({"--model: is missing", "give a model folder"});
  if (!o.from.empty() && o.from != "llama2c")
    return wrong_use({"--from: is '" + o.from + "'", "use llama2c, or leave it out for a model folder"});
  const bool llama2c = !o.from.empty();
  if (!o.to.empty() && o.to != "hf" && o.to != "braid")
    return wrong_use({"--to: is '" + o.to + "'", "use hf or braid"});
  if (llama2c && o.to == "hf")
    return wrong_use({"--to: is 'hf' with --from llama2c", "use --to braid, then convert its --out to hf"});
  if (!llama2c && !o.tokenizer.empty())
    return wrong_use({"--tokenizer: is given without --from llama2c",
                      "leave it out: a tokenizer in the model folder is copied"});
  if (!llama2c)
    if (Status s = check_model_folder("--model", o.model); !s) return fail(s.error());
  if (o.out.empty() != o.check)
    return wrong_use({o.out.empty() ? "--out: is missing" : "--out, --check: exclude each other",
                      "give a folder to write with --out, or --check to write nothing"});
  Conversion c{.tokenizer = o.tokenizer,
               .in = o.model,
               .out = o.out,
               .format = *format,
               .replace = o.force,
               .check_only = o.check};
  const bool to_hf = o.to == "hf";
  if (to_hf && *format && has_scales(**format))
    return wrong_use({"--quant: is given with --to hf", "use --to braid: no family has this format"});
  if (!to_hf && !o.family.empty())
    return wrong_use({"--family: is given without --to hf", "leave it out, or add --to hf"});
  if (o.shard_size > 0 && !to_hf)
    return wrong_use({"--shard-size: is given without --to hf", "leave it out, or add --to hf"});
  c.shard_bytes = static_cast<uint64_t>(1e6 * o.shard_size);

  if (llama2c) return perform(o, c, convert_llama2c);

  const std::string path = o.model + "/config.json";
  const Result<Json> json = load_config_json(path);
  if (!json) return fail(json.error());
  const Result<const Family*> family = family_of(*json, path);
  if (!family) return fail(family.error());
  const bool again = !to_hf && !*family && *format;  // Braid's own, in another format
  if (!again && to_hf == (*family != nullptr))
    return wrong_use({fmt::format("--model {}: is in the format of {} already", o.model,
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
  if (Status s = add_byte_files(o.model, *config, c); !s) return fail(s.error());
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
