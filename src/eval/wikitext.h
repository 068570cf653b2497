// WikiText as lm-eval scores it: pages of the raw file, and their text as it would be typed.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace braid {

std::vector<std::string> wikitext_pages(std::string_view raw);
// Without the spaces that the data set has around punctuation.
std::string wikitext_detokenized(std::string_view page);

}  // namespace braid
