#include "data/token_source.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <map>

#include "io/hash.h"

namespace braid {
namespace {

namespace fs = std::filesystem;

std::string base_name(const std::string& path) {
  const fs::path p = fs::path(path).lexically_normal();
  return (p.has_filename() ? p.filename() : p.parent_path().filename()).string();
}

Error too_short(const std::string& path, uint64_t tokens, uint64_t needed) {
  return {fmt::format("{}: {} tokens are too few; {} are needed", path, tokens, needed),
          "use shorter sequences (--length) or more text"};
}

void hash_set(Hash& hash, const ShardIndex& index) {
  hash.number(index.vocab_size).text(index.tokenizer_hash);
  for (const Shard& s : index.shards) hash.number(s.tokens).text(s.ids_hash).text(s.ends_hash);
}

}  // namespace

Result<std::unique_ptr<TokenSource>> TokenSource::open(const Mixture& mixture, const TokenSourceOptions& o) {
  if (o.length == 0) return Error{"--length is 0", "give a number of at least 1"};
  std::unique_ptr<TokenSource> source(new TokenSource);
  source->options_ = o, source->mixture_ = mixture;
  source->held_length_ = o.validation_length ? o.validation_length : o.length;
  const uint64_t window = o.length + 1, held_window = source->held_length_ + 1;
  Hash hash;
  hash.text("token folders 1").number(window).number(held_window).number(o.seed).number(o.reset_at_documents);
  std::map<std::string, std::shared_ptr<const ShardData>> opened;
  const auto open_set = [&](const std::string& path) -> Result<std::shared_ptr<const ShardData>> {
    if (const auto at = opened.find(path); at != opened.end()) return at->second;
    Result<ShardData> data = ShardData::open(path);
    if (!data) return data.error();
    auto shared = std::make_shared<const ShardData>(*std::move(data));
    if (!opened.empty()) {
      const ShardIndex& first = opened.begin()->second->index();
      if (first.tokenizer_hash != shared->index().tokenizer_hash)
        return Error{fmt::format("{}: was made with another tokenizer than {}", path, first.dir),
                     "tokenize all sets with one tokenizer"};
    }
    hash_set(hash, shared->index());
    return opened.emplace(path, shared).first->second;
  };

  for (const WeightedSet& set : mixture.sets) {
    const Result<std::shared_ptr<const ShardData>> data = open_set(set.path);
    if (!data) return data.error();
    uint64_t tokens = (*data)->tokens();
    const uint64_t needed = o.validation.empty() ? window + held_window : window;
    if (tokens < needed) return too_short(set.path, tokens, needed);
    if (o.validation.empty()) {
      const auto share = static_cast<uint64_t>(static_cast<double>(tokens) * o.validation_share);
      tokens -= std::clamp(share, held_window, tokens - window);
      source->held_.push_back({.name = base_name(set.path), .data = *data, .first = tokens});
    }
    // Another seed for each, so that two sets do not take turns in step.
    source->sets_.push_back({.data = *data, .windows = {tokens, window, o.seed + source->sets_.size()}});
    hash.number(tokens);
  }
  for (const NamedSet& set : o.validation) {
    const Result<std::shared_ptr<const ShardData>> data = open_set(set.path);
    if (!data) return data.error();
    if ((*data)->tokens() < held_window) return too_short(set.path, (*data)->tokens(), held_window);
    source->held_.push_back({.name = set.name.empty() ? base_name(set.path) : set.name, .data = *data});
  }
  std::vector<std::string> names;
  for (HeldOut& held : source->held_) {
    held.windows = std::min<uint64_t>(o.validation_limit, (held.data->tokens() - held.first) / held_window);
    if (std::ranges::count(names, held.name))
      return Error{fmt::format("two held-out sets have the name '{}'", held.name),
                   "give names: --eval-data NAME=FOLDER"};
    names.push_back(held.name);
    hash.text(held.name).number(held.windows);
  }
  for (const uint32_t set : mixture.order) {
    hash.number(set);
    for (size_t s = 0; s < source->sets_.size(); ++s)
      source->sets_[s].place.push_back(static_cast<uint32_t>(source->sets_[s].in_period));
    ++source->sets_[set].in_period;
  }
  const ShardIndex& first = source->sets_[0].data->index();
  const Result<Tokenizer> tokenizer =
      load_tokens(first.tokenizer == kByteTokens ? std::string(kByteTokens) : first.dir);
  if (!tokenizer) return tokenizer.error();
  if (tokens_hash(*tokenizer) != first.tokenizer_hash)
    return Error{first.dir + ": its tokenizer is not the one the ids were made with",
                 "tokenize the text again"};
  for (int32_t id = 0; id < tokenizer->vocab_size(); ++id)
    source->token_bytes_.push_back(tokenizer->has(id) && !tokenizer->is_special(id)
                                       ? static_cast<uint32_t>(tokenizer->token_bytes(id).size())
                                       : 0);
  source->fingerprint_ = hash.hex();
  return source;
}

uint64_t TokenSource::train_tokens() const {
  uint64_t all = 0;
  for (const TrainSet& set : sets_) all += set.windows.tokens();
  return all;
}

size_t TokenSource::validation_size() const {
  size_t all = 0;
  for (const HeldOut& held : held_) all += held.windows;
  return all;
}

std::vector<ValidationPart> TokenSource::validation_parts() const {
  std::vector<ValidationPart> parts;
  size_t at = 0;
  for (const HeldOut& held : held_) {
    parts.push_back({held.name, at, at + held.windows});
    at += held.windows;
  }
  return parts;
}

size_t TokenSource::vocab_size() const { return sets_[0].data->index().vocab_size; }

std::string TokenSource::describe() const {
  const ShardIndex& index = sets_[0].data->index();
  const std::string what = sets_.size() == 1 ? index.dir : fmt::format("{} sets of tokens", sets_.size());
  std::string held;
  for (const HeldOut& h : held_) held += fmt::format("{}{} {}", held.empty() ? "" : ", ", h.windows, h.name);
  return fmt::format(
      "{}: {} tokens to train on, a vocabulary of {}, {:.2f} bytes per token; held-out sequences: {}", what,
      train_tokens(), vocab_size(),
      static_cast<double>(index.text_bytes()) / static_cast<double>(index.tokens()), held);
}

Status TokenSource::save_companions(const std::string& dir) const {
  const ShardIndex& index = sets_[0].data->index();
  return index.tokenizer == kByteTokens ? Status() : Tokenizer::copy_files(index.dir, dir);
}

uint64_t TokenSource::text_bytes(std::span<const int32_t> tokens) const {
  uint64_t all = 0;
  for (const int32_t t : tokens)
    if (t >= 0 && static_cast<size_t>(t) < token_bytes_.size()) all += token_bytes_[static_cast<size_t>(t)];
  return all;
}

void TokenSource::append_train(Batch& out, uint64_t sample) const {
  const uint64_t period = mixture_.order.size();
  const TrainSet& set = sets_[mixture_.order[sample % period]];
  // Which of its own samples this is.
  const uint64_t own = sample / period * set.in_period + set.place[sample % period];
  append_window(out, *set.data, set.windows.first_token(own), options_.length);
}

void TokenSource::append_validation(Batch& out, size_t sample) const {
  for (const HeldOut& held : held_) {
    if (sample < held.windows)
      return append_window(out, *held.data, held.first + sample * (held_length_ + 1), held_length_);
    sample -= held.windows;
  }
}

void TokenSource::append_window(Batch& out, const ShardData& data, uint64_t first, uint64_t length) const {
  std::vector<int32_t> ids(length + 1);
  data.copy(first, ids);
  for (uint64_t at = 0; at < length;) {
    // What follows a document's last token is not to be predicted from it.
    const uint64_t own =
        options_.reset_at_documents ? data.rest_of_document(first + at, length + 1 - at) : length + 1 - at;
    const bool goes_on = at + own > length;  // to the last id, which is a target only
    const uint64_t inputs = goes_on ? length - at : own;
    for (uint64_t i = at; i < at + inputs; ++i) {
      out.tokens.push_back(ids[i]);
      out.targets.push_back(goes_on || i + 1 < at + own ? ids[i + 1] : kUnsupervised);
    }
    out.close();
    at += inputs;
  }
}

}  // namespace braid
