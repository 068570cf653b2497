// The makers that registry.cpp lists; each is at the end of its task's file.
#pragma once

#include "tasks/task.h"

namespace braid {

std::unique_ptr<Task> make_parity();
std::unique_ptr<Task> make_copy();

}  // namespace braid
