#include "io/safetensors.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <filesystem>
#include <limits>
#include <new>
#include <numeric>
#include <optional>

#include "io/json.h"

namespace braid {
namespace {

using nlohmann::json;
static_assert(std::endian::native == std::endian::little, "tensors are mapped as they are stored");

constexpr uint64_t kMaxHeader = 100'000'000;  // the reference's limit
constexpr std::string_view kMetadata = "__metadata__";
constexpr std::string_view kOneFile = "model.safetensors", kIndex = "model.safetensors.index.json";

// The reference lays tensors out by this order, then by name: large numbers first, so that all are aligned.
constexpr std::array kLayout{DType::kI64, DType::kF64, DType::kF32, DType::kI32, DType::kBF16,
                             DType::kF16, DType::kI16, DType::kI8,  DType::kU8,  DType::kBool};

size_t layout_rank(DType d) { return std::find(kLayout.begin(), kLayout.end(), d) - kLayout.begin(); }

std::string known_dtypes() {
  std::string s;
  for (DType d : kLayout) s += (s.empty() ? "" : ", ") + std::string(dtype_name(d));
  return s;
}

constexpr const char* kFetchAgain = "fetch or write the file again";

std::string number(uint64_t n) { return std::to_string(n); }

// What the header says of one tensor. Shapes and dtypes are checked while reading, offsets against the data
// after.
struct Entry {
  DType dtype = DType::kF32;
  Shape shape;
  std::array<uint64_t, 2> offsets{};
  uint8_t offset_count = 0;
  bool has_dtype = false, has_shape = false, has_offsets = false;
};

// The size in bytes, if it and every partial product fit.
std::optional<uint64_t> byte_size(const Entry& e) {
  uint64_t n = dtype_size(e.dtype);
  bool empty = false;
  for (int i = 0; i < e.shape.rank(); ++i) {
    const uint64_t extent = static_cast<uint64_t>(e.shape[i]);
    empty |= extent == 0;
    if (__builtin_mul_overflow(n, std::max<uint64_t>(extent, 1), &n)) return std::nullopt;
  }
  if (n > std::numeric_limits<int64_t>::max()) return std::nullopt;
  return empty ? 0 : n;
}

// Reads a header without building a tree of it: a hostile one could take twenty times its size.
class Header final : public JsonEvents {
 public:
  std::map<std::string, Entry> entries;
  std::map<std::string, std::string> metadata;
  std::string fix = kFetchAgain;

  bool null() override { return unexpected("null"); }
  bool boolean(bool) override { return unexpected("a boolean"); }
  bool number_integer(json::number_integer_t) override { return unexpected("a negative number"); }
  bool number_float(json::number_float_t, const std::string& s) override {
    return unexpected("the number " + s.substr(0, 40));
  }

  bool number_unsigned(json::number_unsigned_t v) override {
    if (in_ == In::kShape) {
      if (entry_->shape.rank() == Shape::kMaxRank)
        return fail(where() + "more than " + number(Shape::kMaxRank) + " extents");
      if (v > static_cast<uint64_t>(std::numeric_limits<int64_t>::max()))
        return fail(where() + "extent " + number(v) + " is too large");
      entry_->shape.push(static_cast<int64_t>(v));
      return true;
    }
    if (in_ != In::kOffsets) return unexpected("a number");
    if (entry_->offset_count == 2) return fail(where() + "more than two numbers, expected [begin, end]");
    entry_->offsets[entry_->offset_count++] = v;
    return true;
  }

  bool string(std::string& v) override {
    if (in_ == In::kMetadata) return metadata[key_] = std::move(v), true;
    if (in_ != In::kEntry || key_ != "dtype") return unexpected("a string");
    const auto dtype = dtype_from_name(v);
    if (!dtype) {
      fix = "convert the checkpoint to BF16, F16 or F32";
      return fail(where() + in_quotes(v) + " is not supported, expected one of " + known_dtypes());
    }
    entry_->dtype = *dtype;
    return true;
  }

  bool start_object(size_t) override {
    if (in_ == In::kNothing) return in_ = In::kTop, true;
    if (in_ != In::kTop) return unexpected("an object");
    in_ = entry_ ? In::kEntry : In::kMetadata;
    return true;
  }

  bool start_array(size_t) override {
    if (in_ != In::kEntry || key_ == "dtype") return unexpected("an array");
    in_ = key_ == "shape" ? In::kShape : In::kOffsets;
    return true;
  }

  bool end_array() override {
    if (in_ == In::kOffsets && entry_->offset_count != 2)
      return fail(where() + number(entry_->offset_count) + " numbers, expected [begin, end]");
    return in_ = In::kEntry, true;
  }

  bool end_object() override {
    const In was = std::exchange(in_, In::kTop);
    return was != In::kEntry || whole();
  }

  bool key(std::string& k) override {
    if (in_ == In::kTop) {
      tensor_ = k;
      if (k == kMetadata) {
        if (std::exchange(has_metadata_, true)) return fail("__metadata__ appears twice");
        entry_ = nullptr;
        return true;
      }
      const auto [at, fresh] = entries.try_emplace(k);
      if (!fresh) return fail("tensor " + in_quotes(k) + ": appears twice");
      entry_ = &at->second;
      return true;
    }
    key_ = k;
    if (in_ == In::kMetadata) return !metadata.contains(k) || fail(where() + "appears twice");
    bool* seen = k == "dtype"          ? &entry_->has_dtype
                 : k == "shape"        ? &entry_->has_shape
                 : k == "data_offsets" ? &entry_->has_offsets
                                       : nullptr;
    if (!seen)
      return fail("tensor " + in_quotes(tensor_) + ": unknown field " + in_quotes(k) +
                  ", expected dtype, shape and data_offsets");
    return !std::exchange(*seen, true) || fail(where() + "appears twice");
  }

 private:
  enum class In { kNothing, kTop, kMetadata, kEntry, kShape, kOffsets };

  std::string context() const override {
    return in_ >= In::kEntry ? "tensor " + in_quotes(tensor_) + ": " : "";
  }

  // "tensor "a": shape: ", as far as is known.
  std::string where() const {
    if (in_ == In::kNothing) return "";
    const std::string top = entry_ ? "tensor " + in_quotes(tensor_) + ": " : std::string(kMetadata) + ": ";
    if (in_ == In::kTop) return top;
    return top + (in_ == In::kMetadata ? in_quotes(key_) : key_) + ": ";
  }

  bool unexpected(const std::string& what) {
    const char* wanted = "";
    switch (in_) {
      case In::kNothing:
        wanted = "an object";
        break;
      case In::kTop:
        wanted = entry_ ? "an object with dtype, shape and data_offsets" : "an object of strings";
        break;
      case In::kMetadata:
        wanted = "a string";
        break;
      case In::kEntry:
        wanted = key_ == "dtype" ? "a string" : "an array of numbers";
        break;
      case In::kShape:
      case In::kOffsets:
        wanted = "a whole number from 0";
        break;
    }
    return fail(where() + "found " + what + ", expected " + wanted);
  }

  // At the end of an entry: everything is there and agrees.
  bool whole() {
    const Entry& e = *entry_;
    const auto [begin, end] = e.offsets;
    const auto refuse = [&](const std::string& why) {
      return fail("tensor " + in_quotes(tensor_) + ": " + why);
    };
    const auto kind = [&] { return std::string(dtype_name(e.dtype)) + " " + e.shape.text(); };
    if (!e.has_dtype) return refuse("dtype is missing");
    if (!e.has_shape) return refuse("shape is missing");
    if (!e.has_offsets) return refuse("data_offsets is missing");
    if (begin > end)
      return refuse("data_offsets begin at " + number(begin) + " after their end " + number(end));
    const auto bytes = byte_size(e);
    if (!bytes) return refuse(kind() + " is larger than any memory");
    if (*bytes != end - begin)
      return refuse("data_offsets span " + number(end - begin) + " bytes, expected " + number(*bytes) +
                    " for " + kind());
    return true;
  }

  In in_ = In::kNothing;
  std::string tensor_, key_;
  Entry* entry_ = nullptr;  // the tensor that is read; null inside __metadata__
  bool has_metadata_ = false;
};

Error damaged(const std::string& path, const std::string& why) { return {path + ": " + why, kFetchAgain}; }

// Every byte of the data belongs to exactly one tensor. Returns what is wrong, or "".
std::string layout_problem(const std::map<std::string, Entry>& entries, uint64_t data_size) {
  std::vector<std::pair<const std::string, Entry> const*> order;
  for (const auto& item : entries) order.push_back(&item);
  std::sort(order.begin(), order.end(),
            [](auto* a, auto* b) { return a->second.offsets < b->second.offsets; });
  uint64_t at = 0;
  const std::string *before = nullptr, *cut = nullptr;
  for (const auto* item : order) {
    const auto [begin, end] = item->second.offsets;
    if (begin != at) {
      const std::string start =
          "tensor " + in_quotes(item->first) + ": begins at byte " + number(begin) + " of the data, ";
      if (begin > at) return start + "expected " + number(at) + ": the format allows no holes";
      return start + "inside tensor " + in_quotes(*before) + ", which ends at " + number(at);
    }
    at = end;
    before = &item->first;
    if (end > data_size && !cut) cut = before;
  }
  if (cut)
    return "tensor " + in_quotes(*cut) + ": ends at byte " + number(entries.find(*cut)->second.offsets[1]) +
           " of the data, but there are only " + number(data_size) + ": the file is cut, " +
           number(at - data_size) + " bytes are missing";
  if (at < data_size)
    return number(data_size - at) + " bytes follow the last tensor, expected the file to end there";
  return "";
}

bool safe_file_name(const std::string& s) {
  return !s.empty() && s != "." && s.find("..") == s.npos && std::none_of(s.begin(), s.end(), [](char c) {
    return c == '/' || c == '\\' || (c >= 0 && c < ' ');
  });
}

template <class F>
auto guarded(const std::string& path, F f) -> decltype(f()) {
  try {
    return f();
  } catch (const std::bad_alloc&) {
    return Error{path + ": out of memory", "free some memory"};
  }
}

}  // namespace

Result<SafeTensors> SafeTensors::read(const std::string& path) {
  auto file = MappedFile::open(path);
  if (!file) return file.error();
  const std::span<const std::byte> bytes = file->bytes();
  if (bytes.size() < 8)
    return damaged(
        path, "holds " + number(bytes.size()) + " bytes, expected at least the 8 of the header's length");
  uint64_t length;
  std::memcpy(&length, bytes.data(), 8);
  const uint64_t rest = bytes.size() - 8;
  if (length < 2 || length > kMaxHeader)
    return damaged(path, "says its header is " + number(length) + " bytes long, expected 2 to " +
                             number(kMaxHeader) + ": not a safetensors file");
  if (length > rest)
    return damaged(path, "says its header is " + number(length) + " bytes long, but only " + number(rest) +
                             " follow: the file is cut, at least " + number(length - rest) +
                             " bytes are missing");
  const std::string_view text(reinterpret_cast<const char*>(bytes.data()) + 8, length);
  if (text[0] != '{') return damaged(path, "the header does not begin with '{': not a safetensors file");
  Header header;
  if (Status s = parse_json_events(text, path + ": header", header); !s)
    return Error{s.error().what, header.fix};
  const std::byte* data = bytes.data() + 8 + length;
  if (const std::string why = layout_problem(header.entries, rest - length); !why.empty())
    return damaged(path, why);

  SafeTensors out;
  for (const auto& [name, e] : header.entries) {
    View view{data + e.offsets[0], e.dtype, e.shape};
    if (reinterpret_cast<uintptr_t>(view.data) % dtype_size(e.dtype) != 0) {
      Tensor copy(e.dtype, e.shape);
      std::memcpy(copy.data(), view.data, view.bytes());
      view.data = copy.data();
      out.copies_.push_back(std::move(copy));
    }
    if (e.dtype == DType::kBool) {  // reading any other byte as a bool is undefined
      const auto* b = static_cast<const uint8_t*>(view.data);
      const auto* bad = std::find_if(b, b + view.bytes(), [](uint8_t x) { return x > 1; });
      if (bad != b + view.bytes())
        return damaged(path, "tensor " + in_quotes(name) + ": element " + number(bad - b) + " is " +
                                 number(*bad) + ", expected 0 or 1 in a BOOL");
    }
    out.tensors_.emplace_hint(out.tensors_.end(), name, view);
  }
  out.metadata_ = std::move(header.metadata);
  out.files_.push_back(*std::move(file));
  return out;
}

Result<SafeTensors> SafeTensors::read_sharded(const std::string& index_path) {
  const auto index = load_sorted_json(index_path, DuplicateKeys::kRefuse);
  if (!index) return index.error();
  const auto map = index->is_object() ? index->find("weight_map") : index->end();
  if (map == index->end() || !map->is_object() || map->empty())
    return damaged(index_path, "weight_map: expected an object that maps tensors to files");

  std::map<std::string, std::vector<std::string>> shards;  // file -> its tensors
  for (const auto& [tensor, shard] : map->items()) {
    const std::string* name = shard.get_ptr<const std::string*>();
    if (!name)
      return damaged(index_path, "weight_map: tensor " + in_quotes(tensor) + ": expected the name of a file");
    if (!safe_file_name(*name))
      return damaged(index_path, "weight_map: tensor " + in_quotes(tensor) + ": the file " +
                                     in_quotes(*name) + " is not a plain file name in the same folder");
    shards[*name].push_back(tensor);
  }

  SafeTensors out;
  for (const auto& [shard, tensors] : shards) {
    auto one = read((std::filesystem::path(index_path).parent_path() / shard).string());
    if (!one)
      return Error{one.error().what + " (named by " + index_path + ")",
                   "the folder is not complete: fetch this file again"};
    size_t missing = 0;
    std::string list;
    for (const std::string& name : tensors) {
      if (const View* view = one->find(name))
        out.tensors_.emplace(name, *view);
      else if (++missing <= 3)
        list += (list.empty() ? "" : ", ") + in_quotes(name);
    }
    if (missing)
      return damaged(index_path, number(missing) + (missing == 1 ? " tensor is" : " tensors are") +
                                     " missing from " + shard + ": " + list + (missing > 3 ? ", ..." : ""));
    out.metadata_.merge(one->metadata_);
    std::move(one->files_.begin(), one->files_.end(), std::back_inserter(out.files_));
    std::move(one->copies_.begin(), one->copies_.end(), std::back_inserter(out.copies_));
  }
  return out;
}

Result<SafeTensors> SafeTensors::open(const std::string& path) {
  return guarded(path, [&] { return read(path); });
}

Result<SafeTensors> SafeTensors::open_sharded(const std::string& index_path) {
  return guarded(index_path, [&] { return read_sharded(index_path); });
}

Result<SafeTensors> SafeTensors::open_model(const std::string& dir) {
  const std::filesystem::path folder(dir);
  std::error_code ec;
  if (!std::filesystem::is_directory(folder, ec))
    return Error{dir + ": does not exist", "name the folder of a model"};
  if (std::filesystem::exists(folder / kOneFile, ec)) return open((folder / kOneFile).string());
  if (std::filesystem::exists(folder / kIndex, ec)) return open_sharded((folder / kIndex).string());
  return Error{dir + ": holds neither " + std::string(kOneFile) + " nor " + std::string(kIndex),
               "name the folder of a model in safetensors format"};
}

std::vector<std::string> SafeTensors::names() const {
  std::vector<std::string> names;
  for (const auto& item : tensors_) names.push_back(item.first);
  return names;
}

const View* SafeTensors::find(std::string_view name) const {
  const auto at = tensors_.find(name);
  return at == tensors_.end() ? nullptr : &at->second;
}

Status stream_safetensors(const std::string& path, const std::vector<TensorSpec>& tensors,
                          const std::map<std::string, std::string>& metadata,
                          const std::function<Status(size_t tensor, const PutBytes& put)>& make) {
  std::vector<size_t> order(tensors.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::sort(order.begin(), order.end(), [&](size_t i, size_t j) {
    const TensorSpec &a = tensors[i], &b = tensors[j];
    const size_t x = layout_rank(a.dtype), y = layout_rank(b.dtype);
    return x != y ? x < y : a.name < b.name;
  });
  const auto refuse = [&](const std::string& why) {
    return Error{path + ": cannot be written: " + why, "rename it"};
  };
  std::string header = "{";
  std::map<std::string_view, int> seen;
  try {
    if (!metadata.empty()) header += json(kMetadata).dump() + ":" + json(metadata).dump();
    uint64_t at = 0;
    for (const size_t i : order) {
      const auto& [name, dtype, dims] = tensors[i];
      if (name == kMetadata || !seen.emplace(name, 0).second)
        return refuse("tensor " + in_quotes(name) + ": the name is " +
                      (name == kMetadata ? "reserved" : "used twice"));
      std::string shape;
      for (int d = 0; d < dims.rank(); ++d) shape += (d ? "," : "") + std::to_string(dims[d]);
      const uint64_t end = at + tensors[i].bytes();
      header += (header.size() > 1 ? "," : "") + json(name).dump() + ":{\"dtype\":\"" +
                std::string(dtype_name(dtype)) + "\",\"shape\":[" + shape + "],\"data_offsets\":[" +
                number(at) + "," + number(end) + "]}";
      at = end;
    }
  } catch (const json::exception&) {
    return refuse("a name in it is not UTF-8");
  }
  header += "}";
  header.resize((header.size() + 7) / 8 * 8, ' ');
  if (header.size() > kMaxHeader)
    return refuse("the header would be " + number(header.size()) + " bytes long");

  auto file = AtomicFile::open(path);
  if (!file) return file.error();
  const uint64_t length = header.size();
  if (Status s = file->write(std::as_bytes(std::span(&length, 1))); !s) return s;
  if (Status s = file->write(header); !s) return s;
  for (const size_t i : order) {
    size_t written = 0;
    const PutBytes put = [&](std::span<const std::byte> bytes) {
      written += bytes.size();
      return file->write(bytes);
    };
    if (Status s = make(i, put); !s) return s;
    check(written == tensors[i].bytes(), "stream_safetensors: a tensor has another size than announced");
  }
  return file->commit();
}

Status write_safetensors(const std::string& path, const std::vector<NamedTensor>& tensors,
                         const std::map<std::string, std::string>& metadata) {
  std::vector<TensorSpec> specs;
  for (const NamedTensor& t : tensors) {
    check(t.view.data || t.view.bytes() == 0, "write_safetensors: a view of nothing");
    specs.push_back({t.name, t.view.dtype, t.view.shape});
  }
  return stream_safetensors(path, specs, metadata, [&](size_t i, const PutBytes& put) {
    const View& v = tensors[i].view;
    return put({static_cast<const std::byte*>(v.data), v.bytes()});
  });
}

}  // namespace braid
