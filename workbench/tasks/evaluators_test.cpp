#include "tasks/evaluators_test.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <set>

namespace braid {
namespace {

using Tokens = std::vector<int32_t>;

// "" if exactly the last position is supervised, with `answer`.
std::string only_last(const Sample& s, int32_t answer) {
  if (s.targets.size() != s.tokens.size()) return "one target per token";
  for (size_t i = 0; i + 1 < s.targets.size(); ++i)
    if (s.targets[i] != -1) return "supervised " + std::to_string(i);
  return s.targets.back() == answer ? "" : "answer should be " + std::to_string(answer);
}

std::string parity(const Sample& s) {
  bool odd = false;
  for (const int32_t token : s.tokens) {
    if (token != 1 && token != 2) return "token outside the bits";
    odd ^= token == 2;
  }
  return only_last(s, odd ? 2 : 1);
}
void parity_mistake(Sample& s) {  // does not count the first bit
  if (s.tokens[0] == 2) s.targets.back() = 3 - s.targets.back();
}

std::string copied(const Sample& s) {
  size_t separator = 0;
  while (separator < s.tokens.size() && s.tokens[separator] != 1) ++separator;
  if (s.tokens.size() != 2 * separator || s.targets.size() != s.tokens.size()) return "length";
  for (size_t i = 0; i < s.tokens.size(); ++i) {
    if (s.tokens[i] < (i == separator ? 1 : 2) || s.tokens[i] > 17) return "token outside the symbols";
    // position i answers with the symbol that stood `separator` positions before
    if (s.targets[i] != (i < separator ? -1 : s.tokens[i - separator])) return "target " + std::to_string(i);
    if (i > separator && s.tokens[i] != s.tokens[i - separator - 1]) return "not teacher-forced";
  }
  return "";
}
void reversed_answers(Sample& s) {
  const auto first = std::ranges::find_if(s.targets, [](int32_t t) { return t != -1; });
  std::reverse(first, s.targets.end());
}

// Collapses all products first, then adds: two passes over lists.
std::string mod_arith(const Sample& s) {
  if (s.tokens.size() % 2 || s.tokens.back() != 4) return "does not end in =";
  std::vector<int> numbers, ops;
  for (size_t i = 0; i + 1 < s.tokens.size(); ++i) {
    const int32_t t = s.tokens[i];
    if (i % 2 ? t < 1 || t > 3 : t < 5 || t > 9) return "no expression";
    i % 2 ? ops.push_back(t) : numbers.push_back(t - 5);
  }
  for (size_t i = 0; i < ops.size();) {
    if (ops[i] != 3) {
      ++i;
      continue;
    }
    numbers[i] = numbers[i] * numbers[i + 1] % 5;
    numbers.erase(numbers.begin() + static_cast<long>(i) + 1);
    ops.erase(ops.begin() + static_cast<long>(i));
  }
  int value = numbers[0];
  for (size_t i = 0; i < ops.size(); ++i) value += ops[i] == 1 ? numbers[i + 1] : -numbers[i + 1];
  return only_last(s, 5 + (value % 5 + 5) % 5);
}
void mod_arith_mistake(Sample& s) {  // from left to right, without precedence
  int value = s.tokens[0] - 5;
  for (size_t i = 1; i + 1 < s.tokens.size(); i += 2) {
    const int digit = s.tokens[i + 1] - 5;
    value = (s.tokens[i] == 1 ? value + digit : s.tokens[i] == 2 ? value - digit + 5 : value * digit) % 5;
  }
  s.targets.back() = 5 + value;
}

// Rewrites innermost brackets as their digit until nothing but a digit is left.
std::string mod_arith_brackets(const Sample& s) {
  std::string text;
  for (const int32_t t : s.tokens) {
    if (t < 0 || t > 10) return "token outside the expression";
    text += "01234+-*()="[t];
  }
  if (text.back() != '=') return "does not end in =";
  text.pop_back();
  const auto value_of = [](std::string_view inner) {  // [-]d or [-]d op [-]d; -1 if it is neither
    const auto number = [&](int& out) {
      const bool minus = !inner.empty() && inner[0] == '-';
      if (minus) inner.remove_prefix(1);
      if (inner.empty() || inner[0] < '0' || inner[0] > '4') return false;
      out = (minus ? 5 - (inner[0] - '0') : inner[0] - '0') % 5;
      inner.remove_prefix(1);
      return true;
    };
    int a = 0, b = 0;
    if (!number(a)) return -1;
    if (inner.empty()) return a;
    const char op = inner[0];
    inner.remove_prefix(1);
    if (!number(b) || !inner.empty()) return -1;
    return op == '+' ? (a + b) % 5 : op == '-' ? (a - b + 5) % 5 : op == '*' ? a * b % 5 : -1;
  };
  while (true) {
    const size_t close = text.find(')');
    if (close == std::string::npos) break;
    const size_t open = text.rfind('(', close);
    if (open == std::string::npos) return "brackets do not match";
    const int v = value_of(std::string_view(text).substr(open + 1, close - open - 1));
    if (v < 0) return "no expression";
    text.replace(open, close - open + 1, 1, static_cast<char>('0' + v));
  }
  const int v = value_of(text);
  return v < 0 ? "no expression" : only_last(s, v);
}
void mod_arith_brackets_mistake(Sample& s) {  // minus is plus
  Sample plus = s;
  std::ranges::replace(plus.tokens, 6, 5);
  for (size_t i = 0; i < plus.tokens.size();)  // no sign before a number
    if (plus.tokens[i] == 5 && (i == 0 || (plus.tokens[i - 1] >= 5 && plus.tokens[i - 1] != 9))) {
      plus.tokens.erase(plus.tokens.begin() + static_cast<long>(i));
      plus.targets.erase(plus.targets.begin());
    } else {
      ++i;
    }
  for (int32_t v = 0; v < 5; ++v) {
    plus.targets.back() = v;
    if (mod_arith_brackets(plus).empty()) s.targets.back() = v;
  }
}

// The images of 0 .. points - 1 under element `rank`, in the factorial number system.
Tokens unrank(int32_t rank, int32_t points) {
  Tokens left(static_cast<size_t>(points)), images;
  std::iota(left.begin(), left.end(), 0);
  int32_t block = 1;
  for (int32_t i = 2; i < points; ++i) block *= i;
  for (int32_t i = points - 1; i >= 0; --i) {
    images.push_back(left[static_cast<size_t>(rank / block)]);
    left.erase(left.begin() + rank / block);
    rank %= block;
    if (i) block /= i;
  }
  return images;
}
int sign(const Tokens& images) {  // by cycles
  int result = 1;
  std::set<int32_t> seen;
  for (int32_t start : images)
    for (int32_t at = start, steps = 0; seen.insert(at).second; at = images[static_cast<size_t>(at)], ++steps)
      if (steps) result = -result;
  return result;
}

struct Words {
  std::string group;
  int32_t most_moved, tokens_per_element;

  int32_t points() const { return group == "S3" ? 3 : group == "S4" ? 4 : 5; }
  std::vector<Tokens> elements() const {  // an element as images; those of Z60 as one number
    std::vector<Tokens> all;
    if (group == "Z60") {
      for (int32_t i = 0; i < 60; ++i) all.push_back({i});
      return all;
    }
    const int32_t order = points() == 3 ? 6 : points() == 4 ? 24 : 120;
    for (int32_t r = 0; r < order; ++r)
      if (const Tokens p = unrank(r, points()); group != "A5" || sign(p) == 1) all.push_back(p);
    return all;
  }
  Tokens product(const Tokens& a, const Tokens& b) const {
    if (group == "Z60") return {(a[0] + b[0]) % 60};
    Tokens c;
    for (const int32_t image : b) c.push_back(a[static_cast<size_t>(image)]);
    return c;
  }
  std::string operator()(const Sample& s) const {
    const std::vector<Tokens> all = elements();
    const auto order = static_cast<int32_t>(all.size());
    if (s.tokens[0] != order || s.targets[0] != -1 || s.targets.size() != s.tokens.size()) return "BOS";
    std::vector<Tokens> products{all[0]};
    for (size_t t = 1; t < s.tokens.size(); ++t) {
      const auto at = static_cast<int32_t>(t - 1);
      const int32_t token = s.tokens[t];
      if (at % tokens_per_element) {
        if (token != order + 1) return "no filler";
      } else {
        if (token < 0 || token >= order) return "no element";
        const Tokens& x = all[static_cast<size_t>(token)];
        int32_t moved = 0;
        for (size_t i = 0; i < x.size(); ++i) moved += group != "Z60" && x[i] != static_cast<int32_t>(i);
        if (moved > most_moved) return "element not allowed";
        products.push_back(product(products.back(), x));
      }
      const int32_t delayed = at - (tokens_per_element - 1);
      const size_t done = delayed < 0 ? 0 : static_cast<size_t>(delayed / tokens_per_element) + 1;
      if (s.targets[t] < 0 || s.targets[t] >= order ||
          all[static_cast<size_t>(s.targets[t])] != products[done])
        return "target " + std::to_string(t);
    }
    return "";
  }
  void mistake(Sample& s) const {  // multiplies from the other side
    const std::vector<Tokens> all = elements();
    Tokens now = all[0], late = now;
    for (size_t t = 1; t < s.tokens.size(); ++t) {
      const auto at = static_cast<int32_t>(t - 1) % tokens_per_element;
      if (at == 0) {
        late = now;
        now = product(all[static_cast<size_t>(s.tokens[t])], now);
      }
      s.targets[t] = static_cast<int32_t>(std::ranges::find(all, at + 1 == tokens_per_element ? now : late) -
                                          all.begin());
    }
  }
};

std::vector<std::pair<int32_t, int32_t>> pairs_of(int32_t n) {
  std::vector<std::pair<int32_t, int32_t>> all;
  for (int32_t i = 0; i < n; ++i)
    for (int32_t j = i + 1; j < n; ++j) all.push_back({i, j});
  return all;
}

// Follows the object at place 0 back to where it began.
int32_t origin(const std::vector<std::pair<int32_t, int32_t>>& swaps) {
  int32_t place = 0;
  for (size_t t = swaps.size(); t-- > 0;)
    place = place == swaps[t].first ? swaps[t].second : place == swaps[t].second ? swaps[t].first : place;
  return place;
}

struct Swaps {
  int32_t n;
  size_t writes;  // 0 in swap-tracking
  int32_t first_swap, first_object;

  std::string operator()(const Sample& s) const {
    if (s.targets.size() != s.tokens.size()) return "one target per token";
    const auto pairs = pairs_of(n);
    std::vector<std::pair<int32_t, int32_t>> swaps;
    for (size_t t = 0; t < s.tokens.size(); ++t) {
      if (t < writes) {
        if (s.tokens[t] != static_cast<int32_t>(t) || s.targets[t] != -1) return "write";
        continue;
      }
      const int32_t swap = s.tokens[t] - first_swap;
      if (swap < 0 || swap >= static_cast<int32_t>(pairs.size())) return "no swap";
      swaps.push_back(pairs[static_cast<size_t>(swap)]);
      if (s.targets[t] != first_object + origin(swaps)) return "target " + std::to_string(t);
    }
    return "";
  }
  void mistake(Sample& s) const {  // swaps two objects, wherever they are, instead of two places
    const auto pairs = pairs_of(n);
    int32_t object = 0;
    for (size_t t = writes; t < s.tokens.size(); ++t) {
      const auto [i, j] = pairs[static_cast<size_t>(s.tokens[t] - first_swap)];
      object = object == i ? j : object == j ? i : object;
      s.targets[t] = first_object + object;
    }
  }
};

struct Trees {
  int32_t n;  // of the vocabulary

  std::string operator()(const Sample& s) const {
    if (s.targets.size() != s.tokens.size()) return "one target per token";
    std::vector<int32_t> parent, root;
    size_t mine = 0, roots = 0;
    for (size_t c = 0; c < s.tokens.size(); ++c) {
      const auto node = static_cast<int32_t>(c);
      if (s.tokens[c] < 0 || s.tokens[c] / n != node) return "order of nodes";
      parent.push_back(s.tokens[c] % n);
      if (parent[c] > node) return "parent comes later";
      roots += parent[c] == node;
      int32_t at = node;  // up to the root
      while (parent[static_cast<size_t>(at)] != at) at = parent[static_cast<size_t>(at)];
      root.push_back(at);
      mine += at == 0;
      if (s.targets[c] != n * n + (at == 0)) return "target " + std::to_string(c);
    }
    return roots != 2 ? "not two trees" : 2 * mine != s.tokens.size() ? "not two halves" : "";
  }
  void mistake(Sample& s) const {  // only children, not their children
    for (size_t c = 0; c < s.tokens.size(); ++c) s.targets[c] = n * n + (s.tokens[c] % n == 0);
  }
};

struct Recall {
  int32_t vocab;
  std::vector<std::pair<size_t, size_t>> sizes;  // allowed (length, pairs)
  bool noise;

  std::string operator()(const Sample& s) const {
    if (s.targets.size() != s.tokens.size()) return "one target per token";
    const auto pairs =
        static_cast<size_t>(std::ranges::count_if(s.targets, [](int32_t t) { return t != -1; }));
    if (std::ranges::find(sizes, std::pair{s.tokens.size(), pairs}) == sizes.end()) return "size";
    std::map<int32_t, int32_t> value;
    std::set<int32_t> values;
    for (size_t i = 0; i < pairs; ++i) {
      const int32_t k = s.tokens[2 * i], v = s.tokens[2 * i + 1];
      if (k < 1 || k >= vocab / 2 || v < vocab / 2 || v >= vocab) return "no pair";
      value[k] = v, values.insert(v);
    }
    if (value.size() != pairs || values.size() != pairs) return "not all different";
    for (size_t t = 0; t < s.tokens.size(); ++t) {
      if (s.targets[t] == -1) {
        if (t >= 2 * pairs && s.tokens[t] && !noise) return "not blank";
        if (s.tokens[t] < 0 || s.tokens[t] >= vocab) return "token outside";
        continue;
      }
      const auto found = value.find(s.tokens[t]);
      if (t < 2 * pairs || t % 2 || found == value.end() || found->second != s.targets[t])
        return "target " + std::to_string(t);
      value.erase(found);  // each is asked for once
    }
    return "";
  }
  static void mistake(Sample& s) {  // the value before the key, not the one after it
    for (size_t t = 0; t < s.tokens.size(); ++t)
      if (s.targets[t] != -1) {
        const auto key = std::ranges::find(s.tokens, s.tokens[t]) - s.tokens.begin();
        s.targets[t] = s.tokens[static_cast<size_t>(key ? key - 1 : key + 1)];
      }
  }
};

struct Selective {
  int32_t vocab;
  size_t symbols;

  std::string operator()(const Sample& s) const {
    if (s.targets.size() != s.tokens.size() || s.tokens.size() < symbols) return "length";
    Tokens found;
    for (size_t t = 0; t < s.tokens.size(); ++t) {
      const bool slot = t + symbols >= s.tokens.size();
      if (slot ? s.tokens[t] != vocab - 1 : s.tokens[t] < 0 || s.tokens[t] > vocab - 2) return "token";
      if (!slot && s.tokens[t]) found.push_back(s.tokens[t]);
      if (!slot && s.targets[t] != -1) return "supervised";
    }
    return std::ranges::equal(found, std::span(s.targets).last(symbols)) ? "" : "targets";
  }
};

std::string induction(const Sample& s) {
  size_t specials = 0, first = s.tokens.size();
  for (size_t t = s.tokens.size(); t-- > 0;) {
    if (s.tokens[t] < 0 || s.tokens[t] > 15) return "token";
    if (s.tokens[t] == 0) ++specials, first = t;
  }
  if (specials != 2 || s.tokens.back() != 0 || s.tokens[first + 1] == 0) return "special token";
  return only_last(s, s.tokens[first + 1]);
}
void induction_mistake(Sample& s) {  // the token before
  const auto first = static_cast<size_t>(std::ranges::find(s.tokens, 0) - s.tokens.begin());
  if (first) s.targets.back() = s.tokens[first - 1];
}

struct Pointers {
  int32_t vocab;
  bool any, compact = false, gradual = false;
  size_t most = 0;    // swaps; 0: as many as addresses
  int32_t table = 0;  // addresses; 0: as many as entries
  bool tracked = false, all = false;

  std::string operator()(const Sample& s) const {
    // bits INIT p @ p @ p @ p @ p @ OPS, m swaps, QUERY p; compact: a bit is 11 + m + 2 i + b, a swap
    // 11 + 3 m + ..., p @ is 21 + 3 m + m p + i
    const auto init = static_cast<size_t>(std::ranges::find(s.tokens, 3) - s.tokens.begin());
    const size_t ops = init + (compact ? 6 : 11);
    if (s.tokens.size() < ops + 3) return "length";
    const auto entries = static_cast<int32_t>(init), m = table ? table : entries;
    std::vector<int32_t> bits;
    for (int32_t t = 0; t < entries; ++t) {
      const int32_t first = compact ? 11 + m + 2 * t : 1, bit = s.tokens[static_cast<size_t>(t)] - first;
      if (bit != 0 && bit != 1) return "no bit";
      bits.push_back(bit);
    }
    std::vector<size_t> address;
    for (size_t i = 0; i < 5; ++i) {
      const auto p = static_cast<int32_t>(i);
      const int32_t a =
          compact ? s.tokens[init + 1 + i] - 21 - 3 * m - m * p : s.tokens[init + 2 + 2 * i] - 11;
      if (a < 0 || a >= entries || (!compact && s.tokens[init + 1 + 2 * i] != 6 + p)) return "no address";
      address.push_back(static_cast<size_t>(a));
    }
    if (std::set(address.begin(), address.end()).size() != 5 || s.tokens[ops] != 4) return "form";
    const std::string pairs = "abacadaebcbdbecdcede";
    const bool every_step = s.targets[ops - 1] != kUnsupervised;
    std::vector<int32_t> targets(ops + 1, kUnsupervised);
    for (size_t i = 0; every_step && i < 5; ++i)
      targets[init + (compact ? 1 + i : 2 + 2 * i)] = 1 + bits[address[i]];
    size_t swaps = 0;
    while (targets.size() < s.tokens.size() && s.tokens[targets.size()] != 5) {
      const size_t t = targets.size();
      int32_t p = s.tokens[t] - 6, q = s.tokens[t + 1] - 6;
      if (compact) {
        const int32_t which = s.tokens[t] - 11 - 3 * m;
        if (which < 0 || which >= 10) return "no swap";
        p = pairs[static_cast<size_t>(2 * which)] - 'a', q = pairs[static_cast<size_t>(2 * which + 1)] - 'a';
      }
      if (p < 0 || p > 4 || q < 0 || q > 4 || p == q) return "no swap";
      std::swap(address[static_cast<size_t>(p)], address[static_cast<size_t>(q)]);
      targets.insert(targets.end(), compact ? 1 : 2, kUnsupervised);
      if (every_step) {
        const size_t now = address[static_cast<size_t>(p)];
        targets.back() = tracked ? 11 + static_cast<int32_t>(now) : 1 + bits[now];
      }
      ++swaps;
    }
    const size_t limit = most ? most : init;
    if (gradual ? swaps > limit : swaps != limit) return "number of swaps";
    targets.push_back(kUnsupervised);  // QUERY
    std::set<int32_t> questions;
    while (targets.size() < s.tokens.size()) {
      const int32_t asked = s.tokens[targets.size()] - 6;
      if (asked < 0 || asked > 4 || (!any && asked != 0)) return "no question";
      questions.insert(asked);
      targets.push_back(1 + bits[address[static_cast<size_t>(asked)]]);
    }
    if (questions.size() != (all ? 5 : 1) || targets.size() != s.targets.size()) return "number of questions";
    return targets == s.targets ? "" : "answer";
  }
  void mistake(Sample& s) const {  // ignores the swaps
    const auto init = static_cast<size_t>(std::ranges::find(s.tokens, 3) - s.tokens.begin());
    const auto asked = static_cast<size_t>(s.tokens.back() - 6);
    const auto m = table ? table : static_cast<int32_t>(init);
    const int32_t address =
        compact ? (s.tokens[init + 1 + asked] - 21) % m : s.tokens[init + 2 + 2 * asked] - 11;
    const int32_t token = s.tokens[static_cast<size_t>(address)];
    s.targets.back() = compact ? 1 + (token - 11 - m) % 2 : token;
  }
};

struct Conditioned {
  bool scratchpad;
  int32_t addresses;

  std::string operator()(const Sample& s) const {
    // names as in the paper, so that the form can be compared as text
    size_t t = 0, ones = 0;
    const auto is = [&](int32_t token) { return t < s.tokens.size() && s.tokens[t] == token && ++t; };
    const auto address = [&](int32_t& out) {
      if (t >= s.tokens.size() || s.tokens[t] < 11 || s.tokens[t] >= 11 + addresses) return false;
      out = s.tokens[t++] - 11;
      return true;
    };
    if (!is(0)) return "BOS";
    for (; t < s.tokens.size() && (s.tokens[t] == 1 || s.tokens[t] == 2); ++t) ones += s.tokens[t] == 2;
    if (!is(3)) return "T";
    std::map<int32_t, int32_t> table;
    int32_t a = 0, queried[2];
    size_t rows = 0;
    while (address(a)) {
      if (t >= s.tokens.size() || (s.tokens[t] != 4 && s.tokens[t] != 5)) return "value";
      table[a] = s.tokens[t++];
      ++rows;
    }
    if (table.size() != rows) return "addresses not all different";
    if (!is(6) || !address(queried[0]) || !is(7) || !address(queried[1]) || !is(8)) return "query";
    if (queried[0] == queried[1] || !table.contains(queried[0]) || !table.contains(queried[1]))
      return "queried";
    const auto p = static_cast<int32_t>(ones % 2);
    Tokens answers{table[queried[p]]};
    const size_t ask = t - 1;
    if (scratchpad) {
      answers = {9 + p, 11 + addresses + queried[p], table[queried[p]]};
      if (!is(answers[0]) || !is(answers[1])) return "scratchpad";
    }
    if (t != s.tokens.size() || s.targets.size() != t) return "end";
    for (size_t i = 0; i < t; ++i)
      if (s.targets[i] != (i < ask ? -1 : answers[i - ask])) return "target " + std::to_string(i);
    return "";
  }
  void mistake(Sample& s) const {  // always looks up the first address
    const size_t ask = s.tokens.size() - (scratchpad ? 3 : 1);
    const auto row = std::ranges::find(s.tokens, s.tokens[ask - 3]);
    s.targets.back() = *(row + 1);
  }
};

// The same with pairs and queries of one token each: written out, it must be a plain one.
struct ConditionedCompact {
  Conditioned plain;

  Sample written_out(const Sample& s) const {
    Sample out;
    const int32_t n = plain.addresses;
    for (size_t t = 0; t < s.tokens.size(); ++t) {
      const int32_t pair = s.tokens[t] - 11 - 2 * n, query = pair - 2 * n;
      if (query >= 0)
        out.tokens.insert(out.tokens.end(), {6 + query / n, 11 + query % n});
      else if (pair >= 0)
        out.tokens.insert(out.tokens.end(), {11 + pair / 2, 4 + pair % 2});
      else
        out.tokens.push_back(s.tokens[t]);
      out.targets.resize(out.tokens.size(), kUnsupervised);
      out.targets.back() = s.targets[t];
    }
    return out;
  }
  std::string operator()(const Sample& s) const { return plain(written_out(s)); }
  void mistake(Sample& s) const {
    Sample out = written_out(s);
    plain.mistake(out);
    s.targets.back() = out.targets.back();
  }
};

// Each question from the table in front and the ones before it.
struct Counted {
  int32_t keys, values;
  int32_t first_key() const { return 4 + values; }
  int32_t first_pair() const { return first_key() + 2 * keys; }
  std::string operator()(const Sample& s) const {
    if (s.tokens.size() != s.targets.size()) return "a token without a target";
    std::map<int32_t, int32_t> table;
    size_t t = 0;
    for (; t < s.tokens.size() && s.tokens[t] >= first_pair(); ++t) {
      const int32_t pair = s.tokens[t] - first_pair();
      if (pair >= keys * values) return "no such pair";
      if (!table.emplace(pair / values, pair % values).second) return "a key stands twice in the table";
      if (s.targets[t] != kUnsupervised) return "the table is asked";
    }
    for (size_t q = t; q < s.tokens.size(); ++q) {
      const auto ones = std::count(s.tokens.begin() + static_cast<std::ptrdiff_t>(t),
                                   s.tokens.begin() + static_cast<std::ptrdiff_t>(q) + 1, 1);
      if (s.tokens[q] < 2) {
        if (s.targets[q] != (ones % 2 ? 3 : 2)) return "wrong parity";
        continue;
      }
      const int32_t key = s.tokens[q] - first_key();
      if (key < 0 || key >= 2 * keys || !table.contains(key % keys)) return "a key that is not in the table";
      const auto moved = key < keys ? 0 : static_cast<int32_t>(ones % 2);
      if (s.targets[q] != 4 + (table[key % keys] + moved) % values) return "wrong value";
    }
    return "";
  }
  void mistake(Sample& s) const {  // begins to count at one
    int32_t parity = 0;
    for (size_t t = 0; t < s.tokens.size(); ++t) {
      const int32_t key = s.tokens[t] - first_key();
      if (s.tokens[t] < 2) parity ^= s.tokens[t], s.targets[t] = 5 - s.targets[t];
      if (key >= keys && key < 2 * keys)
        s.targets[t] = 4 + (s.targets[t] - 4 + (parity ? values - 1 : 1)) % values;
    }
  }
};

Expect words(std::vector<std::string> settings, const char* group, int32_t most_moved, int32_t per_element,
             size_t vocab, double chance, const char* golden) {
  const Words w{group, most_moved, per_element};
  return {"word-problem",
          std::move(settings),
          w,
          [w](Sample& s) { w.mistake(s); },
          33,
          33,
          501,
          501,
          vocab,
          chance,
          golden};
}

// The mistake that a rule knows of.
template <class Rule>
std::function<void(Sample&)> by(const Rule& rule) {
  return [rule](Sample& s) { rule.mistake(s); };
}

std::vector<Expect> formal_languages() {
  return {
      {"parity", {}, parity, parity_mistake, 2, 39, 39, 255, 3, 0.5, "2f7b989acf7394f6"},
      {"copy", {}, copied, reversed_answers, 2, 40, 2, 80, 18, 1.0 / 16, "c7eebbd7196ba441"},
      {"mod-arith", {}, mod_arith, mod_arith_mistake, 2, 38, 38, 254, 10, 0.2, "aeb9f8931ed5b281"},
      {"mod-arith-brackets",
       {},
       mod_arith_brackets,
       mod_arith_brackets_mistake,
       2,
       39,
       39,
       255,
       12,
       0.305,
       "83a7692359b92381"},
  };
}

std::vector<Expect> word_problems() {
  return {
      words({}, "S5", 5, 1, 122, 1.0 / 120, "8ec2c4c8d8136f5c"),
      words({"elements=swaps"}, "S5", 2, 1, 122, 0.0087, "86b313d6897fc13b"),
      words({"elements=moved3"}, "S5", 3, 1, 122, 0.0084, "33eeb6d92b03afd6"),
      words({"tokens_per_element=4"}, "S5", 5, 4, 122, (3 + 497.0 / 120) / 500, "d0b37232dc72d15b"),
      words({"group=A5"}, "A5", 5, 1, 62, 1.0 / 60, "1866ba044b690e94"),
      words({"group=A5", "elements=moved3"}, "A5", 3, 1, 62, 0.0168, "68f78be936f13516"),
      words({"group=S4"}, "S4", 4, 1, 26, 1.0 / 24, "0b6d85ba77de76cb"),
      words({"group=S3", "elements=swaps"}, "S3", 2, 1, 8, 0.1670, "76e3e38cdf6317ef"),
      words({"group=Z60"}, "Z60", 0, 1, 62, 1.0 / 60, "f5fd29af8a9b9e72"),
  };
}

std::vector<Expect> delta_former_tasks() {
  const Swaps five{5, 0, 0, 10}, stress{128, 128, 128, 0}, small{6, 6, 6, 0};
  const Trees trees{32};
  return {
      {"swap-tracking", {}, five, by(five), 16, 16, 16, 16, 15, 0.25, "26c397c032c5b630"},
      {"reachability", {}, trees, by(trees), 32, 32, 32, 32, 1026, 17.0 / 32, "302abbda3ad388a5"},
      {"stress", {}, stress, by(stress), 256, 256, 256, 256, 128 + 8128, 0.435, "3520f066ee9d9c84"},
      {"stress",
       {"objects=6", "train_length=12", "test_length=20"},
       small,
       by(small),
       12,
       12,
       20,
       20,
       21,
       0.256,
       "dd24cb472bd8b48e"},
  };
}

std::vector<Expect> recall_tasks() {
  const Recall recall{8192, {{64, 4}}, false};
  const Recall mix{8192,
                   {{64, 4},
                    {64, 8},
                    {64, 16},
                    {128, 8},
                    {128, 32},
                    {256, 16},
                    {256, 32},
                    {256, 64},
                    {512, 128},
                    {1024, 256}},
                   true};
  return {
      {"mqar", {}, recall, Recall::mistake, 64, 64, 64, 64, 8192, 1.0 / 4096, "02a3771a8df7f7d6"},
      {"mqar",
       {"mix=true", "noise=true"},
       mix,
       Recall::mistake,
       64,
       256,
       64,
       1024,
       8192,
       1.0 / 4096,
       "7dfe9eabf0318c8c"},
      {"selective-copy",
       {},
       Selective{16, 16},
       reversed_answers,
       4112,
       4112,
       4112,
       4112,
       16,
       1.0 / 14,
       "9d25016169b2b124"},
      {"induction", {}, induction, induction_mistake, 256, 256, 64, 1024, 16, 1.0 / 15, "7db0a9ec93676dd5"},
  };
}

Expect pointers(std::vector<std::string> settings, const Pointers& rule, size_t train_min, size_t train_max,
                size_t test, const char* golden) {
  return {"state-recall",
          std::move(settings),
          rule,
          by(rule),
          train_min,
          train_max,
          test,
          test,
          static_cast<size_t>(rule.vocab),
          0.5,
          golden};
}
std::vector<Expect> state_recall() {
  return {
      pointers({}, {43, false}, 110, 110, 110, "c2688c97bea798ec"),
      pointers({"any_pointer=true"}, {43, true}, 110, 110, 110, "ea5c68c1f41ccf99"),
      pointers({"compact=true", "gradual=true", "any_pointer=true"}, {277, true, true, true}, 41, 73, 73,
               "db61eab6b9e82590"),
      pointers({"table=12", "train_length=6", "test_length=6", "compact=true", "any_pointer=true"},
               {117, true, true, false, 6}, 27, 27, 27, "70a9b81f7e371b42"),
      pointers({"table=12", "train_table=6", "train_length=6", "test_length=6", "compact=true",
                "all_pointers=true", "gradual=true", "tracked=true"},
               {117, true, true, true, 6, 12, true, true}, 19, 25, 31, "17f9a2963801df68"),
  };
}

std::vector<Expect> conditioned_retrieval() {
  const Conditioned pad{true, 32}, no_pad{false, 32};
  const ConditionedCompact compact_pad{pad};
  const Counted counted{48, 4};
  return {
      {"pcr", {}, pad, by(pad), 26, 61, 61, 273, 75, (1 + 1.0 / 32) / 3, "0633134bc840b32a"},
      {"pcr",
       {"compact=true"},
       compact_pad,
       by(compact_pad),
       16,
       43,
       43,
       239,
       203,
       (1 + 1.0 / 32) / 3,
       "17d65294dfd784ff"},
      {"pcr", {"scratchpad=false"}, no_pad, by(no_pad), 24, 59, 59, 271, 75, 0.5, "7f2ea9b95aec8693"},
      {"counted-recall", {}, counted, by(counted), 9, 80, 80, 112, 296, 1.0 / 6, "ba357fa77439e5f0"},
  };
}

}  // namespace

const std::vector<Expect>& all_expected() {
  static const std::vector<Expect> all = [] {
    std::vector<Expect> joined;
    for (const auto tasks : {formal_languages, word_problems, delta_former_tasks, recall_tasks, state_recall,
                             conditioned_retrieval})
      for (Expect& e : tasks()) joined.push_back(std::move(e));
    return joined;
  }();
  return all;
}

}  // namespace braid
