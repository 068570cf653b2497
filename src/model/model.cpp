#include "model/model.h"

#include <algorithm>
#include <cmath>

#include "autograd/recompute.h"
#include "io/file.h"
#include "io/json.h"
#include "io/safetensors.h"
#include "model/config_json.h"
#include "model/families/families.h"
#include "model/row_plan.h"
#include "model/stored.h"
#include "model/weights.h"

namespace braid {
namespace {

// What the model's `init` makes of a matrix whose rows have `columns` numbers.
Init resolved(const Init& init, size_t columns, const ModelConfig& config) {
  const bool fla = config.init == InitScheme::kFla;
  const auto uniform = [](double n) { return Init(Init::kUniform, -1 / std::sqrt(n), 1 / std::sqrt(n)); };
  const auto n = static_cast<double>(columns);
  if (init.kind == Init::kConv) return fla ? Init::kNormal : uniform(n);
  if (init.kind == Init::kOutput && fla) return uniform(2 * static_cast<double>(config.n_layers) * n);
  return init;
}

}  // namespace

Model::Model(const ModelConfig& config) : config_(config) {
  Declare root(params_, inits_, "");
  const size_t d = config.d_model, vocab = config.vocab_size;
  embedding_ = root.matrix("embedding.weight", vocab, d);
  for (int64_t i = 0; i < config.n_layers; ++i) {
    const LayerConfig& lc = config.layer(i);
    const Declare here(params_, inits_, "layers." + std::to_string(i) + ".", i);
    Declare norms = here;
    Layer l{};
    l.norm = lc.norm;
    if (l.norm != NormPlace::kNone) l.mixer_norm = norms.norm("mixer_norm.weight", d, norm_init(config));
    l.mixer = lc.mixer.make(config, here.under("mixer"));
    l.mlp = make_mlp(lc.mlp, config, here.under("mlp"));
    if (l.mlp && l.norm != NormPlace::kNone) l.mlp_norm = norms.norm("mlp_norm.weight", d, norm_init(config));
    layers_.push_back(std::move(l));
  }
  has_dropout_ = has_dropout(config);
  final_norm_ = root.norm("final_norm.weight", d, norm_init(config));
  head_ = config.tie_embeddings ? embedding_ : root.matrix("head.weight", config.answers(), d);
  for (size_t i = 0; i < params_.all().size(); ++i) {
    inits_[i] = resolved(inits_[i], params_[i].cols(), config);
    for (const auto& [name, settings] : config.params)
      if (params_[i].name.starts_with(name)) {
        if (!settings.train) params_.freeze(i);
        if (settings.init == ParamInit::kZeros) inits_[i] = Init::kZeros;
        if (settings.init == ParamInit::kOnes) inits_[i] = Init::kOnes;
        if (settings.init == ParamInit::kIdentity)
          inits_[i] = {Init::kIdentity, static_cast<double>(settings.column)};
      }
  }
}

std::unique_ptr<Model> Model::create(const ModelConfig& config) {
  return std::unique_ptr<Model>(new Model(config));
}

namespace {

float initial(const Init& init, size_t row, size_t column, double std, double layers, Rng& rng) {
  const double u = init.kind == Init::kNormal || init.kind == Init::kOutput ? 0 : rng.uniform();
  const auto between = [&](double low, double high) { return low + u * (high - low); };
  constexpr double kFloor = 1e-4;  // of decay rates and step lengths
  switch (init.kind) {
    case Init::kNormal:
      return static_cast<float>(std * rng.normal());
    case Init::kOutput:
      return static_cast<float>(std / std::sqrt(2 * layers) * rng.normal());
    case Init::kOnes:
      return 1;
    case Init::kZeros:
      return 0;
    case Init::kIdentity:
      return column == row + static_cast<size_t>(init.low) ? 1 : 0;
    case Init::kConv:  // resolved
    case Init::kUniform:
      return static_cast<float>(between(init.low, init.high));
    case Init::kLogUniform:
      return static_cast<float>(std::log(std::max(kFloor, between(init.low, init.high))));
    case Init::kLogColumn:
      return static_cast<float>(std::log(1.0 + static_cast<double>(column)));
    case Init::kStep: {
      const double dt = std::max(kFloor, std::exp(between(std::log(init.low), std::log(init.high))));
      return static_cast<float>(dt + std::log(-std::expm1(-dt)));  // softplus of this is dt
    }
  }
  return 0;
}

}  // namespace

void Model::init(uint64_t seed) {
  params_.allocate();
  for (size_t i = 0; i < params_.all().size(); ++i) {
    Rng rng(seed, "init/" + params_[i].name);
    const Mat<float> m = params_.mat(i);
    for (size_t j = 0; j < m.count(); ++j)
      m.data[j] = initial(inits_[i], j / m.cols, j % m.cols, config_.init_std,
                          static_cast<double>(config_.n_layers), rng);
  }
}

void Model::random_numbers(size_t param, uint64_t seed, size_t first, std::span<float> to) const {
  const Init& init = inits_[param];
  const Mat<const float> shape(nullptr, params_[param].rows(), params_[param].cols());
  const auto layers = static_cast<double>(config_.n_layers);
  const Rng stream(seed, "random/" + params_[param].name);
  if (init.kind != Init::kNormal && init.kind != Init::kOutput) {
    for (size_t i = 0; i < to.size(); ++i) {
      Rng one(stream.block(first + i, 0)[0], "number");
      to[i] =
          initial(init, (first + i) / shape.cols, (first + i) % shape.cols, config_.init_std, layers, one);
    }
    return;
  }
  // The sum of the four parts of a scrambled number is near enough to a normal one.
  const double std = config_.init_std / (init.kind == Init::kOutput ? std::sqrt(2 * layers) : 1);
  const auto scale = static_cast<float>(std / (65536 * std::sqrt(4.0 / 12)));
  const uint64_t start = stream.block(0, 0)[0] * uint64_t{0x9e3779b97f4a7c15};
  for (size_t i = 0; i < to.size(); ++i) {
    uint64_t z = start + (first + i) * uint64_t{0x9e3779b97f4a7c15};
    z = (z ^ z >> 30) * uint64_t{0xbf58476d1ce4e5b9};
    z = (z ^ z >> 27) * uint64_t{0x94d049bb133111eb};
    z ^= z >> 31;
    const auto sum = static_cast<int32_t>((z & 0xffff) + (z >> 16 & 0xffff) + (z >> 32 & 0xffff) + (z >> 48));
    to[i] = scale * static_cast<float>(sum - 131070);
  }
}

namespace {

struct Folder {
  std::unique_ptr<Model> model;  // without weights
  const Family* family;          // null: Braid's own
};

Result<Folder> open_folder(const std::string& dir, const MixerTable& mixers) {
  const std::string path = dir + "/config.json";
  const Result<Json> json = load_config_json(path);
  if (!json) return json.error();
  const Result<const Family*> family = family_of(*json, path);
  if (!family) return family.error();
  const Result<ModelConfig> config = read_config(*json, path, nullptr, mixers);
  if (!config) return config.error();
  return Folder{Model::create(*config), *family};
}

}  // namespace

Result<std::unique_ptr<Model>> Model::load(const std::string& dir, const MixerTable& mixers,
                                           const LoadProgress& progress) {
  Result<Folder> folder = open_folder(dir, mixers);
  if (!folder) return folder.error();
  std::unique_ptr<Model> model = std::move(folder->model);
  if (!folder->family) {
    if (Status s = model->load_weights(dir + "/model.safetensors"); !s) return s.error();
    return model;
  }
  const Result<SafeTensors> file = SafeTensors::open_model(dir);
  if (!file) return file.error();
  std::vector<LeftOut> left_out;
  const Result<std::vector<Assembled>> params =
      assemble_params(*folder->family, *model, *file, dir, left_out);
  if (!params) return params.error();
  model->params_.allocate();
  uint64_t done = 0;
  for (size_t i = 0; i < params->size(); ++i) {
    read_numbers({(*params)[i].pieces, {}}, model->params_[i], 0,
                 model->params_.block().subspan(model->params_[i].offset, model->params_[i].count()));
    done += model->params_[i].count();
    if (progress) progress(done, model->params_.count());
  }
  return model;
}

Result<std::unique_ptr<Model>> Model::load_stored(const std::string& dir, std::optional<WeightFormat> format,
                                                  Par par, const MixerTable& mixers,
                                                  const LoadProgress& progress) {
  Result<Folder> folder = open_folder(dir, mixers);
  if (!folder) return folder.error();
  std::unique_ptr<Model> model = std::move(folder->model);
  const std::string path = dir + "/model.safetensors";
  Result<SafeTensors> file = folder->family ? SafeTensors::open_model(dir) : SafeTensors::open(path);
  if (!file) return file.error();
  std::vector<ParamSource> sources;
  if (folder->family) {
    std::vector<LeftOut> left_out;
    Result<std::vector<Assembled>> params = assemble_params(*folder->family, *model, *file, dir, left_out);
    if (!params) return params.error();
    for (Assembled& a : *params) sources.push_back({std::move(a.pieces), {}});
  } else {
    Result<std::vector<ParamSource>> own = braid_sources(model->params_, *file, path);
    if (!own) return own.error();
    sources = *std::move(own);
  }
  Result<std::shared_ptr<StoredWeights>> stored =
      StoredWeights::load(*std::move(file), sources, format, model->params_, par, progress);
  if (!stored) return Error{dir + ": " + stored.error().what, stored.error().fix};
  model->stored_ = *std::move(stored);
  return model;
}

Status Model::save(const std::string& dir) const {
  if (Status s = make_dirs(dir); !s) return s;
  if (Status s = save_json(dir + "/config.json", to_json(config_)); !s) return s;
  return save_weights(dir + "/model.safetensors");
}

Status Model::save_weights(const std::string& path) const {
  check(!stored_, "Model::save_weights: loaded for inference");
  std::vector<NamedTensor> tensors;
  for (const Param& p : params_.all())
    tensors.push_back({p.name, {params_.block().data() + p.offset, DType::kF32, p.shape}});
  return write_safetensors(path, tensors, {{"format", "pt"}});
}

Status Model::load_weights(const std::string& path) {
  Result<SafeTensors> file = SafeTensors::open(path);
  if (!file) return file.error();
  if (is_quantised(*file))
    return Error{path + ": is quantised, which is for inference alone", "give the original model"};
  if (const std::vector<Problem> problems = param_problems(*file); !problems.empty())
    return to_error(path + ": does not fit its config", problems);
  if (!params_.allocated()) params_.allocate();
  for (size_t i = 0; i < params_.all().size(); ++i) {
    const Param& p = params_[i];
    convert_to_f32(*file->find(p.name), params_.block().subspan(p.offset, p.count()));
  }
  return {};
}

std::vector<Problem> Model::param_problems(const SafeTensors& file) const {
  std::vector<TensorSpec> wanted;
  for (const Param& p : params_.all()) wanted.push_back({p.name, DType::kF32, p.shape});
  return tensor_problems(wanted, file.names(), [&](const std::string& name) { return file.find(name); });
}

State Model::new_state() const {
  State s;
  s.layers.resize(layers_.size());
  return s;
}

namespace {

// What a pass does to the states it goes on from: positions before it, snapshots on the way, both after it.
class StatePass {
 public:
  StatePass(Arena& arena, const Model::Input& in, size_t layers)
      : in_(in), positions_(arena.take<int32_t>(in.tokens.size())), states_(in.states.size()) {
    for (size_t s = 0; s + 1 < in.offsets.size(); ++s) {
      const int64_t first = in.states.empty() ? 0 : in.states[s]->position;
      for (uint32_t i = in.offsets[s]; i < in.offsets[s + 1]; ++i)
        positions_[i] = static_cast<int32_t>(first + i - in.offsets[s]);
    }
    for (size_t s = 0; s < in.states.size(); ++s) in.states[s]->begin_pass(tokens(s));
    for (size_t s = 0; s < in.snapshots.size(); ++s)
      if (in.snapshots[s]) plan_snapshots(s, layers);
    snapshots_.resize(taken_.empty() ? 0 : in.states.size());
  }

  std::span<const int32_t> positions() const { return positions_; }
  // Of one layer, until the next call.
  std::span<LayerState* const> states(size_t layer) {
    for (size_t s = 0; s < states_.size(); ++s) states_[s] = &in_.states[s]->layers[layer];
    return states_;
  }
  std::span<const std::vector<LayerSnapshot>> snapshots(size_t layer) {
    for (auto& s : snapshots_) s.clear();
    for (Taken& t : taken_) snapshots_[t.sequence].push_back({t.tokens, &t.state.layers[layer]});
    return snapshots_;
  }

  void finish() {
    for (size_t s = 0; s < in_.states.size(); ++s) in_.states[s]->position += tokens(s);
    for (Taken& t : taken_) in_.snapshots[t.sequence]->taken.push_back(std::move(t.state));
    for (size_t s = 0; s < in_.snapshots.size(); ++s)
      if (Snapshots* to = in_.snapshots[s];
          to && std::ranges::find(to->at, in_.states[s]->position) != to->at.end()) {
        to->taken.push_back(*in_.states[s]);
        to->taken.back().forget_trail();
      }
  }

 private:
  struct Taken {
    size_t sequence, tokens;  // after so many of the sequence's
    State state;
  };
  uint32_t tokens(size_t s) const { return in_.offsets[s + 1] - in_.offsets[s]; }
  void plan_snapshots(size_t s, size_t layers) {
    const int64_t first = in_.states[s]->position, last = first + tokens(s);
    std::vector<size_t> after;
    for (const int64_t at : in_.snapshots[s]->at)
      if (at > first && at < last) after.push_back(static_cast<size_t>(at - first) / kCutRows * kCutRows);
    std::ranges::sort(after);
    for (size_t i = 0; i < after.size(); ++i) {
      if (after[i] == 0 || (i > 0 && after[i] == after[i - 1])) continue;
      taken_.push_back({s, after[i], {}});
      taken_.back().state.position = first + static_cast<int64_t>(after[i]);
      taken_.back().state.layers.resize(layers);
    }
  }

  const Model::Input& in_;
  std::span<int32_t> positions_;
  std::vector<LayerState*> states_;
  std::vector<Taken> taken_;
  std::vector<std::vector<LayerSnapshot>> snapshots_;
};

// Runs part(e, x) -> [rows, width of x]. With recompute it runs again in backward; without a tape its
// temporaries are released, where it has updated x in place.
template <class Part>
Var in_little_memory(Exec& e, Var x, size_t rows, const Part& part) {
  if (e.recording()) return e.recompute() ? recompute(e, x, rows, part) : part(e, x);
  const Arena::Mark mark = e.arena().mark();
  const Var y = part(e, x);
  if (y.v.data == x.v.data) e.arena().release(mark);
  return y;
}

}  // namespace

Var Model::hidden(Exec& e, const Input& in, std::span<const uint32_t> wanted) const {
  check(in.offsets.back() == in.tokens.size() &&
            (in.states.empty() || in.states.size() == in.offsets.size() - 1) &&
            (in.snapshots.empty() || in.snapshots.size() == in.states.size()),
        "Model::hidden: bad offsets, states or snapshots");
  StatePass pass(e.arena(), in, layers_.size());
  // A sequence with a state gets the same bits however it is cut, so there nothing is shared.
  const RowPlan plan =
      plan_rows(e.arena(), {.tokens = in.tokens,
                            .offsets = in.offsets,
                            .wanted = wanted,
                            .vocab_size = static_cast<size_t>(config_.vocab_size),
                            .share = in.share && in.states.empty() && !(has_dropout_ && e.dropout_rng())});
  Var x = dropout(e, embedding(e, plan.ids, embedding_), static_cast<float>(config_.embedding_dropout));
  x.rows = plan.stream;
  for (size_t i = 0; i < layers_.size(); ++i) {
    const RowMap* out = i + 1 == layers_.size() ? plan.output : plan.stream;
    const LayerPass layer{.input_rows = i == 0 ? plan.input : plan.stream,
                          .offsets = in.offsets,
                          .positions = pass.positions(),
                          .states = pass.states(i),
                          .snapshots = pass.snapshots(i)};
    e.set_output_rows(out);
    x = in_little_memory(e, x, out ? out->token.size() : x.v.rows, [this, i, layer](Exec& exec, Var from) {
      return mlp_forward(exec, layers_[i], mixer_forward(exec, layers_[i], from, layer));
    });
  }
  e.set_output_rows(nullptr);
  pass.finish();
  x.rows = nullptr;
  return rmsnorm(e, x, final_norm_, norm_options(config_));
}

// A branch beside the residual stream. The two are added in the branch's last product unless something stands
// between them: dropout, a norm, or that backward still needs the stream because the branch read it as it
// was.
template <class Branch>
Var Model::beside(Exec& e, const Layer& l, size_t norm_weight, Var x, const RowMap* input_rows,
                  const Branch& branch) const {
  const NormOptions norm = norm_options(config_);
  const auto p = static_cast<float>(config_.dropout);
  const bool drop = p > 0 && e.dropout_rng() != nullptr, apart = drop || l.norm != NormPlace::kPre;
  const Var in = with_rows(e, x, input_rows);
  Var y = branch(l.norm == NormPlace::kPre ? rmsnorm(e, in, norm_weight, norm) : in, apart ? Var{} : x);
  if (!apart) return y;
  if (l.norm == NormPlace::kPost) y = rmsnorm(e, y, norm_weight, norm);
  return add(e, x, dropout(e, y, p));
}

Var Model::mixer_forward(Exec& e, const Layer& l, Var x, const LayerPass& pass) const {
  const auto branch = [&](Var from, Var residual) {
    return l.mixer->forward({.exec = e,
                             .input = from,
                             .residual = residual,
                             .offsets = pass.offsets,
                             .positions = pass.positions,
                             .states = pass.states,
                             .snapshots = pass.snapshots});
  };
  return with_rows(e, beside(e, l, l.mixer_norm, x, pass.input_rows, branch), e.output_rows());
}

Var Model::mlp_forward(Exec& e, const Layer& l, Var x) const {
  if (!l.mlp) return x;
  const RowMap* rows = std::exchange(x.rows, nullptr);  // an MLP works on rows, whatever they are
  Var y = beside(e, l, l.mlp_norm, x, nullptr,
                 [&](Var from, Var residual) { return l.mlp->forward(e, from, residual); });
  y.rows = rows;
  return y;
}

Mat<float> Model::logits(Exec& e, Var hidden) const { return linear(e, hidden, head_).v; }

double Model::flops_per_token(int64_t length) const {
  double flops = 0;
  for (const Param& p : params_.all())
    if (p.shape.rank() == 2 && p.decay && (&p != &params_[embedding_] || config_.tie_embeddings))
      flops += 2.0 * p.share * static_cast<double>(p.count());
  for (const Layer& l : layers_) flops += l.mixer->flops_per_token(length);
  return flops;
}

StateSize Model::state_size(int64_t length) const {
  StateSize all;
  for (const Layer& l : layers_) {
    const StateSize s = l.mixer->state_size(length);
    all.memory += s.memory, all.tails += s.tails;
  }
  return all;
}

}  // namespace braid
