// Settings of the MLPs.
#pragma once

#include <memory>
#include <variant>

#include "model/fields.h"

namespace braid {

struct DenseConfig {
  int64_t d_ff = 0;
  bool bias = false;
  template <class V>
  void visit(V& v) {
    v("d_ff", d_ff, {1, 1e7}, "inner width");
    v("bias", bias, "biases in all projections");
  }
};
struct SwigluConfig : DenseConfig {};
struct GeluConfig : DenseConfig {};

struct MoeConfig {
  int64_t experts = 8, top_k = 2, d_ff = 0, shared_d_ff = 0;
  template <class V>
  void visit(V& v) {
    v("experts", experts, {1, 4096}, "number of experts");
    v("top_k", top_k, {1, 4096}, "experts per token");
    v("d_ff", d_ff, {1, 1e7}, "inner width of an expert");
    v("shared_d_ff", shared_d_ff, {0, 1e7}, "inner width of the shared expert; 0 = d_ff");
  }
  int64_t shared_width() const { return shared_d_ff ? shared_d_ff : d_ff; }
};

struct NoMlp {
  template <class V>
  void visit(V&) {}
};

// Which MLP a layer has, and its settings. An immutable value; copies share what is as a file has it.
class MlpConfig {
 public:
  using Settings = std::variant<NoMlp, SwigluConfig, GeluConfig, MoeConfig>;
  MlpConfig(Settings settings = NoMlp()) : settings_(std::move(settings)) {}

  const Settings& settings() const { return settings_; }
  template <class Config>
  const Config* as() const {  // null: it is another one
    return std::get_if<Config>(&settings_);
  }

  std::string_view type() const;

 private:
  friend struct MlpJson;  // config_json.h
  struct Written;
  Settings settings_;
  std::shared_ptr<const Written> written_;  // as a file has them; null: every setting is written
};

}  // namespace braid
