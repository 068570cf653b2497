// Text as Python sees it: strings are UTF-8, positions and lengths count code points.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace braid::chat {

bool is_utf8(std::string_view text);

// All below take valid UTF-8.
char32_t next_point(std::string_view text, size_t& at);  // reads one code point and moves `at` behind it
void append_point(std::string& text, char32_t point);
size_t count_points(std::string_view text);
std::vector<std::string_view> split_points(std::string_view text);

bool is_space(char32_t c);  // what str.strip() and the \s of a regular expression take away
bool is_word(char32_t c);   // the \w of a regular expression
bool is_alpha(char32_t c);
bool is_digit(char32_t c);
bool is_printable(char32_t c);
bool is_upper_case(char32_t c);
bool is_lower_case(char32_t c);

std::string to_upper(std::string_view text);
std::string to_lower(std::string_view text);
std::string to_title(std::string_view text);        // str.title()
std::string to_capitalized(std::string_view text);  // str.capitalize()

std::string_view strip_left(std::string_view text);
std::string_view strip_right(std::string_view text);
std::string_view strip(std::string_view text);
std::string_view strip_left(std::string_view text, std::string_view chars);
std::string_view strip_right(std::string_view text, std::string_view chars);

std::vector<std::string_view> split_lines(std::string_view text, bool keep_ends);
std::vector<std::string_view> split_words(std::string_view text, int64_t max_splits, bool from_right);
std::vector<std::string_view> split_at(std::string_view text, std::string_view separator, int64_t max_splits,
                                       bool from_right);

std::string repr_text(std::string_view text);  // in Python's quotes
std::string float_text(double x);              // repr(float): the fewest digits that give x again

}  // namespace braid::chat
