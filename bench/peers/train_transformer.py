#!/usr/bin/env python3
"""Whole optimiser steps of a small Transformer: PyTorch eager against Braid, in alternating rounds.

    bench/peers/train_transformer.py                 both, default sizes
    bench/peers/train_transformer.py --peer-only     PyTorch alone
    bench/peers/train_transformer.py --json          one JSON object on stdout

The first run makes a virtual environment from requirements.txt. Both sides train the same model on random
tokens: embedding; per layer RMSNorm, causal attention with rotary positions, RMSNorm, SwiGLU; RMSNorm, head.
PyTorch gets the fastest of its own ways to do this, found by measuring before the rounds start.
"""
import dataclasses
import json
import math
import statistics
import sys

import common
from common import log


def parse_args():
    p = common.parser(__doc__, rounds=5)
    p.add_argument("--d-model", type=int, default=128)
    p.add_argument("--layers", type=int, default=2)
    p.add_argument("--heads", type=int, default=4)
    p.add_argument("--d-ff", type=int, default=0, help="width of SwiGLU; default 8/3 d-model, up to a multiple of 256")
    p.add_argument("--vocab", type=int, default=256)
    p.add_argument("--batch", type=int, default=1024, help="sequences per step")
    p.add_argument("--length", type=int, default=40, help="tokens per sequence")
    p.add_argument("--precision", choices=["f32", "bf16"], default="f32")
    p.add_argument("--steps", type=int, default=3, help="PyTorch steps per round, after one that is not timed")
    a = p.parse_args()
    common.positive(p, a, "d_model", "layers", "heads", "vocab", "batch", "length", "threads", "rounds", "steps")
    if a.d_model % (2 * a.heads):
        p.error(f"--d-model {a.d_model} must be a multiple of 2 x --heads {a.heads}: rotary positions need pairs")
    a.d_ff = a.d_ff or math.ceil(8 * a.d_model / 3 / 256) * 256
    return a


# ---- the peer


@dataclasses.dataclass(frozen=True)
class Variant:
    """Equal maths, different calls."""

    attention: str = "flash"  # flash, math (both scaled_dot_product_attention) or manual
    norm: str = "fused"  # fused (F.rms_norm) or manual
    projections: str = "separate"  # separate or joined (q k v in one product, gate up in one)
    optimizer: str = "fused"  # fused or foreach


CHOICES = {
    "attention": ["flash", "math", "manual"],
    "norm": ["fused", "manual"],
    "projections": ["separate", "joined"],
    "optimizer": ["fused", "foreach"],
}


def build_peer(args, variant):
    """Returns a function that runs one optimiser step."""
    import torch
    import torch.nn.functional as F
    from torch import nn
    from torch.nn.attention import SDPBackend, sdpa_kernel

    torch.manual_seed(0)
    d, heads, length = args.d_model, args.heads, args.length
    head = d // heads
    eps = 1e-6

    angle = torch.outer(torch.arange(length).float(), 10000.0 ** (-torch.arange(0, head, 2).float() / head))
    cos, sin = angle.cos(), angle.sin()
    mask = torch.ones(length, length, dtype=torch.bool).triu(1)

    def rope(x):  # pairs (i, i + head / 2)
        a, b = x.chunk(2, dim=-1)
        c, s = cos.to(x.dtype), sin.to(x.dtype)
        return torch.cat([a * c - b * s, b * c + a * s], dim=-1)

    class RmsNorm(nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = nn.Parameter(torch.ones(d))

        def forward(self, x):
            if variant.norm == "fused":
                return F.rms_norm(x, (d,), self.weight, eps)
            return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + eps) * self.weight

    class Products(nn.Module):
        """Several products with one input."""

        def __init__(self, inputs, outputs):
            super().__init__()
            self.outputs = outputs
            widths = [sum(outputs)] if variant.projections == "joined" else outputs
            self.parts = nn.ModuleList(nn.Linear(inputs, w, bias=False) for w in widths)

        def forward(self, x):
            if variant.projections == "joined":
                return self.parts[0](x).split(self.outputs, dim=-1)
            return [part(x) for part in self.parts]

    backend = {"flash": SDPBackend.FLASH_ATTENTION, "math": SDPBackend.MATH}.get(variant.attention)

    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.norm1, self.norm2 = RmsNorm(), RmsNorm()
            self.qkv, self.o = Products(d, [d, d, d]), nn.Linear(d, d, bias=False)
            self.gate_up, self.down = Products(d, [args.d_ff, args.d_ff]), nn.Linear(args.d_ff, d, bias=False)

        def forward(self, x):
            q, k, v = (t.unflatten(-1, (heads, head)).transpose(1, 2) for t in self.qkv(self.norm1(x)))
            q, k = rope(q), rope(k)
            if backend is not None:
                with sdpa_kernel(backend):
                    y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
            else:
                scores = (q @ k.transpose(-1, -2) * head**-0.5).masked_fill(mask, -math.inf)
                y = scores.softmax(-1) @ v
            x = x + self.o(y.transpose(1, 2).flatten(2))
            gate, up = self.gate_up(self.norm2(x))
            return x + self.down(F.silu(gate) * up)

    class Transformer(nn.Module):
        def __init__(self):
            super().__init__()
            self.embed = nn.Embedding(args.vocab, d)
            self.blocks = nn.ModuleList(Block() for _ in range(args.layers))
            self.norm, self.head = RmsNorm(), nn.Linear(d, args.vocab, bias=False)
            for p in self.parameters():
                if p.dim() == 2:
                    nn.init.normal_(p, std=0.02)

        def forward(self, tokens):
            x = self.embed(tokens)
            for block in self.blocks:
                x = block(x)
            return self.head(self.norm(x))

    model = Transformer()
    params = list(model.parameters())
    optimizer = torch.optim.AdamW(params, lr=1e-3, weight_decay=0.1, **{variant.optimizer: True})
    data = torch.randint(args.vocab, (args.batch, length + 1))
    tokens, targets = data[:, :-1].contiguous(), data[:, 1:].reshape(-1)

    def step():
        optimizer.zero_grad()
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=args.precision == "bf16"):
            loss = F.cross_entropy(model(tokens).flatten(0, 1), targets)
        loss.backward()
        nn.utils.clip_grad_norm_(params, 1.0, foreach=True)
        optimizer.step()
        if not math.isfinite(loss.item()):
            sys.exit("the peer's loss is not finite: its time would mean nothing")

    step.parameters = sum(p.numel() for p in params)
    return step


def fastest_variant(args):
    """Tries one choice after the other, keeping the best so far; the minimum, as noise only adds."""
    best, best_seconds, tried = Variant(), None, {}
    for name, values in CHOICES.items():
        for value in values:
            variant = dataclasses.replace(best, **{name: value})
            if variant in tried:
                continue
            try:
                tried[variant] = min(common.times(build_peer(args, variant), 3))
            except RuntimeError as e:  # this build of PyTorch lacks it
                log(f"  {name}={value}: not available ({str(e).splitlines()[0]})")
                continue
            log(f"  {name}={value}: {tried[variant] * 1e3:.0f} ms per step")
        if not tried:
            sys.exit("no variant of the peer runs here")
        best = min(tried, key=tried.get)
    return best, {" ".join(dataclasses.astuple(v)): s for v, s in tried.items()}


# ---- Braid


def braid_command(args):
    return [str(args.braid), "bench", "train", "--arch", "transformer", "--json",
            *(x for name in ("d_model", "layers", "heads", "d_ff", "vocab", "batch", "length", "threads", "precision")
              for x in ("--" + name.replace("_", "-"), str(getattr(args, name))))]


def braid_round(args):
    """Median seconds per step and tokens per second, measured by Braid itself."""
    rows = [row for row in common.braid_rows(braid_command(args)) if "tokens_per_second" in row]
    if not rows:
        sys.exit(f"{' '.join(braid_command(args))}\nprinted no object with tokens_per_second")
    return rows[-1]["seconds"], rows[-1]["tokens_per_second"]


# ---- the comparison


def summary(rounds):
    """rounds: (seconds per step, tokens per second) of each."""
    seconds, rate = [r[0] for r in rounds], [r[1] for r in rounds]
    middle = statistics.median(rate)
    return {"tokens_per_second": middle, "seconds": statistics.median(seconds),
            "spread": common.spread(rate), "rounds": rate}


def main():
    args = parse_args()
    torch, load = common.start(args)
    log("choosing the peer's fastest variant")
    variant, tried = fastest_variant(args)
    step = build_peer(args, variant)
    per_step = args.batch * args.length

    peer, braid = [], []
    for i in range(args.rounds):
        seconds = statistics.median(common.times(step, args.steps))
        peer.append((seconds, per_step / seconds))
        if not args.peer_only:
            braid.append(braid_round(args))
        log(f"round {i + 1}/{args.rounds}: torch {peer[-1][1]:,.0f} tokens/s"
            + (f", braid {braid[-1][1]:,.0f} tokens/s" if braid else ""))

    model = {k: getattr(args, k) for k in ("d_model", "layers", "heads", "d_ff", "vocab", "batch", "length",
                                           "threads", "precision")}
    result = {"model": model, "parameters": step.parameters, "load_before": load,
              "torch": summary(peer) | {"version": torch.__version__, "variant": dataclasses.asdict(variant),
                                        "tried_seconds": tried, "isa": torch.backends.cpu.get_cpu_capability(),
                                        "environment": common.peer_environment(args.threads)}}
    if braid:
        result["braid"] = summary(braid) | {"command": braid_command(args)}
        result["ratio"] = result["braid"]["tokens_per_second"] / result["torch"]["tokens_per_second"]
    if args.json:
        print(json.dumps(result))
        return

    print(f"\nTransformer, {step.parameters:,} parameters: " + " ".join(f"{k}={v}" for k, v in model.items()))
    print(f"torch {torch.__version__}: " + " ".join(f"{k}={v}" for k, v in dataclasses.asdict(variant).items()))
    print(f"\n{'':8}{'tokens/s':>12}{'ms/step':>10}{'spread':>9}")
    for name in ("torch", "braid"):
        if name in result:
            r = result[name]
            print(f"{name:8}{r['tokens_per_second']:12,.0f}{r['seconds'] * 1e3:10.1f}{r['spread']:9.1%}")
    if braid:
        print(f"\nbraid / torch: {result['ratio']:.2f} x (medians of {args.rounds} alternating rounds)")


if __name__ == "__main__":
    main()
