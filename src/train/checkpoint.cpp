#include "train/checkpoint.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <filesystem>

#include "io/file.h"
#include "io/hash.h"
#include "io/safetensors.h"
#include "io/strict_json.h"

namespace braid {
namespace {

namespace fs = std::filesystem;

constexpr uint64_t kVersion = 2;  // 1 had no hashes
constexpr const char *kContent = "content", *kFiles = "files", *kTrainer = "/trainer.json",
                     *kUnfinished = "/unfinished", *kStep = "step-";
constexpr std::array kTensorFiles{"model.safetensors", "optimizer.safetensors"};

std::string state_dir(const std::string& run) { return run + "/state"; }
std::string step_dir(const std::string& run, uint64_t step) {
  return fmt::format("{}/{}{:08}", state_dir(run), kStep, step);
}

std::vector<uint64_t> all_steps(const std::string& run) {
  std::vector<uint64_t> steps;
  for (const std::string& name : names_in(state_dir(run))) {
    if (!name.starts_with(kStep)) continue;
    const char *begin = name.data() + std::string_view(kStep).size(), *end = name.data() + name.size();
    uint64_t step = 0;
    if (const auto [at, error] = std::from_chars(begin, end, step); error == std::errc() && at == end)
      if (fs::path(step_dir(run, step)).filename() == name) steps.push_back(step);
  }
  std::sort(steps.begin(), steps.end());
  return steps;
}

// Of all else in the file, with sorted keys, as it is read again.
std::string content_hash(const Json& json) {
  nlohmann::json rest = json;
  rest.erase(kContent);
  return Hash().text(rest.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace)).hex();
}

Result<Json> trainer_json(const std::string& dir, Progression p) {
  Json json{{"version", kVersion}};
  p.visit([&](const char* name, const auto& value) { json[name] = value; });
  for (const char* name : kTensorFiles) {
    const Result<std::string> hash = file_hash(dir + "/" + name);
    if (!hash) return hash.error();
    json[kFiles][name] = *hash;
  }
  json[kContent] = content_hash(json);
  return json;
}

// Why a checkpoint cannot be used. A damaged one may be left for an older one; anything else, a version that
// is not known or a folder that cannot be read, must not make a run go back.
struct Refusal {
  Error error;
  bool damaged;
};

// What trainer.json says, and whether all files are as it says.
std::optional<Refusal> read_trainer(const std::string& dir, uint64_t step, Progression& p) {
  const std::string file = dir + kTrainer;
  const auto damaged = [](Error e) { return Refusal{std::move(e), true}; };
  for (const std::string& name : {file, dir + "/" + kTensorFiles[0], dir + "/" + kTensorFiles[1]}) {
    std::error_code ec;
    if (fs::status(name, ec).type() == fs::file_type::not_found)
      return damaged({name + ": is missing", "restore it"});
    if (const Result<MappedFile> readable = MappedFile::open(name); !readable)
      return Refusal{readable.error(), false};
  }
  const Result<Json> json = load_object(file);
  if (!json) return damaged(json.error());
  uint64_t version = 0;
  if (Status s = read_field(*json, "version", version, file); !s) return damaged(s.error());
  if (version < 1 || version > kVersion)
    return Refusal{{fmt::format("{}: version {} is not known here", file, version),
                    "go on with the version of Braid that wrote it"},
                   false};
  Status fields;
  p.visit([&](const char* name, auto& to) {
    if (fields) fields = read_field(*json, name, to, file);
  });
  if (!fields) return damaged(fields.error());
  if (p.step != step)
    return damaged({fmt::format("{}: says step {}", file, p.step), "restore the folder's name"});
  if (version == 1) {  // without hashes: at least no file is cut
    for (const char* name : kTensorFiles)
      if (const Result<SafeTensors> open = SafeTensors::open(dir + "/" + name); !open)
        return damaged(open.error());
    return {};
  }
  const char* fix = "restore it from where it is whole";
  std::string content;
  if (Status s = read_field(*json, kContent, content, file); !s) return damaged(s.error());
  if (content != content_hash(*json))
    return damaged({file + ": was changed after it was saved: its content has another hash", fix});
  const Result<Json> files = object_field(*json, kFiles, file);
  if (!files) return damaged(files.error());
  for (const char* name : kTensorFiles) {
    std::string saved;
    if (Status s = read_field(*files, name, saved, file, "files."); !s) return damaged(s.error());
    const Result<std::string> hash = file_hash(dir + "/" + name);
    if (!hash) return Refusal{hash.error(), false};
    if (*hash != saved)
      return damaged(
          {fmt::format("{}/{}: was changed after it was saved: it has another hash", dir, name), fix});
  }
  return {};
}

Status load_moments(const std::string& file, Optimizer& optimizer) {
  Result<SafeTensors> moments = SafeTensors::open(file);
  if (!moments) return moments.error();
  for (const auto& [name, to] : {std::pair{"m", &optimizer.m()}, std::pair{"v", &optimizer.v()}}) {
    const View* v = moments->find(name);
    if (!v || v->dtype != DType::kF32 || v->shape != to->shape())
      return Error{fmt::format("{}: '{}' is not F32 {}", file, name, to->shape().text()),
                   "restore the config.json of the run"};
    std::ranges::copy(v->as<float>(), to->as<float>().begin());
  }
  const auto at = moments->metadata().find("steps");
  const std::string text = at == moments->metadata().end() ? "" : at->second;
  uint64_t steps = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), steps);
  if (error != std::errc() || end != text.data() + text.size())
    return Error{file + ": metadata has no step count", "delete this checkpoint folder to use an older one"};
  optimizer.set_steps(steps);
  return {};
}

std::optional<Refusal> load(const std::string& run, uint64_t step, Model& model, Optimizer& optimizer,
                            Progression& p) {
  const std::string dir = step_dir(run, step);
  if (std::optional<Refusal> refusal = read_trainer(dir, step, p)) return refusal;
  if (Status s = model.load_weights(dir + "/model.safetensors"); !s) return Refusal{s.error(), false};
  if (Status s = load_moments(dir + "/optimizer.safetensors", optimizer); !s)
    return Refusal{s.error(), false};
  return {};
}

// The folder that commit_dir() puts aside for a moment where the file system cannot swap two.
bool put_aside(const std::string& name) { return name.starts_with(".braid-tmp-"); }

}  // namespace

Status save_checkpoint(const std::string& run, const Model& model, Optimizer& optimizer, const Progression& p,
                       int64_t keep) {
  const std::string final_dir = step_dir(run, p.step), tmp = state_dir(run) + kUnfinished;
  if (Status s = remove_tree(tmp); !s) return s;
  if (Status s = make_dirs(tmp); !s) return s;
  const auto write_all = [&]() -> Status {
    if (Status s = model.save_weights(tmp + "/model.safetensors"); !s) return s;
    const std::vector<NamedTensor> moments{{"m", optimizer.m().view()}, {"v", optimizer.v().view()}};
    if (Status s = write_safetensors(tmp + "/optimizer.safetensors", moments,
                                     {{"steps", std::to_string(optimizer.steps())}});
        !s)
      return s;
    const Result<Json> json = trainer_json(tmp, p);
    return json ? save_json(tmp + kTrainer, *json) : json.error();
  };
  if (Status s = write_all(); !s) {
    (void)remove_tree(tmp);  // give the space back; the older checkpoints stay
    return s;
  }
  if (Status s = commit_dir(tmp, final_dir); !s) return s;
  if (Status s = link_or_copy_atomic(final_dir + "/model.safetensors", run + "/model.safetensors"); !s)
    return s;
  size_t newer = 0;  // checkpoints from this one down
  std::vector<uint64_t> steps = all_steps(run);
  std::ranges::reverse(steps);
  for (const uint64_t step : steps) {
    const bool gone_back = step > p.step;
    if (!gone_back && (newer++ < static_cast<size_t>(std::max<int64_t>(1, keep)) || step == p.best_step))
      continue;
    if (Status s = remove_tree(step_dir(run, step)); !s) return s;
  }
  return {};
}

std::optional<uint64_t> latest_checkpoint(const std::string& run) {
  const std::vector<uint64_t> steps = all_steps(run);
  return steps.empty() ? std::nullopt : std::optional(steps.back());
}

Result<Progression> load_checkpoint(const std::string& run, uint64_t step, Model& model,
                                    Optimizer& optimizer) {
  Progression p;
  if (std::optional<Refusal> refusal = load(run, step, model, optimizer, p)) return refusal->error;
  return p;
}

Result<Restored> load_newest_checkpoint(const std::string& run, Model& model, Optimizer& optimizer) {
  Restored out;
  std::vector<uint64_t> steps = all_steps(run);
  std::ranges::reverse(steps);
  for (const uint64_t step : steps) {
    Progression p;
    const std::optional<Refusal> refusal = load(run, step, model, optimizer, p);
    if (!refusal) {
      out.progression = p;
      return out;
    }
    if (!refusal->damaged) return refusal->error;
    out.damaged.push_back(refusal->error.what);
  }
  if (!out.damaged.empty())
    return Error{fmt::format("{}: no checkpoint is whole: {}", run, fmt::join(out.damaged, "; ")),
                 "restore one of them, or start a new run"};
  return out;
}

void clean_checkpoints(const std::string& run) {
  (void)remove_tree(state_dir(run) + kUnfinished);
  for (const std::string& name : names_in(state_dir(run))) {
    if (!put_aside(name)) continue;
    const std::string dir = state_dir(run) + "/" + name;
    const Result<Json> json = load_object(dir + kTrainer);
    uint64_t step = 0;
    std::error_code ec;
    // A kill between two renames: the checkpoint is here and its place is empty.
    if (json && read_field(*json, "step", step, dir) && !fs::exists(step_dir(run, step), ec))
      fs::rename(dir, step_dir(run, step), ec);
    else
      (void)remove_tree(dir);
  }
}

Status remove_checkpoints(const std::string& run) {
  clean_checkpoints(run);
  for (const uint64_t step : all_steps(run))
    if (Status s = remove_tree(step_dir(run, step)); !s) return s;
  std::error_code ec;
  fs::remove(state_dir(run), ec);  // if it is empty
  return {};
}

}  // namespace braid
