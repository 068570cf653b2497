#include "model/stored.h"

#include <fmt/format.h>

#include <algorithm>

#include "model/weights.h"

namespace braid {
namespace {

std::optional<WeightFormat> format_of(DType d) {
  switch (d) {
    case DType::kF32:
      return WeightFormat::kF32;
    case DType::kBF16:
      return WeightFormat::kBf16;
    case DType::kI8:
      return WeightFormat::kQ8;
    case DType::kU8:
      return WeightFormat::kQ4;
    default:
      return std::nullopt;
  }
}

size_t rows_of(const View& piece, const Param& p) {
  return p.shape.rank() == 2 ? static_cast<size_t>(piece.shape[0]) : static_cast<size_t>(piece.shape.count());
}

// Rows of a matrix that are read, widened and stored again by one task.
constexpr size_t kRowsAtOnce = 16;

}  // namespace

std::optional<WeightFormat> ParamSource::format() const {
  const std::optional<WeightFormat> first = format_of(pieces.front().dtype);
  for (const View& v : pieces)
    if (format_of(v.dtype) != first) return std::nullopt;
  return first;
}

bool is_quantised(const SafeTensors& file) {
  for (const std::string& name : file.names())
    if (name.ends_with(kScaleSuffix) && file.find(name.substr(0, name.rfind('.')))) return true;
  return false;
}

Result<std::vector<ParamSource>> braid_sources(const ParamSet& params, const SafeTensors& file,
                                               const std::string& path) {
  std::vector<TensorSpec> wanted;
  std::vector<ParamSource> sources;
  for (const Param& p : params.all()) {
    const View* v = file.find(p.name);
    ParamSource source;
    if (v) source.pieces = {*v};
    const std::optional<WeightFormat> f = v ? format_of(v->dtype) : std::nullopt;
    if (!p.precise && f && has_scales(*f) && weight_fits(*f, p.cols())) {
      const auto rows = static_cast<int64_t>(p.rows());
      wanted.push_back({p.name, v->dtype, {rows, static_cast<int64_t>(weight_row_bytes(*f, p.cols()))}});
      wanted.push_back({p.name + kScaleSuffix,
                        DType::kBF16,
                        {rows, static_cast<int64_t>(weight_row_scales(*f, p.cols()))}});
      if (const View* scales = file.find(p.name + kScaleSuffix)) source.scales = {*scales};
    } else {
      wanted.push_back({p.name, DType::kF32, p.shape});
    }
    sources.push_back(std::move(source));
  }
  const auto view_of = [&](const std::string& name) { return file.find(name); };
  if (const std::vector<Problem> problems = tensor_problems(wanted, file.names(), view_of); !problems.empty())
    return to_error(path + ": does not fit its config", problems);
  return sources;
}

WeightFormat kept_format(const Param& p, const ParamSource& from, std::optional<WeightFormat> wanted) {
  const WeightFormat own = from.format().value_or(WeightFormat::kF32);
  if (p.precise) return WeightFormat::kF32;
  return wanted && weight_fits(*wanted, p.cols()) ? *wanted : own;
}

void read_numbers(const ParamSource& from, const Param& p, size_t first, std::span<float> to) {
  const size_t width = p.shape.rank() == 2 ? p.cols() : 1;
  for (const View& v : from.pieces) {
    const size_t rows = rows_of(v, p);
    if (first >= rows) {
      first -= rows;
      continue;
    }
    const size_t n = std::min((rows - first) * width, to.size());
    if (n == 0) return;
    convert_to_f32({static_cast<const std::byte*>(v.data) + first * width * dtype_size(v.dtype),
                    v.dtype,
                    {static_cast<int64_t>(n)}},
                   to.first(n));
    to = to.subspan(n), first = 0;
  }
}

Result<std::shared_ptr<StoredWeights>> StoredWeights::load(SafeTensors file,
                                                           const std::vector<ParamSource>& sources,
                                                           std::optional<WeightFormat> wanted,
                                                           ParamSet& params, Par par,
                                                           const LoadProgress& progress) {
  std::shared_ptr<StoredWeights> all(new StoredWeights());
  bool mapped = false;
  const size_t n = params.all().size();
  std::vector<StoredMatrix> stored(n);
  all->parts_.resize(n);
  const uint64_t elements = params.count();
  uint64_t done = 0;
  for (size_t i = 0; i < n; ++i) {
    const Param& p = params[i];
    const ParamSource& from = sources[i];
    if (progress) progress(done, elements);
    done += p.count();
    if (p.precise) continue;
    const std::optional<WeightFormat> own = from.format();
    const WeightFormat kept = kept_format(p, from, wanted);
    if (own && has_scales(*own) && kept != *own)
      return Error{fmt::format("the weights are stored as {}, not {}", weight_format_name(*own),
                               weight_format_name(kept)),
                   fmt::format("leave --quant or --dtype out, or make {} from the original",
                               weight_format_name(kept))};
    std::vector<StoredRows>& parts = all->parts_[i];
    mapped |= own == kept;
    if (own == kept) {
      for (size_t k = 0; k < from.pieces.size(); ++k)
        parts.push_back({static_cast<const std::byte*>(from.pieces[k].data),
                         from.scales.empty() ? nullptr : static_cast<const bf16*>(from.scales[k].data),
                         rows_of(from.pieces[k], p)});
    } else {
      const size_t row_bytes = weight_row_bytes(kept, p.cols()),
                   row_scales = weight_row_scales(kept, p.cols());
      Tensor& data = all->made_.emplace_back(DType::kU8, Shape{static_cast<int64_t>(p.rows() * row_bytes)});
      auto* bytes = static_cast<std::byte*>(data.data());
      Tensor& numbers =
          all->made_.emplace_back(DType::kBF16, Shape{static_cast<int64_t>(p.rows() * row_scales)});
      auto* scales = static_cast<bf16*>(numbers.data());
      par.blocks(p.rows(), kRowsAtOnce, [&](size_t begin, size_t end) {
        std::vector<float> rows((end - begin) * p.cols());
        read_numbers(from, p, begin, rows);
        for (size_t r = begin; r < end; ++r)
          store_row(kept, std::span(rows).subspan((r - begin) * p.cols(), p.cols()), bytes + r * row_bytes,
                    scales + r * row_scales);
      });
      parts.push_back({bytes, scales, p.rows()});
    }
    stored[i] = {kept, p.rows(), p.cols(), parts};
  }
  params.allocate_beside(std::move(stored));
  for (size_t i = 0; i < n; ++i)
    if (!params.stored(i))
      read_numbers(sources[i], params[i], 0, params.block().subspan(params[i].offset, params[i].count()));
  if (mapped) all->file_ = std::move(file);  // else its pages need not stay
  return all;
}

}  // namespace braid
