// Any bytes as a tokenizer.json: an error, or a tokenizer that encodes and decodes.
#include "tokenizer/tokenizer.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace braid;
  const std::string text(reinterpret_cast<const char*>(data), size);
  const Result<Tokenizer> tokenizer = Tokenizer::parse(text);
  if (!tokenizer) return 0;
  for (const std::string& s :
       {std::string("Hello, w\xC3\xB6rld!  12\n\t<s> \xE4\xBD\xA0\xFF\xF0\x9F\x98\x80"), text.substr(0, 200)})
    if (const auto ids = tokenizer->encode(s)) (void)tokenizer->decode(*ids);
  return 0;
}
