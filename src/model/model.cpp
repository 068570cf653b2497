#include "model/model.h"

#include <algorithm>
#include <cmath>

#include "autograd/recompute.h"
#include "io/file.h"
#include "io/safetensors.h"
#include "model/families/families.h"
#include "model/mixers/registry.h"
#include "model/stored.h"
#include "model/weights.h"

namespace braid {
namespace {

// What the model's `init` makes of a matrix whose rows have `columns` numbers.
Init resolved(const Init& init, size_t columns, const ModelConfig& config) {
  const bool fla = config.init == "fla";
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
    l.norm = lc.norm == "post" ? Layer::kPost : lc.norm == "none" ? Layer::kNone : Layer::kPre;
    if (l.norm != Layer::kNone) l.mixer_norm = norms.vector("mixer_norm.weight", d, norm_init(config));
    l.mixer = find_mixer(lc.mixer["type"].get<std::string>())->make(lc.mixer, config, here.under("mixer"));
    l.mlp = make_mlp(lc.mlp, config, here.under("mlp"));
    if (l.mlp && l.norm != Layer::kNone) l.mlp_norm = norms.vector("mlp_norm.weight", d, norm_init(config));
    rows_can_be_shared_ &= l.mixer->gives_wanted();
    for (const auto& [name, value] : lc.mixer.items())
      has_dropout_ |= name.ends_with("dropout") && value.is_number() && value.get<double>() > 0;
    layers_.push_back(std::move(l));
  }
  has_dropout_ |= config.dropout > 0 || config.embedding_dropout > 0;
  final_norm_ = root.vector("final_norm.weight", d, norm_init(config));
  head_ = config.tie_embeddings ? embedding_ : root.matrix("head.weight", config.answers(), d);
  for (size_t i = 0; i < params_.all().size(); ++i) {
    inits_[i] = resolved(inits_[i], params_[i].cols(), config);
    for (const auto& [name, settings] : config.params)
      if (params_[i].name.starts_with(name)) {
        if (!settings.train) params_.freeze(i);
        if (settings.init == "zeros") inits_[i] = Init::kZeros;
        if (settings.init == "ones") inits_[i] = Init::kOnes;
        if (settings.init == "identity") inits_[i] = {Init::kIdentity, static_cast<double>(settings.column)};
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

Result<Folder> open_folder(const std::string& dir) {
  const std::string path = dir + "/config.json";
  const Result<Json> json = load_config_json(path);
  if (!json) return json.error();
  const Result<const Family*> family = family_of(*json, path);
  if (!family) return family.error();
  const Result<ModelConfig> config = read_config(*json, path);
  if (!config) return config.error();
  return Folder{Model::create(*config), *family};
}

}  // namespace

Result<std::unique_ptr<Model>> Model::load(const std::string& dir) {
  Result<Folder> folder = open_folder(dir);
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
  for (size_t i = 0; i < params->size(); ++i)
    read_numbers({(*params)[i].pieces, {}}, model->params_[i], 0,
                 model->params_.block().subspan(model->params_[i].offset, model->params_[i].count()));
  return model;
}

Result<std::unique_ptr<Model>> Model::load_stored(const std::string& dir, std::optional<WeightFormat> format,
                                                  Par par) {
  Result<Folder> folder = open_folder(dir);
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
      StoredWeights::load(*std::move(file), sources, format, model->params_, par);
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
    return Error{path + " is quantised", "it is for inference; here the original is needed"};
  if (const std::vector<Problem> problems = param_problems(*file); !problems.empty())
    return to_error(path + " does not fit its config", problems);
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

void Model::prepare(int64_t positions) {
  if (positions <= prepared_) return;
  prepared_ =
      std::max(positions, 2 * prepared_);  // grows by doubling: a session asks for one more at every step
  for (Layer& l : layers_) l.mixer->prepare(prepared_);
}

namespace {

// A snapshot that a pass takes on the way, not at its end.
struct Taken {
  size_t sequence, tokens;  // after so many of the sequence's
  State state;
};

void add_taken(const Model::Input& in, size_t s, size_t layers, std::vector<Taken>& to) {
  if (!in.snapshots[s]) return;
  const int64_t first = in.states[s]->position, last = first + in.offsets[s + 1] - in.offsets[s];
  std::vector<size_t> tokens;
  for (const int64_t at : in.snapshots[s]->at)
    if (at > first && at < last) tokens.push_back(static_cast<size_t>(at - first) / kCutRows * kCutRows);
  std::ranges::sort(tokens);
  for (size_t i = 0; i < tokens.size(); ++i) {
    if (tokens[i] == 0 || (i > 0 && tokens[i] == tokens[i - 1])) continue;
    to.push_back({s, tokens[i], {}});
    to.back().state.position = first + static_cast<int64_t>(tokens[i]);
    to.back().state.layers.resize(layers);
  }
}

// Rows that several tokens share.
struct Sharing {
  std::span<const uint32_t> first;  // the first token of each row
  std::span<const uint32_t> which;  // the row of each token; empty: each has its own
  std::span<const uint32_t> rows(Arena& arena, std::span<const uint32_t> tokens) const {
    if (which.empty()) return tokens;
    const std::span<uint32_t> out = arena.take<uint32_t>(tokens.size());
    for (size_t i = 0; i < tokens.size(); ++i) out[i] = which[tokens[i]];
    return out;
  }
};

// Tokens with the same tokens before them, as far as a sequence begins like the one before it.
Sharing by_prefix(Arena& arena, const Model::Input& in) {
  const size_t n = in.tokens.size();
  const std::span<uint32_t> which = arena.take<uint32_t>(n), first = arena.take<uint32_t>(n);
  uint32_t different = 0;
  for (size_t s = 0; s + 1 < in.offsets.size(); ++s) {
    const uint32_t begin = in.offsets[s], end = in.offsets[s + 1];
    uint32_t t = begin;
    if (s > 0)
      for (uint32_t before = in.offsets[s - 1]; t < end && before < begin; ++t, ++before) {
        if (in.tokens[t] != in.tokens[before]) break;
        which[t] = which[before];
      }
    for (; t < end; ++t) which[t] = different, first[different++] = t;
  }
  if (8 * different > 7 * n) return {};  // sharing costs copies, too
  return {.first = first.first(different), .which = which};
}

// Tokens that are the same, where they are few, as in synthetic tasks and bytes of text.
Sharing by_token(Arena& arena, std::span<const int32_t> tokens, size_t vocab_size) {
  constexpr size_t kFew = 16;  // entries of the table below for each token: more take longer than they spare
  if (vocab_size > kFew * tokens.size()) return {};
  constexpr uint32_t kNever = ~uint32_t{0};
  const std::span<uint32_t> number = arena.take<uint32_t>(vocab_size),
                            which = arena.take<uint32_t>(tokens.size()),
                            first = arena.take<uint32_t>(tokens.size());
  std::ranges::fill(number, kNever);
  uint32_t different = 0;
  for (uint32_t t = 0; t < tokens.size(); ++t) {
    uint32_t& n = number[static_cast<size_t>(tokens[t])];
    if (n == kNever) first[n = different++] = t;
    which[t] = n;
  }
  if (2 * different > tokens.size()) return {};
  return {.first = first.first(different), .which = which};
}

}  // namespace

Var Model::hidden(Exec& e, const Input& in, std::span<const uint32_t> wanted) const {
  const size_t n = in.tokens.size(), sequences = in.offsets.size() - 1;
  check(in.offsets.back() == n && (in.states.empty() || in.states.size() == sequences) &&
            (in.snapshots.empty() || in.snapshots.size() == in.states.size()),
        "Model::hidden: bad offsets, states or snapshots");
  const std::span<int32_t> positions = e.arena().take<int32_t>(n);
  for (size_t s = 0; s < sequences; ++s) {
    const int64_t first = in.states.empty() ? 0 : in.states[s]->position;
    check(first + in.offsets[s + 1] - in.offsets[s] <= prepared_, "Model::hidden: call prepare() first");
    for (uint32_t i = in.offsets[s]; i < in.offsets[s + 1]; ++i)
      positions[i] = static_cast<int32_t>(first + i - in.offsets[s]);
  }
  for (size_t s = 0; s < in.states.size(); ++s) in.states[s]->begin_pass(in.offsets[s + 1] - in.offsets[s]);
  std::vector<Taken> taken;
  for (size_t s = 0; s < in.snapshots.size(); ++s) add_taken(in, s, layers_.size(), taken);
  // A sequence with a state must get the same bits however it is cut, so there every token has its own rows.
  const bool share =
      in.share && rows_can_be_shared_ && in.states.empty() && !(has_dropout_ && e.dropout_rng());
  Arena& arena = e.arena();
  const Sharing stream = share ? by_prefix(arena, in) : Sharing{},
                tokens =
                    share ? by_token(arena, in.tokens, static_cast<size_t>(config_.vocab_size)) : Sharing{};
  std::span<const int32_t> ids = in.tokens;
  if (!stream.which.empty()) {
    const std::span<int32_t> different = arena.take<int32_t>(stream.first.size());
    for (size_t i = 0; i < different.size(); ++i) different[i] = in.tokens[stream.first[i]];
    ids = different;
  }
  Var x = dropout(e, embedding(e, ids, embedding_), static_cast<float>(config_.embedding_dropout));
  const auto rows_of = [&](size_t layer) {
    const bool last = layer + 1 == layers_.size(), few = layer == 0 && !tokens.which.empty();
    const Sharing& input = few ? tokens : stream;
    LayerRows r{.mixer = {.which = input.which, .spare = share}};
    if (few) r.inputs = stream.rows(arena, tokens.first);
    if (last && !wanted.empty()) {
      r.mixer.wanted = wanted;
      r.mixer.wanted_input = input.rows(arena, wanted), r.mixer.wanted_residual = stream.rows(arena, wanted);
    } else if (!stream.which.empty()) {
      r.mixer.wanted = stream.first;
      if (few) r.mixer.wanted_input = tokens.rows(arena, stream.first);
    }
    return r;
  };
  std::vector<LayerState*> states(in.states.size());
  std::vector<std::vector<LayerSnapshot>> snapshots(taken.empty() ? 0 : sequences);
  // Without a tape a part of a layer that keeps all rows updates x in place and its temporaries can go.
  const auto run = [&](size_t left, auto part) {
    const Arena::Mark mark = e.arena().mark();
    const Var before = x;
    x = e.recording() && e.recompute() ? recompute(e, x, left, part) : part(e, x);
    if (e.recording() || left != before.v.rows) return;
    check(x.v.data == before.v.data, "Model: a layer must update the residual stream in place");
    e.arena().release(mark);
  };
  for (size_t i = 0; i < layers_.size(); ++i) {
    for (size_t s = 0; s < states.size(); ++s) states[s] = &in.states[s]->layers[i];
    for (auto& s : snapshots) s.clear();
    for (Taken& t : taken) snapshots[t.sequence].push_back({t.tokens, &t.state.layers[i]});
    const Layer& l = layers_[i];
    const bool last = i + 1 == layers_.size();
    const LayerRows chosen = rows_of(i);
    const auto mixed = [this, &l, in, positions, states, snapshots, chosen](Exec& exec, Var from) {
      return mixer_forward(exec, l, from, in, positions, states, snapshots, chosen);
    };
    const auto transformed = [this, &l](Exec& exec, Var from) { return mlp_forward(exec, l, from); };
    if (!last) {
      run(ids.size(),
          [mixed, transformed](Exec& exec, Var from) { return transformed(exec, mixed(exec, from)); });
      continue;
    }
    // Tokens meet only in memories: behind the last one the rows that nobody wants are left out.
    run(wanted.size(), [mixed, wanted](Exec& exec, Var from) {
      const Var y = mixed(exec, from);
      return y.v.rows == wanted.size() ? y : rows(exec, y, wanted);
    });
    if (l.mlp && !wanted.empty()) run(wanted.size(), transformed);
  }
  for (size_t s = 0; s < in.states.size(); ++s) in.states[s]->position += in.offsets[s + 1] - in.offsets[s];
  for (Taken& t : taken) in.snapshots[t.sequence]->taken.push_back(std::move(t.state));
  for (size_t s = 0; s < in.snapshots.size(); ++s)
    if (in.snapshots[s] &&
        std::ranges::find(in.snapshots[s]->at, in.states[s]->position) != in.snapshots[s]->at.end()) {
      in.snapshots[s]->taken.push_back(*in.states[s]);
      in.snapshots[s]->taken.back().forget_trail();
    }
  return rmsnorm(e, x, final_norm_, norm_options(config_));
}

// A branch beside the residual stream. The two are added in the branch's last product unless something stands
// between them: dropout, a norm, or that backward still needs the stream because the branch read it as it
// was.
template <class Branch>
Var Model::beside(Exec& e, const Layer& l, size_t norm_weight, Var x, const Branch& branch,
                  const LayerRows& chosen) const {
  const NormOptions norm = norm_options(config_);
  const auto p = static_cast<float>(config_.dropout);
  const bool drop = p > 0 && e.dropout_rng() != nullptr, apart = drop || l.norm != Layer::kPre;
  const Var in = chosen.inputs.empty() ? x : rows(e, x, chosen.inputs);
  Var y = branch(l.norm == Layer::kPre ? rmsnorm(e, in, norm_weight, norm) : in, apart ? Var{} : x);
  if (!apart) return y;
  if (y.v.rows != x.v.rows || (l.mixer->gives_wanted() && !chosen.mixer.wanted_residual.empty()))
    x = rows(e, x, chosen.mixer.wanted_residual);
  if (l.norm == Layer::kPost) y = rmsnorm(e, y, norm_weight, norm);
  return add(e, x, dropout(e, y, p));
}

Var Model::mixer_forward(Exec& e, const Layer& l, Var x, const Input& in, std::span<const int32_t> positions,
                         std::span<LayerState* const> states,
                         std::span<const std::vector<LayerSnapshot>> snapshots,
                         const LayerRows& chosen) const {
  const auto branch = [&](Var from, Var residual) {
    return l.mixer->forward({.exec = e,
                             .input = from,
                             .residual = residual,
                             .rows = chosen.mixer,
                             .offsets = in.offsets,
                             .positions = positions,
                             .states = states,
                             .snapshots = snapshots});
  };
  return beside(e, l, l.mixer_norm, x, branch, chosen);
}

Var Model::mlp_forward(Exec& e, const Layer& l, Var x) const {
  if (!l.mlp) return x;
  const auto branch = [&](Var from, Var residual) { return l.mlp->forward(e, from, residual); };
  return beside(e, l, l.mlp_norm, x, branch);
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
