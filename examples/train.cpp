// Defines a hybrid, trains it on the bytes of a text and leaves it in a folder.
#include <braid/train.hpp>

#include <cstdio>

using namespace braid;

int fail(const Error& e) { return std::fprintf(stderr, "%s\n%s\n", e.what.c_str(), e.fix.c_str()), 1; }

int main(int argc, char** argv) {
  if (argc != 4) return std::fprintf(stderr, "usage: train TEXT FOLDER STEPS\n"), 2;
  // Gated DeltaNet and attention in turn. The pattern repeats until there are n_layers.
  const Result<ModelConfig> config = config_from_text(R"({
    "model_type": "braid", "vocab_size": 256, "d_model": 64, "n_layers": 4,
    "pattern": [
      {"mixer": {"type": "gated_deltanet", "heads": 2}, "mlp": {"type": "swiglu", "d_ff": 128}},
      {"mixer": {"type": "attention", "heads": 2, "window": 64}, "mlp": {"type": "swiglu", "d_ff": 128}}]})",
                                                      "hybrid");
  if (!config) return fail(config.error());
  const auto text = TextSource::from_file(argv[1], {.length = 128});
  if (!text) return fail(text.error());

  const std::unique_ptr<Model> model = Model::create(*config);
  model->init(/*seed=*/0);
  ThreadPool pool(cpu_count());
  TrainOptions options;
  options.run = argv[2], options.steps = std::atoi(argv[3]), options.batch = 8, options.lr = 3e-3,
  options.warmup = 10;
  Trainer trainer(*model, **text, pool, options);
  const Result<TrainSummary> done = trainer.run({.quiet = true});
  if (!done) return fail(done.error());
  std::printf("%zu parameters, %llu bytes read, held-out loss %.3f, next byte right %.1f %%\n",
              model->params().count(), static_cast<unsigned long long>(done->progression.tokens),
              done->evaluation.outcome.loss, 100 * done->evaluation.outcome.accuracy());
}
