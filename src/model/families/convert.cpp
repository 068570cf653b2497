#include "model/families/convert.h"

#include <unistd.h>

#include <filesystem>

#include "io/file.h"
#include "model/families/llama2c.h"

namespace braid {
namespace {

namespace fs = std::filesystem;

// Files beside the weights that belong to the model whoever computes it.
constexpr const char* kAlong[] = {"tokenizer.json",
                                  "tokenizer_config.json",
                                  "special_tokens_map.json",
                                  "added_tokens.json",
                                  "vocab.json",
                                  "merges.txt",
                                  "tokenizer.model",
                                  "tokenizer.bin",
                                  "chat_template.jinja",
                                  "generation_config.json"};

DType common_dtype(const Assembled& t) {
  const DType first = t.pieces.front().dtype;
  bool same = first == DType::kF32 || first == DType::kBF16 || first == DType::kF16;
  for (const View& v : t.pieces) same &= v.dtype == first;
  return same ? first : DType::kF32;
}

// One tensor's bytes, a block at a time.
Status put_tensor(const Assembled& t, DType to, const PutBytes& put) {
  constexpr int64_t kBlock = 1 << 16;
  std::vector<float> wide(kBlock);
  std::vector<bf16> narrow(to == DType::kBF16 ? kBlock : 0);
  for (const View& v : t.pieces) {
    if (v.dtype == to) {
      if (Status s = put({static_cast<const std::byte*>(v.data), v.bytes()}); !s) return s;
      continue;
    }
    const int64_t all = v.shape.count();
    for (int64_t at = 0; at < all; at += kBlock) {
      const int64_t n = std::min(kBlock, all - at);
      const View part{static_cast<const std::byte*>(v.data) + static_cast<size_t>(at) * dtype_size(v.dtype),
                      v.dtype,
                      {n}};
      convert_to_f32(part, std::span(wide).first(n));
      std::span<const std::byte> bytes = std::as_bytes(std::span(wide).first(n));
      if (to == DType::kBF16) {
        for (int64_t i = 0; i < n; ++i) narrow[i] = to_bf16(wide[i]);
        bytes = std::as_bytes(std::span(narrow).first(n));
      }
      if (Status s = put(bytes); !s) return s;
    }
  }
  return {};
}

bool has_dropout(const Json& config) {
  bool found = false;
  for (const auto& [key, value] : config.items())
    found |= value.is_structured() ? has_dropout(value) : key.ends_with("dropout") && value != 0;
  return found;
}

// May `out` be made, or replaced? Only a model's folder is ever replaced.
Status check_out(const Conversion& c) {
  if (c.check_only) return {};
  std::error_code ec;
  const fs::path out(c.out);
  if (!fs::exists(fs::symlink_status(out, ec))) return {};
  if (fs::equivalent(c.in, out, ec)) return Error{c.out + " is the model itself", "give another --out"};
  if (fs::is_directory(out, ec) && fs::is_empty(out, ec)) return {};
  if (!c.replace) return Error{c.out + " exists", "give another --out, or --force to replace it"};
  if (!fs::is_directory(out, ec) || !fs::exists(out / "config.json", ec))
    return Error{c.out + " is not a model's folder, so --force does not replace it", "give another --out"};
  // The model that is read must not be inside what is replaced.
  const std::string in = fs::weakly_canonical(c.in, ec).string(),
                    whole = fs::canonical(out, ec).string() + "/";
  if (in.starts_with(whole)) return Error{c.out + " holds the model itself", "give another --out"};
  return {};
}

// Removes what was begun unless it was finished.
struct Begun {
  std::string dir;
  ~Begun() {
    if (!dir.empty()) (void)remove_tree(dir);
  }
};

// The first tensor of each file, and the end.
std::vector<size_t> shard_starts(const std::vector<TensorSpec>& specs, uint64_t most) {
  std::vector<size_t> starts{0};
  uint64_t here = 0;
  for (size_t i = 0; i < specs.size(); ++i) {
    if (most > 0 && here > 0 && here + specs[i].bytes() > most) starts.push_back(i), here = 0;
    here += specs[i].bytes();
  }
  starts.push_back(specs.size());
  return starts;
}

Result<Converted> write_folder(const Conversion& c, const std::vector<Assembled>& tensors, Json config,
                               bool dtype_in_config, Converted result) {
  std::vector<TensorSpec> specs;
  uint64_t all = 0, done = 0;
  for (const Assembled& t : tensors) {
    specs.push_back({t.name, c.dtype.value_or(common_dtype(t)), t.shape});
    all += specs.back().bytes();
  }
  result.tensors = specs.size(), result.bytes = all;
  if (c.check_only) return result;
  std::string out = c.out;
  while (out.size() > 1 && out.ends_with('/')) out.pop_back();
  Begun begun{fmt::format("{}.part-{}", out, ::getpid())};
  if (Status s = make_dirs(begun.dir); !s) return s.error();
  if (dtype_in_config)
    config["dtype"] = specs.front().dtype == DType::kBF16  ? "bfloat16"
                      : specs.front().dtype == DType::kF16 ? "float16"
                                                           : "float32";
  const std::vector<size_t> starts = shard_starts(specs, c.shard_bytes);
  Json index{{"metadata", {{"total_size", all}}}, {"weight_map", Json::object()}};
  for (size_t k = 0; k + 1 < starts.size(); ++k) {
    const std::string name = starts.size() == 2
                                 ? "model.safetensors"
                                 : fmt::format("model-{:05}-of-{:05}.safetensors", k + 1, starts.size() - 1);
    const std::vector<TensorSpec> here(specs.begin() + static_cast<ptrdiff_t>(starts[k]),
                                       specs.begin() + static_cast<ptrdiff_t>(starts[k + 1]));
    for (const TensorSpec& t : here) index["weight_map"][t.name] = name;
    const Status written = stream_safetensors(
        begun.dir + "/" + name, here, {{"format", "pt"}}, [&](size_t i, const PutBytes& put) -> Status {
          const auto counted = [&](std::span<const std::byte> bytes) -> Status {
            if (Status s = put(bytes); !s) return s;
            done += bytes.size();
            if (c.progress && !c.progress(done, all)) return Error{"stopped; nothing was written"};
            return {};
          };
          return put_tensor(tensors[starts[k] + i], here[i].dtype, counted);
        });
    if (!written) return written.error();
  }
  if (starts.size() > 2)
    if (Status s = save_json(begun.dir + "/model.safetensors.index.json", index); !s) return s.error();
  if (Status s = save_json(begun.dir + "/config.json", config); !s) return s.error();
  std::error_code ec;
  const auto copy = [&](const std::string& from, const char* name) -> Status {
    const Result<MappedFile> file = MappedFile::open(from);
    if (!file) return file.error();
    return write_atomic(begun.dir + "/" + name, file->bytes());
  };
  for (const char* name : kAlong)
    if (const std::string from = c.in + "/" + name; fs::is_regular_file(from, ec))
      if (Status s = copy(from, name); !s) return s.error();
  if (!c.tokenizer.empty())
    if (Status s = copy(c.tokenizer, "tokenizer.bin"); !s) return s.error();
  if (fs::is_directory(out, ec) && fs::is_empty(out, ec)) fs::remove(out, ec);
  if (Status s = commit_dir(begun.dir, out); !s) return s.error();
  begun.dir.clear();
  return result;
}

}  // namespace

Result<Converted> convert_to_hf(const Conversion& c, const Model& model, const HfConfigFile& config) {
  if (Status s = check_out(c); !s) return s.error();
  const std::string path = c.in + "/model.safetensors";
  const Result<SafeTensors> file = SafeTensors::open(path);
  if (!file) return file.error();
  if (const std::vector<Problem> problems = model.param_problems(*file); !problems.empty())
    return to_error(path + " does not fit its config", problems);
  Converted result{.family = std::string(config.family->model_type)};
  if (has_dropout(to_json(model.config())))
    result.notes.emplace_back("dropout is a setting of training and is not written");
  return write_folder(c, assemble_hf(*config.family, model, *file), config.json, true, std::move(result));
}

Result<Converted> convert_to_braid(const Conversion& c, const Model& model, const Family& family) {
  if (Status s = check_out(c); !s) return s.error();
  const Result<SafeTensors> file = SafeTensors::open_model(c.in);
  if (!file) return file.error();
  Converted result{.family = std::string(family.model_type)};
  if (const char* remark = family.remark ? family.remark(model.config()) : nullptr)
    result.notes.emplace_back(remark);
  std::vector<LeftOut> left_out;
  const Result<std::vector<Assembled>> params = assemble_params(family, model, *file, c.in, left_out);
  if (!params) return params.error();
  for (std::string& line : summary_of(left_out)) result.notes.push_back(std::move(line));
  return write_folder(c, *params, to_json(model.config()), false, std::move(result));
}

Result<Converted> convert_llama2c(const Conversion& c) {
  if (Status s = check_out(c); !s) return s.error();
  const Result<Llama2c> from = read_llama2c(c.in);
  if (!from) return from.error();
  const std::unique_ptr<Model> model = Model::create(from->config);
  return write_folder(c, assemble_llama2c(*from, *model), to_json(from->config), false,
                      {.family = "llama2c"});
}

}  // namespace braid
