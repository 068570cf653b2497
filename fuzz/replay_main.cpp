// Runs a fuzz target on its kept inputs: how the tests replay them. tools/fuzz_corpus.py writes the file: for
// each input a line with its length, its bytes, and a line break.
#include <cstdint>
#include <cstdio>
#include <fstream>
#include <string>

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);

int main(int argc, char** argv) {
  if (argc != 2) return std::fprintf(stderr, "usage: %s FILE\n", argv[0]), 2;
  std::ifstream in(argv[1], std::ios::binary);
  int inputs = 0;
  for (size_t size; in >> size && in.get() == '\n'; ++inputs) {
    std::string bytes(size, 0);
    if (!in.read(bytes.data(), static_cast<std::streamsize>(size)) || in.get() != '\n')
      return std::fprintf(stderr, "%s: input %d is cut\n", argv[1], inputs), 1;
    LLVMFuzzerTestOneInput(reinterpret_cast<const uint8_t*>(bytes.data()), size);
  }
  std::printf("%d inputs\n", inputs);
  return inputs > 0 && in.eof() ? 0 : 1;
}
