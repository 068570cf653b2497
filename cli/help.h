// --help: options in groups, one example for each verb; and what completion offers as values.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace CLI {
class App;
}

namespace braid {

void print_help();                      // of the program: its verbs
void print_help(const CLI::App& verb);  // of a verb

// The heading below which --help shows an option, named with its dashes.
std::string_view option_group(std::string_view verb, std::string_view option);

// What may follow an option, or be an argument without a name.
struct ValueHint {
  std::vector<std::string> words = {};
  bool files = false, folders = false;
  bool empty() const { return words.empty() && !files && !folders; }
};
ValueHint value_hint(std::string_view verb, std::string_view option);

}  // namespace braid
