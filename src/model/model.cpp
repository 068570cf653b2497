#include "model/model.h"

#include <cmath>

#include "io/safetensors.h"
#include "model/mixers/registry.h"

namespace braid {

Model::Model(const ModelConfig& config) : config_(config) {
  Declare root(params_, inits_, "");
  const size_t d = config.d_model, vocab = config.vocab_size;
  embedding_ = root.matrix("embedding.weight", vocab, d);
  for (int64_t i = 0; i < config.n_layers; ++i) {
    const LayerConfig& lc = config.layer(i);
    const Declare here = root.under("layers." + std::to_string(i));
    Declare norms = here;
    Layer l{};
    l.mixer_norm = norms.vector("mixer_norm.weight", d);
    l.mixer = find_mixer(lc.mixer["type"].get<std::string>())->make(lc.mixer, config, here.under("mixer"));
    l.has_mlp = lc.mlp["type"] == "swiglu";
    if (l.has_mlp) {
      const size_t f = lc.mlp["d_ff"].get<size_t>();
      Declare mlp = here.under("mlp");
      l.mlp_norm = norms.vector("mlp_norm.weight", d);
      l.gate = mlp.matrix("gate_proj.weight", f, d);
      l.up = mlp.matrix("up_proj.weight", f, d);
      l.down = mlp.matrix("down_proj.weight", d, f, Init::kOutput);
    }
    layers_.push_back(std::move(l));
  }
  final_norm_ = root.vector("final_norm.weight", d);
  head_ = config.tie_embeddings ? embedding_ : root.matrix("head.weight", vocab, d);
}

std::unique_ptr<Model> Model::create(const ModelConfig& config) {
  return std::unique_ptr<Model>(new Model(config));
}

void Model::init(uint64_t seed) {
  params_.allocate();
  for (size_t i = 0; i < params_.all().size(); ++i) {
    Rng rng(seed, "init/" + params_[i].name);
    const double scale = inits_[i] == Init::kOutput ? 1.0 / std::sqrt(2.0 * config_.n_layers) : 1.0;
    const Mat<float> m = params_.mat(i);
    for (size_t j = 0; j < m.count(); ++j)
      m.data[j] = inits_[i] == Init::kOnes    ? 1.0f
                  : inits_[i] == Init::kZeros ? 0.0f
                                              : static_cast<float>(config_.init_std * scale * rng.normal());
  }
}

Result<std::unique_ptr<Model>> Model::load(const std::string& dir) {
  const Result<ModelConfig> config = load_config(dir + "/config.json");
  if (!config) return config.error();
  std::unique_ptr<Model> model = create(*config);
  if (Status s = model->load_weights(dir + "/model.safetensors"); !s) return s.error();
  return model;
}

Status Model::save_weights(const std::string& path) const {
  std::vector<NamedTensor> tensors;
  for (const Param& p : params_.all())
    tensors.push_back({p.name, {params_.block().data() + p.offset, DType::kF32, p.shape}});
  return write_safetensors(path, tensors, {{"format", "pt"}});
}

Status Model::load_weights(const std::string& path) {
  Result<SafeTensors> file = SafeTensors::open(path);
  if (!file) return file.error();
  std::vector<Problem> problems;
  for (const Param& p : params_.all()) {
    const View* v = file->find(p.name);
    if (!v) {
      problems.push_back({p.name, "is missing", "expected " + p.shape.text()});
    } else if (v->shape != p.shape) {
      problems.push_back({p.name, "has shape " + v->shape.text(), "expected " + p.shape.text()});
    } else if (v->dtype != DType::kF32 && v->dtype != DType::kBF16 && v->dtype != DType::kF16 &&
               v->dtype != DType::kF64) {
      problems.push_back(
          {p.name, "has dtype " + std::string(dtype_name(v->dtype)), "expected F32, BF16, F16 or F64"});
    }
  }
  for (const std::string& name : file->names()) {
    bool known = false;
    for (const Param& p : params_.all()) known |= p.name == name;
    if (!known)
      problems.push_back(
          {name, "is not a parameter of this model", "is config.json the one it was trained with?"});
  }
  if (!problems.empty()) return to_error(path + " does not fit its config", problems);
  if (!params_.allocated()) params_.allocate();
  for (size_t i = 0; i < params_.all().size(); ++i) {
    const Param& p = params_[i];
    convert_to_f32(*file->find(p.name), params_.block().subspan(p.offset, p.count()));
  }
  return {};
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

Var Model::hidden(Exec& e, const Input& in, std::span<const uint32_t> wanted) const {
  const size_t n = in.tokens.size(), sequences = in.offsets.size() - 1;
  check(in.offsets.back() == n && (in.states.empty() || in.states.size() == sequences),
        "Model::hidden: bad offsets or states");
  const std::span<int32_t> positions = e.arena().take<int32_t>(n);
  for (size_t s = 0; s < sequences; ++s) {
    const int64_t first = in.states.empty() ? 0 : in.states[s]->position;
    check(first + in.offsets[s + 1] - in.offsets[s] <= prepared_, "Model::hidden: call prepare() first");
    for (uint32_t i = in.offsets[s]; i < in.offsets[s + 1]; ++i)
      positions[i] = static_cast<int32_t>(first + i - in.offsets[s]);
  }
  Var x = embedding(e, in.tokens, embedding_);
  std::vector<LayerState*> states(in.states.size());
  for (size_t i = 0; i < layers_.size(); ++i) {
    for (size_t s = 0; s < states.size(); ++s) states[s] = &in.states[s]->layers[i];
    // Without a tape a layer updates x in place and its temporaries can go.
    const Arena::Mark mark = e.arena().mark();
    const float* before = x.v.data;
    x = layer_forward(e, layers_[i], x, in, positions, states);
    if (!e.recording()) {
      check(x.v.data == before, "Model: a layer must update the residual stream in place");
      e.arena().release(mark);
    }
  }
  for (size_t s = 0; s < in.states.size(); ++s) in.states[s]->position += in.offsets[s + 1] - in.offsets[s];
  return rmsnorm(e, rows(e, x, wanted), final_norm_, {.eps = static_cast<float>(config_.norm_eps)});
}

Var Model::layer_forward(Exec& e, const Layer& l, Var x, const Input& in, std::span<const int32_t> positions,
                         std::span<LayerState* const> states) const {
  const NormOptions norm{.eps = static_cast<float>(config_.norm_eps)};
  // Dropout sits between a branch and the residual stream, so only without it can the two be added in the
  // product.
  const auto p = static_cast<float>(config_.dropout);
  const bool drop = p > 0 && e.dropout_rng() != nullptr;
  const auto join = [&](Var residual, Var branch) {
    return drop ? add(e, residual, dropout(e, branch, p)) : branch;
  };

  const Var mixed = l.mixer->forward({.exec = e,
                                      .x = rmsnorm(e, x, l.mixer_norm, norm),
                                      .residual = drop ? Var{} : x,
                                      .offsets = in.offsets,
                                      .positions = positions,
                                      .states = states});
  x = join(x, mixed);
  if (!l.has_mlp) return x;
  const size_t ws[] = {l.gate, l.up};
  const Var gu = linear_concat(e, rmsnorm(e, x, l.mlp_norm, norm), ws);
  return join(x, swiglu_linear(e, gu, l.down, drop ? Var{} : x));
}

Mat<float> Model::logits(Exec& e, Var hidden) const {
  const Var y = e.result(hidden.v.rows, config_.vocab_size, false);
  matmul(MatmulForm::kNT, hidden.v, e.weight(head_), y.v, Into::kOverwrite, e.par());
  return y.v;
}

double Model::flops_per_token(int64_t length) const {
  double flops = 0;
  for (const Param& p : params_.all())
    if (p.shape.rank() == 2 && (&p != &params_[embedding_] || config_.tie_embeddings))
      flops += 2.0 * p.count();
  for (const Layer& l : layers_) flops += l.mixer->flops_per_token(length);
  return flops;
}

size_t Model::state_numbers(int64_t length) const {
  size_t n = 0;
  for (const Layer& l : layers_) n += l.mixer->state_numbers(length);
  return n;
}

}  // namespace braid
