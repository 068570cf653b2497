// Any bytes as a config.json, Braid's or a released family's: an error, or a config that can be written and
// read again.
#include <cstdlib>

#include "io/json.h"
#include "model/config_json.h"
#include "model/families/families.h"
#include "scratch_file.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace braid;
  const ScratchFile file(data, size);
  const Result<Json> json = load_config_json(file.path());
  if (!json) return 0;
  const Result<ModelConfig> config = read_config(*json, "config.json");
  if (!config) return 0;
  if (!parse_config(to_json(*config), "what was written")) std::abort();
  return 0;
}
