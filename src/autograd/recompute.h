// Activation checkpointing: what a part of the model needs for its backward is not kept but made again.
#pragma once

#include <functional>

#include "autograd/exec.h"

namespace braid {

// f(e, x), of x's width and `rows` rows. Forward keeps x and the result alone; backward runs f again, with a
// tape of its own, and gives that memory back. Both forwards record, so that they take the same paths through
// the kernels and the gradient's bits are those of f without this. f is kept until backward; what it refers
// to must live as long.
Var recompute(Exec& e, Var x, size_t rows, std::function<Var(Exec&, Var)> f);

}  // namespace braid
