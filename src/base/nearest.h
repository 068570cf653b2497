// "Did you mean": the candidate with the smallest edit distance, or empty if none is close.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace braid {

std::string nearest(std::string_view word, const std::vector<std::string>& candidates);

// A sentence for error messages: "did you mean 'x'?" or "known: a, b, c".
std::string suggest(std::string_view word, const std::vector<std::string>& candidates);
// Both, for names that are often close to one another: "did you mean 'x'? known: a, b, c".
std::string suggest_with_all(std::string_view word, const std::vector<std::string>& candidates);

}  // namespace braid
