// safetensors: named tensors in one file, or in several with an index.
//
//   u64 little-endian header length n, n bytes of JSON, then the data:
//   {"__metadata__": {"format": "pt"}, "wte": {"dtype": "BF16", "shape": [4, 8], "data_offsets": [0, 64]},
//   ...}
//
// Offsets count from the end of the header; data is row-major, little-endian, without overlaps or holes.
#pragma once

#include <functional>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "io/file.h"
#include "tensor/tensor.h"

namespace braid {

// Views into mapped files, valid as long as this object or the one it is moved to. Everything in the header
// is checked on opening. Tensors that do not lie on a multiple of their number's size (the format allows it)
// are copied, the others are not read until used.
class SafeTensors {
 public:
  static Result<SafeTensors> open(const std::string& path);
  static Result<SafeTensors> open_sharded(const std::string& index_path);  // model.safetensors.index.json
  static Result<SafeTensors> open_model(const std::string& dir);           // whichever of the two is there

  std::vector<std::string> names() const;         // sorted
  const View* find(std::string_view name) const;  // null if there is none
  const std::map<std::string, std::string>& metadata() const { return metadata_; }

 private:
  SafeTensors() = default;
  static Result<SafeTensors> read(const std::string& path);
  static Result<SafeTensors> read_sharded(const std::string& index_path);

  std::vector<MappedFile> files_;
  std::vector<Tensor> copies_;
  std::map<std::string, View, std::less<>> tensors_;
  std::map<std::string, std::string> metadata_;
};

struct NamedTensor {
  std::string name;
  View view;
};

// Atomic. The same tensors in any order give the same bytes, those of the reference implementation.
Status write_safetensors(const std::string& path, const std::vector<NamedTensor>& tensors,
                         const std::map<std::string, std::string>& metadata = {});

// The same for tensors that are made one at a time, so that a file may be larger than memory. `make` is
// called once per tensor, in the order of the file, and hands its bytes over from first to last in any number
// of pieces.
struct TensorSpec {
  std::string name;
  DType dtype = DType::kF32;
  Shape shape;
  size_t bytes() const { return static_cast<size_t>(shape.count()) * dtype_size(dtype); }
};
using PutBytes = std::function<Status(std::span<const std::byte>)>;
Status stream_safetensors(const std::string& path, const std::vector<TensorSpec>& tensors,
                          const std::map<std::string, std::string>& metadata,
                          const std::function<Status(size_t tensor, const PutBytes& put)>& make);

}  // namespace braid
