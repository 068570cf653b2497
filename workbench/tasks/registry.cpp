#include <array>

#include <fmt/format.h>

#include "base/nearest.h"
#include "tasks/makers.h"

namespace braid {
namespace {

constexpr std::array kTasks{
    TaskEntry{"parity", 1, "whether the number of ones is odd; a length counts the bits and the answer",
              "arXiv:2411.12537", &make_parity},
    TaskEntry{"mod-arith", 1,
              "the value mod 5 of digits with + - * between; a length counts '=' and the answer, too",
              "arXiv:2411.12537", &make_mod_arith},
    TaskEntry{"mod-arith-brackets", 1,
              "the value mod 5 of a bracketed expression; a length counts '=' and the answer, too",
              "arXiv:2411.12537", &make_mod_arith_brackets},
    TaskEntry{"word-problem", 1,
              "the running product of group elements; a length counts the tokens after BOS",
              "arXiv:2411.12537, arXiv:2502.10297", &make_word_problem},
    TaskEntry{"swap-tracking", 1, "the object at place 0 after every swap; a length counts the swaps",
              "arXiv:2505.19488", &make_swap_tracking},
    TaskEntry{"reachability", 1,
              "the nodes of two trees that hang together with node 1; a length counts the nodes",
              "arXiv:2505.19488", &make_reachability},
    TaskEntry{"stress", 1,
              "the object at place 0 with more places than dimensions and fixed keys; a length counts writes "
              "and swaps",
              "arXiv:2505.19488", &make_stress},
    TaskEntry{"mqar", 1, "the value that came with each key, for many keys; a length counts all tokens",
              "arXiv:2312.04927", &make_mqar},
    TaskEntry{"copy", 1, "a random string repeated after a separator; a length counts its symbols",
              "arXiv:2402.01032", &make_copy},
    TaskEntry{"selective-copy", 1, "symbols scattered in noise, in order; a length counts symbols and noise",
              "arXiv:2312.00752", &make_selective_copy},
    TaskEntry{"induction", 1, "what followed the special token the first time; a length counts all tokens",
              "arXiv:2312.00752", &make_induction},
    TaskEntry{"state-recall", 1,
              "the bit at a pointer that was swapped with others; a length counts bits, and swaps",
              "arXiv:2604.03444", &make_state_recall},
    TaskEntry{"pcr", 1,
              "a parity tells which address to look up in a table; a length counts the parity's bits",
              "arXiv:2605.16640", &make_pcr},
    TaskEntry{"counted-recall", 1,
              "keys to look up, bits to count, and answers that need both; a length counts the questions",
              "Braid", &make_counted_recall},
};

}  // namespace

std::span<const TaskEntry> all_tasks() { return kTasks; }

Result<std::unique_ptr<Task>> make_task(std::string_view name, const std::vector<std::string>& assignments) {
  std::vector<std::string> names;
  for (const TaskEntry& entry : kTasks) {
    names.emplace_back(entry.name);
    if (entry.name != name) continue;
    std::unique_ptr<Task> task = entry.make();
    task->entry = &entry;
    std::vector<Problem> problems = apply_settings(task->settings(), assignments);
    for (Problem& p : task->validate()) problems.push_back(std::move(p));
    if (!problems.empty()) return to_error(fmt::format("--task-set: {} has other settings", name), problems);
    task->prepare();
    return task;
  }
  return Error{fmt::format("--task: is '{}'", name), suggest(name, names)};
}

}  // namespace braid
