// Any bytes as a safetensors file: an error, or tensors that can be read.
#include "io/safetensors.h"
#include "scratch_file.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace braid;
  const ScratchFile file(data, size);
  const Result<SafeTensors> tensors = SafeTensors::open(file.path());
  if (!tensors) return 0;
  unsigned sum = 0;
  for (const std::string& name : tensors->names()) {
    const View& v = *tensors->find(name);
    for (size_t i = 0; i < v.bytes(); ++i)
      sum += static_cast<unsigned>(static_cast<const std::byte*>(v.data)[i]);
  }
  [[maybe_unused]] volatile unsigned keep = sum;
  return 0;
}
