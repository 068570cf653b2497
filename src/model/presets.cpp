#include "model/presets.h"

#include <array>

namespace braid {
namespace {

// Transformer++: RoPE, RMSNorm, SwiGLU of 8/3 the width rounded up to a multiple of 64 (256 from d_model 128
// on), no biases.
Json transformer(int64_t d_model, int64_t n_layers, int64_t heads, int64_t vocab_size) {
  const int64_t unit = d_model >= 128 ? 256 : 64;
  const int64_t d_ff = (8 * d_model / 3 + unit - 1) / unit * unit;
  return {{"model_type", "braid"},
          {"vocab_size", vocab_size},
          {"d_model", d_model},
          {"n_layers", n_layers},
          {"pattern", Json::array({{{"mixer", {{"type", "attention"}, {"heads", heads}}},
                                    {"mlp", {{"type", "swiglu"}, {"d_ff", d_ff}}}}})}};
}

// Parameters without embedding and head: about 12 d^2 per layer.
constexpr std::array kSizes{Size{"tiny", 64, 2, 4}, Size{"1M", 128, 4, 4},   Size{"3M", 192, 6, 6},
                            Size{"10M", 320, 8, 5}, Size{"30M", 512, 10, 8}, Size{"100M", 768, 14, 12}};

constexpr std::array kPresets{
    Preset{"transformer", "Transformer++: softmax attention with RoPE, RMSNorm, SwiGLU, no biases",
           transformer},
};

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

std::vector<std::string> size_names() {
  std::vector<std::string> names;
  for (const Size& s : kSizes) names.emplace_back(s.name);
  return names;
}

Result<Json> preset_config(const std::string& arch, const std::string& size, int64_t vocab_size) {
  const Preset* p = find_preset(arch);
  if (!p) return Error{"there is no architecture '" + arch + "'", suggest(arch, preset_names())};
  const Size* s = find_size(size);
  if (!s) return Error{"there is no size '" + size + "'", suggest(size, size_names())};
  return p->config(s->d_model, s->n_layers, s->heads, vocab_size);
}

}  // namespace braid
