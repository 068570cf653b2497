// Documents, folders of tokens, mixtures, and training data from them.
#include <gtest/gtest.h>

#include <unistd.h>
#include <zlib.h>

#include <filesystem>
#include <fstream>
#include <map>
#include <numeric>

#include "base/rng.h"
#include "data/token_source.h"
#include "data/tokenize_files.h"
#include "io/file.h"
#include "tokenizer/train.h"

namespace braid {
namespace {

namespace fs = std::filesystem;

class Tokens : public testing::Test {
 protected:
  void SetUp() override {
    dir_ = fs::temp_directory_path() / ("braid-tokens-" + std::to_string(getpid()));
    fs::remove_all(dir_);
    fs::create_directories(dir_);
  }
  void TearDown() override { fs::remove_all(dir_); }

  std::string path(const std::string& name) const { return dir_ / name; }
  std::string write(const std::string& name, const std::string& text) const {
    std::ofstream(path(name), std::ios::binary) << text;
    return path(name);
  }
  std::string write_gz(const std::string& name, const std::string& text) const {
    gzFile file = gzopen(path(name).c_str(), "wb");
    gzwrite(file, text.data(), static_cast<unsigned>(text.size()));
    gzclose(file);
    return path(name);
  }
  // A folder of bytes with these documents.
  std::string shards(const std::string& name, const std::vector<std::string>& documents,
                     uint64_t shard_tokens = 50) {
    std::string lines;
    for (const std::string& d : documents) lines += "{\"text\": \"" + d + "\"}\n";
    const Result<ShardIndex> index = tokenize_files({.files = {write(name + ".jsonl", lines)},
                                                     .tokenizer = kByteTokens,
                                                     .out = path(name),
                                                     .documents = {},
                                                     .end = {},
                                                     .shard_tokens = shard_tokens},
                                                    Par());
    EXPECT_TRUE(index) << index.error().what;
    return path(name);
  }
  fs::path dir_;
};

std::vector<DocumentPart> read_all(DocumentReader& reader) {
  std::vector<DocumentPart> parts;
  for (;;) {
    Result<std::optional<DocumentPart>> part = reader.next();
    EXPECT_TRUE(part) << part.error().what;
    if (!part || !*part) return parts;
    parts.push_back(**std::move(part));
  }
}

std::vector<std::string> texts(const std::vector<DocumentPart>& parts) {
  std::vector<std::string> out;
  for (const DocumentPart& p : parts) out.push_back(p.raw + (p.ends ? "|" : ""));
  return out;
}

std::string text_of(const ShardData& data) {
  std::vector<int32_t> ids(data.tokens());
  data.copy(0, ids);
  return {ids.begin(), ids.end()};
}

std::string random_words(size_t count, uint64_t seed) {
  Rng rng(seed, "words");
  std::string text;
  for (size_t i = 0; i < count; ++i) {
    for (uint64_t n = 1 + rng.below(7); n > 0; --n) text += static_cast<char>('a' + rng.below(6));
    text += rng.below(9) ? " " : rng.below(3) ? ".\n" : "\n\n";
  }
  return text;
}

TEST_F(Tokens, ASeparatorCutsTextWithoutTheLineEndsAroundIt) {
  const std::string file = write("a.txt", "one\n<s>\ntwo<s>three\n\n<s>\n");
  DocumentReader reader = *DocumentReader::open({file}, {.separator = "<s>"});
  EXPECT_EQ(texts(read_all(reader)), (std::vector<std::string>{"one|", "two|", "three\n|"}));
  DocumentReader whole = *DocumentReader::open({file}, {});
  EXPECT_EQ(read_all(whole).size(), 1u);
}

TEST_F(Tokens, APartBeginsTheSameWhereverReadingBegan) {
  std::string text = random_words(400, 1) + "<s>" + random_words(30, 2) + "\n<s>\n" + std::string(3000, 'x') +
                     "<s>" + std::string(9000, 'y') + random_words(50, 3);
  for (const std::string& file : {write("a.txt", text), write_gz("b.txt.gz", text)}) {
    DocumentReader reader = *DocumentReader::open({file, file}, {.separator = "<s>"}, {}, 100);
    std::vector<DocumentPlace> places{reader.place()};
    std::vector<std::string> parts;
    std::string joined;
    while (const auto part = *reader.next()) {
      parts.push_back(part->raw + (part->ends ? "|" : ""));
      places.push_back(reader.place());
    }
    EXPECT_GT(parts.size(), 20u);
    for (size_t i = 0; i < places.size(); ++i) {
      DocumentReader later = *DocumentReader::open({file, file}, {.separator = "<s>"}, places[i], 100);
      EXPECT_EQ(texts(read_all(later)),
                std::vector<std::string>(parts.begin() + static_cast<long>(i), parts.end()));
    }
  }
}

TEST_F(Tokens, LinesOfJsonNameTheirPlace) {
  const std::string file = write("a.jsonl", "{\"text\": \"one\"}\n\n{\"text\": \"two\"}\n{\"text\": 3}");
  DocumentReader reader = *DocumentReader::open({file}, {});
  const std::vector<DocumentPart> parts = read_all(reader);
  ASSERT_EQ(parts.size(), 3u);
  EXPECT_EQ(*document_text(parts[1], {}, "a.jsonl"), "two");
  EXPECT_EQ(document_text(parts[2], {}, "a.jsonl").error().what, "a.jsonl:4: field 'text' is not text");
  EXPECT_EQ(document_text({.raw = "{", .json = true, .line = 7}, {}, "f").error().what.substr(0, 4), "f:7:");
}

TEST_F(Tokens, CutGzipIsAnError) {
  const std::string file = write_gz("a.txt.gz", random_words(5000, 1));
  fs::resize_file(file, fs::file_size(file) / 2);
  DocumentReader reader = *DocumentReader::open({file}, {});
  const auto part = reader.next();
  ASSERT_FALSE(part);
  EXPECT_NE(part.error().what.find("it was cut"), std::string::npos) << part.error().what;
}

// The parts of a long document have the tokens of the whole, for the regular expressions of GPT-2.
TEST_F(Tokens, PartsHaveTheTokensOfTheWhole) {
  const std::string text = random_words(3000, 1);
  const TrainedBpe bpe = *train_bpe(text, {.vocab = 400, .pattern = {}, .special = {}});
  const Tokenizer tokenizer = *Tokenizer::parse(bpe.json);
  DocumentReader reader = *DocumentReader::open({write("a.txt", text)}, {}, {}, 64);
  std::vector<int32_t> ids;
  size_t parts = 0;
  for (const DocumentPart& part : read_all(reader)) {
    const std::vector<int32_t> more = *tokenizer.encode(part.raw, {.add_special = false});
    ids.insert(ids.end(), more.begin(), more.end()), ++parts;
  }
  EXPECT_GT(parts, 50u);
  EXPECT_EQ(ids, *tokenizer.encode(text, {.add_special = false}));
}

TEST_F(Tokens, ShardsDependNeitherOnThreadsNorOnInterruptions) {
  std::vector<std::string> files;
  for (uint64_t i = 0; i < 4; ++i)
    files.push_back(write("f" + std::to_string(i) + ".txt", random_words(900000, i)));
  const TrainedBpe bpe = *train_bpe(random_words(3000, 1), {.vocab = 300, .pattern = {}, .special = {"<e>"}});
  const std::string tokenizer = write("tokenizer.json", bpe.json);
  const auto options = [&](const std::string& out) {
    return TokenizeFilesOptions{.files = files,
                                .tokenizer = tokenizer,
                                .out = path(out),
                                .documents = {},
                                .end = "<e>",
                                .shard_tokens = 400000};
  };
  const ShardIndex one = *tokenize_files(options("one"), Par());
  EXPECT_EQ(one.document_count(), 4u);
  ASSERT_GT(one.shards.size(), 5u);

  ThreadPool pool(2);
  size_t calls = 0;
  const auto twice = [&](const TokenizeProgress&) { return ++calls % 2 == 1; };
  ShardIndex two = *tokenize_files(options("two"), Par(pool), twice);
  EXPECT_FALSE(two.complete);
  EXPECT_FALSE(ShardData::open(path("two")));
  write("two/.braid-tmp-1-1", "left by a kill");
  size_t rounds = 1;
  for (; !two.complete && rounds < 20; ++rounds) two = *tokenize_files(options("two"), Par(pool), twice);
  EXPECT_GT(rounds, 1u);
  EXPECT_FALSE(fs::exists(path("two/.braid-tmp-1-1")));
  ASSERT_EQ(one.shards.size(), two.shards.size());
  for (size_t i = 0; i < one.shards.size(); ++i) {
    EXPECT_EQ(one.shards[i].ids_hash, two.shards[i].ids_hash);
    EXPECT_EQ(one.shards[i].ends_hash, two.shards[i].ends_hash);
  }
  auto other = options("two");
  other.shard_tokens = 500000;
  EXPECT_NE(tokenize_files(other, Par()).error().what.find("--shard-tokens"), std::string::npos);
}

TEST_F(Tokens, DocumentsAndTheirEndsAreFoundAcrossShards) {
  std::vector<std::string> documents;
  for (size_t i = 0; i < 40; ++i)
    documents.push_back(std::string(1 + i % 13, static_cast<char>('a' + i % 26)));
  const ShardData data = *ShardData::open(shards("s", documents, 30));
  EXPECT_GT(data.index().shards.size(), 5u);
  std::string all;
  for (const std::string& d : documents) all += d;
  EXPECT_EQ(text_of(data), all);
  size_t at = 0;
  for (const std::string& d : documents) {
    EXPECT_EQ(data.rest_of_document(at, 1000), d.size());
    EXPECT_EQ(data.rest_of_document(at + d.size() - 1, 1000), 1u);
    EXPECT_EQ(data.rest_of_document(at, 1), 1u);
    at += d.size();
  }
}

TEST_F(Tokens, DamageIsFound) {
  const std::string dir = shards("s", {"some text", "and more of it"});
  EXPECT_TRUE(ShardData::open(dir));
  const std::string file = dir + "/00000.bin";
  std::string ids = *read_text(file);
  ids[3] = static_cast<char>(ids[3] ^ 1);
  ASSERT_TRUE(write_atomic(file, ids));
  EXPECT_NE(ShardData::open(dir).error().what.find("another hash"), std::string::npos);
  EXPECT_TRUE(ShardData::open(dir, /*hashed=*/1)) << "sizes alone";
  ASSERT_TRUE(write_atomic(file, ids.substr(2)));
  EXPECT_NE(ShardData::open(dir, 1).error().what.find("data.json says"), std::string::npos);
  EXPECT_NE(ShardData::open(path("nothing")).error().fix.find("braid data tokenize"), std::string::npos);
}

TEST_F(Tokens, WindowsOfAnEpochCoverTheTextOnce) {
  const std::string text = random_words(200, 5);
  std::string flat = text;
  std::ranges::replace(flat, '\n', ' ');
  const auto source = *TokenSource::open(*make_mixture({{shards("s", {flat})}}), {.length = 15, .seed = 3});
  const uint64_t windows = (source->train_tokens() - 15) / 16;
  std::map<std::string, int> seen;
  for (uint64_t i = 0; i < windows; ++i) {
    const Batch b = source->batch(i, 1);
    ASSERT_EQ(b.tokens.size(), 15u);
    for (size_t t = 0; t + 1 < 15; ++t) EXPECT_EQ(b.targets[t], b.tokens[t + 1]);
    const std::string window(b.tokens.begin(), b.tokens.end());
    EXPECT_NE(flat.find(window), std::string::npos);
    ++seen[window];
  }
  EXPECT_EQ(seen.size(), windows);
  // Held out: what training never visits.
  const Batch held = source->validation(0, 1);
  EXPECT_GE(flat.find(std::string(held.tokens.begin(), held.tokens.end())), source->train_tokens());
  EXPECT_EQ(source->text_bytes(held.targets), 15u);
}

TEST_F(Tokens, DocumentsOfAWindowAreSequencesOfTheirOwn) {
  std::vector<std::string> documents;
  for (size_t i = 0; i < 60; ++i)
    documents.push_back(std::string(3 + i % 5, static_cast<char>('a' + i % 26)));
  const auto source = *TokenSource::open(*make_mixture({{shards("s", documents)}}),
                                         {.length = 20, .reset_at_documents = true});
  for (uint64_t i = 0; i < 10; ++i) {
    const Batch b = source->batch(i, 1);
    EXPECT_EQ(b.tokens.size(), 20u);
    EXPECT_GT(b.sequences(), 2u);
    for (size_t s = 0; s < b.sequences(); ++s)
      for (size_t t = b.offsets[s]; t < b.offsets[s + 1]; ++t) {
        EXPECT_EQ(b.tokens[t], b.tokens[b.offsets[s]]) << "one document has one letter";
        const bool last = t + 1 == b.offsets[s + 1];
        if (!last || s + 1 == b.sequences()) continue;
        EXPECT_EQ(b.targets[t], kUnsupervised) << "the next document is not predicted";
      }
  }
}

TEST_F(Tokens, AMixtureKeepsItsSharesAndItsOrder) {
  const std::string a = shards("a", {std::string(4000, 'a')}), b = shards("b", {std::string(900, 'b')});
  const Mixture mixture = *parse_mixture({a + ":3", b}, "--data");
  ASSERT_TRUE(save_mixture(mixture, path("mix.json")));
  EXPECT_EQ(load_mixture(path("mix.json"))->order, mixture.order);
  const auto source = *TokenSource::open(mixture, {.length = 9});
  size_t first = 0;
  for (uint64_t i = 0; i < 2000; ++i) first += source->batch(i, 1).tokens[0] == 'a';
  EXPECT_EQ(first, 1500u);
  for (uint64_t i = 0; i < 1996; i += 4) {  // evenly spread
    const Batch four = source->batch(i, 4);
    EXPECT_EQ(std::ranges::count(four.tokens, 'b'), 9);
  }
  const std::vector<ValidationPart> parts = source->validation_parts();
  ASSERT_EQ(parts.size(), 2u);
  EXPECT_EQ(parts[1].name, "b");
  EXPECT_EQ(source->validation(parts[1].begin, 1).tokens[0], 'b');
  EXPECT_FALSE(parse_mixture({a + ":-1"}, "--data"));
  EXPECT_FALSE(parse_mixture({a + ":nan"}, "--data"));
}

TEST_F(Tokens, HeldOutSetsHaveNames) {
  const std::string a = shards("a", {std::string(400, 'a')}), b = shards("b", {std::string(400, 'b')});
  const auto source = *TokenSource::open(
      *make_mixture({{a}}), {.length = 9, .validation_limit = 5, .validation = {{"other", b}, {"", a}}});
  EXPECT_EQ(source->train_tokens(), 400u) << "all of it";
  const std::vector<ValidationPart> parts = source->validation_parts();
  ASSERT_EQ(parts.size(), 2u);
  EXPECT_EQ(parts[0].name, "other");
  EXPECT_EQ(parts[1].name, "a");
  EXPECT_EQ(parts[1].end, 10u);
  EXPECT_FALSE(TokenSource::open(*make_mixture({{a}}), {.length = 9, .validation = {{"x", a}, {"x", b}}}));
  EXPECT_FALSE(TokenSource::open(*make_mixture({{a}}), {.length = 900}));
}

}  // namespace
}  // namespace braid
