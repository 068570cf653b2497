#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "base/nearest.h"
#include "eval/answers.h"
#include "eval/needle.h"
#include "eval/python_random.h"
#include "eval/python_text.h"
#include "eval/recall.h"
#include "eval/rows.h"
#include "eval/task.h"
#include "eval/wikitext.h"
#include "io/file.h"
#include "io/sha256.h"
#include "tokenizer/tokenizer.h"
#include "tokenizer/utf8.h"

namespace braid {
namespace {

using Docs = std::vector<EvalDocument>;

// ---- Rows to documents. Fields of the data set's own files, or of the rows that Hugging Face serves.

void choose(EvalDocument& doc, std::string query, std::vector<std::string> choices, size_t gold) {
  doc.query = std::move(query), doc.choices = std::move(choices);
  doc.gold = gold;
  if (gold < doc.choices.size()) doc.target = doc.choices[gold];
}

void piqa(EvalRow& r, EvalDocument& d) {
  choose(d, fmt::format("Question: {}\nAnswer:", r.text("goal")), {r.text("sol1"), r.text("sol2")},
         r.index("label", 2));
}

// Removes WikiHow's marks as lm-eval does.
std::string hellaswag_text(std::string_view raw) {
  const std::string marked = replace_all(strip(raw), " [title]", ". ");
  std::string text;
  for (size_t at = 0; at < marked.size();) {
    const size_t end = marked[at] == '[' ? marked.find(']', at) : std::string::npos;
    if (end != std::string::npos && marked.substr(at, end - at).find('\n') == std::string::npos)
      at = end + 1;
    else
      text += marked[at++];
  }
  return replace_all(text, "  ", " ");
}

void hellaswag(EvalRow& r, EvalDocument& d) {
  if (r.has("query")) {
    std::vector<std::string> choices = r.texts("choices");
    const size_t gold = r.index("gold", std::max<size_t>(choices.size(), 1));
    return choose(d, r.text("query"), std::move(choices), gold);
  }
  std::vector<std::string> endings = r.texts("endings");
  for (std::string& e : endings) e = hellaswag_text(e);
  const size_t gold = r.index("label", std::max<size_t>(endings.size(), 1));
  choose(d,
         hellaswag_text(fmt::format("{}: {} {}", r.text("activity_label"), r.text("ctx_a"),
                                    capitalized(r.text("ctx_b")))),
         std::move(endings), gold);
}

void winogrande(EvalRow& r, EvalDocument& d) {
  const std::string sentence = r.text("sentence");
  const size_t blank = sentence.find('_');
  if (blank == std::string::npos && r.status()) r.wrong("the sentence has no blank '_'", "correct this line");
  const std::string before = sentence.substr(0, blank);
  choose(d, "", {before + r.text("option1"), before + r.text("option2")}, r.index("answer", 2, 1));
  d.query = d.target;  // of an example: the right context
  d.target = blank == std::string::npos ? "" : strip(std::string_view(sentence).substr(blank + 1));
}

// Choices and the place of the right one: `choices` and `gold`, or texts with labels and an answerKey.
void labelled(EvalRow& r, EvalDocument& d, std::string query) {
  if (!r.is_object("choices")) {
    std::vector<std::string> choices = r.texts("choices");
    const size_t gold = r.index("gold", std::max<size_t>(choices.size(), 1));
    return choose(d, std::move(query), std::move(choices), gold);
  }
  const std::vector<std::string> labels = r.texts_in("choices", "label");
  const std::string key = r.text("answerKey");
  const auto at = std::ranges::find(labels, key);
  if (at == labels.end()) r.wrong(fmt::format("answerKey '{}' is not a label", key), "correct this line");
  choose(d, std::move(query), r.texts_in("choices", "text"), static_cast<size_t>(at - labels.begin()));
}
void arc(EvalRow& r, EvalDocument& d) {
  labelled(r, d, fmt::format("Question: {}\nAnswer:", r.text("question")));
}
void openbookqa(EvalRow& r, EvalDocument& d) { labelled(r, d, r.text("question_stem")); }

void social_iqa(EvalRow& r, EvalDocument& d) {
  choose(d, fmt::format("Q: {} {}\nA:", r.text("context"), r.text("question")),
         {r.text("answerA"), r.text("answerB"), r.text("answerC")}, r.index("label", 3, 1));
}

void boolq(EvalRow& r, EvalDocument& d) {
  choose(d, fmt::format("{}\nQuestion: {}?\nAnswer:", r.text("passage"), r.text("question")), {"no", "yes"},
         r.index("label", 2));
}

void sciq(EvalRow& r, EvalDocument& d) {
  choose(d, fmt::format("{}\nQuestion: {}\nAnswer:", strip_left(r.text("support")), r.text("question")),
         {r.text("distractor1"), r.text("distractor2"), r.text("distractor3"), r.text("correct_answer")}, 3);
}

void copa(EvalRow& r, EvalDocument& d) {
  const std::string premise = r.text("premise"), question = r.text("question");
  if (question != "cause" && question != "effect")
    r.wrong(fmt::format("the question is '{}', neither cause nor effect", question), "correct this line");
  const std::string_view words = strip(premise);
  // The choices begin with a blank of their own, which the delimiter doubles: so does lm-eval.
  const auto choice = [&](const char* name) {
    std::string c = r.text(name);
    if (!c.empty() && c[0] >= 'A' && c[0] <= 'Z') c[0] = static_cast<char>(c[0] - 'A' + 'a');
    return " " + c;
  };
  choose(d,
         fmt::format("{} {}", words.substr(0, words.size() - std::min<size_t>(words.size(), 1)),
                     question == "cause" ? "because" : "therefore"),
         {choice("choice1"), choice("choice2")}, r.index("label", 2));
}

void blimp(EvalRow& r, EvalDocument& d) {
  choose(d, "", {r.text("sentence_good"), r.text("sentence_bad")}, 0);
}

void lambada(EvalRow& r, EvalDocument& d) {
  const std::string text = r.text("text");
  const size_t blank = text.rfind(' ');
  if (blank == std::string::npos && r.status()) r.wrong("the text is one word", "correct this line");
  d.query = text.substr(0, std::min(blank, text.size()));
  d.target = text.substr(std::min(blank, text.size()));
}

void wikitext(EvalRow& r, EvalDocument& d) {
  const std::string page = r.text("page");
  d.target = wikitext_detokenized(page);
  d.words = pieces_between_spaces(page), d.bytes = page.size();
}

std::vector<std::vector<std::string>> one_part_each(std::vector<std::string> texts) {
  std::vector<std::vector<std::string>> out;
  for (std::string& t : texts) out.push_back({std::move(t)});
  return out;
}

void first_answer_is_target(EvalRow& r, EvalDocument& d) {
  if (d.answers.empty() || d.answers[0].empty())
    r.wrong("there is no answer", "correct this line");
  else
    d.target = d.answers[0][0];
}

void squad(EvalRow& r, EvalDocument& d) {
  d.query = r.has("title") ? fmt::format("Title: {}\n\n", r.text("title")) : "";
  d.query += fmt::format("Background: {}\n\nQuestion: {}\n\nAnswer:", r.text("context"), r.text("question"));
  d.answers = r.is_object("answers") ? one_part_each(r.texts_in("answers", "text")) : r.answers("answers");
  first_answer_is_target(r, d);
}

void drop(EvalRow& r, EvalDocument& d) {
  d.query = fmt::format("{} {}", r.text("passage"), r.text("question"));
  d.answers = r.answers("answers");
  first_answer_is_target(r, d);
  if (!d.answers.empty()) d.target = joined(d.answers[0], ",");
}

void triviaqa(EvalRow& r, EvalDocument& d) {
  d.query = fmt::format("Question: {}?\nAnswer:", r.text("question"));
  d.answers = one_part_each(r.is_object("answer") ? r.texts_in("answer", "aliases") : r.texts("aliases"));
  first_answer_is_target(r, d);
}

void nq_open(EvalRow& r, EvalDocument& d) {
  d.query = fmt::format("Q: {}?\nA:", r.text("question"));
  d.answers = r.answers("answer");
  first_answer_is_target(r, d);
}

// Recall tasks keep the passage in `query` and what follows it in `choices` until the passage has been cut:
// {form, key or question}.
constexpr const char *kCloze = "cloze", *kField = "field", *kPage = "page", *kQuestion = "question";
void recall_document(EvalRow& r, EvalDocument& d, const char* field_form) {
  if (r.has("key")) {
    d.query = r.text("text"), d.choices = {field_form, r.text("key")}, d.answers = {{r.text("value")}};
    if (d.choices[1].size() <= 1 || d.answers[0][0].size() <= 1) d.choices.clear();  // dropped
  } else if (r.has("value")) {
    d.query = r.text("text"), d.choices = {kCloze}, d.answers = {{r.text("value")}};
    if (d.answers[0][0].size() <= 1) d.choices.clear();
  } else {
    std::string passage = r.text(r.has("passage") ? "passage" : "context");
    for (const char* mark : {"[PAR]", "[DOC]", "[TLE]"}) passage = replace_all(passage, mark, "");
    d.query = std::move(passage), d.choices = {kQuestion, r.text("question")};
    d.answers = r.is_object("answers") ? one_part_each(r.texts_in("answers", "text")) : r.answers("answers");
    // Any part of an answer counts.
    std::vector<std::vector<std::string>> parts;
    for (std::vector<std::string>& a : d.answers)
      for (std::string& part : a) parts.push_back({std::move(part)});
    d.answers = std::move(parts);
  }
  first_answer_is_target(r, d);
}
void recall_any(EvalRow& r, EvalDocument& d) { recall_document(r, d, kField); }
void recall_page(EvalRow& r, EvalDocument& d) { recall_document(r, d, kPage); }

Status cut(EvalDocument& d, const TaskSettings& s, const Tokenizer& tokenizer) {
  const std::string form = d.choices[0], about = d.choices.size() > 1 ? d.choices[1] : "";
  CutOptions o{.context = s.recall_context, .keys = {d.answers[0][0]}};
  if (form == kField || form == kPage) o.keys.insert(o.keys.begin(), about);
  Result<std::string> passage = cut_passage(d.query, tokenizer, o);
  if (!passage) return passage.error();
  d.query = form == kCloze      ? recall_cloze(*passage)
            : form == kQuestion ? recall_question(*passage, about)
                                : recall_field(*passage, about, form == kPage);
  d.choices.clear();
  return {};
}

// ---- Scores

double number(bool x) { return x ? 1 : 0; }

size_t first_best(std::span<const double> x) {
  return static_cast<size_t>(std::ranges::max_element(x) - x.begin());
}

// acc, and acc_norm if the task has it: by the likelihood per character of the choice.
void score_choices(const EvalDocument& d, std::span<const EvalResponse> got, std::span<MetricValue> to) {
  std::vector<double> ll, per_character;
  for (size_t i = 0; i < got.size(); ++i) {
    ll.push_back(got[i].log_likelihood);
    per_character.push_back(ll[i] / static_cast<double>(code_points(d.choices[i])));
  }
  to[0].value = number(first_best(ll) == d.gold);
  if (to.size() > 1) to[1].value = number(first_best(per_character) == d.gold);
}

void score_last_word(const EvalDocument&, std::span<const EvalResponse> got, std::span<MetricValue> to) {
  to[0].value = got[0].log_likelihood;
  to[1].value = number(got[0].greedy);
}

void score_rolling(const EvalDocument& d, std::span<const EvalResponse> got, std::span<MetricValue> to) {
  to[0] = {got[0].log_likelihood, static_cast<double>(d.words)};
  to[1] = to[2] = {got[0].log_likelihood, static_cast<double>(d.bytes)};
}

double contains_any(const EvalDocument& d, std::string_view text) {
  return number(std::ranges::any_of(d.answers, [&](const std::vector<std::string>& a) {
    return std::ranges::any_of(
        a, [&](const std::string& part) { return find_ignoring_case(text, part) != std::string::npos; });
  }));
}

void score_squad(const EvalDocument& d, std::span<const EvalResponse> got, std::span<MetricValue> to) {
  for (const std::vector<std::string>& a : d.answers) {
    const AnswerScore s = squad_score(got[0].text, a[0]);
    to[0].value = std::max(to[0].value, s.exact), to[1].value = std::max(to[1].value, s.f1);
  }
  to[2].value = contains_any(d, got[0].text);
}

void score_drop(const EvalDocument& d, std::span<const EvalResponse> got, std::span<MetricValue> to) {
  for (const std::vector<std::string>& a : d.answers) {
    if (a.empty() || strip(a[0]).empty()) continue;
    const AnswerScore s = drop_score(got[0].text, a);
    to[0].value = std::max(to[0].value, s.exact), to[1].value = std::max(to[1].value, s.f1);
  }
}

void score_alias(const EvalDocument& d, std::span<const EvalResponse> got, std::span<MetricValue> to) {
  const std::string_view answer = strip(got[0].text);
  for (const std::vector<std::string>& a : d.answers)
    if (same_ignoring_case_and_punctuation(answer, a[0])) to[0].value = 1;
}

void score_nq(const EvalDocument& d, std::span<const EvalResponse> got, std::span<MetricValue> to) {
  const std::string answer = without_leading_articles(strip(got[0].text));
  for (const std::vector<std::string>& a : d.answers)
    if (same_ignoring_case_and_punctuation(answer, without_leading_articles(a[0]))) to[0].value = 1;
}

void score_contains(const EvalDocument& d, std::span<const EvalResponse> got, std::span<MetricValue> to) {
  to[0].value = contains_any(d, got[0].text);
}

// The share of the values that occur in the text, for the metric of the document's length.
void score_needle(const EvalDocument& d, std::span<const EvalResponse> got, std::span<MetricValue> to) {
  size_t found = 0;
  for (const std::vector<std::string>& a : d.answers)
    found += find_ignoring_case(got[0].text, a[0]) != std::string::npos;
  for (size_t i = 0; i < to.size(); ++i) to[i].weight = number(i == d.metric);
  to[d.metric].value = static_cast<double>(found) / static_cast<double>(d.answers.size());
}

// ---- The table

constexpr std::array kBlimp{"adjunct_island",
                            "anaphor_gender_agreement",
                            "anaphor_number_agreement",
                            "animate_subject_passive",
                            "animate_subject_trans",
                            "causative",
                            "complex_NP_island",
                            "coordinate_structure_constraint_complex_left_branch",
                            "coordinate_structure_constraint_object_extraction",
                            "determiner_noun_agreement_1",
                            "determiner_noun_agreement_2",
                            "determiner_noun_agreement_irregular_1",
                            "determiner_noun_agreement_irregular_2",
                            "determiner_noun_agreement_with_adj_2",
                            "determiner_noun_agreement_with_adj_irregular_1",
                            "determiner_noun_agreement_with_adj_irregular_2",
                            "determiner_noun_agreement_with_adjective_1",
                            "distractor_agreement_relational_noun",
                            "distractor_agreement_relative_clause",
                            "drop_argument",
                            "ellipsis_n_bar_1",
                            "ellipsis_n_bar_2",
                            "existential_there_object_raising",
                            "existential_there_quantifiers_1",
                            "existential_there_quantifiers_2",
                            "existential_there_subject_raising",
                            "expletive_it_object_raising",
                            "inchoative",
                            "intransitive",
                            "irregular_past_participle_adjectives",
                            "irregular_past_participle_verbs",
                            "irregular_plural_subject_verb_agreement_1",
                            "irregular_plural_subject_verb_agreement_2",
                            "left_branch_island_echo_question",
                            "left_branch_island_simple_question",
                            "matrix_question_npi_licensor_present",
                            "npi_present_1",
                            "npi_present_2",
                            "only_npi_licensor_present",
                            "only_npi_scope",
                            "passive_1",
                            "passive_2",
                            "principle_A_c_command",
                            "principle_A_case_1",
                            "principle_A_case_2",
                            "principle_A_domain_1",
                            "principle_A_domain_2",
                            "principle_A_domain_3",
                            "principle_A_reconstruction",
                            "regular_plural_subject_verb_agreement_1",
                            "regular_plural_subject_verb_agreement_2",
                            "sentential_negation_npi_licensor_present",
                            "sentential_negation_npi_scope",
                            "sentential_subject_island",
                            "superlative_quantifiers_1",
                            "superlative_quantifiers_2",
                            "tough_vs_raising_1",
                            "tough_vs_raising_2",
                            "transitive",
                            "wh_island",
                            "wh_questions_object_gap",
                            "wh_questions_subject_gap",
                            "wh_questions_subject_gap_long_distance",
                            "wh_vs_that_no_gap",
                            "wh_vs_that_no_gap_long_distance",
                            "wh_vs_that_with_gap",
                            "wh_vs_that_with_gap_long_distance"};

constexpr NeedleKind kSingle1{}, kSingle2{.essay = true}, kSingle3{.essay = true, .uuids = true},
    kMultiKey{.essay = true, .needles = 4}, kMultiValue{.essay = true, .values = 4},
    kMultiQuery{.essay = true, .needles = 4, .queries = 4};

std::vector<Benchmark> make_table() {
  const std::vector<TaskMetric> acc{{"acc"}}, acc_norm{{"acc"}, {"acc_norm"}}, exact{{"exact_match"}},
      contains{{"contains"}};
  const EvalMaker no_maker;
  const auto choice = [&](std::string name, std::string summary, std::string source,
                          std::vector<std::string> files, const std::vector<TaskMetric>& metrics,
                          void (*build)(EvalRow&, EvalDocument&)) {
    Benchmark t{.name = std::move(name),
                .summary = std::move(summary),
                .source = std::move(source),
                .files = std::move(files),
                .metrics = metrics};
    t.maker = {.build = build, .score = score_choices};
    return t;
  };
  const auto answer = [&](std::string name, std::string summary, std::string source,
                          std::vector<std::string> files, const std::vector<TaskMetric>& metrics,
                          std::vector<std::string> until, const EvalMaker& maker) {
    Benchmark t{.name = std::move(name),
                .summary = std::move(summary),
                .source = std::move(source),
                .files = std::move(files),
                .kind = RequestKind::kGenerate,
                .metrics = metrics,
                .until = std::move(until)};
    t.maker = maker;
    return t;
  };

  std::vector<Benchmark> all;
  Benchmark wiki{.name = "wikitext",
                 .summary = "WikiText-2 test, 62 pages: perplexity",
                 .source = "wiki.test.raw of wikitext-2-raw-v1",
                 .files = {"wikitext2/wiki.test.raw", "wikitext/wikitext_test.jsonl"},
                 .kind = RequestKind::kRolling,
                 .metrics = {{"word_perplexity", Aggregate::kWeightedPerplexity, false},
                             {"byte_perplexity", Aggregate::kWeightedPerplexity, false},
                             {"bits_per_byte", Aggregate::kBitsPerByte, false}},
                 .version = 2};
  wiki.maker = {.build = wikitext, .score = score_rolling};
  all.push_back(std::move(wiki));
  const auto last_word = [&](const char* name, const char* summary, const char* source, const char* file) {
    Benchmark t{.name = name,
                .summary = summary,
                .source = source,
                .files = {file},
                .metrics = {{"perplexity", Aggregate::kPerplexity, false}, {"acc"}}};
    t.maker = {.build = lambada, .score = score_last_word};
    all.push_back(std::move(t));
  };
  last_word("lambada_openai", "LAMBADA test, OpenAI's text: last word of a passage",
            "EleutherAI/lambada_openai, test", "lambada/lambada_test_openai.jsonl");
  last_word("lambada_standard", "LAMBADA test, original text: last word of a passage", "cimec/lambada, test",
            "lambada/lambada_test_plain_text.txt");
  all.push_back(choice("piqa", "PIQA validation: physical common sense", "ybisk/piqa, validation",
                       {"piqa/piqa_validation.jsonl"}, acc_norm, piqa));
  all.push_back(choice("hellaswag", "HellaSwag validation: how a scene goes on",
                       "Rowan/hellaswag, validation", {"hellaswag/hellaswag_validation.jsonl"}, acc_norm,
                       hellaswag));
  all.push_back(choice("winogrande", "WinoGrande XL validation: what a pronoun refers to",
                       "winogrande, winogrande_xl, validation", {"winogrande/winogrande_xl_validation.jsonl"},
                       acc, winogrande));
  all.back().several_contexts = true;
  all.push_back(choice("arc_easy", "ARC easy test: school science", "allenai/ai2_arc, ARC-Easy, test",
                       {"arc/arc_easy_test.jsonl"}, acc_norm, arc));
  all.push_back(choice("arc_challenge", "ARC challenge test: school science",
                       "allenai/ai2_arc, ARC-Challenge, test", {"arc/arc_challenge_test.jsonl"}, acc_norm,
                       arc));
  all.push_back(choice("social_iqa", "SIQA validation: social situations", "social_i_qa, validation",
                       {"siqa/siqa_validation.jsonl"}, acc, social_iqa));
  all.push_back(choice("boolq", "BoolQ validation: yes or no about a passage",
                       "super_glue, boolq, validation", {"boolq/boolq_validation.jsonl"}, acc, boolq));
  all.back().version = 2;
  all.push_back(choice("openbookqa", "OpenBookQA test: elementary science", "openbookqa, main, test",
                       {"openbookqa/openbookqa_test.jsonl"}, acc_norm, openbookqa));
  all.push_back(choice("sciq", "SciQ test, or validation where only that is there: science with a passage",
                       "allenai/sciq, test", {"sciq/sciq_test.jsonl", "sciq/sciq_validation.jsonl"}, acc_norm,
                       sciq));
  all.push_back(choice("copa", "COPA validation: cause or effect", "super_glue, copa, validation",
                       {"copa/copa_validation.jsonl"}, acc, copa));
  all.push_back(answer("squad", "SQuAD 1.1 validation, with the prompt of squadv2: answer from a passage",
                       "rajpurkar/squad, validation",
                       {"squad/squad_v1.1_validation.jsonl", "squad/squad_v1.1_validation_sample1000.jsonl",
                        "squad/xquad_en.jsonl"},
                       {{"exact"}, {"f1"}, {"contains"}}, {"\n"}, {.build = squad, .score = score_squad}));
  all.push_back(answer("drop", "DROP validation: reading and counting", "EleutherAI/drop, validation",
                       {"drop/drop_validation.jsonl", "drop/drop_validation_sample1000_answerlists.jsonl"},
                       {{"em"}, {"f1"}}, {"."}, {.build = drop, .score = score_drop}));
  all.back().delimiter = "", all.back().version = 3;
  all.push_back(
      answer("triviaqa", "TriviaQA validation without context: facts",
             "mandarjoshi/trivia_qa, rc.nocontext, validation",
             {"triviaqa/triviaqa_nocontext_validation.jsonl", "triviaqa/triviaqa_nocontext_sample3000.jsonl"},
             exact, {"\n", ".", ","}, {.build = triviaqa, .score = score_alias}));
  all.back().filter = "remove_whitespace", all.back().version = 3;
  all.push_back(answer("nq_open", "Natural Questions (open) validation: facts", "nq_open, validation",
                       {"nq_open/NQ-open.dev.jsonl"}, exact, {"\n", ".", ","},
                       {.build = nq_open, .score = score_nq}));
  all.back().filter = "remove_whitespace", all.back().version = 4;
  all.back().description = "Answer these questions:\n\n", all.back().fewshot_delimiter = "\n";

  const auto recall = [&](const char* name, const char* summary, const char* source,
                          std::vector<std::string> files, void (*build)(EvalRow&, EvalDocument&)) {
    all.push_back(answer(name, summary, source, std::move(files), contains, {"\n"},
                         {.build = build, .score = score_contains}));
    all.back().group = "recall", all.back().cuts_context = true, all.back().max_new_tokens = 48;
  };
  recall("swde_recall", "SWDE: a value from a web page", "hazyresearch/based-swde-v2, validation",
         {"recall/swde.jsonl"}, recall_page);
  recall("fda_recall", "FDA: a value from a report", "hazyresearch/based-fda, validation",
         {"recall/fda.jsonl"}, recall_any);
  recall("squad_recall", "SQuAD: an answer from a passage cut to --recall-context tokens",
         "hazyresearch/based-squad, validation",
         {"recall/squad.jsonl", "squad/squad_v1.1_validation_sample1000.jsonl"}, recall_any);
  recall("drop_recall", "DROP: an answer from a passage cut to --recall-context tokens",
         "hazyresearch/based_drop, validation",
         {"recall/drop.jsonl", "drop/drop_validation_sample1000_answerlists.jsonl"}, recall_any);
  recall("nq_recall", "Natural Questions: an answer from a page", "hazyresearch/based_nq_2048, validation",
         {"recall/nq.jsonl"}, recall_any);
  recall("triviaqa_recall", "TriviaQA: an answer from a page", "hazyresearch/based_triviaqa, validation",
         {"recall/triviaqa.jsonl"}, recall_any);

  const auto needle = [&](const char* name, const char* summary, const NeedleKind& kind) {
    Benchmark t{.name = name,
                .group = "niah",
                .summary = summary,
                .source = "generated from --seed",
                .kind = RequestKind::kGenerate,
                .max_new_tokens = 128};
    t.maker = {.score = score_needle, .needle = &kind};
    all.push_back(std::move(t));
  };
  needle("niah_single_1", "RULER: a number in five sentences repeated", kSingle1);
  needle("niah_single_2", "RULER: a number in prose", kSingle2);
  needle("niah_single_3", "RULER: a UUID in prose", kSingle3);
  needle("niah_multikey", "RULER: one of four numbers with keys", kMultiKey);
  needle("niah_multivalue", "RULER: all four numbers of a key", kMultiValue);
  needle("niah_multiquery", "RULER: the numbers of four keys", kMultiQuery);

  for (const char* name : kBlimp) {
    Benchmark t = choice(fmt::format("blimp_{}", name), "BLiMP: the acceptable one of two sentences",
                         "nyu-mll/blimp", {fmt::format("blimp/{}.jsonl", name)}, acc, blimp);
    t.group = "blimp";
    all.push_back(std::move(t));
  }
  return all;
}

std::string as_name(std::string_view text) { return replace_all(text, "-", "_"); }

// The tasks of the tables in papers on linear attention (Gated DeltaNet's Table 1 and its successors).
constexpr std::array kPapers{"wikitext", "lambada_openai", "piqa",       "hellaswag", "winogrande",
                             "arc_easy", "arc_challenge",  "social_iqa", "boolq"};

// ---- Few-shot examples

// lm-eval draws them from the split that is scored if there is no other: one more than needed, so that
// documents equal to the scored one can be left out.
void add_examples(const Benchmark& task, const Docs& docs, size_t count, const TaskSettings& s,
                  std::vector<std::string>& contexts) {
  PythonRandom random(s.seed);
  const auto wanted = static_cast<size_t>(s.fewshot);
  for (size_t i = 0; i < count; ++i) {
    std::vector<size_t> examples = random.sample(docs.size(), wanted + 1);
    std::erase_if(examples, [&](size_t k) { return docs[k].row == docs[i].row; });
    if (examples.size() < wanted) {
      // Several copies were drawn: again, from all documents but them.
      std::vector<size_t> pool;
      for (size_t k = 0; k < docs.size(); ++k)
        if (docs[k].row != docs[i].row) pool.push_back(k);
      examples = random.sample(pool.size(), std::min(wanted, pool.size()));
      for (size_t& e : examples) e = pool[e];
    }
    examples.resize(std::min(examples.size(), wanted));
    for (const size_t k : examples)
      contexts[i] += docs[k].query + task.delimiter + docs[k].target + task.fewshot_delimiter;
  }
}

void make_requests(const Benchmark& task, const std::string& context, EvalDocument& d) {
  if (task.kind == RequestKind::kRolling) {
    d.requests = {{"", d.target}};
  } else if (task.kind == RequestKind::kGenerate) {
    d.requests = {{context + d.query, ""}};
  } else if (d.choices.empty()) {
    d.requests = {{context + d.query, d.target}};
  } else {
    for (const std::string& c : d.choices)
      d.requests.push_back(task.several_contexts ? EvalRequest{context + c, task.delimiter + d.target}
                                                 : EvalRequest{context + d.query, task.delimiter + c});
  }
}

Result<Docs> generate_documents(const Benchmark& task, const TaskSettings& s, const Tokenizer& tokenizer) {
  Docs docs;
  for (size_t m = 0; m < s.lengths.size(); ++m)
    for (int64_t i = 0; i < s.needle_samples; ++i) {
      if (docs.size() >= s.limit) return docs;
      Result<NeedleSample> n =
          make_needle(*task.maker.needle, s.lengths[m], s.seed, static_cast<uint64_t>(i), tokenizer);
      if (!n) return Error{fmt::format("{}: {}", task.name, n.error().what), n.error().fix};
      EvalDocument d{.id = docs.size(), .metric = m};
      Json row{{"index", i}, {"max_length", s.lengths[m]}, {"length", n->tokens}, {"input", n->prompt}};
      row["outputs"] = n->answers;
      d.row = row.dump(-1, ' ', false, Json::error_handler_t::replace);
      d.query = std::move(n->prompt);
      d.answers = one_part_each(std::move(n->answers));
      make_requests(task, "", d);
      docs.push_back(std::move(d));
    }
  return docs;
}

}  // namespace

const std::vector<Benchmark>& all_eval_tasks() {
  static const std::vector<Benchmark> table = make_table();
  return table;
}

const std::vector<TaskGroup>& eval_groups() {
  static const std::vector<TaskGroup> groups{
      {"papers", "language modelling and common sense, as in tables of linear-attention papers", false},
      {"blimp", "67 sets of minimal pairs; their mean is a result", true},
      {"recall", "answers from passages of limited length (Based, JRT)", false},
      {"niah", "needles in a haystack of --lengths tokens (RULER)", false},
      {"all", "every task", false}};
  return groups;
}

bool in_group(const Benchmark& task, const std::string& group) {
  if (group == "papers") return std::ranges::find(kPapers, task.name) != kPapers.end();
  return group == "all" || task.group == group;
}

Result<std::vector<const Benchmark*>> find_eval_tasks(const std::vector<std::string>& names) {
  std::vector<const Benchmark*> found;
  const auto add = [&](const Benchmark& t) {
    if (std::ranges::find(found, &t) == found.end()) found.push_back(&t);
  };
  for (const std::string& raw : names) {
    const std::string name = as_name(raw);
    bool known = false;
    for (const Benchmark& t : all_eval_tasks())
      if (t.name == name || std::ranges::any_of(eval_groups(), [&](const TaskGroup& g) {
            return g.name == name && in_group(t, name);
          }))
        known = true, add(t);
    if (known) continue;
    std::vector<std::string> all, shown;
    for (const TaskGroup& g : eval_groups()) all.push_back(g.name), shown.push_back(g.name);
    for (const Benchmark& t : all_eval_tasks()) {
      all.push_back(t.name);
      if (t.group != "blimp") shown.push_back(t.name);
    }
    const std::string near = nearest(name, all);
    return Error{fmt::format("there is no benchmark '{}'", raw),
                 fmt::format("{}groups and tasks: {} and blimp_NAME",
                             near.empty() ? "" : "did you mean '" + near + "'? ", joined(shown, ", "))};
  }
  return found;
}

Result<Docs> load_documents(const Benchmark& task, const TaskSettings& s, const Tokenizer* tokenizer,
                            size_t* available) {
  check(tokenizer || !task.needs_tokenizer(), "load_documents: this task needs a tokenizer");
  if (task.maker.needle) {
    if (available) *available = s.lengths.size() * static_cast<size_t>(s.needle_samples);
    return generate_documents(task, s, *tokenizer);
  }
  std::string path;
  for (const std::string& f : task.files)
    if (path.empty() && path_exists(s.data + "/" + f)) path = s.data + "/" + f;
  if (path.empty()) {
    std::vector<std::string> places;
    for (const std::string& f : task.files) places.push_back(s.data + "/" + f);
    return Error{fmt::format("{}: the data is missing: {}", task.name, joined(places, " or ")),
                 fmt::format("get {} (each row a line of JSON, if its name ends in .jsonl), put it there or "
                             "give its folder with --data",
                             task.source)};
  }
  Result<EvalRows> rows = read_eval_rows(path);
  if (!rows) return rows.error();
  if (available) *available = rows->rows.size();
  Docs docs;
  for (size_t i = 0; i < rows->rows.size(); ++i) {
    if (s.fewshot == 0 && docs.size() >= s.limit) break;
    const Json& json = rows->rows[i];
    EvalRow row(json, fmt::format("{}:{}", path, rows->lines[i]));
    EvalDocument d{.id = i};
    task.maker.build(row, d);
    if (!row.status()) return row.status().error();
    if (task.cuts_context) {
      if (d.choices.empty()) continue;  // its key or answer is too short to be found
      if (const Status cutting = cut(d, s, *tokenizer); !cutting) return cutting.error();
    }
    d.row = json.dump(-1, ' ', false, Json::error_handler_t::replace);
    docs.push_back(std::move(d));
  }
  if (docs.empty()) return Error{path + ": no documents", "the file is empty; get " + task.source + " again"};
  const size_t count = std::min(docs.size(), s.limit);
  std::vector<std::string> contexts(count, task.description);
  if (s.fewshot > 0) {
    if (task.kind == RequestKind::kRolling)
      return Error{task.name + ": perplexity of a text has no examples", "leave --fewshot out"};
    if (static_cast<size_t>(s.fewshot) >= docs.size())
      return Error{fmt::format("{}: --fewshot is {}, but the file has {} documents", task.name, s.fewshot,
                               docs.size()),
                   "use fewer examples"};
    add_examples(task, docs, count, s, contexts);
  }
  docs.resize(count);
  for (size_t i = 0; i < docs.size(); ++i) make_requests(task, contexts[i], docs[i]);
  return docs;
}

std::vector<TaskMetric> metrics_of(const Benchmark& task, const TaskSettings& s) {
  if (!task.maker.needle) return task.metrics;
  std::vector<TaskMetric> out;
  for (const int64_t length : s.lengths) out.push_back({fmt::format("{}", length)});
  return out;
}

std::string requests_sha256(const Benchmark& task, std::span<const EvalDocument> documents) {
  Sha256 sum;
  bool first = true;
  for (const EvalDocument& d : documents)
    for (const EvalRequest& r : d.requests) {
      if (task.kind == RequestKind::kRolling)
        sum.text(first ? "" : "\x1E").text(r.continuation);
      else
        sum.text(r.context).text("\x1F").text(r.continuation).text("\x1E");
      first = false;
    }
  return sum.hex();
}

std::string gold_sha256(std::span<const EvalDocument> documents) {
  std::vector<std::string> gold;
  for (const EvalDocument& d : documents)
    if (d.gold) gold.push_back(fmt::format("{}", *d.gold));
  return Sha256().text(joined(gold, ",")).hex();
}

}  // namespace braid
