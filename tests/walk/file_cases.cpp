// Bad files of every format that the program reads, each read by the verbs that read it.
#include "walk/cases.h"
#include "walk/damage.h"

namespace braid::walk {
namespace {

using Words = std::vector<std::string>;

struct Reader {
  std::string folder, file;  // a fixture's folder, shown as "{dir}/m", and the file of it that is damaged
  std::string format;        // of the file: json, safetensors or bytes
  Words args;
};

std::vector<Reader> readers(const Fixtures& f) {
  const Words generate{"generate", "--model", "{dir}/m", "--tokens", "1,2", "--max-tokens", "2"},
      text{"generate", "--model", "{dir}/m", "--prompt", "the cat", "--max-tokens", "2"},
      tokenize{"tokenize", "--model", "{dir}/m", "--text", "the cat sat", "--json"},
      resume{"train", "--run", "{dir}/m", "--resume", "--steps", "3", "--quiet"},
      chat{"chat-template", "--model", "{dir}/m", "--messages", f / "messages.json"};
  const Words info{"info", "--model", "{dir}/m", "--verbose"};
  const auto tokenizer = [&](const char* file) {
    return Words{"tokenize", "--model", "{dir}/m/" + std::string(file), "--text", "the cat", "--json"};
  };
  return {
      {"model", "config.json", "json", info},
      {"model", "model.safetensors", "safetensors", generate},
      {"model",
       "model.safetensors",
       "safetensors",
       {"eval", "--model", "{dir}/m", "--text", f / "text", "--context", "8", "--chunks", "1"}},
      {"llama", "config.json", "json", generate},
      {"llama", "model.safetensors", "safetensors", generate},
      {"llama",
       "config.json",
       "json",
       {"convert", "--model", "{dir}/m", "--to", "braid", "--out", "{dir}/out"}},
      {"llama",
       "model.safetensors",
       "safetensors",
       {"convert", "--model", "{dir}/m", "--to", "braid", "--quant", "q8", "--out", "{dir}/out"}},
      {"qwen", "config.json", "json", info},
      {"shards", "model.safetensors.index.json", "json", generate},
      {"worded", "tokenizer.json", "json", text},
      {"tokenizers", "qwen2.json", "bytes", tokenizer("qwen2.json")},
      {"tokenizers", "spm_bpe.model", "bytes", tokenizer("spm_bpe.model")},
      {"tokenizers", "spm_unigram.model", "bytes", tokenizer("spm_unigram.model")},
      {"model", "run.json", "json", resume},
      {"model", "config.json", "json", resume},
      {"model", "metrics.jsonl", "bytes", resume},
      {"model", "state/step-00000002/trainer.json", "json", resume},
      {"model", "state/step-00000002/optimizer.safetensors", "safetensors", resume},
      {"model", "state/step-00000002/model.safetensors", "safetensors", resume},
  };
}

Damaged damaged(const std::string& format, const std::string& good) {
  return format == "json"          ? damage_json(good)
         : format == "safetensors" ? damage_safetensors(good)
                                   : damage_bytes(good);
}

// Expressions of a tokenizer that go on without end, and other things only a hostile file has.
std::vector<Case> hostile_tokenizers() {
  std::vector<Case> all;
  const std::string
      head =
          R"({"version":"1.0","added_tokens":[],"normalizer":null,"pre_tokenizer":{"type":"Split","pattern":{"Regex":")",
      tail =
          R"("},"behavior":"Isolated","invert":false},"post_processor":null,"decoder":null,"model":{"type":"BPE","vocab":{"a":0,"b":1},"merges":[]}})";
  for (const char* pattern : {"(a+)+$", "(a|a)*[bc]", "(a*)*[bc]", "((?1))", "(a|(?1)(?1))[bc]", "(?R)",
                              "(?<x>a\\\\g<x>)b", "(?:(?=(a+))a*)*[bc]", "a{0,60000}a{0,60000}[bc]",
                              "(?:a{1,100}){1,100}[bc]", "(.*)(.*)(.*)(.*)[bc]", "["})
    all.push_back({.group = "file",
                   .name = std::string("tokenizer with ") + pattern,
                   .args = {"tokenize", "--model", "{dir}/t.json", "--file", "{dir}/text", "--count"},
                   .files = {{"t.json", head + pattern + tail}, {"text", std::string(20'000, 'a')}}});
  return all;
}

// Folders and files that are there and are something else.
std::vector<Case> wrong_kinds(const Fixtures& f) {
  std::vector<Case> all;
  const Words train{"train", "--task",      "parity", "--steps", "2",        "--batch",
                    "2",     "--eval-size", "2",      "--run",   "{dir}/run"};
  const auto add = [&](const std::string& name, const Words& args,
                       std::vector<std::pair<std::string, std::string>> files) {
    all.push_back({.group = "file", .name = name, .args = args, .files = std::move(files)});
  };
  add("a run folder that is a file", train, {{"run", "x"}});
  add("a long run folder", {"train", "--task", "parity", "--steps", "1", "--run", std::string(300, 'r')}, {});
  add("a demo folder that is a file", {"demo", "--steps", "1", "--run", "{dir}/run"}, {{"run", "x"}});
  add("a lab folder that is a file", {"lab", "run", "hqlt-table3", "--quick", "--dir", "{dir}/run"},
      {{"run", "x"}});
  add("a report of nothing", {"lab", "report", "--dir", "{dir}/run"}, {});
  Case named{.group = "file",
             .name = "state/step-",
             .args = {"train", "--run", "{dir}/m", "--resume", "--steps", "3", "--quiet"}};
  named.links = {{"m", f / "model"}, {"m/state/step-", f / "model/state/step-00000002"}};
  all.push_back(named);
  named.name = "state/step-9...9", named.links[1].first = "m/state/step-99999999999999999999999";
  all.push_back(named);
  return all;
}

}  // namespace

std::vector<Case> file_cases(const Fixtures& f) {
  std::vector<Case> all = hostile_tokenizers();
  for (Case& c : wrong_kinds(f)) all.push_back(std::move(c));
  const auto add = [&](const std::string& reader, const std::string& what, const Words& args, Case c) {
    c.group = "file", c.name = reader + ": " + what, c.args = args;
    all.push_back(std::move(c));
  };
  for (const Reader& r : readers(f))
    for (auto& [what, bytes] : damaged(r.format, slurp(f / (r.folder + "/" + r.file))))
      add(r.args[0] + " " + r.folder + "/" + r.file, what, r.args,
          {.files = {{"m/" + r.file, bytes}}, .links = {{"m", f / r.folder}}});
  const struct {
    std::string file, format;
    Words args;
  } single[] = {
      {"messages.json", "json", {"chat-template", "--model", f / "chat.jinja", "--messages", "{dir}/x"}},
      {"chat.jinja", "bytes", {"chat-template", "--model", "{dir}/x", "--messages", f / "messages.json"}},
      {"text",
       "bytes",
       {"tokenizer", "train", "--text", "{dir}/x", "--vocab", "300", "--out", "{dir}/t.json"}},
      {"text", "bytes", {"tokenize", "--model", f / "tokenizer.json", "--file", "{dir}/x", "--count"}},
      {"text",
       "bytes",
       {"eval", "--model", f / "model", "--text", "{dir}/x", "--context", "8", "--chunks", "2"}},
      {"text",
       "bytes",
       {"train", "--text", "{dir}/x", "--length", "8", "--steps", "1", "--batch", "2", "--eval-size", "2",
        "--run", "{dir}/r"}},
      {"state",
       "bytes",
       {"generate", "--model", f / "model", "--tokens", "1", "--max-tokens", "2", "--load-state", "{dir}/x"}},
      {"logits", "safetensors", {"op", "fast_weight", "--in", "{dir}/x", "--out", "{dir}/o"}},
  };
  for (const auto& s : single)
    for (auto& [what, bytes] : damaged(s.format, slurp(f / s.file)))
      add(s.args[0] + " " + s.file, what, s.args, {.files = {{"x.json", ""}, {"x", bytes}}});
  return all;
}

}  // namespace braid::walk
