// Python's string functions, on UTF-8: prompts and scores of lm-eval are defined by them. Text is valid
// UTF-8.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace braid {

bool is_python_space(uint32_t code);  // str.isspace() of a character, and \s of a regular expression
size_t code_points(std::string_view text);
std::string_view strip_left(std::string_view text);
std::string_view strip_right(std::string_view text);
std::string_view strip(std::string_view text);
std::string_view strip_chars(std::string_view text, std::string_view ascii);  // strip(chars)
std::string replace_all(std::string_view text, std::string_view what, std::string_view by);
std::string capitalized(std::string_view text);  // the first character upper case (ASCII), the rest lower
std::vector<std::string> split_spaces(std::string_view text);  // split(): no empty pieces
std::vector<std::string> split_at(std::string_view text, char c);
std::string joined(const std::vector<std::string>& words, std::string_view between);
size_t pieces_between_spaces(std::string_view text);     // len(re.split(r"\s+", text)): empty ends count
std::string without_punctuation(std::string_view text);  // ASCII punctuation
// Where `what` begins in `text`, ignoring case; npos if nowhere.
size_t find_ignoring_case(std::string_view text, std::string_view what);

}  // namespace braid
