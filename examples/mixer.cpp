// A mixer of one's own: each channel of a token is blended with the same channel some tokens earlier. It is
// added to a table, named in a config, trained, saved and loaded like the others.
#include <braid/extend.hpp>
#include <braid/train.hpp>

#include <cstdio>

using namespace braid;

struct LookBack : Mixer {
  struct Config {
    int64_t distance = 1;
    template <class V>
    void visit(V& v) {
      v("distance", distance, {1, 64}, "tokens to look back");
    }
  };
  LookBack(const Config& c, const ModelConfig& model, Declare declare)
      : by(c.distance),
        width(model.d_model),
        gate(declare.matrix("gate.weight", width, width)),
        out(declare.matrix("out.weight", width, width, Init::kOutput)) {}
  Var forward(const MixerCall& call) const override {           // ops record their backward when training
    const Var before = remembered_delay(call, call.input, by);  // in a state: from call to call
    const Var mixed = blend(call.exec, before, call.input, linear(call.exec, call.input, gate));
    return linear(call.exec, mixed, out, call.residual);
  }
  double flops_per_token(int64_t) const override { return 4.0 * static_cast<double>(width); }
  StateSize state_size(int64_t) const override { return {.tails = by * width}; }
  size_t by, width, gate, out;
};

int fail(const Error& e) { return std::fprintf(stderr, "%s\n%s\n", e.what.c_str(), e.fix.c_str()), 1; }

int main(int argc, char** argv) {
  if (argc != 2) return std::fprintf(stderr, "usage: mixer FOLDER\n"), 2;
  MixerTable mixers;  // the built-in ones and mine
  if (Status s = mixers.add(mixer_entry<LookBack>("look_back", "blend with an earlier token")); !s)
    return fail(s.error());
  const auto config = config_from_text(R"({"model_type": "braid", "d_model": 48, "n_layers": 1,
    "pattern": [{"mixer": {"type": "look_back"}, "mlp": {"type": "swiglu", "d_ff": 192}}]})",
                                       "mine", mixers);
  if (!config) return fail(config.error());

  std::string digits = "01";  // each the sum of the two before it, modulo ten; now and then a random one
  for (Rng rng(1, "digits"); digits.size() < 40000;)
    digits += static_cast<char>(
        '0' + (rng.below(20) ? digits.end()[-1] + digits.end()[-2] - 2 * '0' : rng.below(10)) % 10);
  const auto source = TextSource::from_text(digits, "digits", {.length = 64});
  if (!source) return fail(source.error());

  const std::unique_ptr<Model> model = Model::create(*config);
  model->init(/*seed=*/0);
  ThreadPool pool(cpu_count());
  TrainOptions options;
  options.run = argv[1], options.steps = 300, options.batch = 16, options.lr = 1e-2, options.warmup = 20;
  const auto done = Trainer(*model, **source, pool, options).run({.quiet = true});
  if (!done) return fail(done.error());
  const auto loaded = Model::load(options.run, mixers);
  if (!loaded) return fail(loaded.error());
  const Outcome again =
      Gradient(**loaded, pool, {}).evaluate((*source)->validation(0, (*source)->validation_size()));
  std::printf("next digit right %.1f %%, after loading %.1f %%\n", 100 * done->evaluation.outcome.accuracy(),
              100 * again.accuracy());
}
