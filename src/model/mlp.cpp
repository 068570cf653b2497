#include "model/mlp.h"

#include <fmt/format.h>

#include <algorithm>

#include "autograd/experts.h"
#include "io/json.h"
#include "model/config_json.h"

namespace braid {
namespace {

int bias_of(Declare& declare, bool wanted, const char* name, size_t size) {
  return wanted ? static_cast<int>(declare.vector(name, size, Init::kZeros)) : -1;
}

class Swiglu : public Mlp {
 public:
  Swiglu(const DenseConfig& c, const ModelConfig& model, Declare declare)
      : gate_(declare.matrix("gate_proj.weight", c.d_ff, model.d_model)),
        up_(declare.matrix("up_proj.weight", c.d_ff, model.d_model)),
        down_(declare.matrix("down_proj.weight", model.d_model, c.d_ff, Init::kOutput)),
        gate_up_bias_(bias_of(declare, c.bias, "gate_up.bias", 2 * c.d_ff)),
        down_bias_(bias_of(declare, c.bias, "down_proj.bias", model.d_model)) {}
  Var forward(Exec& e, Var x, Var residual) const override {
    const size_t ws[] = {gate_, up_};
    Var gu = linear_concat(e, x, ws);
    if (gate_up_bias_ < 0) return swiglu_linear(e, gu, down_, residual);
    gu = map(e, gu, Map::kIdentity, 1, gate_up_bias_);
    const Var y = map(e, swiglu_linear(e, gu, down_), Map::kIdentity, 1, down_bias_);
    return residual.present() ? add(e, residual, y) : y;
  }

  ExpertWeights weights() const { return {gate_, up_, down_}; }

 private:
  size_t gate_, up_, down_;
  int gate_up_bias_, down_bias_;
};

class Gelu : public Mlp {
 public:
  Gelu(const DenseConfig& c, const ModelConfig& model, Declare declare)
      : up_(declare.matrix("up_proj.weight", c.d_ff, model.d_model)),
        down_(declare.matrix("down_proj.weight", model.d_model, c.d_ff, Init::kOutput)),
        up_bias_(bias_of(declare, c.bias, "up_proj.bias", c.d_ff)),
        down_bias_(bias_of(declare, c.bias, "down_proj.bias", model.d_model)) {}
  Var forward(Exec& e, Var x, Var residual) const override {
    return linear_bias(e, map(e, linear(e, x, up_), Map::kGelu, 1, up_bias_), down_, down_bias_, residual);
  }

 private:
  size_t up_, down_;
  int up_bias_, down_bias_;
};

// sum of w_e SwiGLU_e(x) over the chosen experts + sigmoid(g x) SwiGLU_shared(x)
class Moe : public Mlp {
 public:
  Moe(const MoeConfig& c, const ModelConfig& model, Declare declare)
      : top_k_(c.top_k),
        router_(declare.precise().matrix("gate.weight", c.experts, model.d_model)),
        shared_({.d_ff = c.shared_width()}, model, declare.under("shared_expert")),
        shared_gate_(declare.precise().matrix("shared_expert_gate.weight", 1, model.d_model)) {
    const Declare some = declare.for_share(static_cast<double>(c.top_k) / static_cast<double>(c.experts));
    for (int64_t i = 0; i < c.experts; ++i)
      experts_.emplace_back(DenseConfig{.d_ff = c.d_ff}, model, some.under("experts." + std::to_string(i)));
    for (const Swiglu& s : experts_) weights_.push_back(s.weights());
  }

  Var forward(Exec& e, Var x, Var residual) const override {
    const Routing routing = route(e, linear(e, x, router_), top_k_);
    if (e.stored(weights_[0].gate)) return finish(e, x, routed_experts(e, x, routing, weights_), residual);
    const size_t n = x.v.rows;
    std::vector<Var> parts;
    std::vector<std::span<const uint32_t>> rows_of;
    for (size_t i = 0; i < experts_.size(); ++i) {
      size_t count = 0;
      for (const int32_t c : routing.chosen) count += c == static_cast<int32_t>(i);
      if (count == 0) continue;
      // Which rows this expert gets, and where their weight stands; the lists live as long as the tape.
      const std::span<uint32_t> which = e.arena().take<uint32_t>(count), at = e.arena().take<uint32_t>(count);
      for (size_t j = 0, to = 0; j < routing.chosen.size(); ++j)
        if (routing.chosen[j] == static_cast<int32_t>(i))
          which[to] = static_cast<uint32_t>(j / top_k_), at[to++] = static_cast<uint32_t>(j);
      const Var y = experts_[i].forward(e, rows(e, x, which), {});
      parts.push_back(scale_heads(e, y, pick(e, routing.weights, at)));
      rows_of.push_back(which);
    }
    return finish(e, x, sum_rows(e, parts, rows_of, n, x.v.cols), residual);
  }

 private:
  // The expert that sees every token joins the others.
  Var finish(Exec& e, Var x, Var routed, Var residual) const {
    const Var shared =
        scale_heads(e, shared_.forward(e, x, {}), map(e, linear(e, x, shared_gate_), Map::kSigmoid));
    const Var y = add(e, routed, shared);
    return residual.present() ? add(e, residual, y) : y;
  }

  size_t top_k_, router_;
  Swiglu shared_;
  size_t shared_gate_;
  std::vector<Swiglu> experts_;
  std::vector<ExpertWeights> weights_;
};

// ---- The table

struct MlpKind {
  std::string_view name, summary, paper;
  MlpConfig::Settings defaults;
};
const MlpKind kMlpKinds[] = {
    {"swiglu", "W_down (silu(W_gate x) * W_up x)", "arXiv:2002.05202", SwigluConfig()},
    {"gelu", "W_down gelu(W_up x)", "arXiv:1606.08415", GeluConfig()},
    {"moe", "mixture of SwiGLU experts with a router and one shared expert", "arXiv:2401.06066", MoeConfig()},
    {"none", "no MLP: the layer is its mixer", "", NoMlp()},
};

void parse(DenseConfig& c, const Json& settings, const std::string& where, std::vector<Problem>& problems) {
  read_fields(c, settings, where, problems);
  if (c.d_ff == 0 && !settings.contains("d_ff"))
    problems.push_back({where + ".d_ff", "is missing", "give the inner width"});
}

void parse(MoeConfig& c, const Json& settings, const std::string& where, std::vector<Problem>& problems) {
  const size_t before = problems.size();
  read_fields(c, settings, where, problems);
  if (problems.size() > before) return;
  if (c.d_ff == 0) problems.push_back({where + ".d_ff", "is missing", "give the inner width of an expert"});
  if (c.top_k > c.experts)
    problems.push_back({where + ".top_k", fmt::format("{} is more than there are experts", c.top_k),
                        fmt::format("give 1 to {}", c.experts)});
}

void parse(NoMlp&, const Json& settings, const std::string& where, std::vector<Problem>& problems) {
  for (const auto& [key, unused] : settings.items())
    if (key != "type") problems.push_back({where + "." + key, "is not a setting here", "leave it out"});
}

struct Maker {
  const ModelConfig& model;
  Declare& declare;
  std::unique_ptr<Mlp> operator()(const NoMlp&) const { return nullptr; }
  std::unique_ptr<Mlp> operator()(const SwigluConfig& c) const {
    return std::make_unique<Swiglu>(c, model, declare);
  }
  std::unique_ptr<Mlp> operator()(const GeluConfig& c) const {
    return std::make_unique<Gelu>(c, model, declare);
  }
  std::unique_ptr<Mlp> operator()(const MoeConfig& c) const {
    return std::make_unique<Moe>(c, model, declare);
  }
};

}  // namespace

std::optional<MlpConfig> parse_mlp(const Json& settings, const std::string& where,
                                   std::vector<Problem>& problems) {
  std::vector<std::string> names;
  std::string all;
  for (const MlpKind& k : kMlpKinds)
    names.emplace_back(k.name), all += (all.empty() ? "" : ", ") + names.back();
  if (!settings.is_object() || !settings.contains("type") || !settings["type"].is_string()) {
    problems.push_back({where, "has no type", "known: " + all});
    return {};
  }
  const std::string type = settings["type"];
  const MlpKind* const kind = std::ranges::find(kMlpKinds, type, &MlpKind::name);
  if (kind == std::end(kMlpKinds)) {
    problems.push_back({where + ".type", "is '" + type + "'", suggest(type, names)});
    return {};
  }
  const size_t before = problems.size();
  MlpConfig::Settings c = kind->defaults;
  std::visit([&](auto& s) { parse(s, settings, where, problems); }, c);
  if (problems.size() > before) return {};
  return MlpJson::parsed(std::move(c), settings);
}

struct MlpConfig::Written {
  Json json;
};

MlpConfig MlpJson::parsed(MlpConfig::Settings settings, const Json& written) {
  MlpConfig c(std::move(settings));
  c.written_ = std::make_shared<const MlpConfig::Written>(written);
  return c;
}

std::string_view MlpConfig::type() const {
  const auto same = [this](const MlpKind& k) { return k.defaults.index() == settings_.index(); };
  return std::ranges::find_if(kMlpKinds, same)->name;
}

Json MlpJson::complete(const MlpConfig& mlp) {
  MlpConfig::Settings all = mlp.settings();
  if (MoeConfig* moe = std::get_if<MoeConfig>(&all)) moe->shared_d_ff = moe->shared_width();
  Json j{{"type", mlp.type()}};
  std::visit([&](const auto& c) { write_fields(c, j); }, all);
  return j;
}

Json MlpJson::written(const MlpConfig& mlp) { return mlp.written_ ? mlp.written_->json : complete(mlp); }

std::unique_ptr<Mlp> make_mlp(const MlpConfig& config, const ModelConfig& model, Declare declare) {
  return std::visit(Maker{model, declare}, config.settings());
}

std::vector<MlpDoc> all_mlps() {
  std::vector<MlpDoc> all;
  for (const MlpKind& k : kMlpKinds)
    std::visit(
        [&](const auto& c) {
          all.push_back({k.name, k.summary, k.paper, list_fields(c)});
        },
        k.defaults);
  return all;
}

}  // namespace braid
