// Markdown blocks for docs/reference, from the tables that the program itself uses.
#pragma once

#include <functional>
#include <string>

namespace braid {

// Prints the block of `braid --markdown TOPIC`; `cli` prints the page of the command line.
int print_markdown(const std::string& topic, const std::function<void()>& cli);

}  // namespace braid
