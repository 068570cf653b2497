#include "kernels/common/impl_table.h"

namespace braid {

ImplTable::ImplTable(std::string_view op, std::initializer_list<Row> rows) : op_(op), rows_(rows) {
  std::erase_if(rows_, [](const Row& r) { return r.name.empty(); });
  best_ = choose({});
}

size_t ImplTable::choose(const KernelChoice& kernels) const {
  const std::string_view forced = kernels.forced(op_);
  for (size_t i = 0; i < rows_.size() && !forced.empty(); ++i)
    if (rows_[i].name == forced && rows_[i].needs <= detected_isa()) return i;
  for (size_t i = 0; i < rows_.size(); ++i)
    if (rows_[i].needs <= kernels.isa()) return i;
  return rows_.size() - 1;
}

std::string ImplTable::refusal(size_t row, Par par) const {
  const size_t c = chosen(par);
  if (row == c) return "";
  if (rows_[row].needs > par.isa())
    return "needs " + std::string(isa_name(rows_[row].needs)) + ", " +
           (par.isa() < detected_isa() ? "limited to " : "this machine has ") +
           std::string(isa_name(par.isa()));
  return row > c ? std::string(rows_[c].name) + " comes first" : std::string(rows_[c].name) + " is forced";
}

}  // namespace braid
