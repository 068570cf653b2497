#include "train/checkpoint.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>

#include "io/file.h"
#include "io/json.h"
#include "io/safetensors.h"

namespace braid {
namespace {

namespace fs = std::filesystem;

std::string state_dir(const std::string& run) { return run + "/state"; }
std::string step_dir(const std::string& run, uint64_t step) {
  return fmt::format("{}/state/step-{:08}", run, step);
}

std::vector<uint64_t> all_steps(const std::string& run) {
  std::vector<uint64_t> steps;
  std::error_code ignored;
  for (const auto& entry : fs::directory_iterator(state_dir(run), ignored)) {
    const std::string name = entry.path().filename();
    if (name.starts_with("step-") && name.size() < 24 &&
        name.find_first_not_of("0123456789", 5) == std::string::npos)
      steps.push_back(std::stoull(name.substr(5)));
  }
  std::sort(steps.begin(), steps.end());
  return steps;
}

Json to_json(Progression p) {
  Json json{{"version", 1}};
  p.visit([&](const char* name, const auto& value) { json[name] = value; });
  return json;
}

}  // namespace

Status save_checkpoint(const std::string& run, const Model& model, AdamW& optimizer, const Progression& p,
                       int64_t keep) {
  const std::string final_dir = step_dir(run, p.step), tmp = state_dir(run) + "/unfinished";
  if (Status s = remove_tree(tmp); !s) return s;
  if (Status s = make_dirs(tmp); !s) return s;
  const auto write_all = [&]() -> Status {
    if (Status s = model.save_weights(tmp + "/model.safetensors"); !s) return s;
    const std::vector<NamedTensor> moments{{"m", optimizer.m().view()}, {"v", optimizer.v().view()}};
    if (Status s = write_safetensors(tmp + "/optimizer.safetensors", moments,
                                     {{"steps", std::to_string(optimizer.steps())}});
        !s)
      return s;
    return save_json(tmp + "/trainer.json", to_json(p));
  };
  if (Status s = write_all(); !s) {
    (void)remove_tree(tmp);  // give the space back; the older checkpoints stay
    return s;
  }
  if (fs::exists(final_dir))
    if (Status s = remove_tree(final_dir); !s) return s;
  if (Status s = commit_dir(tmp, final_dir); !s) return s;
  if (Status s = link_or_copy_atomic(final_dir + "/model.safetensors", run + "/model.safetensors"); !s)
    return s;
  const std::vector<uint64_t> steps = all_steps(run);
  const size_t kept = static_cast<size_t>(std::max<int64_t>(1, keep));
  for (size_t i = 0; i + kept < steps.size(); ++i)
    if (steps[i] != p.best_step)
      if (Status s = remove_tree(step_dir(run, steps[i])); !s) return s;
  return {};
}

std::optional<uint64_t> latest_checkpoint(const std::string& run) {
  const std::vector<uint64_t> steps = all_steps(run);
  return steps.empty() ? std::nullopt : std::optional(steps.back());
}

Result<Progression> load_checkpoint(const std::string& run, uint64_t step, Model& model, AdamW& optimizer) {
  const std::string dir = step_dir(run, step);
  const Result<Json> json = load_json(dir + "/trainer.json");
  if (!json) return json.error();
  Progression p;
  p.visit([&](const char* name, auto& to) {
    if (json->contains(name) && (*json)[name].is_number()) (*json)[name].get_to(to);
  });
  if (p.step != step)
    return Error{dir + "/trainer.json: says step " + std::to_string(p.step),
                 "delete this checkpoint folder to use an older one"};
  if (Status s = model.load_weights(dir + "/model.safetensors"); !s) return s.error();
  Result<SafeTensors> moments = SafeTensors::open(dir + "/optimizer.safetensors");
  if (!moments) return moments.error();
  for (const auto& [name, to] : {std::pair{"m", &optimizer.m()}, std::pair{"v", &optimizer.v()}}) {
    const View* v = moments->find(name);
    if (!v || v->dtype != DType::kF32 || v->shape != to->shape())
      return Error{fmt::format("{}/optimizer.safetensors: '{}' is not F32 {}", dir, name, to->shape().text()),
                   "was the config changed since?"};
    std::ranges::copy(v->as<float>(), to->as<float>().begin());
  }
  const auto steps = moments->metadata().find("steps");
  if (steps == moments->metadata().end() || steps->second.empty() || steps->second.size() > 18 ||
      steps->second.find_first_not_of("0123456789") != std::string::npos)
    return Error{dir + "/optimizer.safetensors: metadata has no step count",
                 "delete this checkpoint folder to use an older one"};
  optimizer.set_steps(std::stoull(steps->second));
  return p;
}

void remove_unfinished(const std::string& run) { (void)remove_tree(state_dir(run) + "/unfinished"); }

}  // namespace braid
