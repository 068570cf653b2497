#include "model/families/llama2c.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <map>

#include "model/config_json.h"
#include "model/families/shared.h"

namespace braid {
namespace {

constexpr size_t kHeader = 7 * sizeof(int32_t);
constexpr int32_t kLaterVersions = 0x616b3432;  // "ak42"

struct Sizes {
  int64_t width, inner, layers, heads, kv_heads, vocab, longest;
  bool own_head;
  int64_t head_dim() const { return width / heads; }
};

Sizes sizes_of(const MappedFile& file) {
  std::array<int32_t, 7> n;
  std::memcpy(n.data(), file.bytes().data(), kHeader);
  return {n[0], n[1], n[2], n[3], n[4], std::abs(static_cast<int64_t>(n[5])), n[6], n[5] < 0};
}

// A tensor of the file: `layers` matrices or vectors, one after the other.
struct Stack {
  const char* param;
  int64_t layers, rows, cols;  // 0 layers: the model's own
  bool rotated = false;
  int64_t matrices() const { return std::max<int64_t>(layers, 1); }
};

std::vector<Stack> stacks_of(const Sizes& s) {
  const int64_t L = s.layers, d = s.width, kv = s.kv_heads * s.head_dim();
  std::vector<Stack> all{{"embedding.weight", 0, s.vocab, d},
                         {"mixer_norm.weight", L, d, 1},
                         {"mixer.q_proj.weight", L, d, d, true},
                         {"mixer.k_proj.weight", L, kv, d, true},
                         {"mixer.v_proj.weight", L, kv, d},
                         {"mixer.o_proj.weight", L, d, d},
                         {"mlp_norm.weight", L, d, 1},
                         {"mlp.gate_proj.weight", L, s.inner, d},
                         {"mlp.down_proj.weight", L, d, s.inner},
                         {"mlp.up_proj.weight", L, s.inner, d},
                         {"final_norm.weight", 0, d, 1},
                         {"", 0, s.longest * s.head_dim(), 1}};  // cos and sin
  if (s.own_head) all.push_back({"head.weight", 0, s.vocab, d});
  return all;
}

}  // namespace

Result<Llama2c> read_llama2c(const std::string& path) {
  Result<MappedFile> file = MappedFile::open(path);
  if (!file) return file.error();
  const auto refuse = [&](const std::string& why, const char* fix) { return Error{path + ": " + why, fix}; };
  const size_t bytes = file->bytes().size();
  if (bytes < kHeader)
    return refuse(fmt::format("holds {} bytes, fewer than a header of llama2.c", bytes), "give a model file of llama2.c");
  const Sizes s = sizes_of(*file);
  if (s.width == kLaterVersions)
    return refuse("is a later version of llama2.c's format", "export the model as version 0");
  for (const int64_t n : {s.width, s.inner, s.layers, s.heads, s.kv_heads, s.vocab, s.longest})
    if (n < 1 || n > 1 << 24)
      return refuse("its header is not one of llama2.c", "give a model file of llama2.c");
  if (s.layers > 10000 || s.width % s.heads != 0 || s.heads % s.kv_heads != 0 || s.head_dim() % 2 != 0)
    return refuse("its header is not one of llama2.c", "give a model file of llama2.c");
  double floats = 0;  // so large sizes cannot wrap around
  for (const Stack& t : stacks_of(s))
    floats += static_cast<double>(t.matrices()) * static_cast<double>(t.rows) * static_cast<double>(t.cols);
  if (static_cast<double>(bytes) != 4 * floats + kHeader)
    return refuse(
        fmt::format("holds {} bytes, but its header stands for {:.0f}", bytes, 4 * floats + kHeader),
        "fetch the file again");
  Json config = {
      {"model_type", "braid"},
      {"vocab_size", s.vocab},
      {"d_model", s.width},
      {"n_layers", s.layers},
      {"norm_eps", 1e-5},
      {"tie_embeddings", !s.own_head},
      {"pattern",
       {{{"mixer",
          {{"type", "attention"}, {"heads", s.heads}, {"kv_heads", s.kv_heads}, {"rope_theta", 10000}}},
         {"mlp", {{"type", "swiglu"}, {"d_ff", s.inner}}}}}}};
  Result<ModelConfig> parsed = parse_config(config, path + " in Braid's words");
  if (!parsed) return parsed.error();
  return Llama2c{*std::move(file), *std::move(parsed)};
}

std::vector<Assembled> assemble_llama2c(const Llama2c& from, const Model& model) {
  const Sizes s = sizes_of(from.file);
  const auto* data = reinterpret_cast<const float*>(from.file.bytes().data() + kHeader);
  std::map<std::string, std::vector<View>> pieces;
  for (const Stack& t : stacks_of(s))
    for (int64_t i = 0; i < t.matrices(); ++i) {
      std::vector<View>& to = pieces[t.layers == 0 ? t.param : our_layer(i) + t.param];
      if (!t.rotated) {
        to.push_back({data, DType::kF32, {t.rows, t.cols}});
      } else {
        const int64_t half = s.head_dim() / 2;
        for (int64_t row = 0; row < t.rows; ++row) {
          const int64_t head = row / (2 * half), j = row % (2 * half),
                        theirs = j < half ? 2 * j : 2 * (j - half) + 1;
          to.push_back({data + (head * 2 * half + theirs) * t.cols, DType::kF32, {1, t.cols}});
        }
      }
      data += t.rows * t.cols;
    }
  std::vector<Assembled> out;
  for (const Param& p : model.params().all()) out.push_back({p.name, p.shape, pieces.at(p.name)});
  return out;
}

}  // namespace braid
