#!/usr/bin/env python3
"""The gated delta rule: PyTorch's chunk form against Braid, in alternating rounds.

    bench/peers/fast_weight.py               one sequence of 2048 tokens, 16 heads of 128 x 128
    bench/peers/fast_weight.py --json        one JSON object on stdout

The peer is the chunk form that transformers runs on CPUs (chunks of 64; the triangular inverse row by row), and the same
with solve_triangular; they are compared with a plain recurrence before they are timed, and the ratio is against the
faster one. Forward runs without recording, forward + backward with autograd.
"""
import json
import statistics
import sys
import time

import common

T, HEADS, D, CHUNK = 2048, 16, 128, 64  # as in fast_weight_bench()
CASE = "fast_weight T2048 h16 d128 token delta"


def chunked(torch, q, k, v, g, beta, inverse):
    """q, k, v: [heads, T, D], g and beta: [heads, T]; returns o."""
    heads, length, d = q.shape
    n = length // CHUNK
    q, k, v = (x.reshape(heads, n, CHUNK, d) for x in (q, k, v))
    g, beta = g.reshape(heads, n, CHUNK).cumsum(-1), beta.reshape(heads, n, CHUNK, 1)
    lower = torch.ones(CHUNK, CHUNK, dtype=torch.bool).tril()
    decay = (g[..., :, None] - g[..., None, :]).masked_fill(~lower, -float("inf")).exp()
    k_beta, v_beta = k * beta, v * beta
    system = (k_beta @ k.transpose(-1, -2) * decay).tril(-1)
    if inverse == "rows":
        rows = -system
        for i in range(1, CHUNK):
            row = rows[..., i, :i].clone()
            rows[..., i, :i] = row + (row[..., None] * rows[..., :i, :i].clone()).sum(-2)
        a = rows + torch.eye(CHUNK)
        u, w = a @ v_beta, a @ (k_beta * g.exp()[..., None])
    else:
        right = torch.cat([v_beta, k_beta * g.exp()[..., None]], -1)
        u, w = torch.linalg.solve_triangular(system, right, upper=False, unitriangular=True).split(d, -1)
    state, out = torch.zeros(heads, d, d), []
    for i in range(n):
        new = u[:, i] - w[:, i] @ state
        inside = (q[:, i] @ k[:, i].transpose(-1, -2)) * decay[:, i]
        out.append((q[:, i] * g[:, i].exp()[..., None]) @ state + inside @ new)
        last = g[:, i, -1]
        state = state * last.exp()[:, None, None] + \
            (k[:, i] * (last[:, None] - g[:, i]).exp()[..., None]).transpose(-1, -2) @ new
    return torch.stack(out, 1).reshape(heads, length, d)


def recurrent(torch, q, k, v, g, beta):
    state, out = torch.zeros(q.shape[0], D, D), []
    for t in range(q.shape[1]):
        state = state * g[:, t].exp()[:, None, None]
        e = beta[:, t, None] * (v[:, t] - (state * k[:, t, :, None]).sum(1))
        state = state + k[:, t, :, None] * e[:, None]
        out.append((state * q[:, t, :, None]).sum(1))
    return torch.stack(out, 1)


def main():
    p = common.parser(__doc__, 5)
    args = p.parse_args()
    common.positive(p, args, "threads", "rounds")
    torch, load = common.start(args)

    torch.manual_seed(0)
    q, k, v, up = (torch.randn(HEADS, T, D) for _ in range(4))
    q, k = (torch.nn.functional.normalize(x, dim=-1) for x in (q, k))
    g, beta = -0.1 * torch.rand(HEADS, T), torch.rand(HEADS, T)
    inputs = [q, k, v, g, beta]
    with torch.no_grad():
        want = recurrent(torch, *inputs)

    def forward(inverse):
        with torch.no_grad():
            return chunked(torch, *inputs, inverse)

    def both(inverse):
        fresh = [x.clone().requires_grad_() for x in inputs]
        chunked(torch, *fresh, inverse).backward(up)

    forms = {"forward": forward, "forward+backward": both}
    times = {(form, name): [] for form in forms for name in ("rows", "solve", "braid")}
    for inverse in ("rows", "solve"):
        if not (forward(inverse) - want).norm() < 1e-4 * want.norm():
            sys.exit(f"form '{inverse}' differs from the recurrence: its time would mean nothing")
        both(inverse)
    command = [str(args.braid), "bench", "kernels", "--only", CASE, "--threads", str(args.threads), "--json"]
    shares = {form: [] for form in forms}
    for _ in range(args.rounds):
        for form, run in forms.items():
            for inverse in ("rows", "solve"):
                start = time.perf_counter()
                run(inverse)
                times[form, inverse].append(time.perf_counter() - start)
        if args.peer_only:
            continue
        for row in common.braid_rows(command):
            form = row["form"].removeprefix("chunk ")
            if form in forms:
                times[form, "braid"].append(row["seconds"])
                shares[form].append(row["share_of_peak"])

    result = {"torch": torch.__version__, "threads": args.threads, "load_before": load, "forms": {}}
    for form in forms:
        medians = {name: statistics.median(times[form, name]) for name in ("rows", "solve", "braid") if times[form, name]}
        r = result["forms"][form] = {"seconds": medians}
        if "braid" in medians:
            r["ratio"] = min(medians["rows"], medians["solve"]) / medians["braid"]
            r["share_of_peak"] = statistics.median(shares[form])
    if args.json:
        print(json.dumps(result))
        return
    print(f"gated delta rule, T {T}, {HEADS} heads of {D}, {args.threads} threads, torch {torch.__version__}; "
          f"medians of {args.rounds} alternating rounds")
    for form, r in result["forms"].items():
        line = ", ".join(f"{name} {s * 1e3:.1f} ms" for name, s in r["seconds"].items())
        print(f"  {form:17} {line}" + (f": {r['ratio']:.1f} x, {100 * r['share_of_peak']:.0f} % of FMA peak"
                                       if "ratio" in r else ""))


if __name__ == "__main__":
    main()
