#include "autograd/recompute.h"

#include "kernels/elementwise/elementwise.h"

namespace braid {

Var recompute(Exec& e, Var x, std::function<Var(Exec&, Var)> f) {
  check(e.recording(), "recompute: nothing is recorded");
  const Var y = e.result(x.v.rows, x.v.cols);
  const Exec start = e;  // with the dropout sites that f will draw from
  {
    const Arena::Mark mark = e.arena().mark();
    Tape tape(e.arena());
    Exec inner = e.on(tape);
    copy<float>(f(inner, {x.v, tape.new_slot(x.v.rows, x.v.cols)}).v, y.v);
    e.go_on(inner);
    e.arena().release(mark);
  }
  e.tape().record("", y.slot, [start, x, y, f = std::move(f)] {
    Tape& outer = start.tape();
    const Mat<float> d = outer.grad(y.slot);
    const Arena::Mark mark = start.arena().mark();
    Tape tape(start.arena());
    Exec inner = start.on(tape);
    const Var in{x.v, tape.new_slot(x.v.rows, x.v.cols)};
    // Recorded first, so it runs last. A residual stream has handed d's memory down already.
    tape.record("", in.slot, [&tape, in, d] {
      if (const Mat<float> dx = tape.grad(in.slot); dx.data != d.data) copy<float>(dx, d);
    });
    tape.set_grad(f(inner, in).slot, d);
    tape.backward(start.profile());
    start.arena().release(mark);
    outer.give(y.slot, x.slot);
  });
  return y;
}

}  // namespace braid
