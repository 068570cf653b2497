// The Markdown of docs/results, from kept results alone.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "lab/kept.h"

namespace braid {

// All experiments in one table: the paper's figure, ours, whether they agree, command and commit.
std::string results_index(std::span<const Kept> all);

// What is kept of one experiment: tables, claims, command and machine.
std::string results_block(const Experiment& e, std::span<const Kept> all);

// The text of a table's cell: every "arXiv:NUMBER" is a link, and no bar ends the cell.
std::string markdown_cell(std::string_view text);

}  // namespace braid
