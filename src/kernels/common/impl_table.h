// The implementations of one op, best first, ending in "ref". The first whose instructions this machine has
// is used.
//
//   inline constexpr RmsNormFns ...;
//   Impls<RmsNormFns> table("rmsnorm", {{"avx512", Isa::kAvx512, &N_AVX3::kFns}, ..., {"ref", Isa::kBase,
//   &kRefFns}}); table.use().fwd(...);
//
// BRAID_KERNEL=rmsnorm=ref,attention=avx2 forces one by name; tests use force().
#pragma once

#include <atomic>
#include <initializer_list>
#include <string>
#include <string_view>
#include <vector>

#include "base/cpu.h"

namespace braid {

class ImplTable {
 public:
  struct Row {
    std::string_view name;
    Isa needs;
    const void* fns;
  };

  ImplTable(std::string_view op, std::initializer_list<Row> rows) : op_(op), rows_(rows) {
    std::erase_if(rows_, [](const Row& r) { return r.name.empty(); });
  }

  std::string_view op() const { return op_; }
  const std::vector<Row>& rows() const { return rows_; }
  size_t chosen() const;                  // index of the row in use
  std::string refusal(size_t row) const;  // why a row is not chosen; empty for the chosen one
  bool force(std::string_view name);      // false if there is no such row or the machine lacks what it needs
  void unforce() { chosen_.store(-1); }

 private:
  int choose() const;

  std::string_view op_;
  std::vector<Row> rows_;
  mutable std::atomic<int> chosen_{-1};
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

  const Fns& use() const { return *static_cast<const Fns*>(rows()[chosen()].fns); }

 private:
  static ImplTable::Row erase(const Row& r) { return {r.name, r.needs, r.fns}; }
};

// What BRAID_KERNEL asks for `op`, or empty.
std::string forced_by_environment(std::string_view op);

}  // namespace braid
