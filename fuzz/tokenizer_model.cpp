// Any bytes as a SentencePiece tokenizer.model.
#include <fstream>

#include "scratch_file.h"
#include "tokenizer/tokenizer.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace braid;
  static const std::string dir = [] {
    char name[] = "/dev/shm/braid-fuzz-XXXXXX";
    if (!mkdtemp(name)) std::abort();
    return std::string(name);
  }();
  std::ofstream(dir + "/tokenizer.model", std::ios::binary)
      .write(reinterpret_cast<const char*>(data), static_cast<std::streamsize>(size));
  const Result<Tokenizer> tokenizer = Tokenizer::load(dir);
  if (!tokenizer) return 0;
  tokenizer->decode(tokenizer->encode("Hello, w\xC3\xB6rld!  12\n\t<s> \xE4\xBD\xA0\xFF\xF0\x9F\x98\x80"));
  return 0;
}
