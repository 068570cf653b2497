// A task's settings: each is written once, as a Setting, and parsing, help and fingerprint come from it.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "base/error.h"

namespace braid {

struct Setting {
  std::string_view name;
  std::variant<int64_t*, double*, bool*, std::string*> value;  // holds the default until it is set
  double low, high;                                            // allowed numbers, both ends
  std::string_view help;
  std::span<const std::string_view> choices = {};  // allowed words, of a string
};

std::string value_text(const Setting& setting);  // "40", "0.01", "true"
std::string range_text(const Setting& setting);  // "2 .. 65536", "true or false", "S3, S4 or A5"

// Sets every "name=value" and returns all problems: unknown names, values that do not parse or lie outside,
// and names given twice.
std::vector<Problem> apply_settings(const std::vector<Setting>& settings,
                                    const std::vector<std::string>& assignments);

}  // namespace braid
