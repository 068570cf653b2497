// The demo as a page and as a figure: three models of the same size, three parts of one task.
#pragma once

#include <array>
#include <string>
#include <utility>
#include <vector>

#include "report/page.h"

namespace braid {

inline constexpr std::array kDemoParts{"count", "recall", "both"};
inline constexpr std::array<double, kDemoParts.size()> kDemoChance{50, 25, 25};  // %

struct DemoBounds {
  double at_least = 0, at_most = 100;
};

struct DemoModel {
  using Scores = std::array<double, kDemoParts.size()>;  // right answers, %
  std::string name, command;
  size_t parameters = 0;
  Scores scores = {};
  std::array<DemoBounds, kDemoParts.size()> expected = {};
  std::vector<std::pair<double, Scores>> curve = {};  // step, scores

  bool part_as_expected(size_t part) const;
  bool as_expected() const;
};

std::string demo_title(const std::vector<DemoModel>& models);  // what was found; the last model is the hybrid
Panels demo_figure(const std::vector<DemoModel>& models);
std::string demo_picture(const std::vector<DemoModel>& models, Theme theme);  // titled by what was found
Page demo_page(const std::vector<DemoModel>& models);

}  // namespace braid
