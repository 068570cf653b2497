// A model: a config, its parameters, and the one forward that training and inference share.
//
//   auto model = Model::create(config);                 // parameters declared, no memory yet
//   model->init(seed);                                  // or model->load(dir)
//   Var h = model->hidden(exec, {.tokens = ids, .offsets = offsets}, rows);
//   Mat<float> logits = model->logits(exec, h);
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "autograd/ops.h"
#include "model/config.h"
#include "model/mixers/mixer.h"
#include "model/mlp.h"
#include "model/state.h"

namespace braid {

class SafeTensors;
class StoredWeights;

class Model {
 public:
  static std::unique_ptr<Model> create(const ModelConfig& config);

  // A model folder: config.json and model.safetensors, Braid's own or of a family that it can read.
  // `mixers`: what its layers may name.
  using LoadProgress = std::function<void(uint64_t done, uint64_t all)>;  // elements of the weights
  static Result<std::unique_ptr<Model>> load(const std::string& dir,
                                             const MixerTable& mixers = built_in_mixers(),
                                             const LoadProgress& progress = {});
  // For inference alone: matrices stay where and as they are stored, or are brought to a format
  // (model/stored.h). Norms, gates, convolutions and decays are f32 always.
  static Result<std::unique_ptr<Model>> load_stored(const std::string& dir,
                                                    std::optional<WeightFormat> format = {}, Par par = {},
                                                    const MixerTable& mixers = built_in_mixers(),
                                                    const LoadProgress& progress = {});
  Status save(const std::string& dir) const;
  Status save_weights(const std::string& path) const;
  Status load_weights(const std::string& path);  // names and shapes must be exactly this model's
  std::vector<Problem> param_problems(const SafeTensors& file) const;  // why a file does not fit

  void init(uint64_t seed);  // each parameter from its own random stream
  // Elements [first, ...) of an untrained parameter, distributed as by init() but faster: for models whose
  // speed alone matters.
  void random_numbers(size_t param, uint64_t seed, size_t first, std::span<float> to) const;
  State new_state() const;

  struct Input {
    std::span<const int32_t> tokens;             // all sequences, one after the other
    std::span<const uint32_t> offsets;           // where each starts, and the end
    std::span<State* const> states = {};         // one per sequence, updated; empty: zero initial states
    std::span<Snapshots* const> snapshots = {};  // one per sequence with states, each may be null; or empty
    bool share = true;  // without states: equal rows are computed once, queries of output rows only
  };
  // The final, normalised hidden states of the chosen rows (tokens). States are advanced. A pass of at most
  // kSkinnyRows tokens in all gives each of them the bits that it gets in a pass of its own.
  Var hidden(Exec& exec, const Input& input, std::span<const uint32_t> rows) const;
  Mat<float> logits(Exec& exec, Var hidden) const;
  // Undoes all tokens from that position on; State::undo limits the distance.
  static Status rollback(Exec& exec, State& state, int64_t position) {
    return state.rollback(exec, position);
  }
  size_t head() const { return head_; }  // the parameter whose rows score the tokens

  const ModelConfig& config() const { return config_; }
  ParamSet& params() { return params_; }
  const ParamSet& params() const { return params_; }

  double flops_per_token(int64_t length) const;  // of a forward over `length` tokens
  StateSize state_size(int64_t length) const;

 private:
  struct Layer {
    NormPlace norm;
    size_t mixer_norm, mlp_norm;
    std::unique_ptr<Mixer> mixer;
    std::unique_ptr<Mlp> mlp;  // or null
  };

  // What a mixer gets besides the residual stream; the spans outlive the pass.
  struct LayerPass {
    const RowMap* input_rows;
    std::span<const uint32_t> offsets;
    std::span<const int32_t> positions;
    std::span<LayerState* const> states;
    std::span<const std::vector<LayerSnapshot>> snapshots;
  };

  explicit Model(const ModelConfig& config);
  Var mixer_forward(Exec& e, const Layer& layer, Var x, const LayerPass& pass) const;
  Var mlp_forward(Exec& e, const Layer& layer, Var x) const;
  template <class Branch>
  Var beside(Exec& e, const Layer& layer, size_t norm_weight, Var x, const RowMap* input_rows,
             const Branch& branch) const;

  ModelConfig config_;
  ParamSet params_;
  std::shared_ptr<StoredWeights> stored_;  // what params_ look at, if it was loaded for inference
  std::vector<Init> inits_;
  std::vector<Layer> layers_;
  size_t embedding_, final_norm_, head_;
  bool has_dropout_ = false;
};

}  // namespace braid
