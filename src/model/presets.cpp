#include "model/presets.h"

#include <fmt/format.h>

#include <array>
#include <charconv>
#include <cmath>

#include "io/json.h"
#include "model/config_json.h"
#include "model/model.h"

namespace braid {
namespace {

// ---- Layers

Json layer(Json mixer) { return {{"mixer", std::move(mixer)}}; }

Json attention(const Dims& d) { return {{"type", "attention"}, {"heads", d.heads}}; }
// The papers' window of 2048 at their head size of 128; smaller models see less.
Json windowed(const Dims& d) {
  Json m = attention(d);
  m["window"] = 16 * d.head_dim();
  return m;
}
Json fast_weight(const char* type, const Dims& d) { return {{"type", type}, {"heads", d.heads}}; }
Json mamba() { return {{"type", "mamba"}}; }
// State and head size of the papers, 128 and 64, at their size.
Json mamba2(const Dims& d) {
  return {{"type", "mamba2"}, {"state", d.head_dim()}, {"head_dim", std::max<int64_t>(1, d.head_dim() / 2)}};
}
Json retnet(const Dims& d) {  // half the heads, twice as wide: 256 and 512 at the papers' size
  const int64_t heads = d.heads % 2 == 0 ? d.heads / 2 : d.heads;
  return {{"type", "retnet"}, {"heads", heads}, {"value_dim", 2 * d.d_model / heads}};
}
Json gla(const Dims& d) {  // keys half as wide as values
  return {{"type", "gla"},
          {"heads", d.heads},
          {"head_dim", std::max<int64_t>(1, d.head_dim() / 2)},
          {"value_dim", d.head_dim()}};
}
Json hqlt(const Dims& d, const char* variant) {
  return {{"type", "hqlt"}, {"heads", d.heads}, {"variant", variant}};
}
Json pattern_of(std::initializer_list<Json> mixers) {
  Json p = Json::array();
  for (const Json& m : mixers) p.push_back(layer(m));
  return p;
}

// Qwen: keys of the fast weights and of attention are shared by groups of heads, a quarter of a head is
// rotated.
int64_t divided(int64_t heads, int64_t by) { return heads % by == 0 ? heads / by : heads; }
Json qwen_fast_weight(const Dims& d) {
  Json m = fast_weight("gated_deltanet", d);
  m["head_dim"] = d.head_dim(), m["key_heads"] = divided(d.heads, 2);
  return m;
}
Json qwen_attention(const Dims& d) {
  Json m = attention(d);
  m["kv_heads"] = divided(d.heads, 4), m["qk_norm"] = "head", m["gate"] = "sigmoid";
  m["rotary_dim"] = std::max<int64_t>(2, d.head_dim() / 8 * 2);
  return m;
}
Json qwen_pattern(const Dims& d) {
  const Json g = qwen_fast_weight(d);
  return pattern_of({g, g, g, qwen_attention(d)});
}
Json qwen_settings() { return {{"zero_centred_norms", true}}; }

// Olmo: norms before the fast weights, but on the output of attention, which has no positions.
Json olmo_pattern(const Dims& d) {
  Json g = fast_weight("gated_deltanet", d), a = attention(d);
  const int64_t dk = 3 * d.head_dim() / 4;
  g["head_dim"] = dk, g["value_dim"] = 2 * dk, g["negative_eigenvalues"] = true, g["out_eps"] = 1e-5;
  a["qk_norm"] = "full", a["rope_theta"] = 0;
  Json p = pattern_of({g, g, g, a});
  p[3]["norm"] = "post";
  return p;
}

// ---- Released models

struct Qwen {
  Dims dims;
  int64_t vocab_size, key_heads, value_heads, kv_heads;
  bool tied;
  Json mlp;
};
Json qwen(const Qwen& q) {
  const Json g{
      {"type", "gated_deltanet"}, {"heads", q.value_heads}, {"key_heads", q.key_heads}, {"head_dim", 128}};
  const Json a{{"type", "attention"}, {"heads", q.dims.heads}, {"kv_heads", q.kv_heads}, {"head_dim", 256},
               {"rotary_dim", 64},    {"rope_theta", 1e7},     {"qk_norm", "head"},      {"gate", "sigmoid"}};
  Json p = pattern_of({g, g, g, a});
  for (Json& l : p) l["mlp"] = q.mlp;
  return {{"model_type", "braid"},       {"vocab_size", q.vocab_size}, {"d_model", q.dims.d_model},
          {"n_layers", q.dims.n_layers}, {"zero_centred_norms", true}, {"tie_embeddings", q.tied},
          {"pattern", std::move(p)}};
}
Json qwen35(const Dims& d, int64_t value_heads, int64_t kv_heads, bool tied) {
  return qwen({d, 248320, 16, value_heads, kv_heads, tied, {{"type", "swiglu"}, {"d_ff", d.d_ff}}});
}
Json qwen_moe(const Dims& d, int64_t vocab_size, int64_t experts, int64_t top_k) {
  return qwen(
      {d,
       vocab_size,
       16,
       32,
       2,
       false,
       {{"type", "moe"}, {"experts", experts}, {"top_k", top_k}, {"d_ff", 512}, {"shared_d_ff", 512}}});
}

// ---- The tables

constexpr std::array kSizes{Size{"tiny", {64, 2, 4, 192}},
                            Size{"1M", {128, 4, 4, 440}},
                            Size{"3M", {192, 6, 6, 584}},
                            Size{"10M", {320, 8, 5, 856}},
                            Size{"30M", {512, 10, 8, 1248}},
                            Size{"100M", {768, 14, 12, 2064}},
                            Size{"340M", {1024, 24, 8, 2816}, 32000},    // HQLT
                            Size{"400M", {1536, 11, 12, 4096}, 32000},   // Gated DeltaNet
                            Size{"1.3B", {2048, 24, 16, 5632}, 32000}};  // HQLT

constexpr std::array kPresets{
    Preset{"transformer", "Transformer++: softmax attention with RoPE, RMSNorm, SwiGLU, no biases",
           "arXiv:1706.03762, arXiv:2302.13971", [](const Dims& d) { return pattern_of({attention(d)}); }},
    Preset{"linear-attention", "linear attention with 1 + elu features, normalised", "arXiv:2006.16236",
           [](const Dims& d) { return pattern_of({fast_weight("linear_attention", d)}); }},
    Preset{"retnet", "RetNet: a constant decay per head", "arXiv:2307.08621",
           [](const Dims& d) { return pattern_of({retnet(d)}); }},
    Preset{"gla", "gated linear attention", "arXiv:2312.06635",
           [](const Dims& d) { return pattern_of({gla(d)}); }},
    Preset{"hgrn2", "HGRN2", "arXiv:2404.07904",
           [](const Dims& d) { return pattern_of({fast_weight("hgrn2", d)}); }},
    Preset{"mamba", "Mamba, with an MLP in each layer, for equal depth and width", "arXiv:2312.00752",
           [](const Dims&) { return pattern_of({mamba()}); }},
    Preset{"mamba2", "Mamba2, with an MLP in each layer, for equal depth and width", "arXiv:2405.21060",
           [](const Dims& d) { return pattern_of({mamba2(d)}); }},
    Preset{"samba", "Mamba and windowed attention in turn", "arXiv:2406.07522",
           [](const Dims& d) {
             return pattern_of({mamba(), windowed(d)});
           }},
    Preset{"deltanet", "DeltaNet: the delta rule", "arXiv:2102.11174, arXiv:2406.06484",
           [](const Dims& d) { return pattern_of({fast_weight("deltanet", d)}); }},
    Preset{"gated-deltanet", "Gated DeltaNet: the delta rule with a decay", "arXiv:2412.06464",
           [](const Dims& d) { return pattern_of({fast_weight("gated_deltanet", d)}); }},
    Preset{"gdn-h1", "Gated DeltaNet H1: Gated DeltaNet and windowed attention in turn", "arXiv:2412.06464",
           [](const Dims& d) {
             return pattern_of({fast_weight("gated_deltanet", d), windowed(d)});
           }},
    Preset{"gdn-h2", "Gated DeltaNet H2: Mamba2, Gated DeltaNet, windowed attention", "arXiv:2412.06464",
           [](const Dims& d) {
             return pattern_of({mamba2(d), fast_weight("gated_deltanet", d), windowed(d)});
           }},
    Preset{"gdn-swa-mamba2", "H2 in another order: Gated DeltaNet, windowed attention, Mamba2",
           "arXiv:2412.06464",
           [](const Dims& d) {
             return pattern_of({fast_weight("gated_deltanet", d), windowed(d), mamba2(d)});
           }},
    Preset{"gdn-mamba2-swa", "H2 in another order: Gated DeltaNet, Mamba2, windowed attention",
           "arXiv:2412.06464",
           [](const Dims& d) {
             return pattern_of({fast_weight("gated_deltanet", d), mamba2(d), windowed(d)});
           }},
    Preset{"mamba2-swa-gdn", "H2 in another order: Mamba2, windowed attention, Gated DeltaNet",
           "arXiv:2412.06464",
           [](const Dims& d) {
             return pattern_of({mamba2(d), windowed(d), fast_weight("gated_deltanet", d)});
           }},
    Preset{"hqlt-sync", "HQLT: attention and DeltaNet in each layer, both update on every token",
           "arXiv:2506.00744", [](const Dims& d) { return pattern_of({hqlt(d, "sync")}); }},
    Preset{"hqlt-delayed-stream", "HQLT: DeltaNet is updated with tokens that leave the attention window",
           "arXiv:2506.00744", [](const Dims& d) { return pattern_of({hqlt(d, "delayed_stream")}); }},
    Preset{"hqlt-delayed-chunk", "HQLT: attention inside a chunk, DeltaNet for all earlier chunks",
           "arXiv:2506.00744", [](const Dims& d) { return pattern_of({hqlt(d, "delayed_chunk")}); }},
    Preset{"hqlt-sync-linear", "HQLT with additive writes instead of the delta rule", "arXiv:2506.00744",
           [](const Dims& d) {
             Json m = hqlt(d, "sync");
             m["write"] = "additive";
             return pattern_of({m});
           }},
    Preset{"deltaformer", "DeltaFormer: attention with a delta rule on its key-value memory",
           "arXiv:2505.19488",
           [](const Dims& d) {
             return pattern_of({{{"type", "deltaformer"}, {"heads", d.heads}}});
           }},
    Preset{"kda", "Kimi Delta Attention: a decay per key channel", "arXiv:2510.26692",
           [](const Dims& d) { return pattern_of({fast_weight("kda", d)}); }},
    Preset{"gated-deltaproduct", "Gated DeltaProduct: two delta steps per token", "arXiv:2502.10297",
           [](const Dims& d) { return pattern_of({fast_weight("gated_deltaproduct", d)}); }},
    Preset{"qwen3-next", "Qwen3-Next: as qwen3.5, with a mixture of experts in every layer",
           "arXiv:2412.06464, arXiv:2505.06708",
           [](const Dims& d) {
             Json p = qwen_pattern(d);
             for (Json& l : p) l["mlp"] = {{"type", "moe"}, {"experts", 8}, {"top_k", 2}};
             return p;
           },
           qwen_settings,
           [] {
             return std::vector<OwnSize>{{"80B", [] { return qwen_moe({2048, 48, 16}, 151936, 512, 10); }}};
           }},
    Preset{"qwen3.5", "Qwen3.5: three Gated DeltaNet layers to one of gated attention",
           "arXiv:2412.06464, arXiv:2505.06708", qwen_pattern, qwen_settings,
           [] {
             return std::vector<OwnSize>{{"0.8B",
                                          [] {
                                            return qwen35({1024, 24, 8, 3584}, 16, 2, true);
                                          }},
                                         {"4B",
                                          [] {
                                            return qwen35({2560, 32, 16, 9216}, 32, 4, true);
                                          }},
                                         {"9B",
                                          [] {
                                            return qwen35({4096, 32, 16, 12288}, 32, 4, false);
                                          }},
                                         {"35B",
                                          [] {
                                            return qwen_moe({2048, 40, 16}, 248320, 256, 8);
                                          }},
                                         {"27B", [] {
                                            return qwen35({5120, 64, 24, 17408}, 48, 4, false);
                                          }}};
           }},
    Preset{"olmo-hybrid", "Olmo Hybrid: three Gated DeltaNet layers to one of attention without positions",
           "arXiv:2604.03444", olmo_pattern, nullptr,
           [] {
             return std::vector<OwnSize>{
                 {"7B", [] {
                    return config_of(*find_preset("olmo-hybrid"), {3840, 32, 30, 11008}, 100352);
                  }}};
           }},
};

// ---- Sizes

size_t parameters(const Json& json) {
  const Result<ModelConfig> config = parse_config(json, "preset");
  check(static_cast<bool>(config), "a preset is not valid");
  return Model::create(*config)->params().count();
}

// The pattern fits a whole number of times, at least once; a model that gets much deeper by this gets
// narrower.
Dims fitted(Dims d, size_t pattern) {
  const auto p = static_cast<double>(pattern);
  const auto repeats = std::max<int64_t>(1, std::llround(static_cast<double>(d.n_layers) / p));
  const double deeper = static_cast<double>(repeats) * p / static_cast<double>(d.n_layers);
  d.n_layers = repeats * static_cast<int64_t>(pattern);
  if (deeper >= 1.5) {
    const double step = 4.0 * static_cast<double>(d.heads);
    d.d_model =
        std::llround(static_cast<double>(d.d_model) / std::sqrt(deeper) / step) * static_cast<int64_t>(step);
  }
  return d;
}

}  // namespace

std::span<const Preset> all_presets() { return kPresets; }
std::span<const Size> all_sizes() { return kSizes; }

const Preset* find_preset(std::string_view name) {
  for (const Preset& p : kPresets)
    if (p.name == name) return &p;
  return nullptr;
}

const Size* find_size(std::string_view name) {
  for (const Size& s : kSizes)
    if (s.name == name) return &s;
  return nullptr;
}

std::vector<std::string> preset_names() {
  std::vector<std::string> names;
  for (const Preset& p : kPresets) names.emplace_back(p.name);
  return names;
}

std::vector<std::string> size_names(const Preset* of) {
  std::vector<std::string> names;
  for (const Size& s : kSizes) names.emplace_back(s.name);
  if (of && of->own_sizes)
    for (const OwnSize& s : of->own_sizes()) names.emplace_back(s.name);
  return names;
}

Json config_of(const Preset& preset, const Dims& dims, int64_t vocab_size) {
  Json j = preset.settings ? preset.settings() : Json::object();
  j["model_type"] = "braid", j["vocab_size"] = vocab_size;
  j["d_model"] = dims.d_model, j["n_layers"] = dims.n_layers;
  j["pattern"] = preset.pattern(dims);
  const int64_t d_ff = dims.d_ff ? dims.d_ff : (8 * dims.d_model / 3 + 255) / 256 * 256;
  for (Json& l : j["pattern"]) {
    if (!l.contains("mlp")) l["mlp"] = {{"type", "swiglu"}};
    if (!l["mlp"].contains("d_ff") && l["mlp"]["type"] != "none") l["mlp"]["d_ff"] = d_ff;
  }
  return j;
}

std::optional<Dims> parse_dims(std::string_view size) {
  Dims dims{};
  size_t at = 0;
  const auto part = [&](char letter, int64_t& to) {
    if (at >= size.size() || size[at] != letter) return false;
    const char* const first = size.data() + at + 1;
    const auto [end, error] = std::from_chars(first, size.data() + size.size(), to);
    if (error != std::errc() || end == first || to > 1'000'000) return false;
    at = static_cast<size_t>(end - size.data());
    if (at < size.size() && size[at] != '-') return false;
    ++at;
    return true;
  };
  if (!part('d', dims.d_model) || !part('l', dims.n_layers) || !part('h', dims.heads)) return std::nullopt;
  if (at < size.size() && !part('f', dims.d_ff)) return std::nullopt;
  return at > size.size() ? std::optional(dims) : std::nullopt;
}

Result<Json> preset_config(const std::string& arch, const std::string& size, int64_t vocab_size) {
  const Preset* p = find_preset(arch);
  if (!p) return Error{"--arch " + arch + ": is not an architecture", suggest(arch, preset_names())};
  if (vocab_size < 1 || vocab_size > (1 << 24))
    return Error{fmt::format("--vocab: is {}", vocab_size), "use 1 to 16777216"};
  if (p->own_sizes)
    for (const OwnSize& s : p->own_sizes())
      if (s.name == size) return s.config();
  if (const std::optional<Dims> exact = parse_dims(size)) {
    const Dims& d = *exact;
    if (d.d_model < 1 || d.n_layers < 1 || d.heads < 1 || d.d_model % d.heads != 0)
      return Error{fmt::format("--size {}: width {} is no multiple of {} heads", size, d.d_model, d.heads),
                   "use e.g. d128-l2-h4: width 128, 2 layers, 4 heads"};
    return config_of(*p, d, vocab_size);
  }
  const Size* s = find_size(size);
  if (!s)
    return Error{fmt::format("--size {}: is not a size of {}", size, arch),
                 suggest(size, size_names(p)) + ", or exact dimensions such as d128-l2-h4-f512"};
  const int64_t vocab = std::max(vocab_size, s->vocab_size);
  // The number of parameters is linear in the inner width: two points give the width that fits.
  bool experts = false;
  for (const Json& l : p->pattern(s->dims)) experts |= l.contains("mlp") && l["mlp"]["type"] == "moe";
  const int64_t step = experts ? 2 : 8;  // a change of width counts once per expert
  const Preset& transformer = *find_preset("transformer");
  const auto target = static_cast<double>(parameters(config_of(transformer, s->dims, vocab)));
  Dims dims = fitted(s->dims, p->pattern(s->dims).size());
  const auto count = [&](int64_t d_ff) {
    dims.d_ff = d_ff;
    return static_cast<double>(parameters(config_of(*p, dims, vocab)));
  };
  const double first = count(step), slope = count(2 * step) - first;
  dims.d_ff = std::max<int64_t>(1, 1 + std::llround((target - first) / slope)) * step;
  return config_of(*p, dims, vocab);
}

}  // namespace braid
