#include "model/families/hf_config.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/nearest.h"

namespace braid {
namespace {

std::string listed(const std::vector<std::string>& words) {
  std::string all;
  for (const std::string& w : words) all += (all.empty() ? "" : ", ") + w;
  return all;
}

}  // namespace

HfConfig::HfConfig(const Json& object, std::string where, std::vector<Problem>& problems,
                   std::vector<std::string>* ignored)
    : object_(object), where_(std::move(where)), problems_(problems), ignored_(ignored) {
  if (!object_.is_object()) problem("", "is " + json_excerpt(object_), "give an object { ... }");
  find("model_type"), find("architectures");
  // Of every family: names, versions, tokens, training, sampling and how Python computes.
  no_effect({"transformers_version",
             "dtype",
             "torch_dtype",
             "auto_map",
             "attn_implementation",
             "tokenizer_class",
             "bos_token_id",
             "eos_token_id",
             "pad_token_id",
             "sep_token_id",
             "decoder_start_token_id",
             "use_cache",
             "initializer_range",
             "attention_dropout",
             "max_position_embeddings",
             "output_attentions",
             "output_hidden_states",
             "return_dict",
             "return_dict_in_generate",
             "output_scores",
             "chunk_size_feed_forward",
             "id2label",
             "label2id",
             "problem_type",
             "finetuning_task",
             "task_specific_params",
             "prefix",
             "torchscript",
             "use_bfloat16",
             "tf_legacy_loss",
             "pruned_heads",
             "is_decoder",
             "do_sample",
             "temperature",
             "top_k",
             "top_p",
             "typical_p",
             "repetition_penalty",
             "length_penalty",
             "diversity_penalty",
             "no_repeat_ngram_size",
             "encoder_no_repeat_ngram_size",
             "min_length",
             "max_length",
             "num_beams",
             "num_beam_groups",
             "num_return_sequences",
             "early_stopping",
             "remove_invalid_values",
             "unsloth_version",
             "unsloth_fixed"});
  must_be("is_encoder_decoder", false, "Braid has decoders only");
  must_be("add_cross_attention", false, "Braid has decoders only");
  must_be("tie_encoder_decoder", false, "Braid has decoders only");
  for (const char* key : {"quantization_config", "compression_config"})
    if (given(key)) {
      const Json& q = object_[key];
      const bool named = q.is_object() && q.contains("quant_method");
      problem(key, "says the numbers are quantised: " + json_excerpt(named ? q["quant_method"] : q),
              "take the same model in BF16, F16 or F32");
    }
}

const Json* HfConfig::find(const char* name) {
  known_.emplace_back(name);
  if (!object_.is_object()) return nullptr;
  const auto it = object_.find(name);
  return it == object_.end() ? nullptr : &*it;
}

const Json* HfConfig::raw(const char* name) { return find(name); }

bool HfConfig::given(const char* name) {
  const Json* j = find(name);
  return j && !j->is_null();
}

int64_t HfConfig::whole(const char* name, int64_t otherwise) {
  if (!given(name)) return otherwise;
  const Json& j = object_[name];
  constexpr double kLargest = 2147483648.0;
  if (j.is_number_integer() && std::fabs(j.get<double>()) <= kLargest) return j.get<int64_t>();
  problem(name, "is " + json_excerpt(j), "expected a whole number up to 2^31");
  return otherwise;
}

int64_t HfConfig::size(const char* name, int64_t otherwise) { return positive(name, whole(name, otherwise)); }

int64_t HfConfig::positive(const char* name, int64_t size) {
  if (size >= 1) return size;
  problem(name, fmt::format("gives a size of {}", size), "expected 1 or more");
  return 1;
}

int64_t HfConfig::layers(const char* name, int64_t otherwise) {
  const int64_t n = whole(name, otherwise);
  if (n >= 1 && n <= 10000) return n;
  problem(name, fmt::format("is {}", n), "expected 1 to 10000");
  return otherwise;
}

double HfConfig::number(const char* name, double otherwise) {
  if (!given(name)) return otherwise;
  if (object_[name].is_number()) return object_[name].get<double>();
  problem(name, "is " + json_excerpt(object_[name]), "expected a number");
  return otherwise;
}

bool HfConfig::flag(const char* name, bool otherwise) {
  if (!given(name)) return otherwise;
  if (object_[name].is_boolean()) return object_[name].get<bool>();
  problem(name, "is " + json_excerpt(object_[name]), "expected true or false");
  return otherwise;
}

std::string HfConfig::word(const char* name, const std::string& otherwise) {
  if (!given(name)) return otherwise;
  if (object_[name].is_string()) return object_[name].get<std::string>();
  problem(name, "is " + json_excerpt(object_[name]), "expected a string");
  return otherwise;
}

void HfConfig::must_be(const char* name, const Json& wanted, const char* why) {
  if (given(name) && object_[name] != wanted)
    problem(name, "is " + json_excerpt(object_[name]), fmt::format("only {}: {}", json_excerpt(wanted), why));
}

void HfConfig::one_of(const char* name, const std::vector<std::string>& wanted, const char* why) {
  const std::string is = word(name, wanted.front());
  if (std::find(wanted.begin(), wanted.end(), is) == wanted.end())
    problem(name, "is \"" + is + "\"", fmt::format("only {}: {}", listed(wanted), why));
}

void HfConfig::no_effect(std::initializer_list<const char*> names) {
  for (const char* n : names) no_effect_.emplace_back(n);
}

// ---- RoPE

HfConfig::Rope HfConfig::rope(double partial_otherwise, double theta_otherwise) {
  const bool scaling = given("rope_scaling"), parameters = given("rope_parameters");
  const char* key = scaling ? "rope_scaling" : "rope_parameters";
  return read_rope(scaling || parameters ? &object_[key] : nullptr, key, partial_otherwise, theta_otherwise);
}

HfConfig::Rope HfConfig::rope_of(const char* layer_type, double theta_otherwise, bool scaled) {
  if (given("rope_parameters") && object_["rope_parameters"].is_object() && !given("rope_scaling")) {
    const Json& all = object_["rope_parameters"];
    if (all.contains(layer_type))
      return read_rope(all[layer_type].is_null() ? nullptr : &all[layer_type],
                       std::string("rope_parameters.") + layer_type, 1, theta_otherwise);
  }
  Rope r = rope(1, theta_otherwise);
  if (!scaled) r.scaling = Json::object();
  return r;
}

HfConfig::Rope HfConfig::read_rope(const Json* dict, const std::string& where, double partial, double theta) {
  Rope r{theta, partial};
  if (dict && !dict->is_object()) {
    problem(where, "is " + json_excerpt(*dict), "expected an object");
    dict = nullptr;
  }
  const auto value = [&](const char* name, double& to) {
    const Json* j = find(name);
    if (dict && dict->contains(name)) j = &(*dict)[name];
    if (!j) return;
    if (j->is_null())
      to = 0;
    else if (j->is_number())
      to = j->get<double>();
    else
      problem(name, "is " + json_excerpt(*j), "expected a number or null");
  };
  value("rope_theta", r.theta);
  value("partial_rotary_factor", r.partial);
  if (dict) read_scaling(*dict, where, r);
  return r;
}

void HfConfig::read_scaling(const Json& dict, const std::string& where, Rope& rope) {
  std::vector<std::string> known{"rope_type",     "type",
                                 "rope_theta",    "partial_rotary_factor",
                                 "mrope_section", "mrope_interleaved"};  // mrope: text has one position
  const auto trouble = [&](const std::string& name, const std::string& what, const std::string& fix) {
    problem(where + "." + name, what, fix);
  };
  const auto get = [&](const char* name) -> const Json* {
    known.emplace_back(name);
    const auto it = dict.find(name);
    return it == dict.end() || it->is_null() ? nullptr : &*it;
  };
  const auto number = [&](const char* name, double otherwise, bool required) {
    const Json* j = get(name);
    if (j && j->is_number()) return j->get<double>();
    if (j || required) trouble(name, j ? "is " + json_excerpt(*j) : "is missing", "expected a number");
    return otherwise;
  };
  std::string type = "default";
  for (const char* name : {"type", "rope_type"})
    if (const Json* j = get(name)) type = j->is_string() ? j->get<std::string>() : json_excerpt(*j);
  Json& to = rope.scaling;
  const auto length = [&] {  // of the first training
    const Json* here = get("original_max_position_embeddings");
    if (given("original_max_position_embeddings"))
      here = &object_["original_max_position_embeddings"];
    else if (!here && given("max_position_embeddings"))
      here = &object_["max_position_embeddings"];
    if (here && here->is_number_integer() && *here > 0) return here->get<int64_t>();
    trouble("original_max_position_embeddings", here ? "is " + json_excerpt(*here) : "is missing",
            "expected the length of the first training");
    return int64_t{1};
  };
  const auto log_of = [](double factor, double by) {
    return factor <= 1 ? 1 : 1 + 0.1 * by * std::log(factor);
  };
  if (type == "linear") {
    to = {{"rope_scaling", type}, {"rope_factor", number("factor", 1, true)}};
  } else if (type == "llama3") {
    to = {{"rope_scaling", type},
          {"rope_factor", number("factor", 1, true)},
          {"rope_original", length()},
          {"rope_low", number("low_freq_factor", 1, true)},
          {"rope_high", number("high_freq_factor", 4, true)}};
  } else if (type == "yarn") {
    const int64_t original = length();
    const double longest =
        given("max_position_embeddings") && object_["max_position_embeddings"].is_number()
            ? object_["max_position_embeddings"].get<double>() / static_cast<double>(original)
            : 1;
    const double factor = get("factor") ? number("factor", 1, true) : longest,
                 one = number("mscale", 0, false), all = number("mscale_all_dim", 0, false),
                 implied =
                     one != 0 && all != 0 ? log_of(factor, one) / log_of(factor, all) : log_of(factor, 1),
                 fast = number("beta_fast", 0, false), slow = number("beta_slow", 0, false);
    if (const Json* j = get("truncate"); j && *j != true)
      trouble("truncate", "is " + json_excerpt(*j), "only true: the bounds are whole numbers");
    to = {{"rope_scaling", type},
          {"rope_factor", factor},
          {"rope_original", original},
          {"rope_low", slow != 0 ? slow : 1},
          {"rope_high", fast != 0 ? fast : 32},
          {"rope_amplitude", number("attention_factor", implied, false)}};
  } else if (type != "default") {
    trouble("rope_type", "is \"" + type + "\"",
            type == "dynamic" || type == "longrope" ? "its frequencies depend on the length of the sequence, "
                                                      "which a state cannot follow; use default, "
                                                      "linear, llama3 or yarn"
                                                    : "Braid has default, linear, llama3 and yarn");
    return;  // the rest belongs to it
  }
  if (to.contains("rope_factor") && !(to["rope_factor"] > 0))
    trouble("factor", "is " + json_excerpt(to["rope_factor"]), "expected a number above 0");
  for (const auto& [name, v] : dict.items())
    if (std::find(known.begin(), known.end(), name) == known.end() && !v.is_null())
      trouble(name, "is " + json_excerpt(v), "rope_type " + type + " has no such setting");
}

std::vector<std::string> HfConfig::layer_types(int64_t layers, const std::vector<std::string>& known,
                                               const std::vector<std::string>& otherwise) {
  if (!given("layer_types")) return otherwise;
  const Json& j = object_["layer_types"];
  if (!j.is_array() || static_cast<int64_t>(j.size()) != layers) {
    problem("layer_types", "is " + json_excerpt(j), fmt::format("expected a list of {} names", layers));
    return otherwise;
  }
  std::vector<std::string> types;
  for (const Json& t : j) {
    types.push_back(t.is_string() ? t.get<std::string>() : json_excerpt(t));
    if (std::find(known.begin(), known.end(), types.back()) != known.end()) continue;
    problem(fmt::format("layer_types[{}]", types.size() - 1), "is " + json_excerpt(t),
            suggest(types.back(), known));
    types.back() = known.front();
  }
  return types;
}

void HfConfig::problem(const std::string& name, const std::string& what, const std::string& fix) {
  problems_.push_back({name.empty() ? where_ : where_.empty() ? name : where_ + "." + name, what, fix});
}

void HfConfig::finish() {
  if (!object_.is_object()) return;
  const auto in = [](const std::vector<std::string>& list, const std::string& key) {
    return std::find(list.begin(), list.end(), key) != list.end();
  };
  for (const auto& [key, value] : object_.items()) {
    if (in(known_, key)) continue;
    const bool says_nothing = value.is_null() || (value.is_structured() && value.empty()) || value == "";
    if (!in(no_effect_, key) && !key.starts_with('_') && !says_nothing)
      problem(key, "is " + json_excerpt(value) + ", which Braid does not know",
              "take it out of config.json if the model's numbers do not depend on it");
    else if (ignored_)
      ignored_->push_back(where_.empty() ? key : where_ + "." + key);
  }
}

}  // namespace braid
