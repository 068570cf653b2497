// Which tensor of a file holds which rows of which of Braid's parameters.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "autograd/param.h"

namespace braid {

struct ParamRows {  // of a matrix; a vector has rows of one number
  std::string param;
  int64_t first = 0, count = 0;
};

struct HfTensor {
  std::string name;
  Shape shape;  // row-major, so its numbers are those of `rows`, one after the other
  std::vector<ParamRows> rows;
};

class TensorTable {
 public:
  explicit TensorTable(const ParamSet& params);

  HfTensor same(std::string name, const std::string& param) const;
  // Some rows of a parameter.
  HfTensor part(std::string name, const std::string& param, int64_t first, int64_t count) const;
  // The rows of several parameters, one after the other.
  HfTensor stacked(std::string name, const std::vector<std::string>& params) const;
  // Each parameter is cut into `groups` equal parts; the first part of every one, then the second, ...
  HfTensor grouped(std::string name, int64_t groups, const std::vector<std::string>& params) const;
  // Rows of a convolution's taps: [channels, 1, taps].
  HfTensor conv(std::string name, const std::string& param, int64_t first, int64_t count) const;
  HfTensor conv(std::string name, const std::string& param) const;

  using Way = std::vector<HfTensor>;
  void add(HfTensor tensor) { parts_.push_back({{std::move(tensor)}}); }
  // The same rows, stored in one way or another; the first is written.
  void add_either(std::vector<Way> ways) { parts_.push_back(std::move(ways)); }

  const std::vector<std::vector<Way>>& parts() const { return parts_; }
  const Shape& shape(const std::string& param) const;  // of one of Braid's
  int64_t rows(const std::string& param) const;

 private:
  std::map<std::string, Shape, std::less<>> params_;
  std::vector<std::vector<Way>> parts_;
};

int64_t row_length(const Shape& shape);  // numbers in a row of a parameter: 1 in a vector

}  // namespace braid
