#!/usr/bin/env python3
"""Whole optimiser steps of Gated DeltaNet: PyTorch eager against Braid, in alternating rounds.

    bench/peers/train_gdn.py                     10M parameters, 4 sequences of 2048 tokens, f32
    bench/peers/train_gdn.py --precision bf16    the same with bf16 products on both sides
    bench/peers/train_gdn.py --quick             1M parameters, 2 sequences of 512 tokens
    bench/peers/train_gdn.py --json              one JSON object on stdout

The peer is the same model from plain PyTorch calls, with the chunk form of the delta rule that transformers runs on CPUs
(fast_weight.py), in the faster of its two versions. Before anything is timed Braid trains one step and PyTorch
computes the loss and the gradient of every parameter from the same weights and tokens: they must agree.
"""
import json
import math
import random
import statistics
import subprocess
import sys
import tempfile

import common
from common import log
from fast_weight import CHUNK, chunked

CHECK_LENGTH, CHECK_SIZE = 2 * CHUNK, "tiny"


def parse_args():
    p = common.parser(__doc__, rounds=3)
    p.add_argument("--size", default="10M", help="a size that `braid archs` prints")
    p.add_argument("--batch", type=int, default=4, help="sequences per step")
    p.add_argument("--length", type=int, default=2048, help=f"tokens per sequence, a multiple of {CHUNK}")
    p.add_argument("--precision", choices=["f32", "bf16"], default="f32")
    p.add_argument("--quick", action="store_true", help="--size 1M --batch 2 --length 512 --rounds 2")
    a = p.parse_args()
    if a.quick:
        a.size, a.batch, a.length, a.rounds = "1M", 2, 512, 2
    common.positive(p, a, "batch", "length", "threads", "rounds")
    if a.length % CHUNK:
        p.error(f"--length must be a multiple of {CHUNK}")
    return a


# ---- a folder with a model


def read_weights(torch, path):
    """The tensors of a safetensors file: 8 bytes of header length, a JSON header, the numbers."""
    raw = path.read_bytes()
    size = int.from_bytes(raw[:8], "little")
    weights = {}
    for name, entry in json.loads(raw[8:8 + size]).items():
        if name != "__metadata__":
            begin, end = (8 + size + at for at in entry["data_offsets"])
            assert entry["dtype"] == "F32"
            weights[name] = torch.frombuffer(bytearray(raw[begin:end]), dtype=torch.float32).reshape(entry["shape"])
    return weights


def train_once(args, folder, text, length, size, lr):
    """One step of Braid on the only sequence that the text has; returns the first line of its metrics. With eps = 1
    and no averages AdamW moves a weight by lr g / (|g| + 1), from which g follows."""
    command = [str(args.braid), "train", "--arch", "gated-deltanet", "--size", size, "--text", str(text),
               "--length", str(length), "--batch", "1", "--steps", "1", "--lr", str(lr), "--eps", "1", "--beta1", "0",
               "--beta2", "0", "--weight-decay", "0", "--clip", "0", "--warmup", "0", "--schedule", "constant",
               "--threads", str(args.threads), "--run", str(folder), "--quiet"]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"{' '.join(command)}\nfailed:\n{done.stderr.strip()}")
    return json.loads((folder / "metrics.jsonl").read_text().splitlines()[0])


# ---- the peer


class Peer:
    """The model of a config and its weights, which are leaves of the graph under Braid's names."""

    def __init__(self, torch, config, weights, inverse):
        self.torch, self.w, self.inverse = torch, weights, inverse
        self.layers, self.eps = config["n_layers"], config["norm_eps"]
        self.heads = config["pattern"][0]["mixer"]["heads"]
        self.dim = config["d_model"] // self.heads
        for w in weights.values():
            w.requires_grad_()

    def norm(self, x, name, width=None):
        w = self.w[name]
        return self.torch.nn.functional.rms_norm(x, (width or x.shape[-1],), w, self.eps)

    def mixer(self, x, at):
        torch, F, w = self.torch, self.torch.nn.functional, self.w
        linear = lambda name: F.linear(x, w[f"{at}{name}_proj.weight"])  # noqa: E731
        b, t, _ = x.shape
        split = lambda y: y.unflatten(-1, (self.heads, -1)).transpose(1, 2).flatten(0, 1)  # noqa: E731
        qkv = torch.cat([linear("q"), linear("k"), linear("v")], -1).transpose(1, 2)
        taps = w[at + "conv1d.weight"]
        qkv = F.conv1d(qkv, taps[:, None], padding=taps.shape[1] - 1, groups=len(taps))[..., :t]
        q, k, v = (split(y) for y in F.silu(qkv).transpose(1, 2).chunk(3, -1))
        g = -w[at + "A_log"].exp() * F.softplus(linear("a").float() + w[at + "dt_bias"])
        beta = linear("b").float().sigmoid()
        with torch.autocast("cpu", enabled=False):  # in f32, as transformers does
            q, k, v = q.float(), k.float(), v.float()
            q, k = (y * torch.rsqrt(y.square().sum(-1, keepdim=True) + 1e-6) for y in (q, k))
            o = chunked(torch, q * self.dim**-0.5, k, v, *(y.transpose(1, 2).flatten(0, 1) for y in (g, beta)),
                        self.inverse)
        o = o.unflatten(0, (b, self.heads)).transpose(1, 2)
        o = self.norm(o, at + "o_norm.weight").flatten(2) * F.silu(linear("g"))
        return F.linear(o, w[at + "o_proj.weight"])

    def loss(self, tokens, targets):
        F, w = self.torch.nn.functional, self.w
        x = F.embedding(tokens, w["embedding.weight"])
        for i in range(self.layers):
            at = f"layers.{i}."
            x = x + self.mixer(self.norm(x, at + "mixer_norm.weight"), at + "mixer.")
            y = self.norm(x, at + "mlp_norm.weight")
            gate, up = (F.linear(y, w[f"{at}mlp.{name}_proj.weight"]) for name in ("gate", "up"))
            x = x + F.linear(F.silu(gate) * up, w[at + "mlp.down_proj.weight"])
        logits = F.linear(self.norm(x, "final_norm.weight"), w["head.weight"])
        return F.cross_entropy(logits.flatten(0, 1), targets.flatten())


def check(torch, args, folder):
    """Loss and gradients of both versions of the peer against Braid's."""
    text = folder / "text"
    text.write_bytes(random.Random(0).randbytes(2 * (CHECK_LENGTH + 1)))  # one sequence to train on, one held out
    train_once(args, folder / "start", text, CHECK_LENGTH, CHECK_SIZE, 0)
    lr = 1000.0
    line = train_once(args, folder / "moved", text, CHECK_LENGTH, CHECK_SIZE, lr)
    config = json.loads((folder / "start" / "config.json").read_text())
    moved = read_weights(torch, folder / "moved" / "model.safetensors")
    data = torch.tensor(list(text.read_bytes()[:CHECK_LENGTH + 1]))[None]
    worst = 0.0
    for inverse in ("rows", "solve"):
        weights = read_weights(torch, folder / "start" / "model.safetensors")
        peer = Peer(torch, config, weights, inverse)
        loss = peer.loss(data[:, :-1], data[:, 1:])
        loss.backward()
        if not abs(loss.item() - line["loss"]) < 1e-4 * line["loss"]:
            sys.exit(f"the losses differ: torch {loss.item():.6f}, braid {line['loss']:.6f}; not timed")
        for name, start in weights.items():
            step = (start.detach() - moved[name]).double() / lr  # g / (|g| + 1)
            g = step / (1 - step.abs())
            error = ((g - start.grad).norm() / start.grad.norm()).item()
            worst = max(worst, error)
            if not error < 1e-3:
                sys.exit(f"the gradients of {name} differ by {error:.2g} of their norm; not timed")
    log(f"losses agree, gradients of {len(weights)} parameters to {worst:.1g} of their norms or better")
    return worst


def build_step(torch, args, config, weights, inverse):
    peer = Peer(torch, config, weights, inverse)
    params = list(weights.values())
    optimizer = torch.optim.AdamW(params, lr=1e-4, weight_decay=0.1, fused=True)
    data = torch.randint(config["vocab_size"], (args.batch, args.length + 1))
    tokens, targets = data[:, :-1].contiguous(), data[:, 1:].contiguous()

    def step():
        optimizer.zero_grad()
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=args.precision == "bf16"):
            loss = peer.loss(tokens, targets)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(params, 1.0, foreach=True)
        optimizer.step()
        if not math.isfinite(loss.item()):
            sys.exit("the peer's loss is not finite: its time would mean nothing")

    return step


# ---- the comparison


def main():
    args = parse_args()
    torch, load = common.start(args)
    if args.peer_only:
        sys.exit("the peer takes its weights from Braid and is compared with it: --peer-only cannot be used here")
    torch.manual_seed(0)
    with tempfile.TemporaryDirectory() as temporary:
        folder = common.pathlib.Path(temporary)
        agreement = check(torch, args, folder)
        # A model of the size that is timed.
        text = folder / "long"
        text.write_bytes(random.Random(1).randbytes(2 * (CHUNK + 1)))
        train_once(args, folder / "size", text, CHUNK, args.size, 0)
        config = json.loads((folder / "size" / "config.json").read_text())
        weights = read_weights(torch, folder / "size" / "model.safetensors")

    seconds = {}
    for inverse in ("rows", "solve"):
        seconds[inverse] = min(common.times(build_step(torch, args, config, weights, inverse), 1))
        log(f"  {inverse}: {seconds[inverse] * 1e3:.0f} ms per step")
    inverse = min(seconds, key=seconds.get)
    step = build_step(torch, args, config, weights, inverse)

    command = [str(args.braid), "bench", "train", "--arch", "gated-deltanet", "--size", args.size, "--length",
               str(args.length), "--batch", str(args.batch), "--precision", args.precision, "--threads",
               str(args.threads), "--rounds", "3", "--json"]
    peer, braid, shares = [], [], []
    for i in range(args.rounds):
        peer += common.times(step, 1)
        row = common.braid_rows(command)[-1]
        braid.append(row["seconds"])
        shares.append(row["share_of_peak"])
        log(f"round {i + 1}/{args.rounds}: torch {peer[-1] * 1e3:.0f} ms, braid {braid[-1] * 1e3:.0f} ms")

    tokens = args.batch * args.length
    side = lambda times: {"seconds": statistics.median(times), "spread": common.spread(times),  # noqa: E731
                          "tokens_per_second": tokens / statistics.median(times)}
    result = {"arch": "gated-deltanet", "size": args.size, "parameters": sum(w.numel() for w in weights.values()),
              "batch": args.batch, "length": args.length, "precision": args.precision, "threads": args.threads,
              "load_before": load, "gradient_difference": agreement,
              "torch": side(peer) | {"version": torch.__version__, "inverse": inverse, "tried_seconds": seconds},
              "braid": side(braid) | {"share_of_peak": statistics.median(shares), "command": command}}
    result["ratio"] = result["torch"]["seconds"] / result["braid"]["seconds"]
    if args.json:
        print(json.dumps(result))
        return
    print(f"\nGated DeltaNet, {result['parameters']:,} parameters, {args.batch} x {args.length} tokens, {args.precision}, "
          f"{args.threads} threads; torch {torch.__version__}, inverse by {inverse}")
    print(f"\n{'':8}{'tokens/s':>12}{'ms/step':>10}{'spread':>9}")
    for name in ("torch", "braid"):
        r = result[name]
        print(f"{name:8}{r['tokens_per_second']:12,.0f}{r['seconds'] * 1e3:10.1f}{r['spread']:9.1%}")
    print(f"\nbraid / torch: {result['ratio']:.2f} x (medians of {args.rounds} alternating rounds), "
          f"{100 * result['braid']['share_of_peak']:.0f} % of FMA peak")


if __name__ == "__main__":
    main()
