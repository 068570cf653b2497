// Benchmarks: prompts, requests, scores of answers, and what a model's responses are worth.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "eval/answers.h"
#include "eval/harness.h"
#include "eval/needle.h"
#include "eval/python_random.h"
#include "eval/python_text.h"
#include "eval/recall.h"
#include "eval/results_json.h"
#include "eval/rows.h"
#include "eval/task.h"
#include "eval/wikitext.h"
#include "io/json.h"
#include "io/sha256.h"
#include "model/model.h"
#include "tokenizer/tokenizer.h"

namespace braid {
namespace {

namespace fs = std::filesystem;

// A folder with a task's file, removed at the end.
class DataFolder {
 public:
  DataFolder() {
    std::string name = (fs::temp_directory_path() / "braid_eval_XXXXXX").string();
    path_ = mkdtemp(name.data());
  }
  ~DataFolder() { fs::remove_all(path_); }
  void put(const std::string& file, const std::string& text) const {
    fs::create_directories((fs::path(path_) / file).parent_path());
    std::ofstream(fs::path(path_) / file) << text;
  }
  TaskSettings settings() const { return {.data = path_}; }

 private:
  std::string path_;
};

const Benchmark& task(const std::string& name) {
  const auto found = find_eval_tasks({name});
  EXPECT_TRUE(found) << name;
  return *(*found)[0];
}

TEST(Sha256, HasTheSumsOfTheStandard) {
  EXPECT_EQ(Sha256().hex(), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  EXPECT_EQ(Sha256().text("abc").hex(), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  Sha256 million;
  for (int i = 0; i < 1000; ++i) million.text(std::string(1000, 'a'));
  EXPECT_EQ(million.hex(), "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
  EXPECT_EQ(Sha256().text(std::string(64, 'x')).hex(), Sha256().text(std::string(63, 'x')).text("x").hex());
}

// Values printed by CPython 3.11.
TEST(PythonRandom, DrawsAsPythonDoes) {
  PythonRandom r(1234);
  EXPECT_EQ(r.bits(32), 4150886329u);
  EXPECT_EQ(r.bits(32), 3342196574u);
  EXPECT_EQ(r.bits(32), 1892932127u);
  EXPECT_DOUBLE_EQ(r.uniform(), 0.11685051774599753);
  EXPECT_EQ(r.sample(1000, 5), (std::vector<size_t>{92, 932, 965, 961, 826}));
  EXPECT_EQ(r.sample(20, 4), (std::vector<size_t>{18, 1, 2, 3}));
  EXPECT_EQ(r.sample(500, 9), (std::vector<size_t>{392, 181, 121, 8, 15, 403, 177, 331, 319}));
  for (const size_t expected : {3, 3, 0, 4}) EXPECT_EQ(r.choice(7), expected);
  EXPECT_DOUBLE_EQ(PythonRandom(0).uniform(), 0.8444218515250481);
  EXPECT_DOUBLE_EQ(PythonRandom(uint64_t{1} << 40).uniform(), 0.1036394562812375);
  EXPECT_EQ(PythonRandom(42).sample(10, 10), (std::vector<size_t>{1, 0, 4, 9, 6, 5, 8, 2, 3, 7}));
}

TEST(PythonText, IsPythons) {
  EXPECT_EQ(strip(" \t\xC2\xA0x y\xE2\x80\xA8\n"), "x y");
  EXPECT_EQ(strip(" \n "), "");
  EXPECT_EQ(strip_left("  a "), "a ");
  EXPECT_EQ(strip_right("  a "), "  a");
  EXPECT_EQ(code_points("na\xC3\xAFve"), 5u);
  EXPECT_EQ(replace_all("aaaa", "aa", "b"), "bb");
  EXPECT_EQ(split_spaces(" a  b\n"), (std::vector<std::string>{"a", "b"}));
  EXPECT_EQ(split_at("a,,b,", ','), (std::vector<std::string>{"a", "", "b", ""}));
  EXPECT_EQ(pieces_between_spaces(" a  b\n"), 4u);
  EXPECT_EQ(pieces_between_spaces(""), 1u);
  EXPECT_EQ(capitalized("the CAT"), "The cat");
  EXPECT_EQ(strip_chars("..a.b..", "."), "a.b");
  EXPECT_EQ(find_ignoring_case("See NEW York", "new"), 4u);
  EXPECT_EQ(find_ignoring_case("abc", "d"), std::string::npos);
}

TEST(WikiText, PagesBeginAtTitlesAndAreDetokenised) {
  const std::vector<std::string> pages =
      wikitext_pages(" \n = A = \n \n x @-@ y , z . \n = = B = = \n w ( a ) \n = C = \n q 's \n");
  ASSERT_EQ(pages.size(), 2u);
  EXPECT_EQ(pages[0], " = A = \n \n x @-@ y , z . \n = = B = = \n w ( a ) ");
  EXPECT_EQ(pages[1], " = C = \n q 's \n");
  EXPECT_EQ(wikitext_detokenized(pages[0]), " = A =\n\nx-y, z.\n== B ==\nw (a) ");
  EXPECT_EQ(wikitext_detokenized(pages[1]), " = C =\nq's\n");
  EXPECT_EQ(wikitext_detokenized(" \" hi \" and ' you ' 3 @,@ 000 @.@ 5 \xC2\xB0 N "),
            " \"hi\" and 'you' 3,000.5\xC2\xB0N ");
}

TEST(EvalTasks, RequestsAreThoseOfTheHarness) {
  const DataFolder data;
  data.put("piqa/piqa_validation.jsonl",
           R"({"goal": "Boil water", "sol1": "heat it", "sol2": "cool it", "label": 0}
{"goal": "Dry hair", "sol1": "rain", "sol2": "wind", "label": 1}
)");
  const auto piqa = load_documents(task("piqa"), data.settings());
  ASSERT_TRUE(piqa) << piqa.error().what;
  ASSERT_EQ(piqa->size(), 2u);
  EXPECT_EQ((*piqa)[0].requests[0].context, "Question: Boil water\nAnswer:");
  EXPECT_EQ((*piqa)[0].requests[1].continuation, " cool it");
  EXPECT_EQ((*piqa)[1].gold, 1u);
  EXPECT_EQ(gold_sha256(*piqa), Sha256().text("0,1").hex());
  EXPECT_EQ(requests_sha256(task("piqa"), std::span(*piqa).first(1)),
            Sha256()
                .text("Question: Boil water\nAnswer:\x1F heat it\x1E"
                      "Question: Boil water\nAnswer:\x1F cool it\x1E")
                .hex());

  data.put(
      "winogrande/winogrande_xl_validation.jsonl",
      R"({"sentence": "The cup broke because _ was thin.", "option1": "the cup", "option2": "the table", "answer": "1"})");
  const auto wino = load_documents(task("winogrande"), data.settings());
  ASSERT_TRUE(wino) << wino.error().what;
  EXPECT_EQ((*wino)[0].requests[1].context, "The cup broke because the table");
  EXPECT_EQ((*wino)[0].requests[1].continuation, " was thin.");
  EXPECT_EQ((*wino)[0].gold, 0u);

  data.put(
      "copa/copa_validation.jsonl",
      R"({"premise": "It rained.", "choice1": "He got wet.", "choice2": "He slept.", "question": "effect", "label": 0})");
  const auto copa = load_documents(task("copa"), data.settings());
  ASSERT_TRUE(copa) << copa.error().what;
  EXPECT_EQ((*copa)[0].requests[0].context, "It rained therefore");
  EXPECT_EQ((*copa)[0].requests[0].continuation, "  he got wet.");

  // The data set's own fields, and those of the file with processed texts.
  data.put(
      "hellaswag/hellaswag_validation.jsonl",
      R"({"activity_label": "Tea", "ctx_a": "A man [header] boils.", "ctx_b": "the Cup", "endings": [" [step] it  is hot.", "b"], "label": "0"}
{"query": "Tea: x", "choices": ["a", "b"], "gold": 1}
)");
  const auto swag = load_documents(task("hellaswag"), data.settings());
  ASSERT_TRUE(swag) << swag.error().what;
  EXPECT_EQ((*swag)[0].requests[0].context, "Tea: A man boils. The cup");
  EXPECT_EQ((*swag)[0].requests[0].continuation, "  it is hot.");
  EXPECT_EQ((*swag)[1].requests[1].continuation, " b");

  data.put("arc/arc_easy_test.jsonl",
           R"({"question": "Q?", "choices": {"text": ["x", "y"], "label": ["A", "B"]}, "answerKey": "B"})");
  const auto arc = load_documents(task("arc-easy"), data.settings());
  ASSERT_TRUE(arc) << arc.error().what;
  EXPECT_EQ((*arc)[0].gold, 1u);

  data.put("lambada/lambada_test_plain_text.txt", "he took the cat\nshe saw him\n");
  const auto words = load_documents(task("lambada_standard"), data.settings());
  ASSERT_TRUE(words) << words.error().what;
  EXPECT_EQ((*words)[0].requests[0].context, "he took the");
  EXPECT_EQ((*words)[0].requests[0].continuation, " cat");
}

TEST(EvalTasks, ExamplesAreDrawnAsTheHarnessDraws) {
  const DataFolder data;
  std::string rows;
  for (int i = 0; i < 40; ++i)
    rows += R"({"goal": "g)" + std::to_string(i) + R"(", "sol1": "a", "sol2": "b", "label": 0})" + "\n";
  data.put("piqa/piqa_validation.jsonl", rows);
  TaskSettings s = data.settings();
  s.fewshot = 2, s.limit = 2;
  const auto docs = load_documents(task("piqa"), s);
  ASSERT_TRUE(docs) << docs.error().what;
  ASSERT_EQ(docs->size(), 2u);
  PythonRandom random(1234);
  for (size_t i = 0; i < 2; ++i) {
    std::string expected;
    int used = 0;
    for (const size_t k : random.sample(40, 3))
      if (k != i && used++ < 2) expected += "Question: g" + std::to_string(k) + "\nAnswer: a\n\n";
    EXPECT_EQ((*docs)[i].requests[0].context, expected + "Question: g" + std::to_string(i) + "\nAnswer:");
  }
}

TEST(EvalTasks, MistakesAreNamed) {
  const DataFolder data;
  const auto missing = load_documents(task("boolq"), data.settings());
  ASSERT_FALSE(missing);
  EXPECT_NE(missing.error().what.find("boolq/boolq_validation.jsonl"), std::string::npos);
  EXPECT_NE(missing.error().fix.find("super_glue"), std::string::npos);
  const auto broken = [&](const std::string& row) {
    data.put("piqa/piqa_validation.jsonl",
             "{\"goal\": \"a\", \"sol1\": \"b\", \"sol2\": \"c\", \"label\": 0}\n" + row + "\n");
    const auto docs = load_documents(task("piqa"), data.settings());
    return docs ? std::string() : docs.error().what;
  };
  EXPECT_NE(broken("{\"goal\": ").find("piqa_validation.jsonl:2"), std::string::npos);
  EXPECT_NE(broken("[1]").find("is not an object"), std::string::npos);
  EXPECT_NE(broken(R"({"goal": "a", "sol1": "b", "label": 0})").find(":2: the field 'sol2' is missing"),
            std::string::npos);
  EXPECT_NE(broken(R"({"goal": "a", "sol1": "b", "sol2": 3, "label": 0})").find("not a string"),
            std::string::npos);
  EXPECT_NE(broken(R"({"goal": "a", "sol1": "b", "sol2": "c", "label": 2})").find("from 0 to 1"),
            std::string::npos);
  const auto unknown = find_eval_tasks({"helaswag"});
  ASSERT_FALSE(unknown);
  EXPECT_NE(unknown.error().fix.find("'hellaswag'"), std::string::npos);
  EXPECT_NE(unknown.error().fix.find("blimp"), std::string::npos);
}

TEST(EvalTasks, GroupsHaveTheirTasks) {
  const auto blimp = find_eval_tasks({"blimp"});
  ASSERT_TRUE(blimp);
  EXPECT_EQ(blimp->size(), 67u);
  const auto papers = find_eval_tasks({"papers", "piqa"});
  ASSERT_TRUE(papers);
  EXPECT_EQ(papers->size(), 9u);
}

// Values of the harness's own functions.
TEST(Answers, AreScoredAsTheDataSetsSay) {
  EXPECT_EQ(drop_score("The 12 men", {"12 men"}).exact, 1);
  EXPECT_EQ(drop_score("12", {"12.0"}).exact, 1);
  EXPECT_EQ(drop_score("red", {"red", "blue"}).f1, 0.5);
  EXPECT_EQ(drop_score("red", {"red", "blue"}).exact, 0);
  EXPECT_EQ(drop_score("5 yards", {"7 yards"}).f1, 0);
  EXPECT_NEAR(drop_score("big red dog", {"red dog"}).f1, 0.8, 1e-12);
  EXPECT_EQ(drop_score("twenty-two A's", {"22"}).f1, 0);
  EXPECT_EQ(drop_score("$1,200.50!", {"1200.5"}).exact, 0);
  EXPECT_EQ(drop_score(" the ", {"a"}).f1, 1);
  EXPECT_EQ(drop_score("1_000 men", {"1000 men"}).exact, 1);
  EXPECT_EQ(drop_score("-5", {"5"}).exact, 1);
  EXPECT_EQ(drop_score("\xC3\x9C"
                       "ber-K\xC3\xA4se an der",
                       {"\xC3\xBC"
                        "ber k\xC3\xA4se"})
                .f1,
            0.8);
  EXPECT_EQ(drop_score("", {"x"}).f1, 0);
  EXPECT_EQ(drop_score("a b c d", {"a b", "c d", "e"}).f1, 0.27);
  EXPECT_EQ(squad_score("the Cat!", "cat").exact, 1);
  EXPECT_NEAR(squad_score("a black cat", "cat").f1, 2.0 / 3, 1e-12);
  EXPECT_EQ(squad_score("", "cat").f1, 0);
  EXPECT_TRUE(same_ignoring_case_and_punctuation("U.S.", "us"));
  EXPECT_FALSE(same_ignoring_case_and_punctuation("the us", "us"));
  EXPECT_EQ(without_leading_articles("The cat and a dog. Athe x"), "cat and dog. Athe x");
  EXPECT_EQ(without_leading_articles("the the cat"), "cat");
  EXPECT_EQ(without_leading_articles("an-a b"), "an-b");
  EXPECT_EQ(without_leading_articles("a"), "a");
  for (const char* text : {"1", "-2.5", "1e5", " 7 ", "inf", "1_000", ".5", "5."})
    EXPECT_TRUE(python_float(text)) << text;
  for (const char* text : {"", "x", "1__0", "0x10", "e5", "--1", "1e", "1 2"})
    EXPECT_FALSE(python_float(text)) << text;
  EXPECT_EQ(python_float_text(100), "100.0");
  EXPECT_EQ(python_float_text(1e16), "1e+16");
  EXPECT_EQ(python_float_text(0.1), "0.1");
}

TEST(Recall, PassagesAreCutAroundTheAnswer) {
  const Tokenizer bytes = Tokenizer::bytes();
  const std::string passage = std::string(300, 'x') + " needle " + std::string(300, 'y');
  const auto cut = cut_passage(passage, bytes, {.context = 150, .keys = {"NEEDLE"}});
  ASSERT_TRUE(cut) << cut.error().what;
  EXPECT_EQ(cut->size(), 100u);  // 150 less 50 for the answer
  EXPECT_EQ(cut->find("needle"), 50u);
  const auto start = cut_passage(passage, bytes, {.context = 150});
  EXPECT_EQ(*start, std::string(100, 'x'));
  EXPECT_EQ(recall_question(" a b. Who? ", "Who?"), "a b. Who?");
  EXPECT_EQ(recall_field("\ntext.\nname:NAME:", "name", false), "text. Name:");
  EXPECT_EQ(recall_field("\nab.\nSummary of information above: x", "key", true), "ab. Key:");
}

TEST(Needles, FillTheRequestedLength) {
  const Tokenizer bytes = Tokenizer::bytes();
  for (const NeedleKind& kind : {NeedleKind{}, NeedleKind{.essay = true, .uuids = true},
                                 NeedleKind{.essay = true, .needles = 4, .values = 2, .queries = 4}}) {
    const auto a = make_needle(kind, 3000, 1, 5, bytes), b = make_needle(kind, 3000, 1, 5, bytes),
               c = make_needle(kind, 3000, 1, 6, bytes);
    ASSERT_TRUE(a) << a.error().what;
    EXPECT_EQ(a->prompt, b->prompt);
    EXPECT_NE(a->prompt, c->prompt);
    EXPECT_LE(a->tokens, 3000);
    EXPECT_GT(a->tokens, 2800);
    EXPECT_EQ(a->answers.size(), static_cast<size_t>(kind.queries * kind.values));
    for (const std::string& answer : a->answers) EXPECT_NE(a->prompt.find(answer), std::string::npos);
  }
  EXPECT_FALSE(make_needle({}, 50, 1, 0, bytes));
}

// The sums of the harness's requests over the official files, where these are at hand.
TEST(EvalTasks, RequestSumsOfTheOfficialDataAreTheHarnesss) {
  const char* folder = std::getenv("BRAID_DATA");
  if (!folder)
    GTEST_SKIP() << "set BRAID_DATA to a folder with the tasks' files and reference/requests_v0.4.json";
  const auto reference = load_json(std::string(folder) + "/reference/requests_v0.4.json");
  ASSERT_TRUE(reference) << reference.error().what;
  size_t compared = 0;
  for (const auto& [key, expected] : reference->items()) {
    const std::string name = key.substr(0, key.find('('));
    if (key.find("v0.3") != std::string::npos) continue;
    const Benchmark& t = task(name);
    const auto docs = load_documents(t, {.data = folder});
    ASSERT_TRUE(docs) << docs.error().what;
    ++compared;
    if (name == "wikitext") {
      EXPECT_EQ(docs->size(), expected["pages"].get<size_t>());
      size_t words = 0, bytes = 0;
      for (const EvalDocument& d : *docs) words += d.words, bytes += d.bytes;
      EXPECT_EQ(words, expected["words_total"].get<size_t>());
      EXPECT_EQ(bytes, expected["bytes_total"].get<size_t>());
      EXPECT_EQ(requests_sha256(t, *docs), expected["sha256_detok_pages_joined_by_0x1E"].get<std::string>());
      continue;
    }
    EXPECT_EQ(docs->size(), expected["docs"].get<size_t>()) << name;
    EXPECT_EQ(requests_sha256(t, *docs), expected["sha256"].get<std::string>()) << name;
    if (!expected["gold_sha256"].is_null()) {
      EXPECT_EQ(gold_sha256(*docs), expected["gold_sha256"].get<std::string>()) << name;
    }
  }
  EXPECT_EQ(compared, 13u);
}

// ---- A model

std::unique_ptr<Model> tiny_model() {
  const Result<ModelConfig> config = config_from_text(R"({
    "model_type": "braid", "vocab_size": 256, "d_model": 32, "n_layers": 2,
    "pattern": [{"mixer": {"type": "gated_deltanet", "heads": 2}, "mlp": {"type": "swiglu", "d_ff": 48}},
                {"mixer": {"type": "attention", "heads": 2}, "mlp": {"type": "swiglu", "d_ff": 48}}]})",
                                                      "test");
  EXPECT_TRUE(config) << config.error().what;
  std::unique_ptr<Model> m = Model::create(*config);
  m->init(3);
  return m;
}

struct Tiny {
  std::unique_ptr<Model> model = tiny_model();
  Tokenizer bytes = Tokenizer::bytes();
  ThreadPool pool{2};
  EvalModel m{.model = *model, .tokenizer = bytes, .pool = pool, .max_length = 64, .prefix = 10};
};

TEST(Harness, PairsAreTokenisedAsTheHarnessDoes) {
  Tiny t;
  const auto pair = encode_pair(t.m, {"ab ", " c"});
  ASSERT_TRUE(pair && *pair);
  EXPECT_EQ((*pair)->tokens, (std::vector<int32_t>{'a', 'b', ' ', ' ', 'c'}));
  EXPECT_EQ((*pair)->from, 2u);  // white space before the continuation is scored with it
  const auto alone = encode_pair(t.m, {"", " c"});
  EXPECT_EQ((*alone)->tokens, (std::vector<int32_t>{10, ' ', 'c'}));
  EXPECT_EQ((*alone)->from, 1u);
  const auto blank = encode_pair(t.m, {" ", "c"});
  EXPECT_EQ((*blank)->tokens, (std::vector<int32_t>{10, ' ', 'c'}));
  const auto longer = encode_pair(t.m, {std::string(100, 'a'), "bc"});
  EXPECT_EQ((*longer)->tokens.size(), 65u);  // 64 inputs and the last target
  EXPECT_EQ((*longer)->from, 63u);
  EXPECT_FALSE(*encode_pair(t.m, {"ab", ""}));
  EXPECT_FALSE(encode_pair(t.m, {"a", std::string(65, 'b')}));
  const auto prompt = encode_prompt(t.m, std::string(100, 'a') + "b", 20);
  EXPECT_EQ(prompt->tokens.size(), 44u);
  EXPECT_EQ(prompt->tokens.back(), 'b');
  EXPECT_FALSE(encode_prompt(t.m, "a", 64));
}

TEST(Harness, WindowsScoreEachTokenOnce) {
  Tiny t;
  std::string text;
  for (int i = 0; i < 150; ++i) text += static_cast<char>('a' + i % 26);
  const auto windows = encode_rolling(t.m, text);
  ASSERT_TRUE(windows);
  ASSERT_EQ(windows->size(), 3u);
  EXPECT_EQ((*windows)[0].tokens.size(), 65u);
  EXPECT_EQ((*windows)[0].tokens[0], 10);
  EXPECT_EQ((*windows)[1].from, 1u);
  EXPECT_EQ((*windows)[1].tokens[0], text[63]);  // one token of context
  EXPECT_EQ((*windows)[2].tokens.size(), 65u);   // the last one has the whole history
  EXPECT_EQ((*windows)[2].from, 65u - 22u);
  size_t scored = 0;
  for (const ScoreRequest& w : *windows) scored += w.tokens.size() - w.from;
  EXPECT_EQ(scored, text.size());
  EXPECT_EQ((*encode_rolling(t.m, "abc")).size(), 1u);
  EXPECT_TRUE((*encode_rolling(t.m, "")).empty());
}

std::string two_choices(int count) {
  std::string rows;
  for (int i = 0; i < count; ++i)
    rows += R"({"goal": "g)" + std::to_string(i % 7) + R"(", "sol1": "one )" + std::to_string(i) +
            R"(", "sol2": "two", "label": )" + std::to_string(i % 2) + "}\n";
  return rows;
}

TEST(Harness, MetricsAreThoseOfTheResponses) {
  Tiny t;
  const DataFolder data;
  data.put("piqa/piqa_validation.jsonl", two_choices(20));
  const Benchmark& piqa = task("piqa");
  const auto docs = load_documents(piqa, data.settings());
  ASSERT_TRUE(docs);
  size_t last = 0;
  const auto result = run_task(piqa, data.settings(), *docs, t.m, {.tick = [&](size_t done, size_t) {
                                 last = done;
                                 return true;
                               }});
  ASSERT_TRUE(result) << result.error().what;
  EXPECT_EQ(last, 20u);
  double right = 0, right_per_character = 0;
  for (const EvalDocument& d : *docs) {
    double ll[2], norm[2];
    for (size_t c = 0; c < 2; ++c) {
      Scorer scorer(*t.model, t.pool);
      std::vector<ScoreRequest> one{**encode_pair(t.m, d.requests[c])};
      std::vector<SequenceScore> score(1);
      ASSERT_TRUE(scorer.score(one, score));
      ll[c] = score[0].log_likelihood, norm[c] = ll[c] / static_cast<double>(d.choices[c].size());
      EXPECT_NEAR(result->samples[d.id].responses[c].log_likelihood, ll[c], 1e-4);
    }
    right += (ll[1] > ll[0]) == (*d.gold == 1), right_per_character += (norm[1] > norm[0]) == (*d.gold == 1);
  }
  ASSERT_EQ(result->values.size(), 2u);
  EXPECT_DOUBLE_EQ(result->values[0].value, right / 20);
  EXPECT_DOUBLE_EQ(result->values[1].value, right_per_character / 20);
  const double p = right / 20;
  EXPECT_NEAR(*result->values[0].error, std::sqrt(p * (1 - p) / 19), 1e-12);
  EXPECT_EQ(result->values[0].documents, 20u);
}

TEST(Harness, KnownResponsesAreNotComputed) {
  Tiny t;
  const DataFolder data;
  data.put("piqa/piqa_validation.jsonl", two_choices(6));
  const Benchmark& piqa = task("piqa");
  const auto docs = load_documents(piqa, data.settings());
  const auto first = run_task(piqa, data.settings(), *docs, t.m);
  ASSERT_TRUE(first);
  const std::string path = data.settings().data + "/samples.jsonl";
  std::string lines;
  for (size_t i = 0; i < 4; ++i)
    lines += sample_json(piqa, piqa.metrics, (*docs)[i], first->samples[i]).dump() + "\n";
  data.put("samples.jsonl", lines + "{\"doc_id\": 4, \"cut");
  const auto known = read_samples(path, piqa, *docs);
  ASSERT_TRUE(known) << known.error().what;
  EXPECT_EQ(known->size(), 4u);
  EvalRunOptions again{.known = *known};
  size_t computed = 0;
  again.done = [&](const EvalDocument&, const EvalSample&) -> Status { return ++computed, Status(); };
  const auto second = run_task(piqa, data.settings(), *docs, t.m, again);
  ASSERT_TRUE(second);
  EXPECT_EQ(computed, 2u);
  EXPECT_EQ(second->reused, 4u);
  for (size_t i = 0; i < 6; ++i)
    for (size_t c = 0; c < 2; ++c)
      EXPECT_EQ(second->samples[i].responses[c].log_likelihood,
                first->samples[i].responses[c].log_likelihood);
  data.put("piqa/piqa_validation.jsonl", two_choices(9).substr(100));
  data.put("samples.jsonl", replace_all(lines, "one 2", "one 3"));
  const auto other = read_samples(path, piqa, *docs);
  ASSERT_FALSE(other);
  EXPECT_NE(other.error().what.find(":3: the sample is of another document"), std::string::npos);
}

TEST(Harness, GenerationEndsAtStops) {
  Tiny t;
  const DataFolder data;
  data.put("nq_open/NQ-open.dev.jsonl", R"({"question": "who", "answer": ["x", "y"]})");
  Benchmark nq = task("nq_open");
  nq.max_new_tokens = 12;
  const auto docs = load_documents(nq, data.settings());
  ASSERT_TRUE(docs) << docs.error().what;
  EXPECT_EQ((*docs)[0].requests[0].context, "Answer these questions:\n\nQ: who?\nA:");
  const auto whole = run_task(nq, data.settings(), *docs, t.m);
  ASSERT_TRUE(whole);
  EXPECT_EQ(cut_at_stops("a.b,c", std::vector<std::string>{",", "."}), "a");
  // Without stops it is longer, and begins the same.
  nq.until.clear();
  const auto all = run_task(nq, data.settings(), *docs, t.m);
  const std::string &cut = whole->samples[0].responses[0].text, &full = all->samples[0].responses[0].text;
  EXPECT_TRUE(full.starts_with(cut));
  EXPECT_FALSE(full.empty());
  nq.until = {full.substr(full.size() / 2, 1)};
  const auto stopped = run_task(nq, data.settings(), *docs, t.m);
  EXPECT_EQ(stopped->samples[0].responses[0].text, full.substr(0, full.find(nq.until[0])));
}

// Computed with lm-eval's metrics.py and random.choices().
TEST(Harness, PerplexitiesHaveTheHarnesssErrors) {
  std::vector<EvalSample> samples;
  for (const double ll : {-1.0, -2.5, -0.25, -4.0})
    samples.push_back({.responses = {}, .metrics = {{ll}, {ll < -2 ? 1.0 : 0.0}}});
  const std::vector<TaskMetric> metrics{{"perplexity", Aggregate::kPerplexity, false}, {"acc"}};
  const auto values = aggregate(metrics, samples, 2500);
  EXPECT_DOUBLE_EQ(values[0].value, std::exp(7.75 / 4));
  EXPECT_NEAR(*values[0].error, 7.580477634519328, 1e-12);
  EXPECT_DOUBLE_EQ(*values[1].error, std::sqrt(1.0 / 3 / 4));
  std::vector<ResultValue> parts(2);
  parts[0] = {.metric = {"acc"}, .value = 0.5, .error = 0.1, .documents = 10};
  parts[1] = {.metric = {"acc"}, .value = 0.7, .error = 0.2, .documents = 20};
  const ResultValue mean = group_value("acc", parts);
  EXPECT_DOUBLE_EQ(mean.value, 0.6);
  EXPECT_NEAR(*mean.error, std::sqrt((9 * 0.01 * 10 + 19 * 0.04 * 20) / 28 / 30), 1e-12);
}

}  // namespace
}  // namespace braid
