// A mixer of a config: which one it is, and its settings as a struct of its own.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <typeinfo>
#include <vector>

#include "base/error.h"

namespace braid {

class Declare;
class DropoutFinder;
class FieldLister;
class FieldReader;
class FieldWriter;
class Mixer;
struct ModelConfig;

// The settings of one kind of mixer; mixer_entry() in registry.h makes it from the mixer's Config.
class MixerSettings {
 public:
  virtual ~MixerSettings() = default;
  virtual std::unique_ptr<MixerSettings> copy() const = 0;
  virtual void visit(FieldReader& v) = 0;
  virtual void visit(FieldWriter& v) = 0;
  virtual void visit(FieldLister& v) = 0;
  virtual void visit(DropoutFinder& v) = 0;
  virtual void resolve(const ModelConfig& model) = 0;  // zeros become what they stand for
  virtual void validate(const std::string& where, const ModelConfig& model,
                        std::vector<Problem>& problems) const = 0;  // before resolve()
  virtual std::unique_ptr<Mixer> make(const ModelConfig& model, Declare declare) const = 0;  // after it
  virtual const void* config(const std::type_info& type) const = 0;  // null: another type of Config
};

// An immutable value, never empty; copies share the settings. MixerEntry::parse() makes it.
class MixerSpec {
 public:
  MixerSpec(std::string type, std::unique_ptr<const MixerSettings> settings);
  MixerSpec(const MixerSpec&) = default;  // and no move, which would leave an empty one
  MixerSpec& operator=(const MixerSpec&) = default;

  const std::string& type() const;
  std::unique_ptr<Mixer> make(const ModelConfig& model, Declare declare) const;

  bool has_dropout() const;
  MixerSpec without_dropout() const;

  // The same as a struct; none: the mixer's Config is of another type.
  template <class Config>
  std::optional<Config> settings(const ModelConfig& model) const {
    const std::unique_ptr<MixerSettings> all = resolved(model);
    const void* c = all->config(typeid(Config));
    return c ? std::optional<Config>(*static_cast<const Config*>(c)) : std::nullopt;
  }
  template <class Config>
  bool has() const {
    return is(typeid(Config));
  }

  bool operator==(const MixerSpec& other) const;  // type and settings, however they are written

 private:
  friend struct MixerJson;  // config_json.h
  struct Data;
  explicit MixerSpec(std::shared_ptr<const Data> data) : data_(std::move(data)) {}
  std::unique_ptr<MixerSettings> resolved(const ModelConfig& model) const;
  bool is(const std::type_info& type) const;

  std::shared_ptr<const Data> data_;
};

}  // namespace braid
