#!/usr/bin/env python3
"""Softmax attention, forward and backward: PyTorch's scaled_dot_product_attention against Braid, in alternating
rounds.

    bench/peers/attention.py                 both, B=1 T=2048 H=16 d=128: causal, and a window of 64
    bench/peers/attention.py --peer-only     PyTorch alone
    bench/peers/attention.py --json          one JSON object on stdout

The first run makes a virtual environment from requirements.txt. PyTorch gets the fastest of its own ways to do
each case, found by measuring before the rounds start, and is timed without building its masks.
"""
import json
import math
import statistics
import sys

import common
from common import log

LENGTH, HEADS, HEAD = 2048, 16, 128
CASES = {"causal": 0, "window 64": 64}  # name: window


def braid_case(name):
    """As `braid bench kernels` calls it."""
    return f"attention fwd+bwd T{LENGTH} h{HEADS} d{HEAD}" + ("" if name == "causal" else " " + name)


# ---- the peer


def variants(torch, window):
    """Functions of q, k, v [1, heads, length, head] with equal results."""
    from torch.nn.attention import SDPBackend, sdpa_kernel

    sdpa = torch.nn.functional.scaled_dot_product_attention
    i = torch.arange(LENGTH)
    away = i[:, None] - i[None, :]
    seen = (away >= 0) & (away < (window or LENGTH))
    mask = torch.zeros(LENGTH, LENGTH).masked_fill(~seen, -math.inf)  # added: a mask of truth values is converted each time

    def backend(which, **options):
        def run(q, k, v):
            with sdpa_kernel(which):
                return sdpa(q, k, v, **options)
        return run

    def by_hand(q, k, v):
        return (q @ k.transpose(-1, -2) * HEAD**-0.5 + mask).softmax(-1) @ v

    if not window:
        return {"flash": backend(SDPBackend.FLASH_ATTENTION, is_causal=True),
                "math": backend(SDPBackend.MATH, is_causal=True), "by hand": by_hand}

    # Blocks of `window` queries, each with its own and the previous block of keys: a band of twice the width.
    blocks = LENGTH // window
    r = torch.arange(window)[:, None]
    c = torch.arange(2 * window)[None, :] - window
    band = torch.zeros(blocks, 1, window, 2 * window)
    band.masked_fill_(~((c <= r) & (r - c < window)), -math.inf)
    band[0, :, :, :window] = -math.inf  # the first block has none before it

    def with_previous(x):
        x = x.unflatten(2, (blocks, window))
        before = torch.nn.functional.pad(x, (0, 0, 0, 0, 1, 0))[:, :, :-1]
        return torch.cat([before, x], dim=3)[0].transpose(0, 1)  # [blocks, heads, 2 window, head]

    def blocked(which):
        def run(q, k, v):
            with sdpa_kernel(which):
                o = sdpa(q.unflatten(2, (blocks, window))[0].transpose(0, 1), with_previous(k), with_previous(v),
                         attn_mask=band)
            return o.transpose(0, 1).flatten(1, 2)[None]
        return run

    return {"flash, band mask": backend(SDPBackend.FLASH_ATTENTION, attn_mask=mask),
            "math, band mask": backend(SDPBackend.MATH, attn_mask=mask),
            "flash, blocks": blocked(SDPBackend.FLASH_ATTENTION), "math, blocks": blocked(SDPBackend.MATH)}


def build_peer(torch, attend):
    """A function that runs forward and backward once."""
    torch.manual_seed(0)
    # [length, heads, head] in memory, as projections leave them
    q, k, v, cotangent = (torch.randn(1, LENGTH, HEADS, HEAD).transpose(1, 2) for _ in range(4))
    inputs = [x.requires_grad_() for x in (q, k, v)]

    def step():
        return torch.autograd.grad(attend(*inputs), inputs, cotangent)

    step.output = lambda: attend(*inputs).detach()
    return step


def fastest_variant(torch, window):
    tried, steps, first = {}, {}, None
    for name, attend in variants(torch, window).items():
        try:
            step = build_peer(torch, attend)
            output = step.output()
            first = output if first is None else first
            if (output - first).abs().max() > 1e-4:
                sys.exit(f"the peer's variant {name} gives other numbers than the first")
            tried[name], steps[name] = min(common.times(step, 2)), step
        except RuntimeError as e:  # this build of PyTorch lacks it
            log(f"  {name}: not available ({str(e).splitlines()[0]})")
            continue
        log(f"  {name}: {tried[name] * 1e3:.1f} ms")
    if not tried:
        sys.exit("no variant of the peer runs here")
    best = min(tried, key=tried.get)
    return best, steps[best], tried


# ---- the comparison


def braid_round(args, name):
    command = [str(args.braid), "bench", "kernels", "--only", braid_case(name), "--threads", str(args.threads), "--json"]
    for row in common.braid_rows(command):
        if row.get("case") == braid_case(name):  # --only also finds longer names
            return row["seconds"]
    sys.exit(f"{' '.join(command)}\nprinted no case {braid_case(name)}")


def summary(seconds):
    return {"seconds": statistics.median(seconds), "spread": common.spread(seconds), "rounds": seconds}


def main():
    p = common.parser(__doc__, rounds=3)
    p.add_argument("--steps", type=int, default=5, help="PyTorch runs per round, after one that is not timed")
    p.add_argument("--case", choices=CASES, action="append", help="only this one; may be repeated")
    args = p.parse_args()
    common.positive(p, args, "threads", "rounds", "steps")
    torch, load = common.start(args)

    results = {}
    for name in args.case or CASES:
        log(f"{name}: choosing the peer's fastest variant")
        variant, step, tried = fastest_variant(torch, CASES[name])
        peer, braid = [], []
        for i in range(args.rounds):
            peer.append(statistics.median(common.times(step, args.steps)))
            if not args.peer_only:
                braid.append(braid_round(args, name))
            log(f"round {i + 1}/{args.rounds}: torch {peer[-1] * 1e3:.1f} ms"
                + (f", braid {braid[-1] * 1e3:.1f} ms" if braid else ""))
        results[name] = {"torch": summary(peer) | {"variant": variant, "tried_seconds": tried}}
        if braid:
            results[name]["braid"] = summary(braid) | {"case": braid_case(name)}
            results[name]["ratio"] = results[name]["torch"]["seconds"] / results[name]["braid"]["seconds"]

    if args.json:
        print(json.dumps({"shape": {"batch": 1, "length": LENGTH, "heads": HEADS, "head": HEAD},
                          "threads": args.threads, "load_before": load, "cases": results,
                          "torch": {"version": torch.__version__, "isa": torch.backends.cpu.get_cpu_capability(),
                                    "environment": common.peer_environment(args.threads)}}))
        return
    print(f"\nattention forward + backward, B=1 T={LENGTH} H={HEADS} d={HEAD}, {args.threads} threads, "
          f"torch {torch.__version__}\n\n{'':12}{'torch ms':>10}{'braid ms':>10}{'ratio':>8}  torch's variant")
    for name, r in results.items():
        mine = f"{r['braid']['seconds'] * 1e3:10.1f}{r['ratio']:8.2f}" if "braid" in r else " " * 18
        print(f"{name:12}{r['torch']['seconds'] * 1e3:10.1f}{mine}  {r['torch']['variant']}")


if __name__ == "__main__":
    main()
