#include "data/mixture.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <numeric>

#include "base/number.h"
#include "io/file.h"
#include "io/strict_json.h"

namespace braid {
namespace {

namespace fs = std::filesystem;

constexpr const char* kMixtureFormat = "braid mixture";
constexpr uint64_t kMixtureVersion = 1;
constexpr size_t kPeriod = 1000, kMaxSets = 500;

// Largest remainders, at least one for each.
std::vector<size_t> counts_of(const std::vector<WeightedSet>& sets) {
  double all = 0;
  for (const WeightedSet& s : sets) all += s.weight;
  std::vector<size_t> counts;
  std::vector<double> rest;
  for (const WeightedSet& s : sets) {
    const double exact = kPeriod * s.weight / all;
    counts.push_back(std::max<size_t>(1, static_cast<size_t>(exact)));
    rest.push_back(exact - static_cast<double>(counts.back()));
  }
  for (size_t sum = std::accumulate(counts.begin(), counts.end(), size_t{0}); sum < kPeriod; ++sum) {
    const auto most = std::ranges::max_element(rest) - rest.begin();
    ++counts[static_cast<size_t>(most)], --rest[static_cast<size_t>(most)];
  }
  return counts;
}

}  // namespace

Result<Mixture> make_mixture(std::vector<WeightedSet> sets) {
  if (sets.empty()) return Error{"a mixture of no folders", "give at least one folder of tokens"};
  if (sets.size() > kMaxSets)
    return Error{fmt::format("a mixture of {} folders; the limit is {}", sets.size(), kMaxSets),
                 "join some of them"};
  for (const WeightedSet& s : sets)
    if (!(s.weight > 0 && s.weight <= 1e9))
      return Error{fmt::format("{}: the weight is {}", s.path, s.weight), "give a number above 0, up to 1e9"};
  Mixture m{.sets = std::move(sets)};
  if (m.sets.size() == 1) {
    m.order = {0};
    return m;
  }
  const std::vector<size_t> counts = counts_of(m.sets);
  struct Place {
    double at;
    uint32_t set;
  };
  std::vector<Place> places;
  for (uint32_t s = 0; s < counts.size(); ++s)
    for (size_t i = 0; i < counts[s]; ++i)
      places.push_back({(static_cast<double>(i) + 0.5) / static_cast<double>(counts[s]), s});
  std::ranges::stable_sort(places, {}, &Place::at);
  for (const Place& p : places) m.order.push_back(p.set);
  return m;
}

Status save_mixture(const Mixture& mixture, const std::string& path) {
  Json sets = Json::array();
  for (const WeightedSet& s : mixture.sets) sets.push_back({{"path", s.path}, {"weight", s.weight}});
  return save_json(
      path,
      {{"format", kMixtureFormat}, {"version", kMixtureVersion}, {"sets", sets}, {"order", mixture.order}});
}

Result<Mixture> load_mixture(const std::string& path) {
  const Result<Json> json = load_object(path);
  if (!json) return json.error();
  std::string format;
  uint64_t version = 0;
  if (Status s = read_field(*json, "format", format, path); !s) return s.error();
  if (Status s = read_field(*json, "version", version, path); !s) return s.error();
  if (format != kMixtureFormat || version != kMixtureVersion)
    return Error{fmt::format("{}: {} version {} is not known here", path, in_quotes(format), version),
                 "make it again: braid data mix"};
  for (const char* name : {"sets", "order"})
    if (!json->contains(name) || !(*json)[name].is_array())
      return field_error(path, name, json->contains(name) ? &(*json)[name] : nullptr, "a list");
  Mixture m;
  for (const Json& each : (*json)["sets"]) {
    WeightedSet set;
    if (!each.is_object()) return field_error(path, "sets", &each, "a list of objects");
    if (Status s = read_field(each, "path", set.path, path, "sets."); !s) return s.error();
    if (Status s = read_field(each, "weight", set.weight, path, "sets."); !s) return s.error();
    if (fs::path(set.path).is_relative()) set.path = (fs::path(path).parent_path() / set.path).string();
    m.sets.push_back(std::move(set));
  }
  for (const Json& each : (*json)["order"]) {
    uint64_t set = 0;
    if (Status s = read_value(each, set, "order", path); !s) return s.error();
    if (set >= m.sets.size()) return field_error(path, "order", &each, "numbers of sets, from 0");
    m.order.push_back(static_cast<uint32_t>(set));
  }
  for (size_t s = 0; s < m.sets.size(); ++s)
    if (!std::ranges::count(m.order, s))
      return Error{path + ": order never names " + m.sets[s].path, "make it again: braid data mix"};
  if (m.order.empty()) return Error{path + ": has no sets", "make it again: braid data mix"};
  return m;
}

Result<Mixture> parse_mixture(const std::vector<std::string>& words, const std::string& option) {
  if (words.size() == 1 && words[0].ends_with(".json")) return load_mixture(words[0]);
  std::vector<WeightedSet> sets;
  for (const std::string& word : words) {
    const size_t colon = word.rfind(':');
    // A folder's own name may have a colon.
    if (colon == std::string::npos || path_exists(word)) {
      sets.push_back({word, 1});
      continue;
    }
    const Result<double> weight =
        parse_number<double>(std::string_view(word).substr(colon + 1), option + " " + word + ": the weight",
                             {.low = 0, .high = 1e9, .above = true});
    if (!weight) return weight.error();
    sets.push_back({word.substr(0, colon), *weight});
  }
  return make_mixture(std::move(sets));
}

}  // namespace braid
