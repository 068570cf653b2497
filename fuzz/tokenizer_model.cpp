// Any bytes as a SentencePiece tokenizer.model.
#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "tokenizer/tokenizer.h"

namespace {

// A file of that name; gone at the end.
struct Folder {
  std::string path = (std::filesystem::temp_directory_path() / "braid-fuzz-XXXXXX").string();
  Folder() {
    if (!mkdtemp(path.data())) std::abort();
  }
  ~Folder() {
    std::error_code ignored;
    std::filesystem::remove_all(path, ignored);
  }
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace braid;
  static const Folder folder;
  std::ofstream(folder.path + "/tokenizer.model", std::ios::binary)
      .write(reinterpret_cast<const char*>(data), static_cast<std::streamsize>(size));
  const Result<Tokenizer> tokenizer = Tokenizer::load(folder.path);
  if (!tokenizer) return 0;
  const auto ids = tokenizer->encode("Hello, w\xC3\xB6rld!  12\n\t<s> \xE4\xBD\xA0\xFF\xF0\x9F\x98\x80");
  if (ids) (void)tokenizer->decode(*ids);
  return 0;
}
