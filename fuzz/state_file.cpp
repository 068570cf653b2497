// Any bytes as a saved state of a small hybrid: an error, or a state that the model goes on from. The hashes
// of content and weights are not compared, since hardly any input would get past them.
#include "model/model.h"
#include "model/config_json.h"
#include "model/state_file.h"
#include "io/json.h"
#include "scratch_file.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace braid;
  static const std::unique_ptr<Model> model = [] {
    const Json json = Json::parse(R"({"model_type": "braid", "vocab_size": 5, "d_model": 8, "n_layers": 3,
      "pattern": [{"mixer": {"type": "gated_deltanet", "heads": 1}, "mlp": {"type": "none"}},
                  {"mixer": {"type": "attention", "heads": 1, "window": 3}, "mlp": {"type": "none"}},
                  {"mixer": {"type": "mamba"}, "mlp": {"type": "none"}}]})");
    std::unique_ptr<Model> m = Model::create(*parse_config(json, "fuzz"));
    m->init(1);
    return m;
  }();
  const ScratchFile file(data, size);
  (void)load_saved(*model, file.path());
  Result<SavedState> saved = read_saved(*model, file.path());
  if (!saved || saved->state.position > 1000) return 0;
  Arena arena;
  Exec exec({.arena = &arena, .params = &model->params()});
  const int32_t token[] = {1};
  const uint32_t offsets[] = {0, 1}, row[] = {0};
  State* states[] = {&saved->state};
  model->hidden(exec, {.tokens = token, .offsets = offsets, .states = states}, row);
  return 0;
}
