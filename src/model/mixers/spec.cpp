#include "model/mixers/spec.h"

#include "io/json.h"
#include "model/config_json.h"
#include "model/mixers/mixer.h"

namespace braid {
namespace {

Json every_field(const MixerSettings& settings) {
  Json all;
  const FieldWriter::Target target{all};
  FieldWriter w(target);
  settings.copy()->visit(w);
  return all;
}

}  // namespace

struct MixerSpec::Data {
  std::string type;
  std::unique_ptr<const MixerSettings> settings;
  Json written;
};

MixerSpec::MixerSpec(std::string type, std::unique_ptr<const MixerSettings> settings) {
  check(settings != nullptr, "MixerSpec: no settings");
  Json all{{"type", type}};
  all.update(every_field(*settings));
  data_ = std::make_shared<const Data>(std::move(type), std::move(settings), std::move(all));
}

MixerSpec MixerJson::parsed(std::string type, std::unique_ptr<const MixerSettings> settings,
                            const Json& written) {
  check(settings != nullptr, "MixerJson: no settings");
  return MixerSpec(std::make_shared<const MixerSpec::Data>(std::move(type), std::move(settings), written));
}

const std::string& MixerSpec::type() const { return data_->type; }
Json MixerJson::written(const MixerSpec& mixer) { return mixer.data_->written; }
bool MixerSpec::is(const std::type_info& type) const { return data_->settings->config(type) != nullptr; }

std::unique_ptr<MixerSettings> MixerSpec::resolved(const ModelConfig& model) const {
  std::unique_ptr<MixerSettings> all = data_->settings->copy();
  all->resolve(model);
  return all;
}

std::unique_ptr<Mixer> MixerSpec::make(const ModelConfig& model, Declare declare) const {
  return resolved(model)->make(model, std::move(declare));
}

Json MixerJson::complete(const MixerSpec& mixer, const ModelConfig& model) {
  return every_field(*mixer.resolved(model));
}

bool MixerSpec::has_dropout() const {
  DropoutFinder f;
  data_->settings->copy()->visit(f);
  return f.found();
}

MixerSpec MixerSpec::without_dropout() const {
  DropoutFinder f(/*clear=*/true);
  std::unique_ptr<MixerSettings> all = data_->settings->copy();
  all->visit(f);
  return {data_->type, std::move(all)};
}

bool MixerSpec::operator==(const MixerSpec& other) const {
  return data_ == other.data_ || (data_->type == other.data_->type &&
                                  every_field(*data_->settings) == every_field(*other.data_->settings));
}

}  // namespace braid
