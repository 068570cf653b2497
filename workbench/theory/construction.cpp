#include "theory/construction.h"

#include <fmt/format.h>

#include <algorithm>

#include "io/json.h"
#include "kernels/fast_weight/fast_weight_ref.h"
#include "kernels/l2norm/l2norm_ref.h"
#include "model/config_json.h"

namespace braid {
namespace {

constexpr float kBig = 100;  // B_s after rounding; exp(-100) and sigmoid(-100) vanish in float, too

enum Type : size_t {
  kTypeBos,
  kTypeX0,
  kTypeX1,
  kTypeT,
  kTypeA,
  kTypeV,
  kTypeQ0,
  kTypeQ1,
  kTypeAsk,
  kTypeP0,
  kTypeP1,
  kTypeS,
  kTypes
};

// Places in the residual stream. Each ra stands before a constant one, so that a sum over pairs can saturate
// and come back: see Match.
struct Fields {
  size_t bits, addr = kTypes, val = addr + bits, par = val + 1, reg = par + 1, mark = reg + bits,
               ra = mark + 2, rv = ra + 2 * bits, one = rv + 1, width = one + 1;
  size_t found(size_t i) const { return ra + 2 * i; }
  size_t beside(size_t i) const { return ra + 2 * i + 1; }
};

size_t type_of(int32_t token, int64_t addresses) {
  switch (token) {
    case pcr::kBos:
      return kTypeBos;
    case pcr::kX:
      return kTypeX0;
    case pcr::kX + 1:
      return kTypeX1;
    case pcr::kTable:
      return kTypeT;
    case pcr::kValue:
    case pcr::kValue + 1:
      return kTypeV;
    case pcr::kAsked:
      return kTypeQ0;
    case pcr::kAsked + 1:
      return kTypeQ1;
    case pcr::kAsk:
      return kTypeAsk;
    case pcr::kParity:
      return kTypeP0;
    case pcr::kParity + 1:
      return kTypeP1;
    default:
      return token - pcr::kAddress < addresses ? kTypeA : kTypeS;
  }
}

float sign_of(size_t bits, size_t i) { return bits >> i & 1 ? 1.0f : -1.0f; }

// Marks that Gated DeltaNet keeps from the last of these tokens on.
struct Mark {
  size_t type;
  float first, second;
};
constexpr Mark kMarks[] = {{kTypeT, 1, 1}, {kTypeQ0, -1, 1}, {kTypeQ1, -1, -1}};

struct Heads {  // of Gated DeltaNet
  size_t bits;
  size_t parity() const { return 0; }
  size_t reg(size_t i) const { return 1 + i; }
  size_t mark(size_t i) const { return 1 + bits + i; }
  size_t count() const { return bits + 3; }
};

Json config_json(const PcrConstruction& c, size_t width) {
  const int64_t heads = c.address_bits + 3, dk = c.flip ? c.flip->width : 1;
  const Json none{{"type", "none"}};
  const Json fast{{"type", "gated_deltanet"},
                  {"heads", heads},
                  {"head_dim", dk},
                  {"value_dim", 1},
                  {"conv", 0},
                  {"feature", "identity"},
                  {"feature_norm", c.flip ? "l2" : "none"},
                  {"value_feature", "identity"},
                  {"negative_eigenvalues", c.beta_to_2}};
  const Json look{{"type", "attention"},
                  {"heads", 1},
                  {"head_dim", 2 * (c.address_bits + 4)},
                  {"rope_theta", 0},
                  {"gate", "sigmoid"}};
  Json pattern{{{"mixer", fast}, {"mlp", none}, {"norm", "none"}},
               {{"mixer", look}, {"mlp", none}, {"norm", "none"}}};
  if (!c.scratchpad) pattern.push_back(pattern[1]);
  // Below the smallest epsilon that 1 + epsilon shows in float: the norm of a single number is its sign.
  return {{"model_type", "braid"}, {"vocab_size", pcr_vocabulary(c.address_bits)},
          {"d_model", width},      {"n_layers", pattern.size()},
          {"norm_eps", 1e-12},     {"pattern", pattern}};
}

struct Writer {
  Model& model;
  float& operator()(const std::string& name, size_t row, size_t column) const {
    ParamSet& params = model.params();
    for (size_t i = 0; i < params.all().size(); ++i)
      if (params[i].name == name) return params.mat(i).row(row)[column];
    check(false, "pcr_model: there is no parameter " + name);
    std::abort();
  }
  void ones(const std::string& name, size_t count) const {
    for (size_t i = 0; i < count; ++i) (*this)(name, 0, i) = 1;
  }
};

// A key matches a query if it has every wanted bit: pairs (bit, 1) of the key against (wanted, -1) of the
// query add +-1 and -1 in units that saturate: 0 as long as all match, and after one that does not -B_s for
// ever, since adding B_s and then subtracting it leads back there.
struct Match {
  Writer w;
  Fields f;
  std::string at;
  size_t pair = 0;

  std::string q() const { return at + "q_proj.weight"; }
  std::string k() const { return at + "k_proj.weight"; }
  // The key's bit comes from `write_key(row)`, the wanted one from `write_query(row, -row)`.
  template <class K, class Q>
  void bit(const K& write_key, const Q& write_query) {
    const size_t first = 2 * pair++;
    write_key(first), w(k(), first + 1, f.one) = kBig;
    write_query(first, first + 1);
  }
};

void write_embedding(const Writer& w, const Fields& f, int64_t address_bits) {
  const int64_t addresses = int64_t{1} << address_bits;
  for (int32_t t = 0; t < pcr_vocabulary(address_bits); ++t) {
    const auto row = static_cast<size_t>(t);
    const size_t type = type_of(t, addresses);
    const auto put = [&](size_t column, float x) { w("embedding.weight", row, column) = x; };
    put(type, 1), put(f.one, 1);
    for (size_t i = 0; i < f.bits; ++i) put(f.beside(i), 1);
    if (type == kTypeV) put(f.val, t == pcr::kValue ? -1.0f : 1.0f);
    if (type == kTypeA || type == kTypeS)
      for (size_t i = 0; i < f.bits; ++i)
        put(f.addr + i, sign_of(static_cast<size_t>((t - pcr::kAddress) % addresses), i));
  }
}

void write_fast(const Writer& w, const Fields& f, const PcrConstruction& c) {
  const std::string at = "layers.0.mixer.";
  const Heads heads{f.bits};
  const size_t dk = c.flip ? static_cast<size_t>(c.flip->width) : 1;
  const float one = c.beta_to_2 ? 0 : kBig;  // b for write strength 1: 2 sigmoid(0), or sigmoid(B_s)
  for (size_t h = 0; h < heads.count(); ++h) {
    for (size_t i = 0; i < (c.flip && h == heads.parity() ? dk : 1);
         ++i)  // keys and queries: always the same
      w(at + "q_proj.weight", h * dk + i, f.one) = w(at + "k_proj.weight", h * dk + i, f.one) = 1;
    w(at + "a_proj.weight", h, f.one) = -kBig;  // softplus 0: no decay
    w(at + "g_proj.weight", h, f.one) = kBig;   // silu B_s: the sign becomes +-B_s
    for (size_t type = 0; type < kTypes; ++type) w(at + "b_proj.weight", h, type) = -kBig;  // no write
  }
  const auto writes = [&](size_t head, size_t type, float b) { w(at + "b_proj.weight", head, type) = b; };
  const auto value = [&](size_t head, size_t from, float x) { w(at + "v_proj.weight", head, from) = x; };
  const auto to = [&](size_t head, size_t field) { w(at + "o_proj.weight", field, head) = 1; };
  writes(heads.parity(), kTypeBos, one), writes(heads.parity(), kTypeX1, kBig);
  value(heads.parity(), kTypeBos, c.flip ? static_cast<float>(c.flip->value) : 1.0f);
  to(heads.parity(), f.par);
  for (size_t i = 0; i < f.bits; ++i) {
    writes(heads.reg(i), kTypeA, one);
    value(heads.reg(i), f.addr + i, 1), to(heads.reg(i), f.reg + i);
  }
  for (size_t i = 0; i < 2; ++i) {
    for (const Mark& m : kMarks) {
      writes(heads.mark(i), m.type, one);
      value(heads.mark(i), m.type, i == 0 ? m.first : m.second);
    }
    to(heads.mark(i), f.mark + i);
  }
  w.ones(at + "A_log", 0), w.ones(at + "o_norm.weight", 1);
}

// What a query wants of each bit of the keys. Every list: (column of the residual stream, weight).
using Wanted = std::vector<std::pair<size_t, float>>;
struct Look {
  std::vector<size_t> open;                  // types whose gate is open
  Wanted is_a, is_v, mark[2];                // what is wanted of these bits,
  std::vector<size_t> a_from, v_from, from;  // and the types that want it; `from`: of the marks
  std::vector<Wanted> reg;                   // of the address
};

void write_look(const Writer& w, const Fields& f, size_t layer, const Look& look) {
  Match m{w, f, fmt::format("layers.{}.mixer.", layer)};
  const auto query = [&](const Wanted& wanted, const std::vector<size_t>& from) {
    return [&](size_t row, size_t beside) {
      for (const auto& [column, x] : wanted) w(m.q(), row, column) = x;
      for (const size_t type : from) w(m.q(), beside, type) = -kBig;
    };
  };
  const auto is = [&](size_t wanted_type) {
    return [&, wanted_type](size_t row) {
      for (size_t type = 0; type < kTypes; ++type) w(m.k(), row, type) = type == wanted_type ? kBig : -kBig;
    };
  };
  const auto field = [&](size_t column) { return [&, column](size_t row) { w(m.k(), row, column) = 1; }; };
  m.bit(is(kTypeA), query(look.is_a, look.a_from));
  m.bit(is(kTypeV), query(look.is_v, look.v_from));
  for (size_t i = 0; i < 2; ++i) m.bit(field(f.mark + i), query(look.mark[i], look.from));
  for (size_t i = 0; i < f.bits; ++i)
    m.bit(field(f.reg + i), query(look.reg.empty() ? Wanted{} : look.reg[i],
                                  look.reg.empty() ? std::vector<size_t>{} : look.v_from));
  // Values: the address, then the value of the token that is found.
  for (size_t i = 0; i < f.bits; ++i) {
    w(m.at + "v_proj.weight", i, f.addr + i) = 1;
    w(m.at + "o_proj.weight", f.found(i), i) = 1;
  }
  w(m.at + "v_proj.weight", f.bits, f.val) = 1, w(m.at + "o_proj.weight", f.rv, f.bits) = 1;
  for (size_t row = 0; row < 2 * (f.bits + 4); ++row)
    for (size_t type = 0; type < kTypes; ++type)
      w(m.at + "g_proj.weight", row, type) =
          std::ranges::find(look.open, type) != look.open.end() ? kBig : -kBig;
}

Look scratch_look(const Fields& f) {
  Look k;
  k.open = {kTypeP0, kTypeP1, kTypeS};
  // At P0 and P1: the address behind Q0 or Q1.
  k.is_a = {{kTypeP0, kBig}, {kTypeP1, kBig}}, k.a_from = {kTypeP0, kTypeP1};
  // At S: the value in the table whose register holds the same address.
  k.is_v = {{kTypeS, kBig}}, k.v_from = {kTypeS};
  k.from = {kTypeP0, kTypeP1, kTypeS};
  const std::pair<size_t, Mark> wants[] = {{kTypeP0, kMarks[1]}, {kTypeP1, kMarks[2]}, {kTypeS, kMarks[0]}};
  for (const auto& [type, mark] : wants) {
    k.mark[0].push_back({type, kBig * mark.first}), k.mark[1].push_back({type, kBig * mark.second});
  }
  for (size_t i = 0; i < f.bits; ++i) k.reg.push_back({{f.addr + i, kBig}});
  return k;
}

// Without a scratchpad ASK asks twice, in two layers. Q0 and Q1 differ in their second mark, which is the
// parity.
Look first_look(const Fields& f) {
  Look k;
  k.open = k.a_from = k.from = {kTypeAsk};
  k.is_a = {{kTypeAsk, kBig}};
  k.mark[0] = {{kTypeAsk, kBig * kMarks[1].first}}, k.mark[1] = {{f.par, 1}};
  return k;
}
Look second_look(const Fields& f) {
  Look k;
  k.open = k.v_from = {kTypeAsk};  // values stand in the table alone: no mark is wanted
  k.is_v = {{kTypeAsk, kBig}};
  for (size_t i = 0; i < f.bits; ++i) k.reg.push_back({{f.found(i), kBig}});
  return k;
}

void write_head(const Writer& w, const Fields& f, const PcrConstruction& c) {
  const int64_t addresses = int64_t{1} << c.address_bits;
  // A token's logit is -B_s but behind the types that may be followed by it.
  const auto follows = [&](size_t row, std::initializer_list<size_t> types) {
    for (size_t type = 0; type < kTypes; ++type)
      w("head.weight", row, type) = std::ranges::find(types, type) != types.end() ? 0 : -kBig;
  };
  for (int32_t t = 0; t < pcr_vocabulary(c.address_bits); ++t) {
    const auto row = static_cast<size_t>(t);
    const size_t type = type_of(t, addresses);
    const auto put = [&](size_t column, float x) { w("head.weight", row, column) = x; };
    if (type == kTypeV) {
      follows(row, {c.scratchpad ? kTypeS : kTypeAsk});
      put(f.rv, t == pcr::kValue ? -kBig : kBig);
    } else if (c.scratchpad && (type == kTypeP0 || type == kTypeP1)) {
      follows(row, {kTypeAsk});
      put(f.par, type == kTypeP0 ? 1.0f : -1.0f);  // par is +-B_s already
    } else if (c.scratchpad && type == kTypeS) {
      follows(row, {kTypeP0, kTypeP1});
      for (size_t i = 0; i < f.bits; ++i) {
        put(f.found(i), kBig * sign_of(static_cast<size_t>(t - pcr::kAddress - addresses), i));
        put(f.beside(i), -kBig);
      }
      put(f.one, kBig);
    } else {
      follows(row, {});
    }
  }
}

}  // namespace

std::unique_ptr<Model> pcr_model(const PcrConstruction& c) {
  const Fields f{.bits = static_cast<size_t>(c.address_bits)};
  const Result<ModelConfig> config = parse_config(config_json(c, f.width), "pcr_model");
  check(static_cast<bool>(config), "pcr_model: " + (config ? std::string() : config.error().what));
  std::unique_ptr<Model> model = Model::create(*config);
  model->params().allocate();
  const Writer w{*model};
  w.ones("final_norm.weight", f.width);
  write_embedding(w, f, c.address_bits);
  write_fast(w, f, c);
  if (c.scratchpad) {
    write_look(w, f, 1, scratch_look(f));
  } else {
    write_look(w, f, 1, first_look(f));
    write_look(w, f, 2, second_look(f));
  }
  write_head(w, f, c);
  return model;
}

std::vector<PcrField> pcr_fields(int64_t address_bits) {
  const Fields f{.bits = static_cast<size_t>(address_bits)};
  return {{"type", 0, kTypes},         {"addr", f.addr, f.bits}, {"val", f.val, 1},
          {"par", f.par, 1},           {"reg", f.reg, f.bits},   {"mark", f.mark, 2},
          {"found", f.ra, 2 * f.bits}, {"value", f.rv, 1},       {"one", f.one, 1}};
}

std::vector<WeightGroup> pcr_weight_groups(const PcrConstruction& c) {
  const size_t bits = static_cast<size_t>(c.address_bits), heads = bits + 3,
               dk = c.flip ? static_cast<size_t>(c.flip->width) : 1;
  const std::string fast = "layers.0.mixer.";
  std::vector<WeightGroup> all{{"decay gate", fast + "a_proj.weight", 0, heads},
                               {"write strength of the parity head", fast + "b_proj.weight", 0, 1},
                               {"write strength of the registers", fast + "b_proj.weight", 1, 1 + bits},
                               {"write strength of the marks", fast + "b_proj.weight", 1 + bits, heads},
                               {"keys of the fast weights", fast + "k_proj.weight", 0, heads * dk},
                               {"queries of the fast weights", fast + "q_proj.weight", 0, heads * dk},
                               {"value of the parity head", fast + "v_proj.weight", 0, 1},
                               {"values of the registers", fast + "v_proj.weight", 1, 1 + bits},
                               {"values of the marks", fast + "v_proj.weight", 1 + bits, heads},
                               {"output gate of the parity head", fast + "g_proj.weight", 0, 1},
                               {"output gates of the registers", fast + "g_proj.weight", 1, 1 + bits},
                               {"output gates of the marks", fast + "g_proj.weight", 1 + bits, heads}};
  for (size_t layer = 1; layer < (c.scratchpad ? 2u : 3u); ++layer) {
    const std::string at = fmt::format("layers.{}.mixer.", layer), which = c.scratchpad ? "attention"
                                                                           : layer == 1 ? "first attention"
                                                                                        : "second attention";
    const size_t width = 2 * (bits + 4);
    // Without a scratchpad a layer uses half of its lookup: the token kind and the channels that it needs.
    const bool first = c.scratchpad || layer == 1, second = c.scratchpad || layer == 2;
    if (first) all.push_back({which + ": key of 'is an address'", at + "k_proj.weight", 0, 1});
    if (second) all.push_back({which + ": key of 'is a value'", at + "k_proj.weight", 2, 3});
    if (first) all.push_back({which + ": keys of the marks", at + "k_proj.weight", 4, 8});
    if (second) all.push_back({which + ": keys of the registers", at + "k_proj.weight", 8, width});
    all.push_back({which + ": queries", at + "q_proj.weight", 0, width});
    if (first) all.push_back({which + ": values, address", at + "v_proj.weight", 0, bits});
    if (second) all.push_back({which + ": values, bit", at + "v_proj.weight", bits, bits + 1});
    all.push_back({which + ": gate", at + "g_proj.weight", 0, width});
  }
  const size_t addresses = size_t{1} << bits;
  if (c.scratchpad) {
    all.push_back({"head: parity", "head.weight", pcr::kParity, pcr::kParity + 2});
    all.push_back(
        {"head: scratch tokens", "head.weight", pcr::kAddress + addresses, pcr::kAddress + 2 * addresses});
  }
  all.push_back({"head: values", "head.weight", pcr::kValue, pcr::kValue + 2});
  return all;
}

void turn_round(Model& model, const WeightGroup& g) {
  ParamSet& params = model.params();
  for (size_t i = 0; i < params.all().size(); ++i)
    if (params[i].name == g.param)
      for (size_t row = g.begin; row < g.end; ++row)
        for (size_t j = 0; j < params[i].cols(); ++j) params.mat(i).row(row)[j] *= -1;
}

PcrAnswer answer_pcr(const NumberModel& model, const PcrInstance& instance, size_t steps) {
  const std::unique_ptr<NumberRun> run = model.start();
  for (const int32_t token : instance.tokens) run->feed(token);
  PcrAnswer out{{}, HUGE_VAL};
  while (out.tokens.size() < steps) {
    if (!out.tokens.empty()) run->feed(out.tokens.back());
    const Best b = best(run->logits());
    out.tokens.push_back(b.token), out.margin = std::min(out.margin, b.margin);
  }
  return out;
}

std::vector<int32_t> pcr_answers(const PcrInstance& instance, size_t steps) {
  return {instance.answers.end() - static_cast<ptrdiff_t>(steps), instance.answers.end()};
}

namespace {

// One head of width n: BOS writes v to an empty state, then twice 0 is written, all with strength 1.
template <class T>
bool turns(size_t n, T v) {
  const std::vector<T> raw(n, T(1));
  std::vector<T> k(n);
  ref::l2norm_fwd<T>(raw.data(), k.data(), nullptr, n, T(1e-6));
  const ref::FastWeightDims<T> d{1, 1, n, 1, FastWeightDecay::kNone, FastWeightWrite::kDelta, T(1)};
  std::vector<T> s(n, T(0));
  const T beta(1), zero(0);
  T o;
  const auto write = [&](T value) {
    const std::vector<T> before = s;
    ref::fast_weight_fwd<T>(d, 1, {k.data(), k.data(), &value, nullptr, &beta, before.data()}, &o, s.data());
  };
  write(v);
  const std::vector<T> start = s;
  bool turned = start[0] != zero;
  for (int i = 0; i < 2 && turned; ++i) {
    const std::vector<T> before = s;
    write(zero);
    for (size_t j = 0; j < n; ++j) turned &= s[j] == -before[j];
  }
  return turned && s == start;
}

template <int s, Tie tie>
std::vector<RoundingFlip> flips(int64_t most) {
  using T = Fixed<s, tie>;
  std::vector<RoundingFlip> out;
  for (int64_t n = 1; n <= most; ++n)
    for (int32_t k = 1; k <= T::kLargest; ++k)
      if (turns<T>(static_cast<size_t>(n), T::of(k))) {
        out.push_back({n, static_cast<double>(T::of(k))});
        break;  // the smallest value will do
      }
  return out;
}

template <int s>
std::vector<RoundingFlip> flips(Tie tie, int64_t most) {
  return tie == Tie::kZero   ? flips<s, Tie::kZero>(most)
         : tie == Tie::kEven ? flips<s, Tie::kEven>(most)
                             : flips<s, Tie::kAway>(most);
}

}  // namespace

std::vector<RoundingFlip> find_flips(const Arithmetic& a, int64_t most) {
  switch (a.s) {
    case 2:
      return flips<2>(a.tie, most);
    case 3:
      return flips<3>(a.tie, most);
    case 4:
      return flips<4>(a.tie, most);
    default:
      return {};
  }
}

}  // namespace braid
