// vocab.json with merges.txt, and what tokenizer_config.json says.
#include <filesystem>

#include "io/file.h"
#include "tokenizer/json_fields.h"
#include "tokenizer/pipeline.h"

namespace braid {
namespace {

using nlohmann::json;

// What a family's code does that its files do not say.
struct FamilyRule {
  const char* class_name;  // in tokenizer_config.json, without "Fast"
  const char* pattern;
  bool nfc;
  const char* special;  // the token its class adds by itself
};
const FamilyRule kRules[] = {
    {"GPT2Tokenizer", kGpt2Pattern, false, "<|endoftext|>"},
    {"GPTNeoXTokenizer", kGpt2Pattern, true, "<|endoftext|>"},
    {"Qwen2Tokenizer", kQwen2Pattern, true, "<|endoftext|>"},
    {"Qwen3_5Tokenizer", kQwen35Pattern, true, "<|endoftext|>"},
};

// "text" or {"content": "text", ...}
std::optional<std::string> token_text(const json& config, const char* key) {
  const auto at = config.find(key);
  if (at == config.end()) return std::nullopt;
  if (at->is_string()) return at->get<std::string>();
  if (at->is_object() && at->contains("content") && (*at)["content"].is_string())
    return (*at)["content"].get<std::string>();
  return std::nullopt;
}

Result<json> load_config(const std::string& path) {
  Result<json> config = load_sorted_json(path);
  if (config && !config->is_object())
    return Error{path + ": not an object", "correct the file or fetch it again"};
  return config;
}

Status read_merge_lines(std::string_view text, const std::string& name, const Vocab& vocab,
                        BpeSettings& bpe) {
  std::vector<std::string> results;
  uint32_t rank = 0;
  size_t line_number = 0;
  for (size_t at = 0; at < text.size();) {
    const size_t end = std::min(text.find('\n', at), text.size());
    std::string_view line = text.substr(at, end - at);
    at = end + 1;
    ++line_number;
    if (line.ends_with('\r')) line.remove_suffix(1);
    if (line.starts_with("#version")) continue;
    const std::string where = fmt::format("{}: line {}", name, line_number);
    const size_t blank = line.find(' ');
    if (blank == line.npos || line.find(' ', blank + 1) != line.npos)
      return Error{where + " is " + in_quotes(line), "expected two tokens with a blank between"};
    if (Status s = put_merge(bpe, vocab, std::string(line.substr(0, blank)),
                             std::string(line.substr(blank + 1)), rank++, where, results);
        !s)
      return s;
  }
  return {};
}

}  // namespace

Status apply_config(Pipeline& p, const std::string& path) {
  const Result<json> config = load_config(path);
  if (!config) return config.error();
  if (const auto list = config->find("added_tokens_decoder"); list != config->end() && !list->is_null()) {
    if (!list->is_object())
      return Error{path + ": added_tokens_decoder is not an object", "fetch the file again"};
    for (const auto& [key, value] : list->items()) {
      const std::string where = path + ": added_tokens_decoder[" + in_quotes(key) + "]";
      if (key.empty() || key.size() > 7 || key.find_first_not_of("0123456789") != key.npos)
        return Error{where + ": the key is not an id", fmt::format("ids are 0 to {}", kMaxVocab - 1)};
      JsonFields f(value, where);
      AddedToken t = added_token(f);
      t.id = std::stoi(key);
      if (Status s = f.done(); !s) return s;
      if (const auto known = p.added_at.find(t.id);  // the tokenizer's own file knows better
          known != p.added_at.end() && p.added[known->second].content == t.content)
        continue;
      if (Status s = put_added(p, std::move(t), where); !s) return s;
    }
  }
  for (const auto& [key, id] :
       {std::pair{"bos_token", &p.bos}, {"eos_token", &p.eos}, {"pad_token", &p.pad}, {"unk_token", &p.unk}})
    if (const auto text = token_text(*config, key)) {
      *id = p.vocab.find(*text);
      if (!*id)
        return Error{fmt::format("{}: {} is {}, which is not in the vocabulary", path, key, in_quotes(*text)),
                     "list it with its id in added_tokens_decoder"};
    }
  return {};
}

Result<std::unique_ptr<Pipeline>> pipeline_from_vocab(const std::string& folder) {
  const auto path = [&](const char* name) { return (std::filesystem::path(folder) / name).string(); };
  const std::string config_path = path("tokenizer_config.json");
  json config = json::object();
  std::error_code ignored;
  const bool has_config = std::filesystem::exists(config_path, ignored);
  if (has_config) {
    Result<json> read = load_config(config_path);
    if (!read) return read.error();
    config = std::move(*read);
  }
  JsonFields f(config, config_path + ": ");
  std::string class_name =
      f.text("tokenizer_class", "GPT2Tokenizer");  // without a config: GPT-2's, which invented the files
  if (class_name.ends_with("Fast")) class_name.resize(class_name.size() - 4);
  const FamilyRule* rule = nullptr;
  std::string known;
  for (const FamilyRule& r : kRules) {
    if (class_name == r.class_name) rule = &r;
    known += (known.empty() ? "" : ", ") + std::string(r.class_name);
  }
  if (!rule)
    return Error{
        fmt::format("{}: tokenizer_class is {}: its rules are not known", config_path, in_quotes(class_name)),
        "use a folder with tokenizer.json, or one of " + known};

  auto p = std::make_unique<Pipeline>();
  Result<json> vocab = load_sorted_json(path("vocab.json"), DuplicateKeys::kRefuse);
  if (!vocab) return vocab.error();
  const Result<std::string> merges = read_text(path("merges.txt"));
  if (!merges) return merges.error();
  const json wrapped = {{"vocab", std::move(*vocab)}};
  JsonFields v(wrapped, path("vocab.json") + ": ");
  if (Status s = read_vocab(v, p->vocab); !s) return s.error();
  BpeSettings bpe;
  bpe.byte_level = true;
  if (Status s = read_merge_lines(*merges, path("merges.txt"), p->vocab, bpe); !s) return s.error();
  p->kind = "byte-level BPE";
  p->model = make_bpe(p->vocab, std::move(bpe));
  if (rule->nfc) p->normalizer.push_back({.kind = NormStep::kForm, .form = NormalForm::kC});
  if (f.flag("add_prefix_space", false)) p->pre_tokenizer.push_back({.kind = SplitStep::kPrefixSpace});
  p->pre_tokenizer.push_back(*isolate_step(rule->pattern));
  p->decoder.push_back({.kind = DecodeStep::kByteLevel});
  if (const auto id = p->vocab.find(rule->special)) {
    if (Status s = put_added(*p, {.content = rule->special, .id = *id, .special = true}, path("vocab.json"));
        !s)
      return s.error();
    p->eos = *id;
    if (!has_config && class_name == "GPT2Tokenizer") p->bos = *id;
  }
  for (const auto& [flag, key, list] :
       {std::tuple{"add_bos_token", "bos_token", &p->before}, {"add_eos_token", "eos_token", &p->after}}) {
    if (!f.flag(flag, false)) continue;
    const auto text = token_text(config, key);
    const auto id = text ? p->vocab.find(*text) : std::nullopt;
    if (!id)
      f.refuse(key, std::string("a token of the vocabulary, since ") + flag + " is true");
    else
      list->push_back(*id);
  }
  if (const auto problem = f.problem()) return *problem;
  return p;
}

}  // namespace braid
