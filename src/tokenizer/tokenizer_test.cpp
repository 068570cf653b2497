// Expected ids and texts in tests/data/tokenizer come from the packages `tokenizers` and `sentencepiece`
// (tools/make_tokenizer_fixtures.py).
#include "tokenizer/tokenizer.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <sstream>
#include <thread>

#include "base/rng.h"
#include "io/json.h"
#include "support/test_dir.h"
#include "tokenizer/train.h"
#include "tokenizer/utf8.h"

namespace braid {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

const std::string kData = BRAID_SOURCE "/tests/data/tokenizer/";

std::string text_of(const std::string& path) {
  std::ostringstream s;
  s << std::ifstream(path, std::ios::binary).rdbuf();
  return s.str();
}

struct Case {
  std::string text, decoded, full;
  std::vector<int32_t> ids, plain;
};

std::vector<Case> cases_of(const std::string& path) {
  std::vector<Case> cases;
  std::ifstream in(path);
  for (std::string line; std::getline(in, line);) {
    const json j = *parse_json(line, path);
    Case c;
    c.text = j["text"];
    if (j.contains("bytes")) {
      c.text.clear();
      for (size_t i = 0; i < j["bytes"].get<std::string>().size(); i += 2)
        c.text.push_back(
            static_cast<char>(std::stoi(j["bytes"].get<std::string>().substr(i, 2), nullptr, 16)));
    }
    if (j.contains("ids")) c.ids = j["ids"].get<std::vector<int32_t>>();
    c.plain = j.contains("plain") ? j["plain"].get<std::vector<int32_t>>() : c.ids;
    if (!j.contains("ids")) c.ids = c.plain;
    c.decoded = j.contains("decoded") ? j["decoded"].get<std::string>() : j["text"].get<std::string>();
    c.full = j.contains("full") ? j["full"].get<std::string>() : c.decoded;
    cases.push_back(std::move(c));
  }
  return cases;
}

bool is_valid(std::string_view text) {
  std::string scratch;
  return valid_utf8(text, scratch).data() == text.data();
}

std::string streamed(const Tokenizer& t, const std::vector<int32_t>& ids, const DecodeOptions& options = {}) {
  StreamDecoder stream(t, options);
  std::string all;
  for (const int32_t id : ids) {
    const std::string part = stream.add(id);
    EXPECT_TRUE(is_valid(part));
    all += part;
  }
  const std::string rest = stream.finish();
  EXPECT_TRUE(is_valid(rest));
  return all + rest;
}

// The number of cases that are not met; the first is printed if they all should be.
int misses(const Tokenizer& t, const std::vector<Case>& cases, bool sentencepiece, bool print) {
  int count = 0;
  for (const Case& c : cases) {
    std::string why;
    const EncodeOptions all{.add_special = !sentencepiece, .parse_special = !sentencepiece};
    if (*t.encode(c.text, all) != c.ids) why += " ids";
    if (*t.encode(c.text, {.add_special = false, .parse_special = !sentencepiece}) != c.plain)
      why += " plain";
    if (*t.decode(c.ids) != c.decoded) why += " decoded";
    if (!sentencepiece && *t.decode(c.ids, {.skip_special = false}) != c.full) why += " full";
    if (streamed(t, c.ids) != c.decoded) why += " streamed";
    if (why.empty()) continue;
    if (++count <= 3 && print)
      ADD_FAILURE() << in_quotes(c.text) << ":" << why << "\n ids " << json(c.ids) << "\n got "
                    << json(*t.encode(c.text, all)) << "\n decoded " << in_quotes(c.decoded) << "\n got "
                    << in_quotes(*t.decode(c.ids));
  }
  return count;
}

Tokenizer load(const std::string& name) {
  Result<Tokenizer> t = Tokenizer::load(kData + name);
  if (!t) ADD_FAILURE() << t.error().what << "\n" << t.error().fix;
  return *t;
}

TEST(Tokenizer, DoesWhatThePackagesDo) {
  int files = 0, cases = 0;
  for (const auto& f : fs::directory_iterator(kData)) {
    if (f.path().extension() != ".cases" || f.path().stem() == "broken") continue;
    const std::string stem = f.path().stem();
    SCOPED_TRACE(stem);
    const bool sentencepiece = stem.starts_with("spm");
    const std::vector<Case> all = cases_of(f.path());
    EXPECT_EQ(misses(load(stem + (sentencepiece ? ".model" : ".json")), all, sentencepiece, true), 0);
    ++files;
    cases += static_cast<int>(all.size());
  }
  EXPECT_GE(files, 26);
  EXPECT_GE(cases, 1900);
}

// The blank of "first" belongs to a text that begins as it was given.
TEST(Tokenizer, NoBlankWhereTheNormalizerTookTheStart) {
  const auto encode = [](const std::string& normalizer, const char* text) {
    const Result<Tokenizer> t =
        Tokenizer::parse(R"({"version": "1.0", "normalizer": )" + normalizer +
                         R"(, "pre_tokenizer": {"type": "Metaspace", "replacement": "▁",
      "prepend_scheme": "first", "split": true}, "model": {"type": "BPE", "unk_token": "<unk>",
      "vocab": {"<unk>": 0, "▁": 1, "a": 2, "▁a": 3}, "merges": [["▁", "a"]]}})");
    EXPECT_TRUE(t) << (t ? "" : t.error().what);
    return t ? *t->encode(text) : std::vector<int32_t>();
  };
  using Ids = std::vector<int32_t>;
  const std::string strip = R"({"type": "Strip", "strip_left": true, "strip_right": false})";
  EXPECT_EQ(encode(strip, " a"), Ids{2});
  EXPECT_EQ(encode(strip, "a"), Ids{3});
  EXPECT_EQ(encode(R"({"type": "StripAccents"})", "\u0301a"), Ids{2});
  EXPECT_EQ(encode(R"({"type": "Replace", "pattern": {"String": "b"}, "content": ""})", "ba"), Ids{2});
  EXPECT_EQ(encode(R"({"type": "Replace", "pattern": {"String": "b"}, "content": "a"})", "b"), Ids{3});
  EXPECT_EQ(encode("null", " a"), Ids{3});
}

TEST(Tokenizer, ReadsBrokenUtf8AsPythonDoes) {
  const std::vector<Case> cases = cases_of(kData + "broken.cases");
  EXPECT_GE(cases.size(), 20u);
  EXPECT_EQ(misses(load("qwen2.json"), cases, false, true), 0);
}

// A tokenizer.json that differs in one place must fail somewhere.
TEST(Tokenizer, MutantsAreCaught) {
  const auto mutant = [](const std::string& name, auto&& change) {
    json j = *parse_json(text_of(kData + name + ".json"), name);
    change(j);
    const Result<Tokenizer> t = Tokenizer::parse(j.dump(), name);
    if (!t) return ADD_FAILURE() << t.error().what, 0;
    return misses(*t, cases_of(kData + name + ".cases"), false, false);
  };
  EXPECT_EQ(mutant("gpt2", [](json&) {}), 0);
  EXPECT_GT(
      mutant("gpt2", [](json& j) { std::reverse(j["model"]["merges"].begin(), j["model"]["merges"].end()); }),
      50);
  EXPECT_GT(mutant("gpt2", [](json& j) { j["model"]["merges"].erase(3); }), 0);
  EXPECT_GT(mutant("gpt2", [](json& j) { j["pre_tokenizer"]["add_prefix_space"] = true; }), 50);
  EXPECT_GT(mutant("gpt2", [](json& j) { j["pre_tokenizer"]["use_regex"] = false; }), 5);
  EXPECT_GT(mutant("qwen2", [](json& j) { j["normalizer"] = nullptr; }), 0);
  EXPECT_GT(mutant("qwen2", [](json& j) { j["added_tokens"].erase(j["added_tokens"].size() - 1); }), 0);
  for (const char* flag : {"lstrip", "rstrip"})
    EXPECT_GT(mutant("qwen2", [&](json& j) { j["added_tokens"].back()[flag] = false; }), 0) << flag;
  EXPECT_GT(mutant("qwen2",
                   [](json& j) {
                     for (json& t : j["added_tokens"]) t["single_word"] = false;
                   }),
            0);
  EXPECT_GT(mutant("cl100k", [](json& j) { j["post_processor"] = nullptr; }), 50);
  EXPECT_GT(mutant("llama", [](json& j) { j["model"]["byte_fallback"] = false; }), 0);
  EXPECT_GT(mutant("llama", [](json& j) { j["normalizer"]["normalizers"].erase(0); }), 5);
  EXPECT_GT(mutant("llama", [](json& j) { j["decoder"]["decoders"].erase(3); }), 5);
  EXPECT_GT(mutant("metaspace", [](json& j) { j["pre_tokenizer"]["prepend_scheme"] = "always"; }), 0);
  EXPECT_GT(mutant("metaspace", [](json& j) { j["model"]["fuse_unk"] = false; }), 0);
  for (const char* name :
       {"first_strip", "first_accents", "first_replace", "first_replace_two", "first_prepend"}) {
    EXPECT_EQ(mutant(name, [](json&) {}), 0) << name;
    EXPECT_GT(mutant(name, [](json& j) { j["pre_tokenizer"]["prepend_scheme"] = "always"; }), 0) << name;
    EXPECT_GT(mutant(name, [](json& j) { j["normalizer"] = nullptr; }), 0) << name;
  }
  EXPECT_GT(
      mutant("word_class", [](json& j) { j["pre_tokenizer"]["pattern"]["Regex"] = R"([\w]+|[^\w\s]+)"; }), 0);
  EXPECT_GT(mutant("split_contiguous", [](json& j) { j["pre_tokenizer"]["behavior"] = "Isolated"; }), 0);
  EXPECT_GT(mutant("split_removed", [](json& j) { j["pre_tokenizer"]["invert"] = true; }), 0);
  EXPECT_GT(mutant("pieces", [](json& j) { j["decoder"] = json{{"type", "Fuse"}}; }), 5);
}

TEST(Tokenizer, SpecialTokensInATextArePlainTextIfAsked) {
  const Tokenizer t = load("qwen2.json");
  const int32_t id = *t.id("<|endoftext|>");
  EXPECT_TRUE(t.is_special(id));
  EXPECT_EQ(*t.encode("<|endoftext|>"), std::vector{id});
  const std::vector<int32_t> plain = *t.encode("<|endoftext|>", {.parse_special = false});
  EXPECT_GT(plain.size(), 1u);
  EXPECT_EQ(*t.decode(plain), "<|endoftext|>");
  EXPECT_EQ(*t.decode(std::vector{id}), "");
  EXPECT_EQ(*t.decode(std::vector{id}, {.skip_special = false}), "<|endoftext|>");
}

TEST(Tokenizer, TokensHaveNamesAndBytes) {
  const Tokenizer t = load("gpt2.json");
  const int32_t blank = *t.id("\xC4\xA0");  // U+0120 stands for a blank
  EXPECT_EQ(t.name(blank), "\xC4\xA0");
  EXPECT_EQ(t.token_bytes(blank), " ");
  EXPECT_EQ(t.special_ids(), (std::vector<int32_t>{0, 1}));
  EXPECT_FALSE(t.has(t.vocab_size()));
  EXPECT_FALSE(t.has(-1));
  EXPECT_EQ(*t.decode(std::vector<int32_t>{-1, t.vocab_size(), blank, 1 << 30}), " ");
  const Tokenizer llama = load("llama.json");
  EXPECT_EQ(llama.token_bytes(*llama.id("<0xE2>")), "\xE2");
  EXPECT_EQ(llama.token_bytes(*llama.id("\xE2\x96\x81")), " ");
}

TEST(Tokenizer, BytesAreTokens) {
  const Tokenizer t = Tokenizer::bytes();
  EXPECT_EQ(t.vocab_size(), 256);
  EXPECT_EQ(*t.encode("a\xFF\n"), (std::vector<int32_t>{97, 255, 10}));
  EXPECT_EQ(*t.decode(*t.encode("naïve 🙂")), "naïve 🙂");
  EXPECT_EQ(*t.decode(std::vector<int32_t>{0xE2, 0x96}), "\xEF\xBF\xBD");
}

// Random ids: half characters, special tokens, byte tokens in any order.
TEST(Tokenizer, StreamsAreWholeCharactersAndGiveTheSameText) {
  for (const char* name : {"gpt2.json", "qwen2.json", "llama.json", "metaspace.json", "words.json",
                           "pieces.json", "spm_bpe.model", "spm_unigram.model", "llama2c.bin"}) {
    const Tokenizer t = load(name);
    Rng rng(7, "test");
    for (int round = 0; round < 300; ++round) {
      std::vector<int32_t> ids(1 + rng.below(12));
      for (int32_t& id : ids) id = static_cast<int32_t>(rng.below(static_cast<uint64_t>(t.vocab_size()) + 3));
      for (const bool skip : {false, true})
        EXPECT_EQ(streamed(t, ids, {.skip_special = skip}), *t.decode(ids, {.skip_special = skip})) << name;
    }
  }
}

TEST(Tokenizer, AStreamGivesACharacterAsSoonAsItIsWhole) {
  const Tokenizer t = Tokenizer::bytes();
  StreamDecoder s(t);
  EXPECT_EQ(s.add(0xC3), "");
  EXPECT_EQ(s.add(0xA9), "é");
  EXPECT_EQ(s.add(0xF0), "");
  EXPECT_EQ(s.finish(), "\xEF\xBF\xBD");
  EXPECT_EQ(s.add('x'), "x");  // a new text
}

TEST(Tokenizer, ThreadsShareOne) {
  const Tokenizer t = load("qwen2.json");
  const std::vector<Case> cases = cases_of(kData + "qwen2.cases");
  std::vector<std::thread> threads;
  std::vector<int> wrong(4);
  for (size_t i = 0; i < wrong.size(); ++i)
    threads.emplace_back([&, i] {
      for (const Case& c : cases) wrong[i] += *t.encode(c.text) != c.ids;
    });
  for (std::thread& th : threads) th.join();
  EXPECT_EQ(wrong, std::vector<int>(4));
}

// Quadratic time would take hours.
TEST(Tokenizer, OneWordOfMegabytes) {
  for (const char* name : {"gpt2.json", "llama.json", "spm_bpe.model", "llama2c.bin"}) {
    const Tokenizer t = load(name);
    std::string word;
    for (size_t i = 0; word.size() < 2'000'000; ++i) word += "abethe"[i * i % 7 % 6];
    const std::vector<int32_t> ids = *t.encode(word, {.add_special = false});
    EXPECT_GT(ids.size(), 100'000u);
    EXPECT_EQ(*t.decode(ids), word) << name;
  }
}

TEST(Tokenizer, MarksWithoutEndAreNormalisedInLinearTime) {
  std::string text = "a";
  for (int i = 0; i < 300'000; ++i) text += i % 2 ? "\xCC\x81" : "\xCC\xA7";  // classes 230 and 202
  EXPECT_GT(load("qwen2.json").encode(text)->size(), 100u);
}

// vocab.json and merges.txt of the same tokenizer.
TEST(Tokenizer, VocabAndMergesFollowTheFamily) {
  const fs::path dir = fs::temp_directory_path() / fmt::format("braid-tokenizer-test-{}", getpid());
  const auto put = [&](const char* name, const std::string& text) { std::ofstream(dir / name) << text; };
  for (const std::string name : {"gpt2", "qwen2"}) {
    fs::create_directories(dir);
    const json j = *parse_json(text_of(kData + name + ".json"), name);
    put("vocab.json", j["model"]["vocab"].dump());
    std::string merges = "#version: 0.2\n";
    for (const json& m : j["model"]["merges"])
      merges += m.is_string() ? m.get<std::string>() + "\n"
                              : m[0].get<std::string>() + " " + m[1].get<std::string>() + "\n";
    put("merges.txt", merges);
    json config{{"tokenizer_class", name == "gpt2" ? "GPT2TokenizerFast" : "Qwen2Tokenizer"},
                {"eos_token", "<|im_start|>"}};
    for (json t : j["added_tokens"]) {
      const std::string id = std::to_string(t["id"].get<int>());
      t.erase("id");
      config["added_tokens_decoder"][id] = t;
    }
    put("tokenizer_config.json", config.dump());
    const Result<Tokenizer> t = Tokenizer::load(dir);
    ASSERT_TRUE(t) << t.error().what;
    EXPECT_EQ(misses(*t, cases_of(kData + name + ".cases"), false, true), 0);
    EXPECT_EQ(t->eos(), t->id("<|im_start|>"));
    config["tokenizer_class"] = name == "gpt2" ? "Qwen2Tokenizer" : "GPT2Tokenizer";
    put("tokenizer_config.json", config.dump());
    EXPECT_GT(misses(*Tokenizer::load(dir), cases_of(kData + name + ".cases"), false, false), 5);
    put("merges.txt", merges + "nobody knows\n");
    EXPECT_FALSE(Tokenizer::load(dir));
    put("tokenizer_config.json", R"({"tokenizer_class": "BertTokenizer"})");
    EXPECT_NE(Tokenizer::load(dir).error().what.find("BertTokenizer"), std::string::npos);
    fs::remove_all(dir);
  }
}

// llama2.c's own way, the plain form of it: the best pair of all, again and again.
std::vector<int32_t> llama2c_reference(const std::vector<std::pair<std::string, float>>& vocab,
                                       const std::string& text) {
  const auto find = [&](const std::string& s) {
    for (size_t i = 0; i < vocab.size(); ++i)
      if (vocab[i].first == s) return static_cast<int32_t>(i);
    return -1;
  };
  std::vector<int32_t> ids{1};
  if (text.empty()) return ids;
  ids.push_back(find(" "));
  for (size_t at = 0; at < text.size();) {
    const std::string c = text.substr(at, utf8_length(text[at]));
    at += c.size();
    if (const int32_t id = find(c); id >= 0)
      ids.push_back(id);
    else
      for (const char b : c) ids.push_back(static_cast<uint8_t>(b) + 3);
  }
  for (;;) {
    float best = -1e10F;
    size_t where = 0;
    int32_t id = -1;
    for (size_t i = 0; i + 1 < ids.size(); ++i) {
      const int32_t m =
          find(vocab[static_cast<size_t>(ids[i])].first + vocab[static_cast<size_t>(ids[i + 1])].first);
      if (m >= 0 && vocab[static_cast<size_t>(m)].second > best)
        best = vocab[static_cast<size_t>(m)].second, where = i, id = m;
    }
    if (id < 0) return ids;
    ids[where] = id;
    ids.erase(ids.begin() + static_cast<ptrdiff_t>(where) + 1);
  }
}

TEST(Tokenizer, Llama2cEncodesAsItsProgramDoes) {
  const std::string bin = text_of(kData + "llama2c.bin");
  std::vector<std::pair<std::string, float>> vocab;
  for (size_t at = 4; at < bin.size();) {
    float score;
    int32_t size;
    std::memcpy(&score, &bin[at], 4);
    std::memcpy(&size, &bin[at + 4], 4);
    vocab.emplace_back(bin.substr(at + 8, static_cast<size_t>(size)), score);
    at += 8 + static_cast<size_t>(size);
  }
  const Tokenizer t = load("llama2c.bin");
  int tried = 0;
  for (const Case& c : cases_of(kData + "spm_bpe.cases")) {
    if (c.text.size() > 120) continue;
    ++tried;
    const std::vector<int32_t> ids = *t.encode(c.text);
    EXPECT_EQ(ids, llama2c_reference(vocab, c.text)) << in_quotes(c.text);
    EXPECT_EQ(*t.decode(ids), c.text);
  }
  EXPECT_GT(tried, 30);
  EXPECT_EQ(t.bos(), 1);
}

TEST(Tokenizer, WrongFilesAreErrorsThatSayWhy) {
  const json good = *parse_json(text_of(kData + "qwen2.json"), "qwen2");
  const auto error = [&](auto&& change) {
    json j = good;
    change(j);
    const Result<Tokenizer> t = Tokenizer::parse(j.dump(), "x.json");
    return t ? std::string("no error") : t.error().what + " | " + t.error().fix;
  };
  const auto has = [](const std::string& text, const char* part) {
    EXPECT_NE(text.find(part), std::string::npos) << text;
  };
  EXPECT_EQ(error([](json&) {}), "no error");
  has(error([](json& j) { j["model"]["type"] = "Unigram"; }), "model.type is \"Unigram\" | expected BPE");
  has(error([](json& j) { j["model"]["dropout"] = 0.1; }), "dropout");
  has(error([](json& j) { j["model"]["vocab"] = json::object(); }), "at least one token");
  has(error([](json& j) { j["model"]["vocab"]["zz"] = 5; }), "another token has the id 5");
  has(error([](json& j) { j["model"]["vocab"]["zz"] = -5; }), "expected an id");
  has(error([](json& j) { j["model"]["vocab"]["zz"] = 1'000'000'000; }), "expected an id");
  has(error([](json& j) { j["model"]["vocab"]["zz"] = "5"; }), "expected an id");
  has(error([](json& j) { j["model"]["merges"].push_back("nobody knows"); }),
      "\"nobody\" is not in the vocabulary");
  has(error([](json& j) { j["model"]["merges"].push_back("three of them"); }), "two tokens");
  has(error([](json& j) { j["model"]["merges"].push_back(7); }), "merges[");
  has(error([](json& j) { j["model"]["new_setting"] = true; }), "new_setting");
  has(error([](json& j) { j["model"]["unk_token"] = "nobody"; }), "unk_token");
  has(error([](json& j) {
        j["normalizer"] = json{{"type", "Precompiled"}};
      }),
      "normalizer.type is \"Precompiled\"");
  has(error([](json& j) { j["pre_tokenizer"]["pretokenizers"][0]["behavior"] = "Somehow"; }),
      "pretokenizers[0].behavior");
  has(error([](json& j) { j["pre_tokenizer"]["pretokenizers"][0]["pattern"]["Regex"] = "("; }),
      "regular expression \"(\"");
  has(error([](json& j) { j["decoder"] = json{{"type", "WordPiece"}}; }), "decoder.type");
  has(error([](json& j) {
        j["post_processor"] = json{{"type", "TemplateProcessing"}, {"single", json::array()}};
      }),
      "single");
  has(error([](json& j) { j["added_tokens"][0]["id"] = 7; }), "added token");
  has(error([](json& j) { j["added_tokens"][0]["id"] = -1; }), "out of range");
  has(error([](json& j) { j["surprise"] = 1; }), "surprise");
  has(error([](json& j) { j.erase("model"); }), "model is missing");

  const std::string text = text_of(kData + "qwen2.json");
  for (size_t n = 0; n < text.size(); n += 97) EXPECT_FALSE(Tokenizer::parse(text.substr(0, n)));
  EXPECT_FALSE(Tokenizer::parse("[1]"));
  EXPECT_FALSE(Tokenizer::parse(std::string(1000, '[')));
  EXPECT_FALSE(Tokenizer::load("/nowhere/at/all"));
  EXPECT_FALSE(Tokenizer::load(BRAID_SOURCE "/src"));
}

TEST(Tokenizer, CutBinaryFilesAreErrors) {
  const fs::path dir = fs::temp_directory_path() / fmt::format("braid-tokenizer-cut-{}", getpid());
  fs::create_directories(dir);
  for (const std::string name : {"spm_bpe.model", "llama2c.bin"}) {
    const std::string whole = text_of(kData + name);
    for (size_t n = 0; n < whole.size(); n += 1 + whole.size() / 23) {
      std::ofstream(dir / name, std::ios::binary) << whole.substr(0, n);
      const Result<Tokenizer> t = Tokenizer::load(dir / name);
      // A cut may lie between two tokens and leave a smaller whole.
      EXPECT_TRUE(!t || t->vocab_size() < load(name).vocab_size());
    }
  }
  fs::remove_all(dir);
}

// An expression without end is an error of encode(), or of loading where the decoder has it.
TEST(Tokenizer, AnExpressionWithoutEndIsAnError) {
  json j = *parse_json(text_of(kData + "qwen2.json"), "qwen2");
  json split = j;
  split["pre_tokenizer"]["pretokenizers"][0]["pattern"]["Regex"] = "(\\S+)+\\s";
  const Result<Tokenizer> t = Tokenizer::parse(split.dump());
  ASSERT_TRUE(t) << t.error().what;
  const Result<std::vector<int32_t>> ids = t->encode(std::string(2000, 'a'));
  ASSERT_FALSE(ids);
  EXPECT_NE(ids.error().what.find("regular expression"), std::string::npos) << ids.error().what;
  EXPECT_TRUE(t->encode("a b"));  // the failure is not kept
  json decoder = j;
  decoder["decoder"] = {{"type", "Replace"}, {"pattern", {{"Regex", "(.+)+[\\n\\r]"}}}, {"content", ""}};
  decoder["added_tokens"].push_back({{"id", 151999},
                                     {"content", std::string(200, 'q')},
                                     {"single_word", false},
                                     {"lstrip", false},
                                     {"rstrip", false},
                                     {"normalized", false},
                                     {"special", false}});
  EXPECT_FALSE(Tokenizer::parse(decoder.dump()));
}

// For other engines: the ids of all UTF-8 text are its bytes.
TEST(Tokenizer, TheFileOfBytesHasTheIdsOfBytes) {
  const Result<Tokenizer> file = Tokenizer::parse(byte_tokenizer_json());
  ASSERT_TRUE(file) << file.error().what;
  const Tokenizer bytes = Tokenizer::bytes();
  EXPECT_EQ(file->vocab_size(), 256);
  const std::string text = "  Grüße, 東京!\n\t don't 12 345\x01\x7f 🙂";
  EXPECT_EQ(*file->encode(text), *bytes.encode(text));
  EXPECT_EQ(*file->decode(*file->encode(text)), text);
  for (int32_t id = 0; id < 256; ++id)
    EXPECT_EQ(file->token_bytes(id), std::string(1, static_cast<char>(id))) << id;
}

}  // namespace
}  // namespace braid
