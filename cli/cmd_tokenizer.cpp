#include <algorithm>
#include <cstdio>
#include <ctime>

#include "base/clock.h"
#include "base/interrupt.h"
#include "base/progress.h"
#include "cli/cli.h"
#include "io/file.h"
#include "infer/text_model.h"
#include "io/folder.h"
#include "model/config.h"
#include "tokenizer/tokenizer.h"
#include "tokenizer/train.h"

namespace braid {
namespace {

Result<std::string> read_input(const std::string& path) {  // "-": standard input
  return read_text(path == "-" ? "/dev/stdin" : path, kMaxText);
}

struct TokenizerTrainOptions {
  std::string action, text, out, pattern;
  int64_t vocab = 32000, min_count = 2;
  std::vector<std::string> special;
  bool quiet = false, json = false;
  template <class V>
  void visit(V& v) {
    v("action", action, "train: make a byte-level BPE from a text");
    v("--text", text, "the text, a file; - reads standard input");
    v("--vocab", vocab, "tokens in all, with the 256 bytes and the special ones");
    v("--out", out, "tokenizer.json to write");
    v("--pattern", pattern, "regular expression that cuts the text into words; else GPT-2's");
    v("--special", special, "a special token, e.g. <|endoftext|>; may be repeated");
    v("--min-count", min_count, "least frequency of a pair to merge", Bounds<int64_t>{.low = 1});
    v("--quiet", quiet, "no progress");
    v("--json", json, "print a summary as one JSON line");
  }
};

int run_train(const TokenizerTrainOptions& o) {
  if (o.action != "train")
    return wrong_use(
        {o.action.empty() ? "tokenizer: the action is missing" : "tokenizer: action is '" + o.action + "'",
         fmt::format("use: {} tokenizer train --text FILE --vocab N --out tokenizer.json", program_name())});
  if (o.text.empty()) return wrong_use({"--text: is missing", "give a text file"});
  if (o.out.empty()) return wrong_use({"--out: is missing", "give the tokenizer.json to write"});
  if (Status s = check_output({"--out", o.out}, {{"--text", o.text}}); !s) return wrong_use(s.error());
  const Result<std::string> text = read_input(o.text);
  if (!text) return fail(text.error());
  catch_interrupts();
  const double start = seconds_now();
  BpeTraining training{
      .vocab = o.vocab, .pattern = o.pattern, .special = o.special, .min_count = o.min_count};
  std::unique_ptr<Progress> bar;
  training.progress = [&](uint64_t done, uint64_t all) {
    if (!bar) bar = std::make_unique<Progress>("merges", all, 0, o.quiet || o.json);
    if (done % 64 == 0 || done == all) bar->update(done);
    return !interrupted();
  };
  const Result<TrainedBpe> trained = train_bpe(*text, training);
  bar.reset();
  if (!trained)
    return fail({trained.error().what.starts_with("--") ? trained.error().what
                                                        : fmt::format("{}: {}", o.text, trained.error().what),
                 trained.error().fix});
  if (const Result<Tokenizer> check = Tokenizer::parse(trained->json, o.out); !check)
    return fail(check.error());
  if (Status s = write_atomic(o.out, trained->json); !s) return fail(s.error());
  const double seconds = seconds_now() - start;
  if (o.json)
    print_json({{"vocab", trained->vocab},
                {"words", trained->words},
                {"distinct_words", trained->distinct_words},
                {"bytes", text->size()},
                {"seconds", seconds},
                {"out", o.out}});
  else
    say("{}: {} tokens from {} words ({} different), {:.1f} s{}\n", o.out, trained->vocab, trained->words,
        trained->distinct_words, seconds,
        trained->vocab < o.vocab ? "; the text has no more pairs that are frequent enough" : "");
  return kOk;
}

struct TokenizeOptions {
  std::string model, text, file, decode;
  bool ids = false, json = false, count = false, special = false, lines = false;
  template <class V>
  void visit(V& v) {
    v("--model,-m", model,
      "folder or file of a tokenizer (tokenizer.json, vocab.json, tokenizer.model, *.bin); bytes: one token "
      "per byte");
    v("--text", text, "the text itself");
    v("--file", file, "a file with the text; without --text and --file: standard input");
    v("--decode", decode, "ids to turn into text, e.g. 1,2,3");
    v("--ids", ids, "print the ids alone, with commas between");
    v("--count", count, "print the number of tokens alone");
    v("--json", json,
      "print ids, the text they decode to and the CPU time as one JSON line; with --count: without ids and "
      "text");
    v("--special", special,
      "read names of special tokens in the text as these tokens, and add the tokenizer's own (BOS ...)");
    v("--lines", lines, "the input is one JSON string per line; one result per line");
  }
};

std::string joined(const std::vector<int32_t>& ids) {
  std::string text;
  for (const int32_t id : ids) text += (text.empty() ? "" : ",") + std::to_string(id);
  return text;
}

int show(const Tokenizer& tokenizer, const TokenizeOptions& o, std::string_view text) {
  const std::clock_t start = std::clock();
  const Result<std::vector<int32_t>> encoded =
      tokenizer.encode(text, {.add_special = o.special, .parse_special = o.special});
  if (!encoded) return fail(encoded.error());
  const std::vector<int32_t>& ids = *encoded;
  const double seconds = static_cast<double>(std::clock() - start) / CLOCKS_PER_SEC;
  if (o.json) {
    Json j{{"count", ids.size()}, {"bytes", text.size()}, {"cpu_seconds", seconds}};
    if (!o.count) {
      StreamDecoder stream(tokenizer, {.skip_special = !o.special});
      std::string decoded;
      for (const int32_t id : ids) decoded += stream.add(id);
      j["ids"] = ids;
      j["decoded"] = decoded + stream.finish();
      if (const Status s = stream.status(); !s) return fail(s.error());
    }
    print_json(j);
  } else if (o.count) {
    say("{}\n", ids.size());
  } else if (o.ids) {
    say("{}\n", joined(ids));
  } else {
    for (const int32_t id : ids) say("{:>8}  {}\n", id, in_quotes(tokenizer.token_bytes(id)));
  }
  return kOk;
}

// "bytes", a file, or a folder; a model folder without a tokenizer may be a model of bytes.
Result<Tokenizer> tokenizer_of(const std::string& path) {
  if (path == "bytes") return Tokenizer::bytes();
  if (!path_exists(path))
    return Error{"--model " + path + ": does not exist", "give a model folder or a tokenizer file"};
  if (path_exists(path + "/config.json"))
    if (const Result<ModelConfig> config = load_config(path + "/config.json"); config) {
      Result<std::optional<Tokenizer>> own = load_tokenizer(path, config->vocab_size);
      if (!own) return own.error();
      if (*own) return *std::move(*own);
    }
  return Tokenizer::load(path);
}

int run_tokenize(const TokenizeOptions& o, bool text_given, bool decode_given) {
  if (o.model.empty()) return wrong_use({"--model: is missing", "give a model folder or a tokenizer file"});
  if (int{text_given} + int{!o.file.empty()} + int{decode_given} > 1)
    return wrong_use({"--text, --file, --decode: exclude each other", "give one of them"});
  if (int{o.ids} + int{o.count || o.json} > 1)
    return wrong_use({"--ids, --count, --json: exclude each other", "give one of them"});
  if (decode_given && (o.lines || o.ids || o.count))
    return wrong_use({"--decode: excludes --lines, --ids and --count", "leave them out"});
  const Result<Tokenizer> tokenizer = tokenizer_of(o.model);
  if (!tokenizer) return fail(tokenizer.error());
  if (decode_given) {
    const Result<std::vector<int32_t>> ids = parse_ids(o.decode, "--decode");
    if (!ids) return wrong_use(ids.error());
    for (const int32_t id : *ids)
      if (!tokenizer->has(id))
        return fail({fmt::format("--decode: no token has the id {}", id),
                     fmt::format("ids of {} are below {}", o.model, tokenizer->vocab_size())});
    const Result<std::string> text = tokenizer->decode(*ids, {.skip_special = !o.special});
    if (!text) return fail(text.error());
    if (o.json)
      print_json({{"decoded", *text}});
    else
      say("{}\n", *text);
    return kOk;
  }
  const Result<std::string> text = text_given ? o.text : read_input(o.file.empty() ? "-" : o.file);
  if (!text) return fail(text.error());
  if (!o.lines) return show(*tokenizer, o, *text);
  size_t number = 0;
  for (size_t at = 0; at < text->size(); ++number) {
    const size_t end = std::min(text->find('\n', at), text->size());
    const std::string name = fmt::format("line {}", number + 1);
    const Result<nlohmann::json> line = parse_json(std::string_view(*text).substr(at, end - at), name);
    if (!line) return fail(line.error());
    if (!line->is_string())
      return fail({name + ": not a JSON string", "write each text as a JSON string on a line"});
    if (const int code = show(*tokenizer, o, line->get_ref<const std::string&>()); code != kOk) return code;
    at = end + 1;
  }
  return kOk;
}

}  // namespace

std::function<int()> define_tokenizer(CLI::App& app) {
  auto o = std::make_shared<TokenizerTrainOptions>();
  OptionAdder add(app);
  o->visit(add);
  return [o] { return run_train(*o); };
}

std::function<int()> define_tokenize(CLI::App& app) {
  auto o = std::make_shared<TokenizeOptions>();
  OptionAdder add(app);
  o->visit(add);
  return [o, &app] { return run_tokenize(*o, given(app, "--text"), given(app, "--decode")); };
}

}  // namespace braid
