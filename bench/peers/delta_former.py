#!/usr/bin/env python3
"""Forward and backward of DeltaFormer: plain PyTorch against Braid, in alternating rounds.

    bench/peers/delta_former.py                  T = 1024, 8 heads of 64, a = b = 1, kappa2 softmax; kappa1 softmax and round
    bench/peers/delta_former.py --forms rows     against the loop over rows, some 10 s a step
    bench/peers/delta_former.py --json           one JSON object on stdout

PyTorch runs the same maths in plain forms, all with autograd: the whole sequence as one triangular system (full),
chunk by chunk (chunks), row by row (rows); "plain" stores kappa2's scores, "sdpa" uses its fused attention. The forms
are compared with each other before they are timed; ratios are given against each.
"""
import json
import math
import statistics
import sys
import time

import common

T, HEADS, D, CHUNK = 1024, 8, 64, 128  # as in delta_former_bench()


def parse_args():
    p = common.parser(__doc__, 5)
    p.add_argument("--forms", nargs="+", choices=["full", "chunks", "rows"], default=["full", "chunks"])
    args = p.parse_args()
    common.positive(p, args, "threads", "rounds")
    return args


# ---- the peer


def build_peer(kernel, form, attention):
    """Returns a function that runs forward and backward and returns o and the gradients of q, k and v."""
    import torch
    import torch.nn.functional as F

    g = torch.Generator().manual_seed(0)
    q, k, v, up = (torch.randn(HEADS, T, D, generator=g) for _ in range(4))
    if kernel == "round":
        k *= D**-0.5
    for x in (q, k, v):
        x.requires_grad_()
    causal = torch.ones(T, T, dtype=torch.bool).tril()

    def weights():
        """kappa1 of all pairs, zero on and above the diagonal."""
        if kernel == "round":  # to two decimals, gradient straight through
            s = k @ k.transpose(-1, -2)
            return (s + ((s * 100).round() / 100 - s).detach()).tril(-1)
        s = (k @ k.transpose(-1, -2) * D**-0.5).masked_fill(~causal.tril(-1), -math.inf)
        return torch.cat([torch.zeros_like(s[:, :1]), s[:, 1:].softmax(-1)], 1)  # the first row is empty

    def solve(a, right):
        return torch.linalg.solve_triangular(a, right, upper=False, unitriangular=True)  # the diagonal is not read

    def write():
        a = weights()
        if form == "full":
            return solve(a, v)
        if form == "chunks":
            u = v[:, :0]
            for t in range(0, T, CHUNK):
                e = t + CHUNK
                u = torch.cat([u, solve(a[:, t:e, t:e], v[:, t:e] - a[:, t:e, :t] @ u)], 1)
            return u
        u = v[:, :1]
        for t in range(1, T):
            u = torch.cat([u, v[:, t:t + 1] - a[:, t:t + 1, :t] @ u], 1)
        return u

    def step():
        for x in (q, k, v):
            x.grad = None
        u = write()
        if attention == "sdpa":
            o = F.scaled_dot_product_attention(q[None], k[None], u[None], is_causal=True)[0]
        else:
            o = (q @ k.transpose(-1, -2) * D**-0.5).masked_fill(~causal, -math.inf).softmax(-1) @ u
        o.backward(up)
        return [o.detach(), q.grad, k.grad, v.grad]

    return step


def seconds(step):
    start = time.perf_counter()
    step()
    return time.perf_counter() - start


# ---- the comparison


def main():
    args = parse_args()
    torch, load = common.start(args)
    command = [str(args.braid), "bench", "kernels", "--only", "delta_former fwd+bwd", "--threads", str(args.threads),
               "--json"]
    steps = {}
    for kernel in ("softmax", "round"):
        peers = {f"{form} {attention}": build_peer(kernel, form, attention)
                 for form in args.forms for attention in ("sdpa", "plain")}
        want = build_peer(kernel, "full", "sdpa")()
        for name, step in peers.items():  # also warms up
            for x, y in zip(step(), want):
                if not (x - y).norm() < 1e-3 * y.norm():
                    sys.exit(f"{kernel}: form '{name}' differs from 'full sdpa': its time would mean nothing")
        steps[kernel] = peers

    times = {(kernel, name): [] for kernel, peers in steps.items() for name in [*peers, "braid"]}
    for _ in range(args.rounds):
        for kernel, peers in steps.items():
            for name, step in peers.items():
                times[kernel, name].append(seconds(step))
        for row in [] if args.peer_only else common.braid_rows(command):
            for kernel in steps:
                if row["case"].endswith(" " + kernel):
                    times[kernel, "braid"].append(row["seconds"])
    if not args.peer_only and not all(times.values()):
        sys.exit(f"{' '.join(command)}\nprinted no case for a kernel")

    medians = {key: statistics.median(x) for key, x in times.items() if x}
    result = {"shape": {"T": T, "heads": HEADS, "d": D}, "threads": args.threads, "torch": torch.__version__,
              "load_before": load, "kernels": {}}
    for kernel, peers in steps.items():
        braid = medians.get((kernel, "braid"))
        result["kernels"][kernel] = {
            "braid_seconds": braid,
            "torch_seconds": {name: medians[kernel, name] for name in peers},
            "ratios": {name: medians[kernel, name] / braid for name in peers} if braid else None,
        }
    if args.json:
        print(json.dumps(result))
        return
    print(f"DeltaFormer forward + backward, T {T}, {HEADS} heads of {D}, {args.threads} threads, torch {torch.__version__}; "
          f"medians of {args.rounds} alternating rounds")
    for kernel, r in result["kernels"].items():
        print(f"\nkappa1 {kernel}:" + (f" braid {r['braid_seconds'] * 1e3:.1f} ms" if r["ratios"] else ""))
        for name, s in r["torch_seconds"].items():
            print(f"  torch {name:12} {s * 1e3:9.1f} ms" + (f" {r['ratios'][name]:8.1f} x" if r["ratios"] else ""))


if __name__ == "__main__":
    main()
