// The implementations of one op, best first, ending in "ref". The first whose instructions the call may use
// is taken, unless its KernelChoice forces another.
//
//   inline constexpr RmsNormFns ...;
//   const Impls<RmsNormFns> table("rmsnorm", {{"avx512", Isa::kAvx512, &N_AVX3::kFns}, ..., {"ref",
//   Isa::kBase, &kRefFns}}); table.use(par).fwd(...);
#pragma once

#include <initializer_list>
#include <string>
#include <string_view>
#include <vector>

#include "base/parallel.h"

namespace braid {

class ImplTable {
 public:
  struct Row {
    std::string_view name;
    Isa needs;
    const void* fns;
  };

  ImplTable(std::string_view op, std::initializer_list<Row> rows);

  std::string_view op() const { return op_; }
  const std::vector<Row>& rows() const { return rows_; }
  size_t chosen(Par par) const {  // index of the row in use
    return par.kernels() ? choose(*par.kernels()) : best_;
  }
  std::string refusal(size_t row, Par par) const;  // why a row is not chosen; empty for the chosen one

  // f(name, par) for each implementation that this machine can run, with a Par that forces it.
  template <class F>
  void each(const F& f) const {
    for (const Row& row : rows_) {
      if (row.needs > detected_isa()) continue;
      const KernelChoice forced = KernelChoice().force(op_, row.name);
      f(row.name, Par().with(forced));
    }
  }

 private:
  size_t choose(const KernelChoice& kernels) const;

  std::string_view op_;
  std::vector<Row> rows_;
  size_t best_ = 0;  // without a KernelChoice
};

template <class Fns>
class Impls : public ImplTable {
 public:
  struct Row {
    std::string_view name = {};
    Isa needs = Isa::kBase;
    const Fns* fns = nullptr;
  };
  Impls(std::string_view op, const Row& a, const Row& b, const Row& c = {}, const Row& d = {},
        const Row& e = {}, const Row& f = {}, const Row& g = {})
      : ImplTable(op, {erase(a), erase(b), erase(c), erase(d), erase(e), erase(f), erase(g)}) {}

  const Fns& use(Par par) const { return *static_cast<const Fns*>(rows()[chosen(par)].fns); }

 private:
  static ImplTable::Row erase(const Row& r) { return {r.name, r.needs, r.fns}; }
};

}  // namespace braid
