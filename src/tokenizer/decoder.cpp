#include <cstdlib>

#include "tokenizer/pipeline.h"
#include "tokenizer/utf8.h"

namespace braid {
namespace {

int hex_digit(char c) {
  return c >= '0' && c <= '9'   ? c - '0'
         : c >= 'A' && c <= 'F' ? c - 'A' + 10
         : c >= 'a' && c <= 'f' ? c - 'a' + 10
                                : -1;
}

// <0xHH>
std::optional<char> byte_token(std::string_view name) {
  if (name.size() != 6 || !name.starts_with("<0x") || name[5] != '>') return std::nullopt;
  const int high = hex_digit(name[3]), low = hex_digit(name[4]);
  if (high < 0 || low < 0) return std::nullopt;
  return static_cast<char>(high * 16 + low);
}

std::string replaced(const DecodeStep& s, std::string_view text, const Regex::Scratch& scratch) {
  NormStep step{.kind = s.regex ? NormStep::kReplaceRegex : NormStep::kReplace};
  step.pattern = s.pattern;
  step.content = s.content;
  step.regex = s.regex;
  return normalize({step}, text, scratch);
}

std::string_view cut(const DecodeStep& s, std::string_view token) {
  for (size_t i = 0; i < s.start && token.starts_with(s.pattern); ++i) token.remove_prefix(s.pattern.size());
  for (size_t i = 0; i < s.stop && token.ends_with(s.pattern); ++i) token.remove_suffix(s.pattern.size());
  return token;
}

// Bytes that pieces gave, as SentencePiece reads them: each byte that is part of no character is one U+FFFD.
void move_bytes(std::string& pending, std::string& out, bool last) {
  size_t at = 0;
  while (at < pending.size()) {
    const Utf8Char c = read_utf8(pending, at);
    if (c.kind == Utf8Char::kCut && !last) break;
    const size_t n = c.kind == Utf8Char::kValid ? c.bytes : 1;
    c.kind == Utf8Char::kValid ? out.append(pending, at, n) : out.append(kReplacementChar);
    at += n;
  }
  pending.erase(0, at);
}

// What a token gives in the middle of a text.
std::string own_bytes(const Pipeline& p, const std::string& name, const Regex::Scratch& scratch) {
  std::string text = name;
  for (const DecodeStep& s : p.decoder) switch (s.kind) {
      case DecodeStep::kByteLevel:
        if (auto bytes = from_byte_level(text)) text = std::move(*bytes);
        break;
      case DecodeStep::kReplace:
      case DecodeStep::kReplaceRegex:
        text = replaced(s, text, scratch);
        break;
      case DecodeStep::kByteFallback:
        if (const auto b = byte_token(text)) return std::string(1, *b);
        break;
      case DecodeStep::kMetaspace:
      case DecodeStep::kSentencePiece:
        if (const auto b = byte_token(text); b && s.kind == DecodeStep::kSentencePiece)
          return std::string(1, *b);
        if (!s.pattern.empty())
          text =
              replaced({.kind = DecodeStep::kReplace, .pattern = s.pattern, .content = " "}, text, scratch);
        break;
      case DecodeStep::kSuffix:
        if (!s.pattern.empty() && text.ends_with(s.pattern))
          text.replace(text.size() - s.pattern.size(), s.pattern.size(), " ");
        break;
      case DecodeStep::kFuse:
      case DecodeStep::kStrip:
      case DecodeStep::kJoin:
        break;
    }
  return text;
}

}  // namespace

DecodeRun::DecodeRun(const Pipeline& p) : p_(p), states_(p.decoder.size()) {}

void DecodeRun::add(int32_t id, std::string& out) {
  if (p_.decoder.empty())
    out += p_.vocab.name(id);
  else if (p_.decoder[0].kind == DecodeStep::kByteLevel)
    push(0, p_.bytes[static_cast<size_t>(id)], out);
  else if (p_.decoder[0].kind == DecodeStep::kSentencePiece)
    add_piece(id, out);
  else
    push(0, p_.vocab.name(id), out);
}

void DecodeRun::finish(std::string& out) { end(0, out); }

// The only step of its decoder: it needs ids.
void DecodeRun::add_piece(int32_t id, std::string& out) {
  const DecodeStep& s = p_.decoder[0];
  State& state = states_[0];
  const std::string& bytes = p_.bytes[static_cast<size_t>(id)];
  const size_t before = out.size();
  if (byte_token(p_.vocab.name(id))) {
    state.pending += bytes;
    move_bytes(state.pending, out, false);
  } else {
    move_bytes(state.pending, out, true);
    if (out.size() > before) state.open = false;
    std::string_view text = bytes;
    const bool may_strip = (state.open && s.strip_one) || (s.after && last_id_ == *s.after);
    bool stripped = false;
    if (p_.unk == id && !s.content.empty())
      text = s.content;
    else if (may_strip && !p_.special[static_cast<size_t>(id)] && text.starts_with(' '))
      text.remove_prefix(1), stripped = true;
    out += text;
    if (stripped && !s.strip_all) state.open = false;
  }
  if (out.size() > before) state.open = false;
  last_id_ = id;
}

void DecodeRun::push(size_t i, std::string_view token, std::string& out) {
  if (i == p_.decoder.size()) {
    out += token;
    return;
  }
  const DecodeStep& s = p_.decoder[i];
  State& state = states_[i];
  switch (s.kind) {
    case DecodeStep::kByteLevel: {
      std::string ready;
      if (i == 0)  // bytes already
        state.pending += token;
      else
        state.pending += from_byte_level(token).value_or(std::string(token));
      move_valid_utf8(state.pending, ready, false);
      return push(i + 1, ready, out);
    }
    case DecodeStep::kReplace:
    case DecodeStep::kReplaceRegex:
      if (!s.fused) return push(i + 1, replaced(s, token, regex_), out);
      state.pending += token;  // a match may go over the edge of what is known so far
      return;
    case DecodeStep::kByteFallback:
      if (const auto b = byte_token(token); b && !s.fused) {
        state.pending += *b;
        return;
      }
      end_bytes(i, out);
      return push(i + 1, token, out);
    case DecodeStep::kFuse:
      return push(i + 1, token, out);
    case DecodeStep::kStrip: {
      if (!s.fused) return push(i + 1, cut(s, token), out);
      for (; state.open && state.count < s.start && !token.empty(); ++state.count) {
        state.open = token.starts_with(s.pattern);
        if (state.open) token.remove_prefix(s.pattern.size());
      }
      if (s.stop == 0) return push(i + 1, token, out);
      state.pending += token;  // the end is known at the end only
      size_t keep = 0;
      std::string_view rest = state.pending;
      while (keep < s.stop && rest.ends_with(s.pattern)) rest.remove_suffix(s.pattern.size()), ++keep;
      const std::string ready(rest);
      state.pending.erase(0, ready.size());
      return push(i + 1, ready, out);
    }
    case DecodeStep::kMetaspace: {
      std::string text;
      const bool first = s.fused || state.count++ == 0;
      for (size_t at = 0; at < token.size();) {
        if (!token.substr(at).starts_with(s.pattern)) {
          text += token[at++];
          continue;
        }
        if (!first || !s.drop_first) text += ' ';
        at += s.pattern.size();
      }
      return push(i + 1, text, out);
    }
    case DecodeStep::kSuffix:  // a blank, but nothing behind the last token
      if (state.count++ > 0)
        push(i + 1,
             replaced({.kind = DecodeStep::kReplace, .pattern = s.pattern, .content = " "}, state.pending,
                      regex_),
             out);
      state.pending = token;
      return;
    case DecodeStep::kJoin:
      if (state.count++ > 0) push(i + 1, " ", out);
      return push(i + 1, token, out);
    case DecodeStep::kSentencePiece:
      return;  // add_piece()
  }
}

// A run of byte tokens is text if all of it is; else each byte is one U+FFFD.
void DecodeRun::end_bytes(size_t i, std::string& out) {
  std::string& bytes = states_[i].pending;
  if (bytes.empty()) return;
  std::string scratch;
  if (valid_utf8(bytes, scratch).data() == bytes.data())
    push(i + 1, bytes, out);
  else
    for (size_t n = bytes.size(); n > 0; --n) push(i + 1, kReplacementChar, out);
  bytes.clear();
}

void DecodeRun::end(size_t i, std::string& out) {
  if (i == p_.decoder.size()) return;
  const DecodeStep& s = p_.decoder[i];
  State& state = states_[i];
  std::string ready;
  switch (s.kind) {
    case DecodeStep::kByteLevel:
      move_valid_utf8(state.pending, ready, true);
      break;
    case DecodeStep::kReplace:
    case DecodeStep::kReplaceRegex:
      if (s.fused) ready = replaced(s, state.pending, regex_);
      break;
    case DecodeStep::kByteFallback:
      end_bytes(i, out);
      break;
    case DecodeStep::kSuffix:
      ready = replaced({.kind = DecodeStep::kReplace, .pattern = s.pattern, .content = ""}, state.pending,
                       regex_);
      break;
    case DecodeStep::kSentencePiece:
      move_bytes(state.pending, out, true);
      break;
    default:
      break;
  }
  if (!ready.empty()) push(i + 1, ready, out);
  state = {};
  end(i + 1, out);
}

Status Pipeline::finish(const std::string& name) {
  if (vocab.size() == 0) return Error{name + ": the vocabulary is empty", "fetch the file again"};
  special.assign(static_cast<size_t>(vocab.size()), false);
  const Regex::Scratch scratch;
  for (uint32_t i = 0; i < added.size(); ++i) {
    const AddedToken& t = added[i];
    if (t.special) special[static_cast<size_t>(t.id)] = true;
    if (t.normalized)
      normalized.put(normalize(normalizer, t.content, scratch), i);
    else
      raw.put(t.content, i);
  }
  bool fused = false;
  for (DecodeStep& s : decoder) {
    s.fused = fused;
    fused |= s.kind == DecodeStep::kFuse || s.kind == DecodeStep::kByteLevel;
    if (s.fused && (s.kind == DecodeStep::kByteLevel || s.kind == DecodeStep::kSuffix))
      return Error{name + ": decoder: a ByteLevel or BPEDecoder behind a step that joins all tokens",
                   "put it first"};
  }
  bytes.resize(static_cast<size_t>(vocab.size()));
  for (int32_t id = 0; id < vocab.size(); ++id)
    if (vocab.has(id)) bytes[static_cast<size_t>(id)] = own_bytes(*this, vocab.name(id), scratch);
  if (const Status& s = scratch.status(); !s) return Error{name + ": " + s.error().what, s.error().fix};
  return {};
}

Status put_added(Pipeline& p, AddedToken token, const std::string& where) {
  if (token.id < 0 || token.id >= kMaxVocab)
    return Error{where + ": id " + std::to_string(token.id) + " is out of range",
                 "ids are 0 to " + std::to_string(kMaxVocab - 1)};
  const auto known = p.vocab.find(token.content);
  if (known ? *known != token.id : !p.vocab.put(token.content, token.id))
    return Error{where + ": the added token " + token.content + " with id " + std::to_string(token.id) +
                     (known ? " has the id " + std::to_string(*known) + " in the vocabulary"
                            : " takes the id of another token"),
                 "each token needs an id of its own"};
  const auto [at, fresh] = p.added_at.try_emplace(token.id, p.added.size());
  if (fresh)
    p.added.push_back(std::move(token));
  else
    p.added[at->second] = std::move(token);
  return {};
}

}  // namespace braid
