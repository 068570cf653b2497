// The makers that registry.cpp lists; each is at the end of its task's file.
#pragma once

#include "tasks/task.h"

namespace braid {

std::unique_ptr<Task> make_parity();
std::unique_ptr<Task> make_mod_arith();
std::unique_ptr<Task> make_mod_arith_brackets();
std::unique_ptr<Task> make_word_problem();
std::unique_ptr<Task> make_swap_tracking();
std::unique_ptr<Task> make_reachability();
std::unique_ptr<Task> make_stress();
std::unique_ptr<Task> make_mqar();
std::unique_ptr<Task> make_copy();
std::unique_ptr<Task> make_selective_copy();
std::unique_ptr<Task> make_induction();
std::unique_ptr<Task> make_state_recall();
std::unique_ptr<Task> make_pcr();
std::unique_ptr<Task> make_counted_recall();

}  // namespace braid
