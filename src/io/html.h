// Text inside HTML.
#pragma once

#include <string>
#include <string_view>

namespace braid {

std::string escape_html(std::string_view text);  // & < > " ' as Python's markupsafe writes them

}  // namespace braid
