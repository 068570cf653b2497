#include "model/families/tensor_table.h"

namespace braid {

int64_t row_length(const Shape& s) { return s.rank() == 2 ? s[1] : 1; }

TensorTable::TensorTable(const ParamSet& params) {
  for (const Param& p : params.all()) params_.emplace(p.name, p.shape);
}

const Shape& TensorTable::shape(const std::string& param) const {
  const auto it = params_.find(param);
  check(it != params_.end(), "a family's table names a parameter that does not exist: " + param);
  return it->second;
}

int64_t TensorTable::rows(const std::string& param) const { return shape(param)[0]; }

HfTensor TensorTable::same(std::string name, const std::string& param) const {
  return {std::move(name), shape(param), {{param, 0, rows(param)}}};
}

HfTensor TensorTable::part(std::string name, const std::string& param, int64_t first, int64_t count) const {
  HfTensor t{std::move(name), {count}, {{param, first, count}}};
  if (shape(param).rank() == 2) t.shape.push(shape(param)[1]);
  return t;
}

HfTensor TensorTable::stacked(std::string name, const std::vector<std::string>& params) const {
  return grouped(std::move(name), 1, params);
}

HfTensor TensorTable::grouped(std::string name, int64_t groups,
                              const std::vector<std::string>& params) const {
  HfTensor t{std::move(name), {}, {}};
  int64_t all = 0;
  for (int64_t g = 0; g < groups; ++g)
    for (const std::string& p : params) {
      const int64_t count = rows(p) / groups;
      check(count * groups == rows(p), "a family's table cuts a parameter into unequal parts: " + p);
      t.rows.push_back({p, g * count, count});
      all += count;
    }
  const Shape& first = shape(params.front());
  t.shape.push(all);
  if (first.rank() == 2) t.shape.push(first[1]);
  return t;
}

HfTensor TensorTable::conv(std::string name, const std::string& param, int64_t first, int64_t count) const {
  return {std::move(name), {count, 1, row_length(shape(param))}, {{param, first, count}}};
}

HfTensor TensorTable::conv(std::string name, const std::string& param) const {
  return conv(std::move(name), param, 0, rows(param));
}

}  // namespace braid
