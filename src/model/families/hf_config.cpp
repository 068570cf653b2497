#include "model/families/hf_config.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/nearest.h"

namespace braid {
namespace {

std::string text(const Json& j) {
  const std::string s = j.dump(-1, ' ', false, Json::error_handler_t::replace);
  return s.size() > 60 ? s.substr(0, 57) + "..." : s;
}

std::string listed(const std::vector<std::string>& words) {
  std::string all;
  for (const std::string& w : words) all += (all.empty() ? "" : ", ") + w;
  return all;
}

}  // namespace

HfConfig::HfConfig(const Json& object, std::string where, std::vector<Problem>& problems)
    : object_(object), where_(std::move(where)), problems_(problems) {
  if (!object_.is_object()) problem("", "is " + text(object_), "give an object { ... }");
  // Of every family: names, versions, tokens, training and how Python computes.
  no_effect({"model_type",
             "architectures",
             "transformers_version",
             "dtype",
             "torch_dtype",
             "auto_map",
             "_name_or_path",
             "_attn_implementation",
             "_attn_implementation_autoset",
             "_experts_implementation",
             "attn_implementation",
             "tokenizer_class",
             "bos_token_id",
             "eos_token_id",
             "pad_token_id",
             "sep_token_id",
             "use_cache",
             "initializer_range",
             "attention_dropout",
             "max_position_embeddings",
             "output_attentions",
             "output_hidden_states",
             "return_dict",
             "chunk_size_feed_forward",
             "id2label",
             "label2id",
             "problem_type"});
  must_be("is_encoder_decoder", false, "Braid has decoders only");
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
  problem(name, "is " + text(j), "expected a whole number up to 2^31");
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
  problem(name, "is " + text(object_[name]), "expected a number");
  return otherwise;
}

bool HfConfig::flag(const char* name, bool otherwise) {
  if (!given(name)) return otherwise;
  if (object_[name].is_boolean()) return object_[name].get<bool>();
  problem(name, "is " + text(object_[name]), "expected true or false");
  return otherwise;
}

std::string HfConfig::word(const char* name, const std::string& otherwise) {
  if (!given(name)) return otherwise;
  if (object_[name].is_string()) return object_[name].get<std::string>();
  problem(name, "is " + text(object_[name]), "expected a string");
  return otherwise;
}

void HfConfig::must_be(const char* name, const Json& wanted, const char* why) {
  if (given(name) && object_[name] != wanted)
    problem(name, "is " + text(object_[name]), fmt::format("only {}: {}", text(wanted), why));
}

void HfConfig::one_of(const char* name, const std::vector<std::string>& wanted, const char* why) {
  const std::string is = word(name, wanted.front());
  if (std::find(wanted.begin(), wanted.end(), is) == wanted.end())
    problem(name, "is \"" + is + "\"", fmt::format("only {}: {}", listed(wanted), why));
}

void HfConfig::no_effect(std::initializer_list<const char*> names) {
  for (const char* n : names) known_.emplace_back(n);
}

HfConfig::Rope HfConfig::rope(double partial_otherwise) {
  Rope r{10000, partial_otherwise};
  const bool scaling = given("rope_scaling"), parameters = given("rope_parameters");
  const char* key = scaling ? "rope_scaling" : "rope_parameters";
  const Json* dict = scaling || parameters ? &object_[key] : nullptr;
  if (dict && !dict->is_object()) {
    problem(key, "is " + text(*dict), "expected an object");
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
      problem(name, "is " + text(*j), "expected a number or null");
  };
  value("rope_theta", r.theta);
  value("partial_rotary_factor", r.partial);
  if (!dict) return r;
  for (const auto& [name, v] : dict->items()) {
    const std::string where = std::string(key) + "." + name;
    if (name == "rope_type" || name == "type") {
      if (v != "default" && !v.is_null())
        problem(where, "is " + text(v), "Braid rotates without scaling only");
    } else if (name != "rope_theta" && name != "partial_rotary_factor" && name != "mrope_section" &&
               name != "mrope_interleaved") {  // mrope: the same for text, where all positions are equal
      problem(where, "is " + text(v), "Braid rotates without scaling only");
    }
  }
  return r;
}

std::vector<std::string> HfConfig::layer_types(int64_t layers, const std::vector<std::string>& known,
                                               const std::vector<std::string>& otherwise) {
  if (!given("layer_types")) return otherwise;
  const Json& j = object_["layer_types"];
  if (!j.is_array() || static_cast<int64_t>(j.size()) != layers) {
    problem("layer_types", "is " + text(j), fmt::format("expected a list of {} names", layers));
    return otherwise;
  }
  std::vector<std::string> types;
  for (const Json& t : j) {
    types.push_back(t.is_string() ? t.get<std::string>() : text(t));
    if (std::find(known.begin(), known.end(), types.back()) != known.end()) continue;
    problem(fmt::format("layer_types[{}]", types.size() - 1), "is " + text(t), suggest(types.back(), known));
    types.back() = known.front();
  }
  return types;
}

void HfConfig::problem(const std::string& name, const std::string& what, const std::string& fix) {
  problems_.push_back({name.empty() ? where_ : where_.empty() ? name : where_ + "." + name, what, fix});
}

void HfConfig::finish() {
  if (!object_.is_object()) return;
  for (const auto& [key, value] : object_.items())
    if (std::find(known_.begin(), known_.end(), key) == known_.end())
      problem(key, "is " + text(value) + ", which Braid does not know",
              "take it out of config.json if the model's numbers do not depend on it");
}

}  // namespace braid
