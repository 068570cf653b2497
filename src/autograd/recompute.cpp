#include "autograd/recompute.h"

#include "kernels/elementwise/elementwise.h"

namespace braid {

Var recompute(Exec& e, Var x, size_t rows, std::function<Var(Exec&, Var)> f) {
  check(e.recording(), "recompute: nothing is recorded");
  Var y = e.result(rows, x.v.cols);
  const Exec start = e;  // with the dropout sites that f will draw from
  {
    const Arena::Mark mark = e.arena().mark();
    Tape tape(e.arena(), e.par());
    Exec inner = e.on(tape);
    const Var made = f(inner, {x.v, tape.new_slot(x.v.rows, x.v.cols), x.rows});
    copy<float>(made.v, y.v);
    y.rows = made.rows;
    e.go_on(inner);
    e.arena().release(mark);
  }
  e.tape().record("", y.slot, [start, x, y, f = std::move(f)] {
    Tape& outer = start.tape();
    const Mat<float> d = outer.grad(y.slot);
    // A residual stream hands d's memory down; with other rows than x has, x's gradient lies elsewhere.
    const bool same = y.v.rows == x.v.rows;
    const Tape::Target to = same ? Tape::Target{d, Into::kOverwrite} : outer.target(x.slot);
    const Arena::Mark mark = start.arena().mark();
    Tape tape(start.arena(), start.par());
    Exec inner = start.on(tape);
    const Var in{x.v, tape.new_slot(x.v.rows, x.v.cols), x.rows};
    tape.record("", in.slot, [&tape, in, to] {  // recorded first, so it runs last
      const Mat<float> dx = tape.grad(in.slot);
      if (to.into == Into::kAdd)
        add_to(dx, to.to, tape.par());
      else if (dx.data != to.to.data)
        copy<float>(dx, to.to);
    });
    tape.set_grad(f(inner, in).slot, d);
    tape.backward(start.profile());
    start.arena().release(mark);
    if (same) outer.give(y.slot, x.slot);
  });
  return y;
}

}  // namespace braid
