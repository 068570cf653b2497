#include "model/families/convert.h"

#include <fmt/format.h>

#include <unistd.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <map>
#include <utility>

#include "io/json.h"
#include "io/file.h"
#include "io/folder.h"
#include "model/config_json.h"
#include "model/families/llama2c.h"
#include "model/stored.h"

namespace braid {
namespace {

namespace fs = std::filesystem;

DType common_dtype(const Assembled& t) {
  const DType first = t.pieces.front().dtype;
  bool same = first == DType::kF32 || first == DType::kBF16 || first == DType::kF16;
  for (const View& v : t.pieces) same &= v.dtype == first;
  return same ? first : DType::kF32;
}

// A tensor to write.
struct Outgoing {
  Outgoing(std::string name, DType dtype, const Shape& shape, std::function<Status(const PutBytes& put)> put)
      : spec{std::move(name), dtype, shape}, bytes(std::move(put)) {}
  TensorSpec spec;
  std::function<Status(const PutBytes& put)> bytes;  // from first to last, in any number of pieces
};

// Numbers in another dtype, a block at a time.
Status put_numbers(const Assembled& t, DType to, const PutBytes& put) {
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

// The bytes or the scales of a quantised matrix, a row at a time.
Status put_quantised(const ParamSource& from, const Param& p, WeightFormat f, bool scales,
                     const PutBytes& put) {
  std::vector<float> row(p.cols());
  std::vector<std::byte> bytes(weight_row_bytes(f, p.cols()));
  std::vector<bf16> scale(weight_row_scales(f, p.cols()));
  for (size_t r = 0; r < p.rows(); ++r) {
    read_numbers(from, p, r, row);
    store_row(f, row, bytes.data(), scale.data());
    if (Status s =
            put(scales ? std::as_bytes(std::span<const bf16>(scale)) : std::span<const std::byte>(bytes));
        !s)
      return s;
  }
  return {};
}

Outgoing outgoing(const Assembled& t, std::optional<WeightFormat> f) {
  const DType to = f == WeightFormat::kF32    ? DType::kF32
                   : f == WeightFormat::kBf16 ? DType::kBF16
                                              : common_dtype(t);
  return {t.name, to, t.shape, [&t, to](const PutBytes& put) { return put_numbers(t, to, put); }};
}

std::vector<Outgoing> outgoing(const std::vector<Assembled>& tensors, std::optional<WeightFormat> f) {
  std::vector<Outgoing> all;
  for (const Assembled& t : tensors) all.push_back(outgoing(t, f));
  return all;
}

// Braid's parameters; those that can be are quantised if that is asked for.
std::vector<Outgoing> outgoing_params(const std::vector<Assembled>& tensors, const ParamSet& params,
                                      std::optional<WeightFormat> f, std::vector<std::string>& notes) {
  if (!f || !has_scales(*f)) return outgoing(tensors, f);
  std::vector<Outgoing> all;
  size_t quantised = 0, whole = 0;
  for (size_t i = 0; i < tensors.size(); ++i) {
    const Param& p = params[i];
    const ParamSource from{tensors[i].pieces, {}};
    if (p.precise || !weight_fits(*f, p.cols())) {
      // What stays f32 in inference is written so: nothing is rounded twice.
      all.push_back(outgoing(tensors[i], p.precise ? std::optional(WeightFormat::kF32) : std::nullopt));
      whole += !p.precise;
      continue;
    }
    ++quantised;
    const auto rows = static_cast<int64_t>(p.rows());
    const auto put = [&p, from, f = *f](bool scales) {
      return [&p, from, f, scales](const PutBytes& put) { return put_quantised(from, p, f, scales, put); };
    };
    all.emplace_back(p.name, *f == WeightFormat::kQ8 ? DType::kI8 : DType::kU8,
                     Shape{rows, static_cast<int64_t>(weight_row_bytes(*f, p.cols()))}, put(false));
    all.emplace_back(p.name + kScaleSuffix, DType::kBF16,
                     Shape{rows, static_cast<int64_t>(weight_row_scales(*f, p.cols()))}, put(true));
  }
  notes.push_back(fmt::format(
      "{} matrices as {}{}", quantised, weight_format_name(*f),
      whole
          ? fmt::format("; {} have rows that are no multiple of {} and stay as they are", whole, kWeightBlock)
          : ""));
  return all;
}

// May `out` be made, or replaced? Only a folder that was converted is ever replaced.
Status check_out(const Conversion& c) {
  if (c.check_only) return {};
  std::error_code ec;
  const fs::path out(c.out);
  if (!fs::exists(fs::symlink_status(out, ec))) return {};
  if (fs::equivalent(c.in, out, ec))
    return Error{"--out " + c.out + ": is the model itself", "give another --out"};
  if (fs::is_directory(out, ec) && fs::is_empty(out, ec)) return {};
  if (!c.replace)
    return Error{"--out " + c.out + ": exists", "give another --out, or --force to replace the model in it"};
  if (Status s = check_replaceable("--out", c.out); !s) return s;
  // The model that is read must not be inside what is replaced.
  const std::string in = fs::weakly_canonical(c.in, ec).string(),
                    whole = fs::canonical(out, ec).string() + "/";
  if (in.starts_with(whole))
    return Error{"--out " + c.out + ": contains the model itself", "give another --out"};
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

Result<Converted> write_folder(const Conversion& c, const std::vector<Outgoing>& tensors, Json config,
                               bool dtype_in_config, Converted result) {
  std::vector<TensorSpec> specs;
  uint64_t all = 0, done = 0;
  for (const Outgoing& t : tensors) {
    specs.push_back(t.spec);
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
            if (c.progress && !c.progress(done, all))
              return Error{"convert: interrupted; nothing was written", "run it again"};
            return {};
          };
          return tensors[starts[k] + i].bytes(counted);
        });
    if (!written) return written.error();
  }
  if (starts.size() > 2)
    if (Status s = save_json(begun.dir + "/model.safetensors.index.json", index); !s) return s.error();
  if (Status s = save_json(begun.dir + "/config.json", config); !s) return s.error();
  const auto copy = [&](const std::string& from, const std::string& name) -> Status {
    const Result<MappedFile> file = MappedFile::open(from);
    if (!file) return file.error();
    return write_atomic(begun.dir + "/" + name, file->bytes());
  };
  std::error_code ec;
  for (const std::string_view name : companion_files())
    if (const std::string from = c.in + "/" + std::string(name); fs::is_regular_file(from, ec))
      if (Status s = copy(from, std::string(name)); !s) return s.error();
  for (const auto& [name, text] : c.files)
    if (const std::string file = begun.dir + "/" + name; !path_exists(file))
      if (Status s = write_atomic(file, text); !s) return s.error();
  if (!c.tokenizer.empty())
    if (Status s = copy(c.tokenizer, "tokenizer.bin"); !s) return s.error();
  for (const std::string_view folder : kTemplateFolders) {
    const std::string more = "/" + std::string(folder);
    if (!fs::is_directory(c.in + more, ec)) continue;
    if (Status s = make_dirs(begun.dir + more); !s) return s.error();
    for (fs::directory_iterator it(c.in + more, ec), end; !ec && it != end; it.increment(ec))
      if (it->path().extension() == ".jinja")
        if (Status s = copy(it->path(), more + "/" + it->path().filename().string()); !s) return s.error();
  }
  FolderMark mark{.kind = FolderKind::kModel};
  for (fs::directory_iterator it(begun.dir, ec), end; !ec && it != end; it.increment(ec))
    mark.files.push_back(it->path().filename());
  if (ec) return Error{begun.dir + ": " + ec.message()};
  std::ranges::sort(mark.files);
  if (Status s = write_mark(begun.dir, mark); !s) return s.error();
  if (Status s = commit_model_folder(std::exchange(begun.dir, {}), out); !s) return s.error();
  return result;
}

}  // namespace

Result<Converted> convert_to_hf(const Conversion& c, const Model& model, const HfConfigFile& config) {
  if (Status s = check_out(c); !s) return s.error();
  const std::string path = c.in + "/model.safetensors";
  const Result<SafeTensors> file = SafeTensors::open(path);
  if (!file) return file.error();
  if (const std::vector<Problem> problems = model.param_problems(*file); !problems.empty())
    return to_error(path + ": does not fit its config", problems);
  Converted result{.family = std::string(config.family->model_type)};
  if (has_dropout(model.config()))
    result.notes.emplace_back("dropout is a setting of training and is not written");
  if (const char* note = config.family->write_note ? config.family->write_note(model.config()) : nullptr)
    result.notes.emplace_back(note);
  const std::vector<Assembled> tensors = assemble_hf(*config.family, model, *file);
  return write_folder(c, outgoing(tensors, c.format), *config.json, true, std::move(result));
}

Result<Converted> convert_to_braid(const Conversion& c, const Model& model, const Family& family) {
  if (Status s = check_out(c); !s) return s.error();
  const Result<SafeTensors> file = SafeTensors::open_model(c.in);
  if (!file) return file.error();
  Converted result{.family = std::string(family.model_type)};
  if (const char* note = family.read_note ? family.read_note(model.config()) : nullptr)
    result.notes.emplace_back(note);
  std::vector<LeftOut> left_out;
  const Result<std::vector<Assembled>> params = assemble_params(family, model, *file, c.in, left_out);
  if (!params) return params.error();
  for (std::string& line : summary_of(left_out)) result.notes.push_back(std::move(line));
  const std::vector<Outgoing> all = outgoing_params(*params, model.params(), c.format, result.notes);
  return write_folder(c, all, to_json(model.config()), false, std::move(result));
}

Result<Converted> convert_format(const Conversion& c, const Model& model) {
  if (Status s = check_out(c); !s) return s.error();
  const std::string path = c.in + "/model.safetensors";
  const Result<SafeTensors> file = SafeTensors::open(path);
  if (!file) return file.error();
  if (is_quantised(*file)) return Error{path + ": is quantised already", "convert the original"};
  if (const std::vector<Problem> problems = model.param_problems(*file); !problems.empty())
    return to_error(path + ": does not fit its config", problems);
  std::vector<Assembled> params;
  for (const Param& p : model.params().all()) params.push_back({p.name, p.shape, {*file->find(p.name)}});
  Converted result{.family = "braid"};
  const std::vector<Outgoing> all = outgoing_params(params, model.params(), c.format, result.notes);
  return write_folder(c, all, to_json(model.config()), false, std::move(result));
}

Result<Converted> convert_llama2c(const Conversion& c) {
  if (Status s = check_out(c); !s) return s.error();
  const Result<Llama2c> from = read_llama2c(c.in);
  if (!from) return from.error();
  const std::unique_ptr<Model> model = Model::create(from->config);
  const std::vector<Assembled> params = assemble_llama2c(*from, *model);
  Converted result{.family = "llama2c"};
  const std::vector<Outgoing> all = outgoing_params(params, model->params(), c.format, result.notes);
  return write_folder(c, all, to_json(from->config), false, std::move(result));
}

std::span<const RandomShape> random_shapes() {
  static constexpr std::array kShapes{
      RandomShape{"qwen3.5-0.8b",
                  "the language model of Qwen3.5-0.8B: 24 layers, every fourth with attention",
                  R"({"model_type": "qwen3_5_text", "vocab_size": 248320, "hidden_size": 1024,
                      "intermediate_size": 3584, "num_hidden_layers": 24, "num_attention_heads": 8,
                      "num_key_value_heads": 2, "head_dim": 256, "linear_num_key_heads": 16,
                      "linear_num_value_heads": 16, "linear_key_head_dim": 128, "linear_value_head_dim": 128,
                      "linear_conv_kernel_dim": 4, "rms_norm_eps": 1e-6, "tie_word_embeddings": true,
                      "rope_parameters": {"rope_type": "default", "rope_theta": 10000000,
                                          "partial_rotary_factor": 0.25}})"},
      RandomShape{
          "olmo-hybrid-1b",
          "Olmo Hybrid 7B cut to 1.0B: half its width and heads, 12 of 32 layers, its heads and vocabulary",
          R"({"model_type": "olmo_hybrid", "vocab_size": 100352, "hidden_size": 1920,
                      "intermediate_size": 5504, "num_hidden_layers": 12, "num_attention_heads": 15,
                      "num_key_value_heads": 15, "linear_num_key_heads": 15, "linear_num_value_heads": 15,
                      "linear_key_head_dim": 96, "linear_value_head_dim": 192, "linear_conv_kernel_dim": 4,
                      "linear_allow_neg_eigval": true, "rms_norm_eps": 1e-6, "tie_word_embeddings": false,
                      "rope_parameters": {"rope_type": "default", "rope_theta": 500000}})"},
      RandomShape{
          "qwen3-next-small",
          "Qwen3-Next reduced to 1.2B: its widths and heads, 4 of 48 layers, 32 of 512 experts, 10 per token",
          R"({"model_type": "qwen3_next", "vocab_size": 151936, "hidden_size": 2048,
                      "intermediate_size": 5120, "num_hidden_layers": 4, "num_attention_heads": 16,
                      "num_key_value_heads": 2, "head_dim": 256, "linear_num_key_heads": 16,
                      "linear_num_value_heads": 32, "linear_key_head_dim": 128, "linear_value_head_dim": 128,
                      "linear_conv_kernel_dim": 4, "decoder_sparse_step": 1, "moe_intermediate_size": 512,
                      "shared_expert_intermediate_size": 512, "num_experts": 32, "num_experts_per_tok": 10,
                      "norm_topk_prob": true, "rms_norm_eps": 1e-6, "tie_word_embeddings": false,
                      "rope_theta": 10000000, "partial_rotary_factor": 0.25})"}};
  return kShapes;
}

Result<Converted> convert_random(const Conversion& c, const RandomShape& shape, Par par) {
  if (Status s = check_out(c); !s) return s.error();
  const std::string name(shape.name);
  const Result<ModelConfig> config = read_config(Json::parse(shape.config), name);
  if (!config) return config.error();
  const Result<HfConfigFile> hf = hf_config(*config, Json::parse(shape.config)["model_type"]);
  if (!hf) return hf.error();
  const std::unique_ptr<Model> model = Model::create(*config);
  std::map<std::string, size_t> index;
  for (size_t i = 0; i < model->params().all().size(); ++i) index[model->params()[i].name] = i;
  constexpr uint64_t kSeed = 1;
  std::vector<Outgoing> all;
  for (const HfTensor& t : hf_tensors(*hf->family, *model)) {
    const auto put = [&, rows = t.rows](const PutBytes& write) -> Status {
      constexpr size_t kPiece = size_t{1} << 23, kTask = size_t{1} << 16;
      std::vector<bf16> numbers;
      for (const ParamRows& r : rows) {
        const size_t param = index.at(r.param);
        const Param& p = model->params()[param];
        const size_t width = p.shape.rank() == 2 ? p.cols() : 1;
        const size_t end = static_cast<size_t>(r.first + r.count) * width;
        for (size_t at = static_cast<size_t>(r.first) * width; at < end; at += kPiece) {
          numbers.resize(std::min(kPiece, end - at));
          par.blocks(numbers.size(), kTask, [&](size_t begin, size_t stop) {
            std::vector<float> wide(stop - begin);
            model->random_numbers(param, kSeed, at + begin, wide);
            for (size_t i = 0; i < wide.size(); ++i) numbers[begin + i] = to_bf16(wide[i]);
          });
          if (Status s = write(std::as_bytes(std::span<const bf16>(numbers))); !s) return s;
        }
      }
      return {};
    };
    all.emplace_back(t.name, DType::kBF16, t.shape, put);
  }
  return write_folder(c, all, *hf->json, true, {.family = std::string(hf->family->model_type)});
}

}  // namespace braid
