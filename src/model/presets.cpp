#include "model/presets.h"

#include <array>

namespace braid {
namespace {

// Transformer++: RoPE, RMSNorm, SwiGLU, no biases.
Json transformer(const Dims& dims, int64_t vocab_size) {
  const int64_t d_ff = dims.d_ff ? dims.d_ff : (8 * dims.d_model / 3 + 255) / 256 * 256;
  return {{"model_type", "braid"},
          {"vocab_size", vocab_size},
          {"d_model", dims.d_model},
          {"n_layers", dims.n_layers},
          {"pattern", Json::array({{{"mixer", {{"type", "attention"}, {"heads", dims.heads}}},
                                    {"mlp", {{"type", "swiglu"}, {"d_ff", d_ff}}}}})}};
}

// The inner width is set so that a Transformer with 256 tokens has the number of parameters in the name,
// within 2 %.
constexpr std::array kSizes{Size{"tiny", {64, 2, 4, 192}},   Size{"1M", {128, 4, 4, 440}},
                            Size{"3M", {192, 6, 6, 584}},    Size{"10M", {320, 8, 5, 856}},
                            Size{"30M", {512, 10, 8, 1248}}, Size{"100M", {768, 14, 12, 2064}}};

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
  return p->config(s->dims, vocab_size);
}

}  // namespace braid
