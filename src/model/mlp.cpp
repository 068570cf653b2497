#include "model/mlp.h"

namespace braid {
namespace {

struct DenseConfig {
  int64_t d_ff = 0;
  template <class V>
  void visit(V& v) {
    v("d_ff", d_ff, {1, 1e7}, "inner width");
  }
};

class Swiglu : public Mlp {
 public:
  Swiglu(size_t d_ff, const ModelConfig& model, Declare declare)
      : gate_(declare.matrix("gate_proj.weight", d_ff, model.d_model)),
        up_(declare.matrix("up_proj.weight", d_ff, model.d_model)),
        down_(declare.matrix("down_proj.weight", model.d_model, d_ff, Init::kOutput)) {}
  Var forward(Exec& e, Var x, Var residual) const override {
    const size_t ws[] = {gate_, up_};
    return swiglu_linear(e, linear_concat(e, x, ws), down_, residual);
  }

 private:
  size_t gate_, up_, down_;
};

class Gelu : public Mlp {
 public:
  Gelu(size_t d_ff, const ModelConfig& model, Declare declare)
      : up_(declare.matrix("up_proj.weight", d_ff, model.d_model)),
        down_(declare.matrix("down_proj.weight", model.d_model, d_ff, Init::kOutput)) {}
  Var forward(Exec& e, Var x, Var residual) const override {
    return linear(e, map(e, linear(e, x, up_), Map::kGelu), down_, residual);
  }

 private:
  size_t up_, down_;
};

template <class M>
std::unique_ptr<Mlp> make_dense(const Json& settings, const ModelConfig& model, Declare declare) {
  std::vector<Problem> none;
  return std::make_unique<M>(parse_fields<DenseConfig>(settings, "", none).d_ff, model, declare);
}

void validate_dense(const Json& settings, const std::string& where, std::vector<Problem>& problems) {
  const DenseConfig c = parse_fields<DenseConfig>(settings, where, problems);
  if (c.d_ff == 0 && !settings.contains("d_ff"))
    problems.push_back({where + ".d_ff", "is missing", "give the inner width"});
}

struct Kind {
  std::string_view name, summary;
  void (*validate)(const Json& settings, const std::string& where, std::vector<Problem>& problems);
  std::unique_ptr<Mlp> (*make)(const Json& settings, const ModelConfig& model, Declare declare);
  std::vector<FieldDoc> (*fields)();
};

const Kind kKinds[] = {
    {"swiglu", "W_down (silu(W_gate x) * W_up x)", validate_dense, make_dense<Swiglu>,
     [] { return list_fields(DenseConfig()); }},
    {"gelu", "W_down gelu(W_up x)", validate_dense, make_dense<Gelu>,
     [] { return list_fields(DenseConfig()); }},
    {"none", "no MLP: the layer is its mixer",
     [](const Json& settings, const std::string& where, std::vector<Problem>& problems) {
       for (const auto& [key, unused] : settings.items())
         if (key != "type") problems.push_back({where + "." + key, "is not a setting here", "leave it out"});
     },
     [](const Json&, const ModelConfig&, Declare) { return std::unique_ptr<Mlp>(); },
     [] { return std::vector<FieldDoc>(); }},
};

const Kind* find_kind(const Json& settings) {
  for (const Kind& k : kKinds)
    if (settings["type"] == k.name) return &k;
  return nullptr;
}

}  // namespace

void validate_mlp(const Json& settings, const std::string& where, std::vector<Problem>& problems) {
  std::vector<std::string> names;
  std::string all;
  for (const Kind& k : kKinds) names.emplace_back(k.name), all += (all.empty() ? "" : ", ") + names.back();
  if (!settings.is_object() || !settings.contains("type") || !settings["type"].is_string()) {
    problems.push_back({where, "has no type", "known: " + all});
  } else if (const Kind* k = find_kind(settings)) {
    k->validate(settings, where, problems);
  } else {
    const std::string type = settings["type"];
    problems.push_back({where + ".type", "is '" + type + "'", suggest(type, names)});
  }
}

std::unique_ptr<Mlp> make_mlp(const Json& settings, const ModelConfig& model, Declare declare) {
  return find_kind(settings)->make(settings, model, declare);
}

std::vector<MlpDoc> all_mlps() {
  std::vector<MlpDoc> all;
  for (const Kind& k : kKinds) all.push_back({k.name, k.summary, k.fields()});
  return all;
}

}  // namespace braid
