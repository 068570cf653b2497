// How generated answers are compared with right ones: the rules of SQuAD, DROP, TriviaQA and Natural
// Questions, as lm-eval applies them.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace braid {

struct AnswerScore {
  double exact = 0, f1 = 0;
};
// `gold` has one part for each span of the answer.
AnswerScore drop_score(std::string_view answer, const std::vector<std::string>& gold);
AnswerScore squad_score(std::string_view answer, std::string_view gold);

bool same_ignoring_case_and_punctuation(std::string_view a, std::string_view b);
std::string without_leading_articles(std::string_view text);  // nq_open: "the ", "An ", .. at word starts

std::optional<double> python_float(std::string_view text);  // float(text), none where that fails
std::string python_float_text(double x);                    // str(x)

}  // namespace braid
