// Text that travels inside the program.
#pragma once

#include <string_view>

namespace braid {

std::string_view shakespeare();  // scenes by Shakespeare, public domain, 1.1 MB

}  // namespace braid
