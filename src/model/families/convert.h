// Model folders from one family's files to another's, tensor by tensor. What is read is mapped, which the
// system can take back at any time; besides, memory does not grow with the model.
#pragma once

#include <functional>
#include <map>
#include <optional>

#include "base/parallel.h"
#include "model/families/families.h"

namespace braid {

struct Conversion {
  std::string tokenizer = {};  // llama2.c: the file of its tokenizer
  std::string in, out;         // folders; `out` appears when it is whole
  std::optional<WeightFormat> format =
      {};                    // of the numbers; q8 and q4 of large matrices alone; none: as they are
  bool replace = false;      // files of a model that was converted to `out`; all others stay
  bool check_only = false;   // everything but writing
  uint64_t shard_bytes = 0;  // most per file, if a tensor allows; 0: one file
  // Texts for `out` besides, by file name; where the model has a file of this name, that one is copied.
  std::map<std::string, std::string> files = {};
  std::function<bool(uint64_t done, uint64_t all)> progress = {};  // bytes written; false: stop
};

struct Converted {
  std::string family;  // model_type of the side that is not Braid's
  size_t tensors = 0;
  uint64_t bytes = 0;
  std::vector<std::string> notes = {};
};

Result<Converted> convert_to_hf(const Conversion& c, const Model& model, const HfConfigFile& config);
Result<Converted> convert_to_braid(const Conversion& c, const Model& model, const Family& family);
// A folder of Braid's with its numbers in another format.
Result<Converted> convert_format(const Conversion& c, const Model& model);
Result<Converted> convert_llama2c(const Conversion& c);  // c.in is a file of llama2.c

// Models with random weights in bf16 and the shape of released ones, written as the hub has them: for
// timings.
struct RandomShape {
  std::string_view name, summary;
  const char* config;  // a family's config.json
};
std::span<const RandomShape> random_shapes();
Result<Converted> convert_random(const Conversion& c, const RandomShape& shape, Par par);  // c.in is not read

}  // namespace braid
