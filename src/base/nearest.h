// Names for mistyped ones: those that begin with the typed text, else the one at the smallest edit distance.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace braid {

std::string nearest(std::string_view word,
                    const std::vector<std::string>& candidates);  // empty: none is close

// The fix of an error: "use 'x'", "use one of: a, b, c" of those with the typed prefix, or of all.
std::string suggest(std::string_view word, const std::vector<std::string>& candidates);
// Both, for names that are often close to one another: "use 'x'; known: a, b, c".
std::string suggest_with_all(std::string_view word, const std::vector<std::string>& candidates);

}  // namespace braid
