#include "eval/needle.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "base/rng.h"
#include "data/embedded.h"
#include "eval/python_text.h"
#include "tokenizer/tokenizer.h"

namespace braid {
namespace {

constexpr std::array kAdjectives{"amber",   "brave",  "calm",   "clever", "crisp",  "distant", "eager",
                                 "early",   "faint",  "fierce", "gentle", "golden", "hollow",  "humble",
                                 "idle",    "jolly",  "keen",   "lively", "mellow", "narrow",  "oaken",
                                 "patient", "quaint", "rapid",  "rustic", "silent", "sturdy",  "tender",
                                 "upper",   "velvet", "wintry", "young"};
constexpr std::array kNouns{"anchor",  "badger",  "candle", "dragon", "engine", "falcon", "garden",
                            "harbor",  "island",  "jacket", "kettle", "ladder", "meadow", "needle",
                            "orchard", "pepper",  "quarry", "ribbon", "saddle", "temple", "umbrella",
                            "valley",  "walnut",  "yacht",  "beacon", "copper", "dahlia", "ferret",
                            "goblet",  "lantern", "mirror", "parrot"};
constexpr std::string_view kRepeated =
    "The grass is green. The sky is blue. The sun is yellow. Here we go. There and back again.";

std::string value_of(const NeedleKind& kind, Rng& rng) {
  if (!kind.uuids) return fmt::format("{}", rng.between(1000000, 9999999));
  const uint64_t a = rng.next64(), b = rng.next64();
  return fmt::format("{:08x}-{:04x}-4{:03x}-{:x}{:03x}-{:012x}", a >> 32, a >> 16 & 0xffff, a & 0xfff,
                     8 + (b >> 62), b >> 48 & 0xfff, b & 0xffffffffffff);
}

// Sentences of the haystack: enough of them for any length, from a place that the sample draws.
std::vector<std::string> haystack(const NeedleKind& kind, size_t sentences, Rng& rng) {
  std::vector<std::string> out;
  if (!kind.essay) {
    out.assign(sentences, std::string(kRepeated));
    return out;
  }
  const std::vector<std::string> lines = split_at(shakespeare(), '\n');
  for (size_t at = rng.below(lines.size()); out.size() < sentences; at = (at + 1) % lines.size())
    if (!strip(lines[at]).empty()) out.push_back(lines[at]);
  return out;
}

std::string listed(const std::vector<std::string>& words) {
  std::string out;
  for (size_t i = 0; i < words.size(); ++i)
    out += (i == 0 ? "" : i + 1 == words.size() ? ", and " : ", ") + words[i];
  return out;
}

}  // namespace

Result<NeedleSample> make_needle(const NeedleKind& kind, int64_t length, uint64_t seed, uint64_t index,
                                 const Tokenizer& tokenizer) {
  Rng rng(seed, fmt::format("needle/{}{}{}{}{}/{}", kind.essay, kind.uuids, kind.needles, kind.values,
                            kind.queries, length));
  rng.seek(index);
  const std::string type = kind.uuids ? "uuid" : "number";
  std::vector<std::string> keys, needles, asked;
  NeedleSample sample;
  while (keys.size() < static_cast<size_t>(kind.needles)) {
    std::string key =
        fmt::format("{}-{}", kAdjectives[rng.below(kAdjectives.size())], kNouns[rng.below(kNouns.size())]);
    if (std::ranges::find(keys, key) == keys.end()) keys.push_back(std::move(key));
  }
  for (size_t k = 0; k < keys.size(); ++k) {
    const bool wanted = k < static_cast<size_t>(kind.queries);
    if (wanted) asked.push_back(keys[k]);
    for (int v = 0; v < kind.values; ++v) {
      const std::string value = value_of(kind, rng);
      needles.push_back(fmt::format("One of the special magic {}s for {} is: {}.", type, keys[k], value));
      if (wanted) sample.answers.push_back(value);
    }
  }
  std::vector<double> depths;  // where each needle is, as a share of the haystack
  for (size_t i = 0; i < needles.size(); ++i) depths.push_back(rng.uniform());
  for (size_t i = needles.size(); i > 1; --i) std::swap(needles[i - 1], needles[rng.below(i)]);
  std::ranges::sort(depths);

  const bool one = sample.answers.size() == 1;
  const std::string names = one ? type : type + "s";
  const auto prompt = [&](const std::vector<std::string>& hay, size_t sentences) {
    std::vector<std::string> lines;
    size_t next = 0;
    for (size_t i = 0; i <= sentences; ++i) {
      while (next < needles.size() && static_cast<size_t>(depths[next] * static_cast<double>(sentences)) <= i)
        lines.push_back(needles[next++]);
      if (i < sentences) lines.push_back(hay[i]);
    }
    return fmt::format(
        "{} special magic {} hidden within the following text. Make sure to memorize it. I will quiz you "
        "about "
        "the {} afterwards.\n{}\n{} the special magic {} for {} mentioned in the provided text? The special "
        "magic {} for {} mentioned in the provided text {}",
        one ? "A" : "Some", one ? type + " is" : names + " are", names, joined(lines, "\n"),
        one ? "What is" : "What are all", names, listed(asked), names, listed(asked), one ? "is" : "are");
  };
  const auto tokens = [&](const std::string& text) -> Result<int64_t> {
    const Result<std::vector<int32_t>> ids = tokenizer.encode(text);
    if (!ids) return ids.error();
    return static_cast<int64_t>(ids->size());
  };
  // A sentence has at least one token, so `length` sentences are enough.
  const std::vector<std::string> hay = haystack(kind, static_cast<size_t>(length), rng);
  size_t low = 0, high = hay.size();  // the most sentences that fit
  Result<int64_t> n = tokens(prompt(hay, 0));
  if (!n) return n.error();
  if (*n > length)
    return Error{fmt::format("a needle document has at least {} tokens, more than {}", *n, length),
                 "request longer documents with --lengths"};
  while (low < high) {
    const size_t middle = (low + high + 1) / 2;
    n = tokens(prompt(hay, middle));
    if (!n) return n.error();
    *n <= length ? low = middle : high = middle - 1;
  }
  sample.prompt = prompt(hay, low);
  n = tokens(sample.prompt);
  if (!n) return n.error();
  sample.tokens = *n;
  return sample;
}

}  // namespace braid
