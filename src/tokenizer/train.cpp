#include "tokenizer/train.h"

#include <fmt/format.h>

#include <algorithm>
#include <queue>
#include <unordered_map>

#include "io/json.h"
#include "tokenizer/pipeline.h"
#include "tokenizer/utf8.h"

namespace braid {
namespace {

struct Word {
  std::vector<int32_t> symbols;
  int64_t count;
};

using Pair = uint64_t;  // left << 32 | right: compares as (left, right)
Pair pair_of(int32_t left, int32_t right) {
  return static_cast<uint64_t>(static_cast<uint32_t>(left)) << 32 | static_cast<uint32_t>(right);
}

struct Candidate {
  int64_t count;
  Pair pair;
  bool operator<(const Candidate& other) const {
    return count != other.count ? count < other.count : pair > other.pair;
  }
};

struct PairStats {
  int64_t count = 0;
  std::vector<uint32_t> words;  // that have it or had it
};

class Trainer {
 public:
  Trainer(std::vector<Word> words, std::vector<std::string> names)
      : words_(std::move(words)), names_(std::move(names)) {
    for (size_t i = 0; i < names_.size(); ++i) ids_.emplace(names_[i], static_cast<int32_t>(i));
    for (uint32_t w = 0; w < words_.size(); ++w) count_pairs(w, +1);
    for (const auto& [pair, s] : stats_) queue_.push({s.count, pair});
  }

  // The next merge, or false when no pair is frequent enough.
  bool step(int64_t min_count) {
    while (!queue_.empty()) {
      Candidate top = queue_.top();
      queue_.pop();
      const auto at = stats_.find(top.pair);
      if (at == stats_.end() || at->second.count < std::max<int64_t>(1, min_count)) continue;
      if (at->second.count != top.count) {  // it has become rarer since it was put there
        queue_.push({at->second.count, top.pair});
        continue;
      }
      merge(top.pair);
      return true;
    }
    return false;
  }

  size_t vocab() const { return names_.size(); }
  const std::vector<std::string>& names() const { return names_; }
  const std::vector<std::pair<int32_t, int32_t>>& merges() const { return merges_; }

 private:
  void count_pairs(uint32_t w, int sign) {
    const Word& word = words_[w];
    for (size_t i = 0; i + 1 < word.symbols.size(); ++i) {
      PairStats& s = stats_[pair_of(word.symbols[i], word.symbols[i + 1])];
      s.count += sign * word.count;
      if (sign > 0 && (s.words.empty() || s.words.back() != w)) s.words.push_back(w);
    }
  }

  void merge(Pair pair) {
    const auto left = static_cast<int32_t>(pair >> 32), right = static_cast<int32_t>(pair & UINT32_MAX);
    const std::string name = names_[static_cast<size_t>(left)] + names_[static_cast<size_t>(right)];
    const auto [at, fresh] = ids_.emplace(name, static_cast<int32_t>(names_.size()));
    if (fresh) names_.push_back(name);
    const int32_t id = at->second;
    merges_.emplace_back(left, right);
    const std::vector<uint32_t> where = std::move(stats_[pair].words);
    std::vector<Pair> changed;
    for (const uint32_t w : where) {
      std::vector<int32_t>& s = words_[w].symbols;
      bool found = false;
      for (size_t i = 0; i + 1 < s.size() && !found; ++i) found = s[i] == left && s[i + 1] == right;
      if (!found) continue;  // it was there once
      count_pairs(w, -1);
      size_t n = 0;
      for (size_t i = 0; i < s.size(); ++n) {
        const bool hit = i + 1 < s.size() && s[i] == left && s[i + 1] == right;
        s[n] = hit ? id : s[i];
        i += hit ? 2 : 1;
      }
      s.resize(n);
      count_pairs(w, +1);
      for (size_t i = 0; i + 1 < n; ++i)
        if (s[i] == id || s[i + 1] == id) changed.push_back(pair_of(s[i], s[i + 1]));
    }
    stats_.erase(pair);
    std::sort(changed.begin(), changed.end());
    changed.erase(std::unique(changed.begin(), changed.end()), changed.end());
    for (const Pair p : changed)
      if (const auto s = stats_.find(p); s != stats_.end()) queue_.push({s->second.count, p});
  }

  std::vector<Word> words_;
  std::vector<std::string> names_;
  std::unordered_map<std::string, int32_t> ids_;
  std::unordered_map<Pair, PairStats> stats_;
  std::priority_queue<Candidate> queue_;
  std::vector<std::pair<int32_t, int32_t>> merges_;
};

Json byte_level(bool use_regex) {
  return {
      {"type", "ByteLevel"}, {"add_prefix_space", false}, {"trim_offsets", true}, {"use_regex", use_regex}};
}

Json pre_tokenizer_json(const BpeTraining& o) {
  if (o.pattern.empty()) return byte_level(true);
  return {{"type", "Sequence"},
          {"pretokenizers", Json::array({Json{{"type", "Split"},
                                              {"pattern", Json{{"Regex", o.pattern}}},
                                              {"behavior", "Isolated"},
                                              {"invert", false}},
                                         byte_level(false)})}};
}

std::string to_json(std::span<const std::string> names,
                    std::span<const std::pair<int32_t, int32_t>> all_merges,
                    std::span<const std::string> special, const Json& pre_tokenizer) {
  Json j;
  j["version"] = "1.0";
  j["truncation"] = j["padding"] = nullptr;
  j["added_tokens"] = Json::array();
  for (size_t i = 0; i < special.size(); ++i)
    j["added_tokens"].push_back({{"id", i},
                                 {"content", special[i]},
                                 {"single_word", false},
                                 {"lstrip", false},
                                 {"rstrip", false},
                                 {"normalized", false},
                                 {"special", true}});
  j["normalizer"] = nullptr;
  j["pre_tokenizer"] = pre_tokenizer;
  j["post_processor"] = nullptr;
  j["decoder"] = byte_level(true);
  Json& model = j["model"];
  model["type"] = "BPE";
  for (const char* key : {"dropout", "unk_token", "continuing_subword_prefix", "end_of_word_suffix"})
    model[key] = nullptr;
  for (const char* key : {"fuse_unk", "byte_fallback", "ignore_merges"}) model[key] = false;
  // An ordered object looks through all its keys at each insertion, so the two long ones are written by hand.
  model["vocab"] = "@vocab";
  model["merges"] = "@merges";
  std::string text = j.dump(1);
  const auto quoted = [](const std::string& s) { return Json(s).dump(); };
  std::string vocab, merges;
  for (size_t i = 0; i < names.size(); ++i)
    vocab += fmt::format("{}\n   {}: {}", i ? "," : "", quoted(names[i]), i);
  for (const auto& [left, right] : all_merges)
    merges += fmt::format("{}\n   {}", merges.empty() ? "" : ",",
                          quoted(names[static_cast<size_t>(left)] + " " + names[static_cast<size_t>(right)]));
  const std::string_view vocab_mark = "\"@vocab\"", merges_mark = "\"@merges\"";
  text.replace(text.rfind(merges_mark), merges_mark.size(), merges.empty() ? "[]" : "[" + merges + "\n  ]");
  text.replace(text.rfind(vocab_mark), vocab_mark.size(), "{" + vocab + "\n  }");
  return text + "\n";
}

}  // namespace

Result<TrainedBpe> train_bpe(std::string_view text, const BpeTraining& o) {
  const int64_t least = 256 + static_cast<int64_t>(o.special.size());
  if (o.vocab < least || o.vocab > kMaxVocab)
    return Error{fmt::format("--vocab: is {}", o.vocab),
                 fmt::format("use {} (the bytes and the special tokens) to {}", least, kMaxVocab)};
  std::vector<std::string> names = o.special;
  std::vector<std::string> stand_ins(byte_level_chars().begin(), byte_level_chars().end());
  std::sort(stand_ins.begin(), stand_ins.end());
  names.insert(names.end(), stand_ins.begin(), stand_ins.end());
  std::unordered_map<std::string, int32_t> ids;
  for (size_t i = 0; i < names.size(); ++i) {
    std::string scratch;
    if (names[i].empty() || valid_utf8(names[i], scratch).data() != names[i].data() ||
        !ids.emplace(names[i], static_cast<int32_t>(i)).second)
      return Error{"--special: " + in_quotes(names[i]) + " is empty, not UTF-8, given twice or a single byte",
                   "give each special token once"};
  }
  const Result<SplitStep> split = isolate_step(o.pattern.empty() ? kGpt2Pattern : o.pattern);
  if (!split) return split.error();

  std::string scratch_text;
  std::unordered_map<std::string_view, int64_t> counts;
  TrainedBpe out;
  Scratch scratch;
  pre_tokenize({*split}, valid_utf8(text, scratch_text), true, scratch, [&](std::string_view piece) {
    ++counts[piece];
    ++out.words;
  });
  if (const Status& s = scratch.regex.status(); !s) return s.error();
  if (out.words == 0) return Error{"the text is empty", "give a text to learn from"};
  out.distinct_words = static_cast<int64_t>(counts.size());
  std::vector<std::pair<std::string_view, int64_t>> sorted(counts.begin(), counts.end());
  std::sort(sorted.begin(), sorted.end());  // so that nothing depends on the hash table's order
  std::vector<Word> words;
  for (const auto& [piece, count] : sorted) {
    Word& w = words.emplace_back(Word{{}, count});
    for (const char c : piece) w.symbols.push_back(ids.at(byte_level_chars()[static_cast<uint8_t>(c)]));
  }
  Trainer trainer(std::move(words), std::move(names));
  const auto target = static_cast<size_t>(o.vocab);
  const uint64_t all = target - trainer.vocab();
  while (trainer.vocab() < target && trainer.step(o.min_count))
    if (o.progress && !o.progress(trainer.merges().size(), all)) return Error{"interrupted", "run it again"};
  out.vocab = static_cast<int64_t>(trainer.vocab());
  out.json = to_json(trainer.names(), trainer.merges(), o.special, pre_tokenizer_json(o));
  return out;
}

std::string byte_tokenizer_json() { return to_json(byte_level_chars(), {}, {}, byte_level(false)); }

}  // namespace braid
