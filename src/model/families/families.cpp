#include "model/families/families.h"

#include <fmt/format.h>

#include <array>
#include <map>
#include <set>

#include "base/nearest.h"
#include "io/file.h"
#include "model/config_json.h"
#include "model/families/shared.h"
#include "model/weights.h"

namespace braid {

std::span<const Family> all_families() {
  // In the order in which they are tried: with one MLP per layer Qwen3.5, with experts Qwen3-Next.
  static const std::array kFamilies{
      llama_family(),       mistral_family(),        qwen3_family(),   qwen2_family(),
      olmo2_family(),       olmo3_family(),          mamba2_family(),  fla_transformer_family(),
      delta_net_family(),   gated_deltanet_family(), qwen3_5_family(), qwen3_next_family(),
      qwen3_5_moe_family(), olmo_hybrid_family(),
  };
  return kFamilies;
}

const Family* find_family(std::string_view model_type) {
  for (const Family& f : all_families()) {
    if (f.model_type == model_type) return &f;
    for (const std::string_view other : f.also_reads)
      if (other == model_type) return &f;
  }
  return nullptr;
}

std::vector<std::string> family_names() {
  std::vector<std::string> names;
  for (const Family& f : all_families()) names.emplace_back(f.model_type);
  return names;
}

// ---- Configs

Result<Json> load_config_json(const std::string& path) { return load_python_json(path); }

Result<const Family*> family_of(const Json& json, const std::string& name) {
  const auto type = json.is_object() ? json.find("model_type") : json.end();
  if (type == json.end() || !type->is_string())
    return Error{name + ": model_type is missing", "give the config.json of a model"};
  const std::string word = type->get<std::string>();
  if (word == "braid") return nullptr;
  if (const Family* f = find_family(word)) return f;
  std::vector<std::string> known = family_names();
  known.emplace_back("braid");
  return Error{fmt::format("{}: model_type is {}, which Braid does not know", name, in_quotes(word)),
               suggest_with_all(word, known)};
}

namespace {

Result<ModelConfig> read_family(const Family& family, const Json& json, const std::string& name,
                                std::vector<std::string>* ignored) {
  std::vector<Problem> problems;
  const bool wrapped = json.contains("text_config");  // a language model with something around it
  Json text = wrapped ? json["text_config"] : json;
  if (wrapped) {
    HfConfig around(json, "", problems, ignored);
    around.raw("text_config");
    around.no_effect({"vision_config", "image_token_id", "video_token_id", "vision_start_token_id",
                      "vision_end_token_id"});
    if (around.given("tie_word_embeddings") && text.is_object())
      text["tie_word_embeddings"] = json["tie_word_embeddings"];
    around.finish();
  }
  HfConfig hf(text, wrapped ? "text_config" : "", problems, ignored);
  Translated c = family.read(hf);
  hf.finish();
  if (!problems.empty())
    return to_error(fmt::format("{}: Braid cannot express this {}", name, family.architecture), problems);
  Json words = to_json(c);
  for (const LayerWords& l : repeating(std::move(c.layers)))
    words["pattern"].push_back({{"mixer", l.mixer}, {"mlp", l.mlp}, {"norm", l.norm}});
  return parse_config(words, name + " in Braid's words");
}

std::string plain(const Json& j) { return j.is_string() ? j.get<std::string>() : j.dump(); }

// Which settings differ, each once; `theirs` is what the family computes.
std::vector<Problem> differences(const ModelConfig& ours, const ModelConfig& theirs,
                                 std::string_view family) {
  std::vector<Problem> problems;
  std::set<std::string> seen;
  const auto compare = [&](const std::string& where, const Json& a, const Json& b) {
    if (a != b && seen.insert(where).second)
      problems.push_back({where, "is " + plain(a), fmt::format("{} has {}", family, plain(b))});
  };
  compare("vocab_size", ours.vocab_size, theirs.vocab_size);
  compare("outputs", ours.outputs, theirs.outputs);
  compare("d_model", ours.d_model, theirs.d_model);
  compare("n_layers", ours.n_layers, theirs.n_layers);
  compare("norm_eps", ours.norm_eps, theirs.norm_eps);
  compare("tie_embeddings", ours.tie_embeddings, theirs.tie_embeddings);
  compare("zero_centred_norms", ours.zero_centred_norms, theirs.zero_centred_norms);
  if (!problems.empty() && ours.n_layers != theirs.n_layers) return problems;
  const auto compare_all = [&](const std::string& where, const Json& a, const Json& b) {
    for (const auto& [key, value] : a.items()) compare(where + "." + key, value, b[key]);
  };
  const auto complete = [](const LayerConfig& l, const ModelConfig& c) {
    return MixerJson::complete(l.mixer.without_dropout(), c);  // which acts in training alone
  };
  for (int64_t i = 0; i < ours.n_layers; ++i) {
    const LayerConfig &a = ours.layer(i), &b = theirs.layer(i);
    const std::string where = fmt::format("pattern[{}]", i % ours.pattern.size());
    compare(where + ".norm", norm_word(a.norm), norm_word(b.norm));
    // The fast-weight mixers are one mixer with other defaults.
    const MixerKind kind = mixer_kind(a);
    if (kind != mixer_kind(b) || (kind != MixerKind::kFastWeight && a.mixer.type() != b.mixer.type()))
      compare(where + ".mixer.type", a.mixer.type(), b.mixer.type());
    else
      compare_all(where + ".mixer", complete(a, ours), complete(b, theirs));
    if (a.mlp.type() != b.mlp.type())
      compare(where + ".mlp.type", a.mlp.type(), b.mlp.type());
    else
      compare_all(where + ".mlp", MlpJson::complete(a.mlp), MlpJson::complete(b.mlp));
  }
  return problems;
}

// How far a family is: other mixers are farther than other MLPs, and those than any settings.
size_t distance(const std::vector<Problem>& problems) {
  size_t sum = 0;
  for (const Problem& p : problems)
    sum += p.where == "config" || p.where.ends_with(".mixer.type") ? 10000
           : p.where.ends_with(".mlp.type")                        ? 100
                                                                   : 1;
  return sum;
}

}  // namespace

Result<ModelConfig> read_config(const Json& json, const std::string& name, std::vector<std::string>* ignored,
                                const MixerTable& mixers) {
  const Result<const Family*> family = family_of(json, name);
  if (!family) return family.error();
  return *family ? read_family(**family, json, name, ignored) : parse_config(json, name, mixers);
}

Result<HfConfigFile> hf_config(const ModelConfig& config, const std::string& family_name) {
  const Family* named = family_name.empty() ? nullptr : find_family(family_name);
  if (!family_name.empty() && !named)
    return Error{"--family: is '" + family_name + "'", suggest_with_all(family_name, family_names())};
  const Family* nearest = nullptr;
  std::vector<Problem> problems;
  for (const Family& f : all_families()) {
    if (named && named != &f) continue;
    const Json json = f.write(config);
    const Result<ModelConfig> back = read_family(f, json, std::string(f.model_type), nullptr);
    std::vector<Problem> here = back ? differences(config, *back, f.architecture)
                                     : std::vector<Problem>{{"config", back.error().what, ""}};
    if (here.empty()) return HfConfigFile{&f, std::make_shared<const Json>(json)};
    if (!nearest || distance(here) < distance(problems)) nearest = &f, problems = std::move(here);
  }
  return to_error(fmt::format("--to hf: the model cannot be written as {}{}", nearest->architecture,
                              named ? "" : ", the nearest of the known families"),
                  problems);
}

// ---- Tensors

namespace {

View piece(const View& all, int64_t first, int64_t count, int64_t row) {
  const size_t size = dtype_size(all.dtype);
  return {static_cast<const std::byte*>(all.data) + static_cast<size_t>(first * row) * size,
          all.dtype,
          {count, row}};
}

TensorTable table_of(const Family& family, const Model& model) {
  TensorTable t(model.params());
  family.tensors(model.config(), t);
  return t;
}

}  // namespace

Result<std::vector<Assembled>> assemble_params(const Family& family, const Model& model,
                                               const SafeTensors& file, const std::string& path,
                                               std::vector<LeftOut>& left_out) {
  const TensorTable table = table_of(family, model);
  std::map<std::string, std::string> in_file;  // a name as the table has it -> as the file has it
  for (const std::string& name : file.names()) {
    const bool other = !family.prefix_in_file.empty() && name.starts_with(family.prefix_in_file);
    in_file[other ? std::string(family.prefix_here) + name.substr(family.prefix_in_file.size()) : name] =
        name;
  }
  const auto find = [&](const std::string& name) {
    const auto at = in_file.find(name);
    return at == in_file.end() ? nullptr : file.find(at->second);
  };
  const auto fits = [&](const TensorTable::Way& way, bool shapes) {
    for (const HfTensor& t : way)
      if (const View* v = find(t.name); !v || (shapes && v->shape != t.shape)) return false;
    return true;
  };

  struct Run {
    int64_t first;
    View view;
  };
  std::map<std::string, std::vector<Run>> runs;  // of each parameter
  std::vector<TensorSpec> expected;
  for (const std::vector<TensorTable::Way>& ways : table.parts()) {
    // The way whose tensors are there in the right shapes; else, for the error, the one whose names are.
    const TensorTable::Way* chosen = nullptr;
    for (const bool shapes : {true, false})
      for (const TensorTable::Way& way : ways)
        if (!chosen && fits(way, shapes)) chosen = &way;
    if (!chosen) chosen = &ways.front();
    for (const HfTensor& t : *chosen) {
      expected.push_back({t.name, DType::kF32, t.shape});
      const View* v = find(t.name);
      if (!v || v->shape != t.shape) continue;
      int64_t at = 0;
      for (const ParamRows& r : t.rows) {
        runs[r.param].push_back({r.first, piece(*v, at, r.count, row_length(table.shape(r.param)))});
        at += r.count;
      }
    }
  }

  std::vector<std::string> names;
  for (const auto& [name, unused] : in_file) {
    const char* why = family.left_out ? family.left_out(name) : nullptr;
    if (model.config().tie_embeddings && name == "lm_head.weight") why = "embeddings are tied";
    if (why)
      left_out.push_back({in_file[name], why});
    else
      names.push_back(name);
  }
  const auto view_of = [&](const std::string& name) { return find(name); };
  if (const std::vector<Problem> problems = tensor_problems(expected, names, view_of); !problems.empty())
    return to_error(fmt::format("{} does not fit its config as {}", path, family.architecture), problems);
  std::vector<Assembled> out;
  for (const Param& p : model.params().all()) {
    std::vector<Run>& all = runs[p.name];
    std::sort(all.begin(), all.end(), [](const Run& a, const Run& b) { return a.first < b.first; });
    Assembled a{p.name, p.shape, {}};
    int64_t at = 0;
    for (const Run& r : all) {
      check(r.first == at, "a family's table gives rows twice or leaves some out: " + p.name);
      at += r.view.shape[0];
      a.pieces.push_back(r.view);
    }
    check(at == p.shape[0], "a family's table leaves rows out: " + p.name);
    out.push_back(std::move(a));
  }
  return out;
}

std::vector<std::string> summary_of(const std::vector<LeftOut>& left_out) {
  std::map<std::string, size_t> counts;
  for (const LeftOut& l : left_out) ++counts[l.why];
  std::vector<std::string> lines;
  for (const auto& [why, count] : counts)
    lines.push_back(fmt::format("{} tensor{} left out: {}", count, count == 1 ? "" : "s", why));
  return lines;
}

std::vector<HfTensor> hf_tensors(const Family& family, const Model& model) {
  const TensorTable table = table_of(family, model);
  std::vector<HfTensor> all;
  for (const std::vector<TensorTable::Way>& ways : table.parts())
    for (const HfTensor& t : ways.front()) all.push_back(t);
  return all;
}

std::vector<Assembled> assemble_hf(const Family& family, const Model& model, const SafeTensors& file) {
  const TensorTable table = table_of(family, model);
  std::vector<Assembled> out;
  for (const HfTensor& t : hf_tensors(family, model)) {
    Assembled a{t.name, t.shape, {}};
    for (const ParamRows& r : t.rows)
      a.pieces.push_back(piece(*file.find(r.param), r.first, r.count, row_length(table.shape(r.param))));
    out.push_back(std::move(a));
  }
  return out;
}

}  // namespace braid
