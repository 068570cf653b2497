#include "base/interrupt.h"
#include "base/progress.h"
#include "cli/cli.h"
#include "model/families/convert.h"

namespace braid {
namespace {

struct Options {
  std::string model, from, tokenizer, out, to, family, dtype;
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
    v("--dtype", dtype, "f32 or bf16; else numbers stay as they are stored");
    v("--shard-size", shard_size, "hf: cut the weights into files of at most so many MB; 0 = one file");
    v("--force", force, "replace a model that is in --out");
    v("--check", check, "read and compare names, shapes and settings, write nothing");
    v("--quiet", quiet, "no progress");
    v("--json", json, "print a summary as one JSON line");
  }
};

int run(const Options& o) {
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
  Conversion c{
      .tokenizer = o.tokenizer, .in = o.model, .out = o.out, .replace = o.force, .check_only = o.check};
  if (o.dtype == "f32" || o.dtype == "bf16")
    c.dtype = o.dtype == "f32" ? DType::kF32 : DType::kBF16;
  else if (!o.dtype.empty())
    return wrong_use({"convert: --dtype is '" + o.dtype + "'", "use f32 or bf16"});
  const bool to_hf = o.to == "hf";
  if (!to_hf && !o.family.empty())
    return wrong_use({"convert: --family is for --to hf", "a family's config.json says what it is"});
  if (o.shard_size < 0 || (o.shard_size > 0 && !to_hf))
    return wrong_use({"convert: --shard-size is for --to hf, and above 0", "leave it out"});
  c.shard_bytes = static_cast<uint64_t>(1e6 * o.shard_size);

  catch_interrupts();
  Progress bar("convert", 100, 0, o.quiet || o.json);
  uint64_t shown = 0;
  c.progress = [&](uint64_t done, uint64_t all) {
    if (const uint64_t percent = all ? done * 100 / all : 100; percent != shown)
      bar.update(shown = percent, fmt::format("{:.2f} of {:.2f} GB", 1e-9 * static_cast<double>(done),
                                              1e-9 * static_cast<double>(all)));
    return !interrupted();
  };
  const auto finish = [&](const Result<Converted>& done) {
    bar.finish();
    if (!done) return fail(done.error());
    if (o.json) {
      print_json({{"family", done->family},
                  {"tensors", done->tensors},
                  {"bytes", done->bytes},
                  {"out", o.out},
                  {"notes", done->notes}});
      return static_cast<int>(kOk);
    }
    for (const std::string& note : done->notes) fmt::print("note: {}\n", note);
    fmt::print("{}: {} tensors, {:.1f} MB{}\n", done->family, done->tensors,
               1e-6 * static_cast<double>(done->bytes), o.check ? "; nothing written" : ", in " + o.out);
    return static_cast<int>(kOk);
  };
  if (llama2c) return finish(convert_llama2c(c));

  const std::string path = o.model + "/config.json";
  const Result<Json> json = load_config_json(path);
  if (!json) return fail(json.error());
  const Result<const Family*> family = family_of(*json, path);
  if (!family) return fail(family.error());
  if (to_hf == (*family != nullptr))
    return wrong_use({fmt::format("{} is a model of {} already", o.model,
                                  to_hf ? std::string((*family)->architecture) : "Braid"),
                      to_hf ? "use --to braid" : "use --to hf"});
  const Result<ModelConfig> config = read_config(*json, path);
  if (!config) return fail(config.error());
  const std::unique_ptr<Model> model = Model::create(*config);

  if (!to_hf) return finish(convert_to_braid(c, *model, **family));
  const Result<HfConfigFile> hf = hf_config(*config, o.family);
  if (!hf) return wrong_use(hf.error());
  return finish(convert_to_hf(c, *model, *hf));
}

}  // namespace

std::string convert_details() {
  std::string text = "\n| family | class | what |\n|---|---|---|\n";
  for (const Family& f : all_families())
    text += fmt::format("| `{}` | `{}` | {} |\n", f.model_type, f.architecture, f.summary);
  return text;
}

std::function<int()> define_convert(CLI::App& app) {
  auto o = std::make_shared<Options>();
  OptionAdder add(app);
  o->visit(add);
  return [o] { return run(*o); };
}

}  // namespace braid
