// What `braid train` can be told. What to train and on what is for the command line: a Trainer has its model
// and source already. Each option is written once: the parser, --help, docs/reference/cli.md and run.json
// come from visit().
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/error.h"

namespace braid {

struct TrainOptions {
  // What to train.
  std::string arch = "transformer", size = "tiny", config, model;
  std::vector<std::string> set;
  // On what.
  std::string task, text, tokenizer;
  std::vector<std::string> task_set, data, eval_data;
  int64_t length = 256, eval_length = 0;
  bool reset_at_documents = false;
  // How.
  int64_t steps = 1000, tokens = 0, batch = 32, accumulate = 1, warmup = 100;
  double grow_at = 0, stop_at = 0, minutes = 0;
  double lr = 1e-3, min_lr_ratio = 0.1, weight_decay = 0.1, beta1 = 0.9, beta2 = 0.999, eps = 1e-8,
         clip = 1.0;
  double momentum = 0.95, z_loss = 0;
  std::string optimizer = "adamw", schedule = "cosine", precision = "f32";
  bool recompute = false, fixed_embedding = false, decay_norms = false;
  int64_t seed = 0, threads = 0;
  // Bookkeeping.
  std::string run = "run";
  std::string sample;
  bool resume = false, tensorboard = false;
  int64_t sample_tokens = 100, checkpoint_every = 500, keep = 2, eval_every = 250, eval_size = 1024,
          log_every = 10, bad_steps = 10, patience = 0;

  template <class V>
  void visit(V& v) {
    v("--arch", arch, "architecture: a name that `braid archs` prints");
    v("--size", size,
      "its size: tiny, 1M, 3M, 10M, 30M, 100M, one of the papers' that `braid archs` prints, or exact: "
      "d128-l2-h4-f512 (width, layers, heads, inner width)");
    v("--config", config, "a config.json instead of --arch and --size");
    v("--model", model,
      "instead of a new model: start from the weights of this folder, a run's or one of Hugging Face's "
      "(fine-tuning); its tokenizer is used for --text");
    v("--set", set, "change one value of the config, e.g. pattern.0.mixer.window=64; may be repeated");
    v("--task", task, "train on a synthetic task: a name that `braid tasks` prints");
    v("--task-set", task_set, "change one setting of the task, e.g. train_max=80; may be repeated");
    v("--fixed-embedding", fixed_embedding,
      "use the task's own input vectors, padded with zeros, instead of learned embeddings (stress, "
      "reachability, state-recall)");
    v("--text", text, "train on a text file; @shakespeare is inside the program");
    v("--tokenizer", tokenizer,
      "folder or file of the text's tokenizer, copied to --run (`braid tokenizer train` makes one); default: "
      "one "
      "token per byte");
    v("--data", data,
      "train on a folder of tokens that `braid data tokenize` made, FOLDER or FOLDER:WEIGHT; repeated, a "
      "mixture; or a mixture's file");
    v("--eval-data", eval_data,
      "held-out tokens, FOLDER or NAME=FOLDER; may be repeated. Else the last 5 % of each --data");
    v("--reset-at-documents", reset_at_documents,
      "state, convolution and attention begin anew at each document of --data; else sequences run on");
    v("--length", length, "tokens per sequence of text");
    v("--eval-length", eval_length, "tokens per held-out sequence of text; 0 = as --length");
    v("--run", run, "folder for the run: config, metrics, checkpoints, model");
    v("--resume", resume,
      "continue from the last complete checkpoint in --run, with the options stored there; model and data "
      "cannot "
      "change");
    v("--steps", steps, "optimiser updates");
    v("--tokens", tokens, "instead of --steps: tokens to train on, e.g. 100M; 0 = as --steps says");
    v("--batch", batch, "sequences per batch");
    v("--grow-at", grow_at,
      "curriculum: training samples of the task grow when their accuracy reaches this share, 0 to 1; 0 = "
      "never");
    v("--stop-at", stop_at,
      "stop when the held-out headline metric (accuracy) reaches this share, 0 to 1; 0 = never");
    v("--patience", patience, "stop after this many evaluations without improvement; 0 = never");
    v("--minutes", minutes,
      "training time after which to stop, with evaluations and resumed parts; 0 = no limit");
    v("--accumulate", accumulate, "batches per update");
    v("--lr", lr, "peak learning rate");
    v("--schedule", schedule, "learning rate over time: cosine, constant or wsd (warm-up, stable, decay)");
    v("--warmup", warmup, "steps of linear warm-up");
    v("--min-lr-ratio", min_lr_ratio, "learning rate at the end, as a share of the peak");
    v("--optimizer", optimizer,
      "adamw; or muon: orthogonalised momentum for the matrices inside the layers, AdamW for the rest");
    v("--z-loss", z_loss,
      "adds this times logsumexp^2 of the logits to what is minimised, e.g. 1e-4; 0 = none");
    v("--momentum", momentum, "Muon's momentum");
    v("--weight-decay", weight_decay, "weight decay; not on norms, biases and decay rates");
    v("--decay-norms", decay_norms,
      "weight decay on the weights of norms, too, as in PyTorch loops without parameter groups");
    v("--beta1", beta1, "AdamW beta1");
    v("--beta2", beta2, "AdamW beta2");
    v("--eps", eps, "AdamW epsilon");
    v("--clip", clip, "limit of the gradient's norm; 0 = none");
    v("--precision", precision, "f32, or bf16: matrix products on bf16 operands with f32 sums");
    v("--recompute", recompute,
      "keep only each layer's input and compute it again for the gradient: less memory, more time, "
      "bit-identical "
      "results");
    v("--seed", seed, "random seed of initial weights, data order and dropout");
    v("--threads", threads, "threads; 0 = all cores; results are bit-identical");
    v("--checkpoint-every", checkpoint_every, "steps between checkpoints");
    v("--keep", keep, "checkpoints kept besides the best");
    v("--eval-every", eval_every, "steps between evaluations on held-out data; 0 = only at the end");
    v("--eval-size", eval_size, "held-out samples of a task, or the most sequences of text");
    v("--sample", sample, "continue this text after each evaluation, on the terminal and in samples.txt");
    v("--sample-tokens", sample_tokens, "tokens of such a sample");
    v("--tensorboard", tensorboard, "write TensorBoard's event files into the run folder, too");
    v("--log-every", log_every, "steps between lines in metrics.jsonl");
    v("--bad-steps", bad_steps,
      "stop after this many steps in a row with a loss or gradient that is not finite");
  }
};

// --steps, or as many as make up --tokens.
int64_t total_steps(const TrainOptions& o);

// Values that no training can use, all at once.
std::vector<Problem> unusable(const TrainOptions& o);

// The options that a run cannot change on the way: what is trained and on what. Where a text lies may change,
// its content is compared by itself.
std::vector<Problem> changed_on_the_way(TrainOptions asked, TrainOptions started);

// A record is read from other folders, too. Names of what comes with the program stay.
TrainOptions with_absolute_paths(TrainOptions o);

}  // namespace braid
