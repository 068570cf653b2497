// Reads a family's config.json. Every key must be read, declared without effect, or have the one value that
// Braid computes. An unknown key is an error, unless its value is null or empty or its name begins with an
// underscore (notes of the library that wrote the file). Keys without effect are listed.
#pragma once

#include <initializer_list>
#include <optional>
#include <string>
#include <vector>

#include "base/error.h"
#include "io/json.h"

namespace braid {

class HfConfig {
 public:
  // `ignored` gets the keys without effect, in the order of the file.
  HfConfig(const Json& object, std::string where, std::vector<Problem>& problems,
           std::vector<std::string>* ignored = nullptr);

  // The value, or the family's default if the key is missing or null.
  int64_t whole(const char* name, int64_t otherwise);   // sizes: at most 2^31, so that products fit
  int64_t size(const char* name, int64_t otherwise);    // 1 or more: zero would stand for a default in Braid
  int64_t positive(const char* name, int64_t size);     // what follows from this field: the same
  int64_t layers(const char* name, int64_t otherwise);  // 1 to 10000, whatever the file says
  double number(const char* name, double otherwise);
  bool flag(const char* name, bool otherwise);
  std::string word(const char* name, const std::string& otherwise);
  bool given(const char* name);       // there and not null
  const Json* raw(const char* name);  // null if missing; a JSON null is returned

  // Braid computes only `wanted`, which is also the family's default.
  void must_be(const char* name, const Json& wanted, const char* why);
  void one_of(const char* name, const std::vector<std::string>& wanted, const char* why);
  void no_effect(std::initializer_list<const char*> names);  // on the numbers that the model computes

  struct Rope {
    double theta;  // 0: the config says there is no rotation
    double partial;
    Json scaling = Json::object();  // the rope_... settings of Braid's attention
  };
  // rope_parameters or rope_scaling, then the older keys beside it, then defaults.
  Rope rope(double partial_otherwise, double theta_otherwise = 10000);
  // The same where it may differ by the type of layer. Older files scale full attention only.
  Rope rope_of(const char* layer_type, double theta_otherwise, bool scaled);

  // One name per layer: the list, or what `otherwise` says.
  std::vector<std::string> layer_types(int64_t layers, const std::vector<std::string>& known,
                                       const std::vector<std::string>& otherwise);

  void problem(const std::string& name, const std::string& what, const std::string& fix);
  void finish();  // reports keys that were not read; call it after the last read

 private:
  const Json* find(const char* name);
  Rope read_rope(const Json* dict, const std::string& where, double partial, double theta);
  void read_scaling(const Json& dict, const std::string& where, Rope& rope);

  const Json& object_;
  std::string where_;
  std::vector<Problem>& problems_;
  std::vector<std::string>* ignored_;
  std::vector<std::string> known_, no_effect_;
};

}  // namespace braid
