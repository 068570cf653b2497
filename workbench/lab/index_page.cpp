#include "lab/index_page.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "lab/agreement.h"

namespace braid {
namespace {

PageCell::Mark mark_of(size_t yes, size_t all) {
  if (all == 0) return PageCell::Mark::kNone;
  return yes == all ? PageCell::Mark::kGood : yes == 0 ? PageCell::Mark::kBad : PageCell::Mark::kNone;
}

}  // namespace

IndexRow index_row(const Experiment& e, const Study& study, Made made, std::string href) {
  const Agreement a = agreement(e, study, study_claims(e, study));
  return {.experiment = &e,
          .effort = study.effort,
          .found = study_title(e, study),
          .agrees = a.all == 0 ? "-" : fmt::format("{} of {}", a.yes, a.all),
          .mark = mark_of(a.yes, a.all),
          .made = std::move(made),
          .href = std::move(href)};
}

IndexRow index_row(const Experiment& e, Effort effort, const Computed& computed, Made made,
                   std::string href) {
  const size_t all = computed.findings.claims.size(),
               yes = static_cast<size_t>(std::ranges::count_if(computed.findings.claims, &Claim::held));
  return {.experiment = &e,
          .effort = effort,
          .found = computed_title(e, computed),
          .agrees = fmt::format("{} of {}", yes, all),
          .mark = mark_of(yes, all),
          .made = std::move(made),
          .href = std::move(href)};
}

Page index_page(const std::vector<IndexRow>& rows) {
  std::set<std::string_view> run;
  PageTable table{
      .head = {"experiment", "found", "agrees", "paper", "date, command"}, .rows = {}, .words = true};
  for (const IndexRow& r : rows) {
    run.insert(r.experiment->name);
    table.rows.push_back(
        {{.text = fmt::format("{}, {}", r.experiment->name, effort_name(r.effort)), .href = r.href},
         {r.found},
         {r.agrees, r.mark},
         {std::string(r.experiment->paper)},
         {.text = r.made.program.command, .kind = PageCell::Kind::kCode, .before = r.made.date}});
  }
  table.caption =
      "Agrees: results within the tolerance of the paper's figures, orders of rows as in the paper, and "
      "claims that "
      "hold.";
  Page page(fmt::format("{} of {} experiments have results", run.size(), all_experiments().size()));
  page.topic("Braid lab");
  page.table(table);
  PageTable missing{.head = {"experiment", "shows", "command"}, .rows = {}, .words = true};
  for (const Experiment& e : all_experiments())
    if (!run.contains(e.name))
      missing.rows.push_back(
          {{std::string(e.name)},
           {std::string(e.title)},
           {.text = fmt::format("braid lab run {} --quick", e.name), .kind = PageCell::Kind::kCode}});
  if (missing.rows.empty()) return page;
  page.begin_details(fmt::format("Not run in this folder: {}", missing.rows.size()));
  page.table(missing);
  page.end_details();
  return page;
}

}  // namespace braid
