#include "model/state_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>

#include "io/hash.h"
#include "io/json.h"
#include "io/safetensors.h"
#include "model/config_json.h"
#include "model/model.h"

namespace braid {
namespace {

constexpr const char *kFormat = "braid state 2", *kTokens = "tokens";

std::string weights_hash(const ParamSet& params) {
  Hash h;
  params.each_piece([&](std::span<const std::byte> bytes) { h.bytes(bytes); });
  return h.hex();
}

// The settings that decide what a state means.
std::string config_text(const ModelConfig& config) {
  Json json = to_json(config);
  json.erase("train_length");
  return json.dump();
}

constexpr const char* kContent = "content";  // the key of the hash of all the rest

std::string content_hash(const std::map<std::string, std::string>& metadata,
                         std::vector<NamedTensor> tensors) {
  Hash h;
  for (const auto& [key, value] : metadata)
    if (key != kContent) h.text(key).text(value);
  std::ranges::sort(tensors, {}, &NamedTensor::name);
  for (const NamedTensor& t : tensors) {
    h.text(t.name).text(dtype_name(t.view.dtype)).text(t.view.shape.text());
    h.bytes({static_cast<const std::byte*>(t.view.data), t.view.bytes()});
  }
  return h.hex();
}

std::string layer_name(size_t layer, const char* what) { return fmt::format("layers.{}.{}", layer, what); }

// What each state of this model has in it: that of a single token.
State sample(const Model& model) {
  State state = model.new_state();
  Arena arena;
  Exec exec({.arena = &arena, .params = &model.params()});
  const int32_t token[] = {0};
  const uint32_t offsets[] = {0, 1}, row[] = {0};
  State* states[] = {&state};
  model.hidden(exec, {.tokens = token, .offsets = offsets, .states = states}, row);
  return state;
}

// All that is held, keys or values, in one piece.
Tensor gathered(const std::vector<KvSegment>& segments, bool keys) {
  size_t rows = 0;
  for (const KvSegment& s : segments) rows += s.count;
  const size_t width = keys ? segments[0].k_stride : segments[0].v_stride;
  Tensor all(DType::kF32, {static_cast<int64_t>(rows), static_cast<int64_t>(width)});
  float* to = all.as<float>().data();
  for (const KvSegment& s : segments) to = std::copy_n(keys ? s.k : s.v, s.count * width, to);
  return all;
}

class Reader {
 public:
  Reader(const SafeTensors& file, int64_t position) : file_(file), position_(position) {}

  // Null if it is not as it should be.
  const View* find(const std::string& name, const Shape& shape, DType dtype = DType::kF32) {
    known_.push_back(name);
    const View* v = file_.find(name);
    if (!v) {
      problem(name, "is missing", "expected " + shape.text());
    } else if (v->dtype != dtype) {
      problem(name, "has dtype " + std::string(dtype_name(v->dtype)),
              "expected " + std::string(dtype_name(dtype)));
    } else if (v->shape != shape) {
      problem(name, "has shape " + v->shape.text(), "expected " + shape.text());
    } else {
      return v;
    }
    return nullptr;
  }

  void read(const std::string& name, const Memory& like, Memory& to) {
    const auto count = static_cast<int64_t>(like.numbers().size());
    if (count == 0) return;
    if (const View* v = find(name, {count}))
      std::ranges::copy(v->as<float>(), to.write(like.numbers().size()));
  }

  void read(size_t layer, const KvCache& like, KvCache& to) {
    std::vector<KvSegment> one;
    like.segments(one);
    if (one.empty()) return;
    // Whole pages may have been forgotten, nothing else.
    const View* held = file_.find(layer_name(layer, "k"));
    int64_t rows = held && held->shape.rank() == 2 ? held->shape[0] : 0;
    if (rows < 1 || rows > position_ || (position_ - rows) % static_cast<int64_t>(KvCache::kPageTokens) != 0)
      rows = position_;
    const View *k = find(layer_name(layer, "k"), {rows, static_cast<int64_t>(one[0].k_stride)}),
               *v = find(layer_name(layer, "v"), {rows, static_cast<int64_t>(one[0].v_stride)});
    if (!k || !v) return;
    to = KvCache(position_ - rows);
    const auto mat = [&](const View* x) {
      return Mat<const float>(x->as<float>().data(), static_cast<size_t>(rows),
                              static_cast<size_t>(x->shape[1]));
    };
    to.append(mat(k), mat(v));
  }

  std::vector<Problem> finish() {
    for (const std::string& name : file_.names())
      if (std::ranges::find(known_, name) == known_.end())
        problem(name, "is not part of this model's state", "save the state again");
    return std::move(problems_);
  }

 private:
  void problem(const std::string& name, const std::string& what, const std::string& fix) {
    problems_.push_back({name, what, fix});
  }

  const SafeTensors& file_;
  int64_t position_;
  std::vector<Problem> problems_;
  std::vector<std::string> known_;
};

}  // namespace

Status save_state(const State& state, const Model& model, const std::string& path,
                  std::span<const int32_t> read) {
  if (state.position > kMaxSavedPosition)
    return Error{fmt::format("{}: the state is at position {}, files hold up to {}", path, state.position,
                             kMaxSavedPosition)};
  std::vector<NamedTensor> tensors;
  std::vector<Tensor> gathers;  // keeps what the views look at
  for (size_t i = 0; i < state.layers.size(); ++i) {
    std::vector<KvSegment> segments;
    state.layers[i].kv.segments(segments);
    if (!segments.empty())
      for (const bool keys : {true, false}) {
        gathers.push_back(gathered(segments, keys));
        tensors.push_back({layer_name(i, keys ? "k" : "v"), gathers.back().view()});
      }
    for (const NamedMemory& m : kMemories)
      if (const std::span<const float> x = (state.layers[i].*m.which).numbers(); !x.empty())
        tensors.push_back({layer_name(i, m.name), {x.data(), DType::kF32, {static_cast<int64_t>(x.size())}}});
  }
  if (!read.empty() && static_cast<int64_t>(read.size()) == state.position)
    tensors.push_back({kTokens, {read.data(), DType::kI32, {static_cast<int64_t>(read.size())}}});
  std::map<std::string, std::string> metadata{{"format", kFormat},
                                              {"position", std::to_string(state.position)},
                                              {"config", config_text(model.config())},
                                              {"weights", weights_hash(model.params())}};
  metadata[kContent] = content_hash(metadata, tensors);
  return write_safetensors(path, tensors, metadata);
}

namespace {

Result<SavedState> load(const Model& model, const std::string& path, bool compare_hashes) {
  const Result<SafeTensors> file = SafeTensors::open(path);
  if (!file) return file.error();
  const auto value = [&](const char* key) {
    const auto at = file->metadata().find(key);
    return at == file->metadata().end() ? std::string() : at->second;
  };
  if (value("format") != kFormat)
    return Error{path + ": is not a saved state", "give a file that --save-state wrote"};
  if (value("config") != config_text(model.config()))
    return Error{path + ": was saved by a model with another config", "use it with the model that wrote it"};
  if (compare_hashes && value("weights") != weights_hash(model.params()))
    return Error{path + ": was saved by a model with the same config and other weights",
                 "use it with the weights that wrote it"};
  if (compare_hashes) {
    std::vector<NamedTensor> tensors;
    for (const std::string& name : file->names()) tensors.push_back({name, *file->find(name)});
    if (value(kContent) != content_hash(file->metadata(), std::move(tensors)))
      return Error{path + ": was changed after it was saved: its content has another hash",
                   "save the state again, or restore the file"};
  }
  const std::string number = value("position");
  SavedState saved{model.new_state(), {}};
  State& state = saved.state;
  const auto [end, error] = std::from_chars(number.data(), number.data() + number.size(), state.position);
  if (error != std::errc() || end != number.data() + number.size() || state.position < 0 ||
      state.position > kMaxSavedPosition)
    return Error{fmt::format("{}: position '{}' is not a number from 0 to {}", path, number.substr(0, 40),
                             kMaxSavedPosition),
                 "save the state again"};
  Reader reader(*file, state.position);
  if (state.position > 0) {
    const State like = sample(model);
    for (size_t i = 0; i < state.layers.size(); ++i) {
      reader.read(i, like.layers[i].kv, state.layers[i].kv);
      for (const NamedMemory& m : kMemories)
        reader.read(layer_name(i, m.name), like.layers[i].*m.which, state.layers[i].*m.which);
    }
  }
  if (file->find(kTokens)) {
    if (const View* v = reader.find(kTokens, {state.position}, DType::kI32)) {
      const std::span<const int32_t> read = v->as<int32_t>();
      saved.tokens.assign(read.begin(), read.end());
      for (const int32_t t : read)
        if (t < 0 || t >= model.config().vocab_size)
          return Error{fmt::format("{}: token {} is outside the model's vocabulary", path, t),
                       "save the state again"};
    }
  }
  if (const std::vector<Problem> problems = reader.finish(); !problems.empty())
    return to_error(path + ": does not fit this model", problems);
  // Pages may be missing where nobody looks back that far, and nowhere else.
  size_t held = 0;
  std::vector<KvSegment> segments;
  for (const LayerState& l : state.layers) l.kv.segments(segments);
  for (const KvSegment& x : segments) held += x.count * (x.k_stride + x.v_stride);
  if (held < model.state_size(state.position).memory - model.state_size(0).memory)
    return Error{fmt::format("{}: holds fewer keys and values than position {} needs", path, state.position),
                 "save the state again"};
  return saved;
}

}  // namespace

Result<SavedState> load_saved(const Model& model, const std::string& path) { return load(model, path, true); }
Result<SavedState> read_saved(const Model& model, const std::string& path) {
  return load(model, path, false);
}

Result<State> load_state(const Model& model, const std::string& path) {
  Result<SavedState> saved = load_saved(model, path);
  if (!saved) return saved.error();
  return std::move(saved->state);
}

}  // namespace braid
