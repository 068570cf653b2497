// tokenizer.json.
#include <array>

#include "tokenizer/json_fields.h"
#include "tokenizer/pipeline.h"
#include "tokenizer/utf8.h"

namespace braid {
namespace {

using nlohmann::json;

// Components nest in a Sequence: `read(element, where)` is called for each of its elements.
template <class F>
Status each_element(JsonFields& f, const char* key, const F& read) {
  const json* list = f.find(key);
  if (!list || !list->is_array()) return f.refuse(key, "a list"), f.done();
  for (size_t i = 0; i < list->size(); ++i)
    if (Status s = read((*list)[i], fmt::format("{}[{}]", f.where(key), i)); !s) return s;
  return f.done();
}

// {"String": s} or {"Regex": r}
struct Pattern {
  std::string text;
  bool regex = false;
};
Pattern read_pattern(JsonFields& f) {
  const json* p = f.find("pattern");
  const bool ok = p && p->is_object() && p->size() == 1 && (p->contains("String") || p->contains("Regex")) &&
                  p->begin()->is_string() && !p->begin()->get_ref<const std::string&>().empty();
  if (!ok) return f.refuse("pattern", R"({"String": "..."} or {"Regex": "..."}, not empty)"), Pattern{" "};
  return {p->begin()->get<std::string>(), p->contains("Regex")};
}

Status read_regex(const Pattern& pattern, const std::string& where, std::optional<Regex>& out) {
  if (!pattern.regex) return {};
  const Result<Regex> regex = Regex::compile(pattern.text);
  if (!regex) return Error{where + ": " + regex.error().what, regex.error().fix};
  out = *regex;
  return {};
}

Status read_normalizer(const json& j, const std::string& where, std::vector<NormStep>& steps) {
  JsonFields f(j, where);
  const std::string type = f.needed_text("type");
  const auto form = [&](NormalForm n) {
    NormStep s{.kind = NormStep::kForm, .form = n};
    return steps.push_back(std::move(s)), f.done();
  };
  if (type == "NFC") return form(NormalForm::kC);
  if (type == "NFD") return form(NormalForm::kD);
  if (type == "NFKC") return form(NormalForm::kKC);
  if (type == "NFKD") return form(NormalForm::kKD);
  if (type == "Sequence")
    return each_element(f, "normalizers",
                        [&](const json& e, const std::string& at) { return read_normalizer(e, at, steps); });
  NormStep s{};
  if (type == "Lowercase") {
    s.kind = NormStep::kLowercase;
  } else if (type == "StripAccents") {
    s.kind = NormStep::kStripAccents;
  } else if (type == "ByteLevel") {
    s.kind = NormStep::kByteLevel;
  } else if (type == "Strip") {
    s.kind = NormStep::kStrip;
    s.left = f.flag("strip_left", true);
    s.right = f.flag("strip_right", true);
  } else if (type == "Prepend") {
    s.kind = NormStep::kPrepend;
    s.content = f.needed_text("prepend");
  } else if (type == "Replace") {
    const Pattern p = read_pattern(f);
    s.kind = p.regex ? NormStep::kReplaceRegex : NormStep::kReplace;
    s.pattern = p.text;
    s.content = f.needed_text("content");
    f.keep(read_regex(p, f.where("pattern"), s.regex));
  } else {
    f.refuse("type",
             "NFC, NFD, NFKC, NFKD, Lowercase, StripAccents, Strip, Prepend, Replace, ByteLevel or Sequence");
  }
  steps.push_back(std::move(s));
  return f.done();
}

Behavior read_behavior(JsonFields& f, const std::string& otherwise) {
  constexpr std::array kNames{"Removed", "Isolated", "MergedWithPrevious", "MergedWithNext", "Contiguous"};
  const std::string name = f.text("behavior", otherwise);
  for (size_t i = 0; i < kNames.size(); ++i)
    if (name == kNames[i]) return static_cast<Behavior>(i);
  return f.refuse("behavior", "Removed, Isolated, MergedWithPrevious, MergedWithNext or Contiguous"),
         Behavior::kRemoved;
}

// prepend_scheme, or add_prefix_space in older files.
SplitStep::Prepend read_prepend(JsonFields& f) {
  const bool add = f.flag("add_prefix_space", true);
  const std::string scheme = f.text("prepend_scheme", add ? "always" : "never");
  if (scheme != "always" && scheme != "first" && scheme != "never")
    f.refuse("prepend_scheme", "always, first or never");
  return scheme == "always" ? SplitStep::kAlways : scheme == "first" ? SplitStep::kFirst : SplitStep::kNever;
}

std::string read_replacement(JsonFields& f) {
  std::string c = f.text("replacement", std::string(kSpaceSymbol));
  if (f.find("str_rep") && f.text("str_rep", "") != c)
    f.refuse("str_rep", "the same as replacement");  // older files
  if (c.empty() || utf8_length(c[0]) != c.size()) f.refuse("replacement", "one character"), c = kSpaceSymbol;
  return c;
}

Status read_pre_tokenizer(const json& j, const std::string& where, std::vector<SplitStep>& steps) {
  JsonFields f(j, where);
  const std::string type = f.needed_text("type");
  if (type == "Sequence")
    return each_element(f, "pretokenizers", [&](const json& e, const std::string& at) {
      return read_pre_tokenizer(e, at, steps);
    });
  SplitStep s{};
  if (type == "ByteLevel") {
    if (f.flag("add_prefix_space", true)) steps.push_back({.kind = SplitStep::kPrefixSpace});
    f.flag("trim_offsets", true);  // offsets are not kept
    if (f.flag("use_regex", true)) steps.push_back(*isolate_step(kGpt2Pattern));
    s.kind = SplitStep::kByteLevel;
  } else if (type == "Split") {
    const Pattern p = read_pattern(f);
    s.behavior = read_behavior(f, "");
    s.invert = f.flag("invert", false);
    s.kind = p.regex ? SplitStep::kRegex : SplitStep::kLiteral;
    s.pattern = p.text;
    if (p.regex && s.behavior == Behavior::kIsolated && known_scanner(p.text)) {
      s.kind = SplitStep::kScan;
      s.scan = known_scanner(p.text);
    } else {
      f.keep(read_regex(p, f.where("pattern"), s.regex));
    }
  } else if (type == "Digits") {
    s.kind = SplitStep::kDigits;
    s.behavior = f.flag("individual_digits", false) ? Behavior::kIsolated : Behavior::kContiguous;
  } else if (type == "Punctuation") {
    s.kind = SplitStep::kPunctuation;
    s.behavior = read_behavior(f, "Isolated");
  } else if (type == "Whitespace") {
    s.kind = SplitStep::kWords;
    s.behavior = Behavior::kRemoved;
    s.invert = true;
  } else if (type == "WhitespaceSplit") {
    s.kind = SplitStep::kSpaces;
    s.behavior = Behavior::kRemoved;
  } else if (type == "BertPreTokenizer") {
    steps.push_back({.kind = SplitStep::kSpaces, .behavior = Behavior::kRemoved});
    s.kind = SplitStep::kPunctuation;
  } else if (type == "CharDelimiterSplit") {
    s.kind = SplitStep::kLiteral;
    s.behavior = Behavior::kRemoved;
    s.pattern = f.needed_text("delimiter");
    if (s.pattern.empty()) f.refuse("delimiter", "one character");
  } else if (type == "Metaspace") {
    s.kind = SplitStep::kMetaspace;
    s.behavior = Behavior::kMergedWithNext;
    s.pattern = read_replacement(f);
    s.prepend = read_prepend(f);
    s.split = f.flag("split", true);
  } else {
    f.refuse("type",
             "ByteLevel, Split, Digits, Punctuation, Whitespace, WhitespaceSplit, BertPreTokenizer, "
             "CharDelimiterSplit, "
             "Metaspace or Sequence");
  }
  steps.push_back(std::move(s));
  return f.done();
}

Status read_decoder(const json& j, const std::string& where, std::vector<DecodeStep>& steps) {
  JsonFields f(j, where);
  const std::string type = f.needed_text("type");
  if (type == "Sequence")
    return each_element(f, "decoders",
                        [&](const json& e, const std::string& at) { return read_decoder(e, at, steps); });
  DecodeStep s{};
  if (type == "ByteLevel") {
    s.kind = DecodeStep::kByteLevel;
    for (const char* key : {"add_prefix_space", "trim_offsets", "use_regex"})
      f.flag(key, true);  // not for decoding
  } else if (type == "Replace") {
    const Pattern p = read_pattern(f);
    s.kind = p.regex ? DecodeStep::kReplaceRegex : DecodeStep::kReplace;
    s.pattern = p.text;
    s.content = f.needed_text("content");
    f.keep(read_regex(p, f.where("pattern"), s.regex));
  } else if (type == "ByteFallback") {
    s.kind = DecodeStep::kByteFallback;
  } else if (type == "Fuse") {
    s.kind = DecodeStep::kFuse;
  } else if (type == "Strip") {
    s.kind = DecodeStep::kStrip;
    s.pattern = f.needed_text("content");
    if (s.pattern.empty() || utf8_length(s.pattern[0]) != s.pattern.size())
      f.refuse("content", "one character");
    const int64_t start = f.integer("start", 0), stop = f.integer("stop", 0);
    if (start < 0) f.refuse("start", "a count");
    if (stop < 0) f.refuse("stop", "a count");
    s.start = static_cast<size_t>(start);
    s.stop = static_cast<size_t>(stop);
  } else if (type == "Metaspace") {
    s.kind = DecodeStep::kMetaspace;
    s.pattern = read_replacement(f);
    s.drop_first = read_prepend(f) != SplitStep::kNever;
    f.flag("split", true);  // not for decoding
  } else if (type == "BPEDecoder") {
    s.kind = DecodeStep::kSuffix;
    s.pattern = f.text("suffix", "</w>");
    if (s.pattern.empty()) f.refuse("suffix", "a string that is not empty");
  } else {
    f.refuse("type", "ByteLevel, Replace, ByteFallback, Fuse, Strip, Metaspace, BPEDecoder or Sequence");
  }
  steps.push_back(std::move(s));
  return f.done();
}

// Special tokens around one text. What concerns pairs of texts is not used.
Status read_post_processor(const json& j, const std::string& where, Pipeline& p) {
  JsonFields f(j, where);
  const std::string type = f.needed_text("type");
  if (type == "Sequence")
    return each_element(f, "processors",
                        [&](const json& e, const std::string& at) { return read_post_processor(e, at, p); });
  std::vector<int32_t> before, after;
  if (type == "ByteLevel") {
    for (const char* key : {"add_prefix_space", "trim_offsets", "use_regex"})
      f.flag(key, true);  // for offsets only
  } else if (type == "BertProcessing" || type == "RobertaProcessing") {
    for (const char* key : {"add_prefix_space", "trim_offsets"}) f.flag(key, true);  // for offsets only
    const auto token = [&](const char* key, std::vector<int32_t>& out) {
      const json* t = f.find(key);
      if (!t || !t->is_array() || t->size() != 2 || !(*t)[0].is_string() || !(*t)[1].is_number_integer() ||
          !p.vocab.has(static_cast<int32_t>((*t)[1].get<int64_t>())))
        return f.refuse(key, R"(["token", id])");
      out.push_back(static_cast<int32_t>((*t)[1].get<int64_t>()));
    };
    token("cls", before);
    token("sep", after);
  } else if (type == "TemplateProcessing") {
    f.find("pair");
    const json* tokens = f.find("special_tokens");
    bool text_seen = false;
    const auto ids_of = [&](const std::string& id) {
      std::vector<int32_t> ids;
      const auto fail = [&] {
        return f.refuse("special_tokens", "an entry with known ids for " + in_quotes(id)), ids;
      };
      if (!tokens || !tokens->is_object() || !tokens->contains(id) || !(*tokens)[id].is_object())
        return fail();
      const auto list = (*tokens)[id].find("ids");
      if (list == (*tokens)[id].end() || !list->is_array()) return fail();
      for (const json& v : *list) {
        if (!v.is_number_integer() || v.get<int64_t>() < 0 || v.get<int64_t>() >= kMaxVocab ||
            !p.vocab.has(static_cast<int32_t>(v.get<int64_t>())))
          return fail();
        ids.push_back(static_cast<int32_t>(v.get<int64_t>()));
      }
      return ids;
    };
    const json* single = f.find("single");
    if (!single || !single->is_array()) return f.refuse("single", "a list"), f.done();
    for (const json& item : *single) {
      const bool one = item.is_object() && item.size() == 1 && item.begin()->is_object() &&
                       item.begin()->contains("id") && (*item.begin())["id"].is_string();
      if (one && item.contains("SpecialToken")) {
        const std::vector<int32_t> ids = ids_of((*item.begin())["id"].get<std::string>());
        std::vector<int32_t>& out = text_seen ? after : before;
        out.insert(out.end(), ids.begin(), ids.end());
      } else if (one && item.contains("Sequence") && !text_seen) {
        text_seen = true;
      } else {
        f.refuse("single", "special tokens around one Sequence");
      }
    }
    if (!text_seen) f.refuse("single", "special tokens around one Sequence");
  } else {
    f.refuse("type", "TemplateProcessing, ByteLevel, BertProcessing, RobertaProcessing or Sequence");
  }
  p.before.insert(p.before.begin(), before.begin(), before.end());
  p.after.insert(p.after.end(), after.begin(), after.end());
  return f.done();
}

// Merges as "a b" or ["a", "b"].
Status read_merges(JsonFields& f, const Vocab& vocab, BpeSettings& bpe, std::vector<std::string>& results) {
  const json* list = f.find("merges");
  if (!list || !list->is_array()) return f.refuse("merges", "a list"), f.done();
  bpe.merges = MergeTable(list->size());
  for (size_t i = 0; i < list->size(); ++i) {
    const json& m = (*list)[i];
    std::string left, right;
    const std::string where = fmt::format("{}[{}]", f.where("merges"), i);
    if (m.is_string()) {
      const std::string& both = m.get_ref<const std::string&>();
      const size_t blank = both.find(' ');
      if (blank == both.npos || both.find(' ', blank + 1) != both.npos)
        return Error{where + " is " + in_quotes(both), "expected two tokens with a blank between"};
      left = both.substr(0, blank);
      right = both.substr(blank + 1);
    } else if (m.is_array() && m.size() == 2 && m[0].is_string() && m[1].is_string()) {
      left = m[0].get<std::string>();
      right = m[1].get<std::string>();
    } else {
      return Error{where + " is neither \"a b\" nor [\"a\", \"b\"]", "correct the file or fetch it again"};
    }
    if (Status s = put_merge(bpe, vocab, left, right, static_cast<uint32_t>(i), where, results); !s) return s;
  }
  return {};
}

Status read_model(const json& j, const std::string& where, bool byte_level, Pipeline& p) {
  JsonFields f(j, where);
  const std::string type = f.text("type", "BPE");
  if (type != "BPE") return f.refuse("type", "BPE"), f.done();
  BpeSettings bpe;
  bpe.byte_level = byte_level;
  if (Status s = read_vocab(f, p.vocab); !s) return s;
  bpe.prefix = f.text("continuing_subword_prefix", "");
  bpe.suffix = f.text("end_of_word_suffix", "");
  std::vector<std::string> results;
  if (Status s = read_merges(f, p.vocab, bpe, results); !s) return s;
  bpe.byte_fallback = f.flag("byte_fallback", false);
  bpe.fuse_unk = f.flag("fuse_unk", false);
  bpe.ignore_merges = f.flag("ignore_merges", false);
  if (const json* dropout = f.find("dropout");
      dropout && !(dropout->is_number() && dropout->get<double>() == 0))
    f.refuse("dropout", "null: ids would be random");
  if (f.find("unk_token")) {
    bpe.unk = p.vocab.find(f.text("unk_token", ""));
    if (!bpe.unk) f.refuse("unk_token", "a token of the vocabulary");
    p.unk = bpe.unk;
  }
  if (!byte_level && !bpe.ignore_merges && bpe.prefix.empty() && bpe.suffix.empty() &&
      p.vocab.find(kSpaceSymbol) && independent_words(results, kSpaceSymbol))
    bpe.space = kSpaceSymbol;
  p.kind = byte_level ? "byte-level BPE" : bpe.byte_fallback ? "BPE with byte fallback" : "BPE";
  if (Status s = f.done(); !s) return s;
  p.model = make_bpe(p.vocab, std::move(bpe));
  return {};
}

Status read_added(const json& list, const std::string& name, Pipeline& p) {
  if (!list.is_array())
    return Error{name + ": added_tokens is not a list", "correct the file or fetch it again"};
  for (size_t i = 0; i < list.size(); ++i) {
    const std::string where = fmt::format("{}: added_tokens[{}]", name, i);
    JsonFields f(list[i], where);
    AddedToken t = added_token(f);
    t.id = static_cast<int32_t>(std::clamp<int64_t>(f.integer("id", -1), -1, kMaxVocab));
    if (Status s = f.done(); !s) return s;
    if (Status s = put_added(p, std::move(t), where); !s) return s;
  }
  return {};
}

}  // namespace

Status read_vocab(JsonFields& f, Vocab& vocab) {
  const json* names = f.find("vocab");
  if (!names || !names->is_object()) return f.refuse("vocab", "an object of names and ids"), f.done();
  if (names->empty()) return f.refuse("vocab", "at least one token"), f.done();
  for (const auto& [name, id] : names->items()) {
    const std::string where = f.where("vocab") + "[" + in_quotes(name) + "]";
    if (!id.is_number_unsigned() || id.get<uint64_t>() >= uint64_t{kMaxVocab})
      return Error{where + " is " + id.dump(-1, ' ', false, json::error_handler_t::replace).substr(0, 60),
                   fmt::format("expected an id from 0 to {}", kMaxVocab - 1)};
    if (!vocab.put(name, static_cast<int32_t>(id.get<uint64_t>())))
      return Error{fmt::format("{}: another token has the id {}", where, id.get<uint64_t>()),
                   "each token needs an id of its own"};
  }
  return {};
}

Status put_merge(BpeSettings& bpe, const Vocab& vocab, const std::string& left, const std::string& right,
                 uint32_t rank, const std::string& where, std::vector<std::string>& results) {
  const auto a = vocab.find(left), b = vocab.find(right);
  if (!a || !b)
    return Error{where + ": " + in_quotes(a ? right : left) + " is not in the vocabulary",
                 "vocabulary and merges must belong together"};
  const bool prefixed = !bpe.prefix.empty() && right.starts_with(bpe.prefix);
  const std::string name = left + (prefixed ? right.substr(bpe.prefix.size()) : right);
  const auto result = vocab.find(name);
  if (!result)
    return Error{where + ": " + in_quotes(name) + " is not in the vocabulary",
                 "vocabulary and merges must belong together"};
  bpe.merges.put(*a, *b, {rank, *result});
  results.push_back(name);
  return {};
}

Result<std::unique_ptr<Pipeline>> pipeline_from_json(std::string_view text, const std::string& name) {
  const Result<json> parsed = parse_json(text, name, DuplicateKeys::kRefuse);
  if (!parsed) return parsed.error();
  auto p = std::make_unique<Pipeline>();
  JsonFields f(*parsed, name + ": ");
  // truncation and padding are a caller's choice, as transformers has it.
  for (const char* key : {"version", "truncation", "padding"}) f.find(key);
  if (const json* j = f.find("normalizer"))
    if (Status s = read_normalizer(*j, f.where("normalizer"), p->normalizer); !s) return s.error();
  if (const json* j = f.find("pre_tokenizer"))
    if (Status s = read_pre_tokenizer(*j, f.where("pre_tokenizer"), p->pre_tokenizer); !s) return s.error();
  // Where the stand-ins for bytes come last the model works on the bytes themselves.
  const bool byte_level = !p->pre_tokenizer.empty() && p->pre_tokenizer.back().kind == SplitStep::kByteLevel;
  if (byte_level) p->pre_tokenizer.pop_back();
  const json* model = f.find("model");
  if (!model) return Error{name + ": model is missing", "expected the text of a tokenizer.json"};
  if (Status s = read_model(*model, f.where("model"), byte_level, *p); !s) return s.error();
  if (const json* j = f.find("added_tokens"))
    if (Status s = read_added(*j, name, *p); !s) return s.error();
  if (const json* j = f.find("post_processor"))
    if (Status s = read_post_processor(*j, f.where("post_processor"), *p); !s) return s.error();
  if (const json* j = f.find("decoder")) {
    if (Status s = read_decoder(*j, f.where("decoder"), p->decoder); !s) return s.error();
  } else {
    p->decoder.push_back({.kind = DecodeStep::kJoin});
  }
  if (Status s = f.done(); !s) return s.error();
  return p;
}

}  // namespace braid
