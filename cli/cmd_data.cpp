// Text files to folders of token ids, and what is in such folders.
#include <filesystem>

#include "base/clock.h"
#include "base/interrupt.h"
#include "base/nearest.h"
#include "base/progress.h"
#include "cli/cli.h"
#include "data/token_source.h"
#include "data/tokenize_files.h"
#include "io/file.h"
#include "io/folder.h"

namespace braid {
namespace {

struct Options {
  std::string action;
  std::vector<std::string> paths, text;
  TokenizeFilesOptions tokenize;
  std::string out;
  int64_t shard_tokens = 100'000'000, length = 256, count = 3, seed = 0, threads = 0;
  bool check = false, reset = false, quiet = false, json = false;
};

Json as_json(const ShardIndex& index) {
  return {{"folder", index.dir},
          {"complete", index.complete},
          {"tokens", index.tokens()},
          {"documents", index.document_count()},
          {"text_bytes", index.text_bytes()},
          {"vocab_size", index.vocab_size},
          {"end", index.end ? Json(*index.end) : Json(nullptr)},
          {"shards", index.shards.size()},
          {"tokenizer", index.tokenizer},
          {"tokenizer_hash", index.tokenizer_hash}};
}

double bytes_per_token(const ShardIndex& index) {
  return index.tokens() ? static_cast<double>(index.text_bytes()) / static_cast<double>(index.tokens()) : 0;
}

int run_tokenize(const Options& o) {
  TokenizeFilesOptions with = o.tokenize;
  with.files = o.text, with.out = o.out, with.shard_tokens = static_cast<uint64_t>(o.shard_tokens);
  with.files.insert(with.files.end(), o.paths.begin(), o.paths.end());
  if (with.tokenizer.empty())
    return wrong_use({"--tokenizer: is missing",
                      "give a tokenizer's folder or file (`braid tokenizer train` makes one), or bytes"});
  if (with.files.empty()) return wrong_use({"--text: is missing", "give one or more files of text"});
  if (with.out.empty()) return wrong_use({"--out: is missing", "give the folder to write"});
  catch_interrupts();
  Result<ThreadPool> pool = start_threads(o.threads);
  if (!pool) return fail(pool.error());
  const double start = seconds_now();
  std::unique_ptr<Progress> bar;
  uint64_t first_tokens = 0;
  const auto tick = [&](const TokenizeProgress& p) {
    if (!bar) {
      bar = std::make_unique<Progress>("tokenize", p.total_bytes >> 10, 0, o.quiet || o.json);
      first_tokens = p.tokens;
    }
    const double seconds = seconds_now() - start;
    bar->update(p.bytes >> 10, fmt::format("KiB  {} tokens  {:.2f} M tokens/s", p.tokens,
                                           static_cast<double>(p.tokens - first_tokens) / 1e6 / seconds));
    return !interrupted();
  };
  const Result<ShardIndex> index = tokenize_files(with, Par(*pool), tick);
  bar.reset();
  if (!index) return fail(index.error());
  const double seconds = seconds_now() - start;
  if (o.json) {
    Json line = as_json(*index);
    line["seconds"] = seconds;
    print_json(line);
  } else if (index->complete) {
    say("{}: {} tokens in {} documents, {} {}, {:.2f} bytes per token; {:.1f} s\n", index->dir,
        index->tokens(), index->document_count(), index->shards.size(),
        index->shards.size() == 1 ? "shard" : "shards", bytes_per_token(*index), seconds);
  }
  if (index->complete) return kOk;
  tell("interrupted; {} finished shards are kept. The same command continues behind them\n",
       index->shards.size());
  return kFailed;
}

int run_info(const Options& o) {
  if (o.paths.empty())
    return wrong_use({"data info: the folder is missing", "give a folder that `braid data tokenize` made"});
  bool whole = true;
  for (const std::string& path : o.paths) {
    const Result<ShardIndex> index = load_shard_index(path);
    if (!index) return fail(index.error());
    Status checked;
    if (o.check)
      if (const Result<ShardData> data = ShardData::open(path, UINT64_MAX); !data) checked = data.error();
    if (!checked) whole = false;
    if (o.json) {
      Json line = as_json(*index);
      if (o.check) line["damage"] = checked ? Json(nullptr) : Json(checked.error().what);
      print_json(line);
      continue;
    }
    say("{}\n", path);
    say("  {:<12}{}{}\n", "tokens", index->tokens(), index->complete ? "" : "  (not complete)");
    say("  {:<12}{}\n", "documents", index->document_count());
    say("  {:<12}{} bytes, {:.2f} per token\n", "text", index->text_bytes(), bytes_per_token(*index));
    say("  {:<12}{} of {}-bit ids\n", "shards", index->shards.size(), 8 * index->id_bytes());
    say("  {:<12}{}, {} tokens, hash {}\n", "tokenizer", index->tokenizer, index->vocab_size,
        index->tokenizer_hash);
    if (!index->end) say("  {:<12}none\n", "end token");
    if (index->end) say("  {:<12}{}\n", "end token", *index->end);
    for (size_t i = 0; i < index->files.size(); ++i)
      say("  {:<12}{} ({} bytes)\n", i ? "" : "from", index->files[i], index->file_sizes[i]);
    if (o.check && checked) say("  {:<12}all files are as they were written\n", "check");
    if (!checked) (void)fail(checked.error());
  }
  return whole ? kOk : kFailed;
}

int run_mix(const Options& o) {
  if (o.paths.empty())
    return wrong_use({"data mix: the folder is missing",
                      "give folders of tokens, e.g. braid data mix prose:3 code:1 --out mix.json"});
  if (!o.out.ends_with(".json"))
    return wrong_use({"--out" + (o.out.empty() ? ": is missing" : " " + o.out + ": is not a .json file"),
                      "give the mixture's file, e.g. --out mix.json"});
  Result<Mixture> mixture = parse_mixture(o.paths, "data mix");
  if (!mixture) return wrong_use(mixture.error());
  const Result<std::unique_ptr<TokenSource>> source = TokenSource::open(*mixture, {.length = 1});
  if (!source) return fail(source.error());
  if (path_exists(o.out))
    if (const Result<Mixture> old = load_mixture(o.out); !old)
      return fail({o.out + ": exists and is not a mixture", "give another file"});
  // Paths that still hold when the file is read from another folder.
  namespace fs = std::filesystem;
  std::error_code ec;
  for (WeightedSet& set : mixture->sets)
    if (const fs::path whole = fs::absolute(set.path, ec); !ec) set.path = whole.lexically_normal().string();
  if (Status s = save_mixture(*mixture, o.out); !s) return fail(s.error());
  for (size_t i = 0; i < mixture->sets.size(); ++i) {
    const double share = static_cast<double>(std::ranges::count(mixture->order, i)) /
                         static_cast<double>(mixture->order.size());
    if (o.json)
      print_json({{"path", mixture->sets[i].path}, {"weight", mixture->sets[i].weight}, {"share", share}});
    else
      say("{:>6.1f} %  {}\n", 100 * share, mixture->sets[i].path);
  }
  return kOk;
}

int run_sample(const Options& o) {
  if (o.paths.empty())
    return wrong_use({"data sample: the folder is missing", "give a folder of tokens, or a mixture's file"});
  const Result<Mixture> mixture = parse_mixture(o.paths, "data sample");
  if (!mixture) return wrong_use(mixture.error());
  const Result<std::unique_ptr<TokenSource>> source =
      TokenSource::open(*mixture, {.length = static_cast<size_t>(o.length),
                                   .reset_at_documents = o.reset,
                                   .seed = static_cast<uint64_t>(o.seed)});
  if (!source) return fail(source.error());
  const Result<ShardIndex> index = load_shard_index(mixture->sets[0].path);
  if (!index) return fail(index.error());
  const Result<Tokenizer> tokenizer =
      load_tokens(index->tokenizer == kByteTokens ? std::string(kByteTokens) : index->dir);
  if (!tokenizer) return fail(tokenizer.error());
  for (int64_t i = 0; i < o.count; ++i) {
    const Batch batch = (*source)->batch(static_cast<uint64_t>(i), 1);
    const BatchView view = batch.view();
    for (size_t s = 0; s < view.sequences(); ++s) {
      const Result<std::string> text = tokenizer->decode(view.tokens_of(s), {.skip_special = false});
      if (!text) return fail(text.error());
      if (o.json)
        print_json({{"sample", i}, {"tokens", view.tokens_of(s)}, {"text", *text}});
      else
        say("--- sample {}, {} tokens\n{}\n", i, view.length(s), *text);
    }
  }
  return kOk;
}

}  // namespace

std::function<int()> define_data(CLI::App& app) {
  auto o = std::make_shared<Options>();
  OptionAdder add(app);
  add("action", o->action,
      "tokenize: text files to a folder of token ids; info FOLDER..: what is in it; mix FOLDER:WEIGHT..: a "
      "mixture's file; sample FOLDER: training sequences as text");
  add.several("paths", o->paths, "folders of tokens (for tokenize: more files of text)");
  add("--tokenizer", o->tokenize.tokenizer, "folder or file of the tokenizer; bytes: a token for each byte");
  add.several("--text", o->text,
              "files of text: .txt, .jsonl (an object per line), also as .gz; may be repeated");
  add("--out", o->out, "folder to write, or the mixture's file");
  add("--field", o->tokenize.documents.field, "field of a jsonl line that holds the document");
  add("--separator", o->tokenize.documents.separator,
      "text between two documents of a .txt file, e.g. '<|endoftext|>'; else the file is one document");
  add("--end", o->tokenize.end, "token behind each document; else the tokenizer's EOS; none: no token");
  add("--shard-tokens", o->shard_tokens, "tokens of a shard", Bounds<int64_t>{1000, 100'000'000'000});
  add("--check", o->check, "info: compare every file with its hash");
  add("--length", o->length, "sample: tokens of a sequence", Bounds<int64_t>{1, 1'000'000});
  add("--count", o->count, "sample: how many", Bounds<int64_t>{1, 1'000'000});
  add("--reset-at-documents", o->reset, "sample: a sequence ends where its document does");
  add("--seed", o->seed, "sample: order of training", kFromZero);
  add("--threads", o->threads, "threads; 0 = all cores. The tokens do not depend on it", kThreads);
  add("--quiet", o->quiet, "no progress");
  add("--json", o->json, "print one JSON object per line");
  return [o] {
    if (o->action == "tokenize") return run_tokenize(*o);
    if (o->action == "info") return run_info(*o);
    if (o->action == "mix") return run_mix(*o);
    if (o->action == "sample") return run_sample(*o);
    return wrong_use(
        {o->action.empty() ? "data: the action is missing" : "data: no action '" + o->action + "'",
         suggest(o->action, {"tokenize", "info", "mix", "sample"})});
  };
}

}  // namespace braid
