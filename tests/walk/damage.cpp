#include "walk/damage.h"

#include <algorithm>
#include <cstdint>
#include <cstring>

#include "base/rng.h"
#include "io/json.h"

namespace braid::walk {
namespace {

std::string nested(size_t n) { return std::string(n, '['); }

// Every value of a document, by its path; of long lists the first and the last.
void collect(const Json& at, const Json::json_pointer& path, std::vector<Json::json_pointer>& all) {
  all.push_back(path);
  if (all.size() > 250) return;
  if (at.is_object()) {
    size_t n = 0;
    for (const auto& [key, value] : at.items())
      if (++n <= 60) collect(value, path / key, all);
  } else if (at.is_array()) {
    for (size_t i = 0; i < at.size(); ++i)
      if (i == 0 || i + 1 == at.size()) collect(at[i], path / i, all);
  }
}

}  // namespace

Damaged damage_bytes(const std::string& good) {
  Damaged all{{"empty", ""},
              {"a byte", good.substr(0, 1)},
              {"cut in the middle", good.substr(0, good.size() / 2)},
              {"cut at the end", good.substr(0, good.size() - 1)},
              {"something behind it", good + std::string(1000, 'x')},
              {"zeros", std::string(good.size(), '\0')},
              {"zeros behind it", good + std::string(1 << 20, '\0')},
              {"0xff", std::string(good.size(), '\xff')},
              {"a megabyte of letters", std::string(1 << 20, 'a')},
              {"nested", nested(400'000)},
              {"not UTF-8", "\"\xff\xfe\xc3\"" + good}};
  Rng rng(1, "walk");
  for (int i = 0; i < 24; ++i) {
    std::string bytes = good;
    // In the head of a file is what says how to read the rest.
    const size_t among = i % 2 ? bytes.size() : std::min<size_t>(bytes.size(), 400);
    for (int n = 0; n <= i % 5; ++n) bytes[rng.below(among)] ^= static_cast<char>(1 << rng.below(8));
    all.emplace_back("flipped " + std::to_string(i), bytes);
  }
  return all;
}

Damaged damage_json(const std::string& good) {
  Damaged all = damage_bytes(good);
  const Result<Json> parsed = parse_ordered_json(good, "good");
  if (!parsed) return all;
  const std::pair<const char*, Json> others[] = {{"null", nullptr},
                                                 {"a word", "zzz"},
                                                 {"-1", -1},
                                                 {"0", 0},
                                                 {"int64", INT64_MAX},
                                                 {"1e300", 1e300},
                                                 {"a list", Json::array({1, "x", nullptr})},
                                                 {"an object", {{"a", {{"b", 1}}}}},
                                                 {"true", true}};
  std::vector<Json::json_pointer> paths;
  collect(*parsed, Json::json_pointer(), paths);
  for (const auto& path : paths) {
    for (const auto& [what, value] : others) {
      Json changed = *parsed;
      changed[path] = value;
      all.emplace_back(path.to_string() + " is " + what, changed.dump());
    }
    if (path.empty()) continue;
    Json without = *parsed;
    Json& parent = without[path.parent_pointer()];
    if (parent.is_object()) {
      parent.erase(path.back());
      all.emplace_back("without " + path.to_string(), without.dump());
    }
  }
  // What a value of JSON cannot hold is written into the text.
  constexpr const char* kMark = "\"@@\"";
  const std::string long_word = "\"" + std::string(1 << 20, 'y') + "\"";
  for (size_t i = 0; i < paths.size(); i += std::max<size_t>(1, paths.size() / 12))
    for (const auto& [what, text] : {std::pair<const char*, std::string>{"nested", nested(400'000)},
                                     {"NaN and nested", "[NaN," + nested(400'000)},
                                     {"NaN", "NaN"},
                                     {"closed nests", nested(150) + std::string(150, ']')},
                                     {"a megabyte", long_word},
                                     {"not UTF-8", "\"\xff\xc3\""},
                                     {"\\\\\" and NaN", "[\"a\\\\\",NaN]"}}) {
      Json changed = *parsed;
      changed[paths[i]] = "@@";
      std::string dumped = changed.dump();
      dumped.replace(dumped.find(kMark), std::strlen(kMark), text);
      all.emplace_back(paths[i].to_string() + " is " + what, dumped);
    }
  return all;
}

Damaged damage_safetensors(const std::string& good) {
  Damaged all = damage_bytes(good);
  uint64_t length = 0;
  std::memcpy(&length, good.data(), sizeof length);
  const std::string header = good.substr(8, length), data = good.substr(8 + length);
  Damaged headers = damage_json(header);
  // Of the many tensors that are wrong in the same way, a few.
  for (size_t i = 0; i<headers.size(); i += headers.size()> 400 ? 5 : 1) {
    const uint64_t size = headers[i].second.size();
    std::string bytes(8, '\0');
    std::memcpy(bytes.data(), &size, sizeof size);
    all.emplace_back("header: " + headers[i].first, bytes + headers[i].second + data);
  }
  for (const uint64_t claim :
       {uint64_t{0}, uint64_t{1}, uint64_t{1} << 20, uint64_t{1} << 40, UINT64_MAX, UINT64_MAX - 7}) {
    std::string bytes = good;
    std::memcpy(bytes.data(), &claim, sizeof claim);
    all.emplace_back("a header of " + std::to_string(claim), bytes);
  }
  // NaN and infinity in the numbers.
  for (const uint32_t bits : {0x7fc00000u, 0x7f800000u, 0xff800000u, 0x7f7fffffu}) {
    std::string bytes = good;
    for (size_t at = 8 + length; at + 4 <= bytes.size(); at += 4) std::memcpy(bytes.data() + at, &bits, 4);
    all.emplace_back("numbers " + std::to_string(bits), bytes);
  }
  return all;
}

}  // namespace braid::walk
