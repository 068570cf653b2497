// Files of llama2.c, version 0: seven int32 (width, inner width of the MLP, layers, heads, key-value heads,
// vocabulary, longest sequence; a negative vocabulary means that the head is not the embedding), then float32
// numbers: embedding, then of all layers one after the other the attention norms, q, k, v, o, the MLP norms,
// gate, down, up; the last norm, two unused tables of rotations, and the head. RoPE turns
// neighbours (2i, 2i + 1), Braid's turns (i, i + h): rows of q and k change places.
#pragma once

#include "io/file.h"
#include "model/families/families.h"

namespace braid {

struct Llama2c {
  MappedFile file;
  ModelConfig config;
};
Result<Llama2c> read_llama2c(const std::string& path);
// Braid's parameters, in the order of the model, as pieces of the file.
std::vector<Assembled> assemble_llama2c(const Llama2c& from, const Model& model);

}  // namespace braid
