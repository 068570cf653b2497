#include "kernels/common/impl_table.h"

#include <cstdlib>

namespace braid {

std::string forced_by_environment(std::string_view op) {
  const char* env = std::getenv("BRAID_KERNEL");
  for (std::string_view rest = env ? env : ""; !rest.empty();) {
    const size_t comma = rest.find(',');
    const std::string_view item = rest.substr(0, comma);
    rest = comma == std::string_view::npos ? "" : rest.substr(comma + 1);
    const size_t equals = item.find('=');
    if (equals != std::string_view::npos && item.substr(0, equals) == op)
      return std::string(item.substr(equals + 1));
  }
  return "";
}

size_t ImplTable::chosen() const {
  int c = chosen_.load(std::memory_order_relaxed);
  if (c < 0) {
    c = choose();
    chosen_.store(c, std::memory_order_relaxed);
  }
  return static_cast<size_t>(c);
}

int ImplTable::choose() const {
  const std::string wanted = forced_by_environment(op_);
  for (size_t i = 0; i < rows_.size(); ++i)
    if (rows_[i].name == wanted && rows_[i].needs <= detected_isa()) return static_cast<int>(i);
  for (size_t i = 0; i < rows_.size(); ++i)
    if (rows_[i].needs <= active_isa()) return static_cast<int>(i);
  return static_cast<int>(rows_.size()) - 1;
}

std::string ImplTable::refusal(size_t row) const {
  const size_t c = chosen();
  if (row == c) return "";
  if (rows_[row].needs > active_isa())
    return "needs " + std::string(isa_name(rows_[row].needs)) + ", " +
           (active_isa() < detected_isa() ? "limited to " : "this machine has ") +
           std::string(isa_name(active_isa()));
  return row > c ? std::string(rows_[c].name) + " comes first" : std::string(rows_[c].name) + " is forced";
}

bool ImplTable::force(std::string_view name) {
  for (size_t i = 0; i < rows_.size(); ++i)
    if (rows_[i].name == name && rows_[i].needs <= detected_isa()) {
      chosen_.store(static_cast<int>(i));
      return true;
    }
  return false;
}

}  // namespace braid
