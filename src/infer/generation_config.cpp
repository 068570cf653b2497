#include "infer/read_generation_config.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>

#include "io/json.h"
#include "model/families/families.h"

namespace braid {
namespace {

constexpr const char *kGeneration = "generation_config.json", *kConfig = "config.json";

// Settings of transformers that change nothing at these values, and so may be there.
struct Off {
  const char* name;
  Json value;
};
const std::vector<Off>& off_values() {
  static const std::vector<Off> all{{"num_beams", 1},
                                    {"num_beam_groups", 1},
                                    {"epsilon_cutoff", 0.0},
                                    {"eta_cutoff", 0.0},
                                    {"no_repeat_ngram_size", 0},
                                    {"encoder_repetition_penalty", 1.0},
                                    {"encoder_no_repeat_ngram_size", 0},
                                    {"length_penalty", 1.0},
                                    {"diversity_penalty", 0.0},
                                    {"min_length", 0},
                                    {"num_return_sequences", 1},
                                    {"guidance_scale", 1.0},
                                    {"renormalize_logits", false},
                                    {"remove_invalid_values", false},
                                    {"early_stopping", false}};
  return all;
}

class Reader {
 public:
  Reader(const Json& object, const char* file, std::vector<Problem>& problems)
      : object_(object), file_(file), problems_(problems) {}

  const Json* find(const char* name) {
    known_.emplace_back(name);
    const auto it = object_.is_object() ? object_.find(name) : object_.end();
    return it == object_.end() || it->is_null() ? nullptr : &*it;
  }
  void flag(const char* name, bool& to) {
    const Json* j = find(name);
    if (j && j->is_boolean())
      to = j->get<bool>();
    else if (j)
      wrong(name, *j, "expected true or false");
  }
  void number(const char* name, float& to) {
    const Json* j = find(name);
    if (j && j->is_number())
      to = j->get<float>();
    else if (j)
      wrong(name, *j, "expected a number");
  }
  void whole(const char* name, int64_t& to, int64_t least) {
    const Json* j = find(name);
    if (j && j->is_number_integer() && *j >= least)
      to = j->get<int64_t>();
    else if (j)
      wrong(name, *j, fmt::format("expected a whole number from {}", least));
  }
  // A token id or a list of them.
  void tokens(const char* name, std::vector<int32_t>& to) {
    const Json* j = find(name);
    if (!j) return;
    to.clear();
    for (const Json& id : j->is_array() ? *j : Json::array({*j})) {
      if (id.is_number_integer() && id >= 0 && id <= 2147483647)
        to.push_back(id.get<int32_t>());
      else
        wrong(name, id, "expected a token id, or a list of them");
    }
  }
  bool knows(const std::string& name) const {
    return std::find(known_.begin(), known_.end(), name) != known_.end();
  }

 private:
  void wrong(const char* name, const Json& value, const std::string& fix) {
    problems_.push_back({std::string(file_) + ": " + name, "is " + value.dump(), fix});
  }
  const Json& object_;
  const char* file_;
  std::vector<Problem>& problems_;
  std::vector<std::string> known_;
};

}  // namespace

SamplerOptions GenerationConfig::sampling() const {
  SamplerOptions s = sampler;
  if (!do_sample) s.temperature = 0;
  // transformers' order; it has neither top_n_sigma nor xtc, which a user may still ask for.
  s.filters = {Filter::kPenalties, Filter::kTemperature, Filter::kTopNSigma, Filter::kTopK,
               Filter::kTopP,      Filter::kMinP,        Filter::kTypical,   Filter::kXtc};
  return s;
}

Result<GenerationConfig> read_generation_config(const Json& generation, const Json& config,
                                                const std::string& dir) {
  GenerationConfig g;
  std::vector<Problem> problems;
  for (const auto& [json, name] : {std::pair{&generation, kGeneration}, {&config, kConfig}})
    if (!json->is_null() && !json->is_object())
      problems.push_back({name, "is " + json->dump(), "expected an object"});
  // config.json first, so that generation_config.json has the last word; a language model inside another has
  // its own.
  const bool wrapped = config.is_object() && config.contains("text_config");
  for (const Json* c : {wrapped ? &config["text_config"] : &config, wrapped ? &config : nullptr}) {
    if (!c || !c->is_object()) continue;
    Reader r(*c, kConfig, problems);
    r.tokens("eos_token_id", g.eos);
  }
  Reader r(generation, kGeneration, problems);
  r.tokens("eos_token_id", g.eos);
  r.find("bos_token_id"), r.find("pad_token_id");  // the tokenizer knows
  r.flag("do_sample", g.do_sample);
  // transformers would ignore these without do_sample; who wrote them meant them.
  for (const char* key : {"temperature", "top_k", "top_p", "min_p", "typical_p"})
    g.says_how = g.says_how || (generation.is_object() && generation.contains(key));
  if (generation.is_object() && generation.contains("do_sample"))
    g.says_how = true;
  else
    g.do_sample = g.says_how;
  r.number("temperature", g.sampler.temperature);
  r.whole("top_k", g.sampler.top_k, 0);
  r.number("top_p", g.sampler.top_p);
  r.number("min_p", g.sampler.min_p);
  r.number("typical_p", g.sampler.typical_p);
  r.number("repetition_penalty", g.sampler.repetition_penalty);
  r.number("presence_penalty", g.sampler.presence_penalty);
  r.number("frequency_penalty", g.sampler.frequency_penalty);
  r.whole("max_new_tokens", g.max_new_tokens, 1);
  for (const Problem& p : validate(g.sampler))
    problems.push_back({std::string(kGeneration) + ": " + p.where, p.what, p.fix});
  if (!problems.empty()) return to_error(dir + ": how to generate cannot be read", problems);
  std::sort(g.eos.begin(), g.eos.end());
  g.eos.erase(std::unique(g.eos.begin(), g.eos.end()), g.eos.end());
  if (generation.is_object())
    for (const auto& [key, value] : generation.items()) {
      // Notes of the library, and lengths that count the prompt, which transformers sets aside for
      // max_new_tokens.
      if (r.knows(key) || value.is_null() || key.starts_with('_') || key == "transformers_version" ||
          key == "max_length" || key == "use_cache" || key == "cache_implementation")
        continue;
      const bool off = (value.is_structured() && value.empty()) ||
                       std::any_of(off_values().begin(), off_values().end(),
                                   [&](const Off& o) { return key == o.name && value == o.value; });
      if (!off) g.ignored.push_back(key);
    }
  return g;
}

Result<GenerationConfig> load_generation_config(const std::string& dir) {
  const auto load = [&](const char* name) -> Result<Json> {
    std::error_code ec;
    const std::string path = dir + "/" + name;
    if (!std::filesystem::exists(path, ec)) return Json();
    return name == kConfig ? load_config_json(path) : load_json(path);
  };
  const Result<Json> generation = load(kGeneration), config = load(kConfig);
  if (!generation) return generation.error();
  if (!config) return config.error();
  return read_generation_config(*generation, *config, dir);
}

}  // namespace braid
