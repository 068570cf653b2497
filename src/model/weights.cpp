#include "model/weights.h"

#include <set>

namespace braid {

std::vector<Problem> tensor_problems(const std::vector<TensorSpec>& wanted,
                                     const std::vector<std::string>& names_in_file,
                                     const std::function<const View*(const std::string&)>& view_of) {
  std::vector<Problem> problems;
  std::set<std::string> names;
  for (const TensorSpec& t : wanted) {
    names.insert(t.name);
    const View* v = view_of(t.name);
    if (!v) {
      problems.push_back({t.name, "is missing", "expected " + t.shape.text()});
    } else if (v->shape != t.shape) {
      problems.push_back({t.name, "has shape " + v->shape.text(), "expected " + t.shape.text()});
    } else if (t.dtype != DType::kF32 && v->dtype != t.dtype) {
      problems.push_back({t.name, "has dtype " + std::string(dtype_name(v->dtype)),
                          "expected " + std::string(dtype_name(t.dtype))});
    } else if (t.dtype == DType::kF32 && v->dtype != DType::kF32 && v->dtype != DType::kBF16 &&
               v->dtype != DType::kF16 && v->dtype != DType::kF64) {
      problems.push_back(
          {t.name, "has dtype " + std::string(dtype_name(v->dtype)), "expected F32, BF16, F16 or F64"});
    }
  }
  for (const std::string& name : names_in_file)
    if (!names.contains(name))
      problems.push_back({name, "is not a parameter of this model", "use the config.json of this file"});
  return problems;
}

}  // namespace braid
