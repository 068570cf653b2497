// Recall from a passage, as Based and JRT measure it (arXiv:2402.18668, arXiv:2407.05483): the passage is cut
// to a number of tokens around the answer, and the answer must occur in a short greedy continuation.
#pragma once

#include <cstdint>
#include <optional>

#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"

namespace braid {

class Tokenizer;

struct CutOptions {
  int64_t context = 1024;                    // tokens that the prompt may have, the answer's included
  std::vector<std::string> keys = {};        // where the first of these occurs is the middle; none: the start
  std::optional<int64_t> answer_token = {};  // where the answer is if it is not found in the text
};
// The part of the passage around its answer.
Result<std::string> cut_passage(std::string_view passage, const Tokenizer& tokenizer, const CutOptions& o);

// Prompts by the form of the data set.
std::string recall_cloze(std::string_view passage);                                   // SQuAD
std::string recall_field(std::string_view passage, std::string_view key, bool page);  // FDA; page: SWDE
std::string recall_question(std::string_view passage, std::string_view question);     // DROP, NQ, TriviaQA

}  // namespace braid
