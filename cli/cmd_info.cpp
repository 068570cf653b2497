#include <map>

#include "base/cpu.h"
#include "cli/cli.h"
#include "cli/weight_flags.h"
#include "infer/text_model.h"
#include "io/json.h"
#include "model/config_json.h"
#include "model/model.h"
#include "model/families/families.h"
#include "model/presets.h"

namespace braid {
namespace {

struct Options {
  std::string model, arch, size = "tiny", config;
  std::vector<std::string> set;
  int64_t length = 2048, vocab = 256;
  bool json = false, tensors = false, verbose = false;
  WeightFlags weights;
  template <class V>
  void visit(V& v) {
    v("--model,-m", model, "model folder");
    v("--arch", arch, "architecture instead of a folder; no memory is allocated for weights");
    v("--size", size, "size of --arch");
    v("--config", config, "config.json instead of a folder");
    v("--set", set, "change one value of the config; may be repeated");
    v("--vocab", vocab, "vocabulary of --arch", Bounds<int64_t>{1, 1 << 24});
    weights.visit(v);
    v("--length", length, "sequence length for flops and state", Bounds<int64_t>{1, 1'000'000'000});
    v("--tensors", tensors, "list every parameter");
    v("--verbose", verbose, "also list keys of config.json and tensors without effect");
    v("--json", json, "one JSON object");
  }
};

// "layers.3.mixer.q_proj.weight" -> "mixer": where the parameters are.
std::string part(const std::string& name) {
  if (!name.starts_with("layers.")) return name.substr(0, name.find('.'));
  const size_t at = name.find('.', 7) + 1;
  return name.substr(at, name.find('.', at) - at);
}

Result<ModelConfig> config_of(const Options& o, std::vector<std::string>& ignored) {
  const std::string name = !o.arch.empty() ? o.arch : o.model.empty() ? o.config : o.model + "/config.json";
  Result<Json> json = !o.arch.empty() ? preset_config(o.arch, o.size, o.vocab) : load_config_json(name);
  if (!json) return json.error();
  if (json->is_object() && json->value("model_type", Json()) != "braid") {  // translated, then changed
    const Result<ModelConfig> config = read_config(*json, name, &ignored);
    if (!config) return config.error();
    json = to_json(*config);
  }
  for (const std::string& s : o.set)
    if (Status status = apply_override(*json, s); !status) return status.error();
  return parse_config(*json, name);
}

// Tensors of a family's folder that are not used. The folder has been read before, without an error.
std::vector<LeftOut> left_out(const std::string& dir) {
  std::vector<LeftOut> all;
  const Result<Json> json = load_config_json(dir + "/config.json");
  const Result<const Family*> family = json ? family_of(*json, dir) : Result<const Family*>(nullptr);
  if (!family || !*family) return all;
  const Result<ModelConfig> config = read_config(*json, dir);
  const Result<SafeTensors> file = SafeTensors::open_model(dir);
  if (config && file) (void)assemble_params(**family, *Model::create(*config), *file, dir, all);
  return all;
}

const char* how_kept(std::string_view format) {
  return format == "q8"           ? " (8 bits each, a bf16 scale per 32 elements of a row)"
         : format == "q4"         ? " (4 bits each, a bf16 scale per 32 elements of a row)"
         : format == "f32 always" ? " (norms, gates, convolutions, decays, routers)"
                                  : "";
}

// Weights as inference keeps them: what in which format.
struct Kept {
  size_t tensors = 0, numbers = 0, bytes = 0;
};
std::map<std::string, Kept> kept_formats(const ParamSet& params) {
  std::map<std::string, Kept> all;
  for (size_t i = 0; i < params.all().size(); ++i) {
    const StoredMatrix* m = params.stored(i);
    Kept& k = all[m ? std::string(weight_format_name(m->format)) : "f32 always"];
    const size_t n = params[i].count();
    ++k.tensors, k.numbers += n, k.bytes += m ? m->bytes() : n * sizeof(float);
  }
  return all;
}

int run(const Options& o) {
  if ((o.model.empty() ? 0 : 1) + (o.arch.empty() ? 0 : 1) + (o.config.empty() ? 0 : 1) != 1)
    return wrong_use({"--model, --arch, --config: one of them must be given",
                      "give a model folder, an architecture or a config.json"});
  if (!o.model.empty())
    if (Status s = check_model_folder("--model", o.model); !s) return fail(s.error());
  std::vector<std::string> ignored;
  const Result<ModelConfig> config = config_of(o, ignored);
  if (!config) return fail(config.error());
  const Result<std::optional<WeightFormat>> format = o.weights.resolve();
  if (!format) return wrong_use(format.error());
  if (*format && o.model.empty())
    return wrong_use(
        {"--dtype, --quant: are given without --model", "leave them out, or give a model folder"});
  std::optional<Tokenizer> tokenizer;
  std::map<std::string, Kept> kept;
  if (!o.model.empty()) {
    ThreadPool pool(cpu_count(), kernel_choice());
    const Result<std::unique_ptr<Model>> m = Model::load_stored(
        o.model, *format, Par(pool), built_in_mixers(), loading_bar(o.model));  // they must fit, too
    if (!m) return fail(m.error());
    kept = kept_formats((*m)->params());
    Result<std::optional<Tokenizer>> loaded = load_tokenizer(o.model, config->vocab_size);
    if (!loaded) return fail(loaded.error());
    tokenizer = *std::move(loaded);
  }
  const std::vector<LeftOut> unused =
      o.verbose && !o.model.empty() ? left_out(o.model) : std::vector<LeftOut>();
  const std::unique_ptr<Model> model = Model::create(*config);
  std::map<std::string, size_t> parts;
  for (const Param& p : model->params().all()) parts[part(p.name)] += p.count();
  const double forward = model->flops_per_token(o.length);
  const StateSize state = model->state_size(o.length);
  const size_t state_bytes = (state.memory + state.tails) * sizeof(float);
  const double unit =
      static_cast<double>(state.memory) / static_cast<double>(config->n_layers * config->d_model);
  if (o.json) {
    Json j{{"parameters", model->params().count()},
           {"by_part", parts},
           {"length", o.length},
           {"flops_per_token_forward", forward},
           {"flops_per_token_training", 3 * forward},
           {"state_bytes", state_bytes},
           {"tail_bytes", state.tails * sizeof(float)},
           {"state_per_layer_width", unit},
           {"config", to_json(*config)}};
    for (const auto& [name, k] : kept)
      j["weights"][name] = {{"tensors", k.tensors}, {"numbers", k.numbers}, {"bytes", k.bytes}};
    if (tokenizer) j["tokenizer"] = {{"kind", tokenizer->kind()}, {"tokens", tokenizer->vocab_size()}};
    if (o.tensors)
      for (const Param& p : model->params().all())
        j["tensors"].push_back({{"name", p.name}, {"shape", p.shape.text()}, {"weight_decay", p.decay}});
    if (o.verbose) {
      j["ignored_keys"] = ignored, j["left_out"] = Json::array();
      for (const LeftOut& l : unused) j["left_out"].push_back({{"tensor", l.tensor}, {"why", l.why}});
    }
    print_json(j);
    return kOk;
  }
  say("{} layers, width {}, vocabulary {}{}\n", config->n_layers, config->d_model, config->vocab_size,
      config->tie_embeddings ? ", tied head" : "");
  if (!o.model.empty())
    say("tokenizer: {}\n",
        tokenizer ? fmt::format("{}, {} tokens", tokenizer->kind(), tokenizer->vocab_size()) : "none");
  say("parameters {:>14}\n", model->params().count());
  for (const auto& [name, n] : parts)
    say("  {:<12} {:>10}  {:5.1f} %\n", name, n,
        100.0 * static_cast<double>(n) / static_cast<double>(model->params().count()));
  for (const auto& [name, k] : kept)
    say("weights as {}: {} tensors, {} elements, {}, {:.2f} bits each{}\n", name, k.tensors, k.numbers,
        human_bytes(static_cast<double>(k.bytes)),
        8 * static_cast<double>(k.bytes) / static_cast<double>(std::max<size_t>(1, k.numbers)),
        how_kept(name));
  say("at length {}: {:.4g} flops per token forward, {:.4g} training\n"
      "state {} bytes: {} in matrices, keys and values ({:.4g} per layer and channel, {} layers of width "
      "{}), {} in "
      "convolution tails\n",
      o.length, forward, 3 * forward, state_bytes, state.memory * sizeof(float), unit * sizeof(float),
      config->n_layers, config->d_model, state.tails * sizeof(float));
  if (o.tensors)
    for (const Param& p : model->params().all())
      say("  {:<40} {}{}\n", p.name, p.shape.text(), p.decay ? "" : "  no weight decay");
  if (!o.verbose) return kOk;
  say("keys of config.json without effect on the numbers: {}\n", ignored.size());
  for (const std::string& key : ignored) say("  {}\n", key);
  say("tensors left out: {}\n", unused.size());
  for (const LeftOut& l : unused) say("  {}: {}\n", l.tensor, l.why);
  return kOk;
}

}  // namespace

std::function<int()> define_info(CLI::App& app) {
  auto o = std::make_shared<Options>();
  OptionAdder add(app);
  o->visit(add);
  return [o] { return run(*o); };
}

}  // namespace braid
