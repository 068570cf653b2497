#!/usr/bin/env python3
"""`braid op` against plain recurrences in PyTorch: float64, gradients by autograd, random inputs.

    bench/peers/op_check.py                    every op that this build of Braid has
    bench/peers/op_check.py --op fast_weight   one of them
    bench/peers/op_check.py --cases 100        more random shapes, lengths and optional tensors per op

Every output and every gradient of every form is compared, relative to the rms of what PyTorch gives. The first
run makes a virtual environment from requirements.txt.
"""
import argparse
import json
import math
import os
import pathlib
import random
import struct
import subprocess
import sys
import tempfile

import common as setup

LIMIT = {"out": 1e-5, "grad": 5e-5}  # rms, as in src/kernels/common/compare.h


def parse_args():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--op", choices=sorted(OPS), help="only this op")
    p.add_argument("--cases", type=int, default=25, help="random cases per op")
    p.add_argument("--seed", type=int, default=0)
    p.add_argument("--threads", type=int, default=2)
    p.add_argument("--braid", type=pathlib.Path, default=setup.HERE.parent.parent / "build" / "braid")
    return p.parse_args()


# ---- files, in a few lines rather than with a library


def save(path, tensors):
    import torch

    header, blobs, at = {}, [], 0
    for name, t in tensors.items():
        blob = t.contiguous().numpy().tobytes()
        dtype = {torch.float32: "F32", torch.int32: "I32"}[t.dtype]
        header[name] = {"dtype": dtype, "shape": list(t.shape), "data_offsets": [at, at + len(blob)]}
        blobs.append(blob)
        at += len(blob)
    head = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(head)) + head + b"".join(blobs))


def load(path):
    import numpy
    import torch

    raw = path.read_bytes()
    size = struct.unpack("<Q", raw[:8])[0]
    data = raw[8 + size:]
    out = {}
    for name, e in json.loads(raw[8:8 + size]).items():
        begin, end = e["data_offsets"]
        out[name] = torch.from_numpy(numpy.frombuffer(data[begin:end], dtype="<f4").reshape(e["shape"]).copy())
    return out


# ---- the ops: random inputs, and the plainest way to compute them. Each reference sees one sequence at a time,
# cut to its length.


class Case:
    """Tensors and settings of one call, and the reference as a function of float64 tensors of one sequence."""

    def __init__(self, rng):
        self.rng = rng
        self.B, self.T = rng.randint(1, 3), rng.randint(1, 40)
        ragged = rng.random() < 0.5
        self.lengths = [rng.randint(0, self.T) if ragged else self.T for _ in range(self.B)]
        self.tensors, self.settings, self.kind, self.cotangents = {}, {}, {}, {}

    def randn(self, *shape, scale=1.0):
        import torch

        g = torch.Generator().manual_seed(self.rng.getrandbits(48))
        return torch.randn(*shape, generator=g, dtype=torch.float64) * scale

    def tokens(self, name, *rest, scale=1.0, f=lambda x: x):
        self.tensors[name], self.kind[name] = f(self.randn(self.B, self.T, *rest, scale=scale)), "tokens"

    def state(self, name, *rest):
        self.tensors[name], self.kind[name] = self.randn(self.B, *rest), "state"

    def shared(self, name, *shape, f=lambda x: x):
        self.tensors[name], self.kind[name] = f(self.randn(*shape)), "shared"

    def maybe(self):
        return self.rng.random() < 0.5


def fast_weight(c):
    import torch

    Hk = c.rng.choice([1, 2, 3])
    Hv, dk, dv = Hk * c.rng.choice([1, 2]), c.rng.randint(1, 40), c.rng.randint(1, 70)
    norm, decay = c.maybe(), c.rng.choice(["none", "head", "token", "channel"])
    c.tokens("q", Hk, dk), c.tokens("k", Hk, dk, scale=1 if norm else 0.5 / math.sqrt(dk)), c.tokens("v", Hv, dv)
    minus = lambda x: -0.3 * x.abs()
    if decay == "head":
        c.shared("g", Hv, f=minus)
    if decay == "token":
        c.tokens("g", Hv, f=minus)
    if decay == "channel":
        c.tokens("g", Hv, dk, f=minus)
    if c.maybe():
        c.tokens("beta", Hv, f=lambda x: 2 * x.sigmoid())
    if c.maybe():
        c.state("S0", Hv, dk, dv)
    if norm:
        c.settings["l2norm"] = "1"
    if c.maybe():
        c.settings["scale"] = "0.25"
    scale = float(c.settings.get("scale", dk**-0.5))
    c.cotangents = {"o": True, "S": c.maybe()}

    def run(x):
        q, k, v = x["q"], x["k"], x["v"]
        if norm:
            q, k = (t / (t.square().sum(-1, keepdim=True) + 1e-6).sqrt() for t in (q, k))
        q, k = (t.repeat_interleave(Hv // Hk, dim=1) for t in (q, k))
        S = x.get("S0", torch.zeros(Hv, dk, dv, dtype=torch.float64))
        o = []
        for t in range(len(q)):
            if decay != "none":
                g = x["g"] if decay == "head" else x["g"][t]
                S = S * (g.exp()[:, :, None] if decay == "channel" else g.exp()[:, None, None])
            u = v[t]
            if "beta" in x:
                u = x["beta"][t][:, None] * (u - torch.einsum("hkv,hk->hv", S, k[t]))
            S = S + k[t][:, :, None] * u[:, None, :]
            o.append(scale * torch.einsum("hkv,hk->hv", S, q[t]))
        return {"o": torch.stack(o) if o else v.new_zeros(0, Hv, dv), "S": S}

    return run


def attention(c):
    import torch

    Hkv = c.rng.choice([1, 2])
    H, d, window = Hkv * c.rng.choice([1, 3]), c.rng.randint(1, 70), c.rng.choice([0, 0, 1, 5])
    c.tokens("q", H, d), c.tokens("k", Hkv, d), c.tokens("v", Hkv, d)
    if window:
        c.settings["window"] = str(window)
    if c.maybe():
        c.settings["scale"] = "0.3"
    scale = float(c.settings.get("scale", d**-0.5))
    c.cotangents = {"o": True}

    def run(x):
        q, (k, v) = x["q"], (x[n].repeat_interleave(H // Hkv, dim=1) for n in "kv")
        i = torch.arange(len(q))
        hidden = i[:, None] < i[None, :]
        if window:
            hidden |= i[:, None] - i[None, :] >= window
        p = (scale * torch.einsum("ihd,jhd->hij", q, k)).masked_fill(hidden, -math.inf).softmax(-1)
        return {"o": torch.einsum("hij,jhd->ihd", p, v)}

    return run


def delta_former(c):
    """Not kappa round: float32 and float64 round a score that is almost a tie to different neighbours."""
    import torch

    H, d = c.rng.choice([1, 2, 3]), c.rng.randint(1, 70)
    kappa1 = c.rng.choice(["softmax", "linear", "relu", "exp"])
    kappa2 = c.rng.choice(["softmax", "linear", "kappa1"])
    similarity = c.rng.choice(["kk", "qk"])
    c.tokens("q", H, d, scale=d**-0.5), c.tokens("k", H, d, scale=d**-0.5), c.tokens("v", H, d)
    if c.maybe():
        c.tokens("a", H)
    c.tokens("b", H, f=lambda x: 0.3 * x.sigmoid())
    c.settings |= {"kappa1": kappa1, "kappa2": kappa2, "similarity": similarity}
    c.cotangents = {"o": True}

    def weights(name, k, w):
        """Of every earlier row of k [i, H, d] for one w [H, d]."""
        s = torch.einsum("ihd,hd->hi", k, w)
        if name == "softmax":
            return (s * d**-0.5).softmax(-1) if len(k) else s
        return {"linear": lambda x: x, "relu": torch.relu, "exp": torch.exp}[name](s)

    def run(x):
        q, k, v, u, o = x["q"], x["k"], x["v"], [], []
        for t in range(len(q)):
            p = weights(kappa1, k[:t], (k if similarity == "kk" else q)[t])
            m = torch.einsum("hi,ihd->hd", p, torch.stack(u)) if u else torch.zeros_like(v[t])
            u.append((x["a"][t][:, None] if "a" in x else 1.0) * v[t] - x["b"][t][:, None] * m)
            p = weights(kappa1 if kappa2 == "kappa1" else kappa2, k[:t + 1], q[t])
            o.append(torch.einsum("hi,ihd->hd", p, torch.stack(u)))
        empty = v.new_zeros(0, H, d)
        return {"o": torch.stack(o) if o else empty, "u": torch.stack(u) if u else empty}

    return run


def selective_scan(c):
    import torch

    D, N = c.rng.randint(1, 90), c.rng.choice([1, 4, 16, 64])
    c.tokens("x", D), c.tokens("dt", D, f=lambda x: 0.2 * x.exp()), c.shared("A", D, N, f=lambda x: -x.exp())
    c.tokens("Bm", N), c.tokens("Cm", N), c.shared("Dskip", D)
    if c.maybe():
        c.state("h0", D, N)
    c.cotangents = {"y": True}

    def run(x):
        h, y = x.get("h0", torch.zeros(D, N, dtype=torch.float64)), []
        for t in range(len(x["x"])):
            dt, u = x["dt"][t][:, None], x["x"][t][:, None]
            h = (dt * x["A"]).exp() * h + dt * x["Bm"][t] * u
            y.append(h @ x["Cm"][t] + x["Dskip"] * x["x"][t])
        return {"y": torch.stack(y) if y else x["x"].new_zeros(0, D), "h": h}

    return run


def short_conv(c):
    import torch

    D, W = c.rng.randint(1, 90), c.rng.randint(2, 8)
    c.tokens("x", D), c.shared("w", D, W)
    if c.maybe():
        c.state("state", D, W - 1)
    silu = c.maybe()
    if silu:
        c.settings["silu"] = "1"
    c.cotangents = {"y": True}

    def run(x):
        before = x["state"].T if "state" in x else torch.zeros(W - 1, D, dtype=torch.float64)
        e = torch.cat([before, x["x"]])
        n = len(x["x"])
        z = sum((e[j:j + n] * x["w"][:, j] for j in range(W)), torch.zeros(n, D, dtype=torch.float64))
        return {"y": torch.nn.functional.silu(z) if silu else z, "state": e[n:].T}

    return run


# The gradient of a state is asked for even where none is given: it starts as zeros.
OPS = {"fast_weight": (fast_weight, {"S0": "S"}), "attention": (attention, {}), "delta_former": (delta_former, {}),
       "selective_scan": (selective_scan, {"h0": "h"}), "short_conv": (short_conv, {"state": "state"})}


# ---- the comparison


def expected(c, run, states):
    """Outputs and gradients of the whole batch, padded with zeros."""
    import torch

    # Inputs as Braid sees them: rounded to float32.
    leaves = {n: t.float().double().requires_grad_() for n, t in c.tensors.items()}
    probe = run({n: (t if c.kind[n] == "shared" else t[0]) for n, t in leaves.items()})
    for name, of in states.items():
        if name not in leaves:
            c.kind[name] = "state"
            leaves[name] = torch.zeros(c.B, *probe[of].shape, dtype=torch.float64, requires_grad=True)
    outs, loss, ups = {}, 0.0, {}
    for s, n in enumerate(c.lengths):
        one = run({k: t if c.kind[k] == "shared" else t[s] if c.kind[k] == "state" else t[s, :n] for k, t in leaves.items()})
        for name, value in one.items():
            tokens = name in ("o", "u", "y")
            if name not in outs:
                shape = (c.B, c.T, *value.shape[1:]) if tokens else (c.B, *value.shape)
                outs[name] = torch.zeros(shape, dtype=torch.float64)
                if c.cotangents.get(name):
                    ups[name] = c.randn(*shape).float().double()
            place = (s, slice(0, n)) if tokens else s
            outs[name][place] = value.detach()
            if name in ups:
                loss = loss + (value * ups[name][place]).sum()
    loss.backward()
    grads = {"d" + n: t.grad if t.grad is not None else torch.zeros_like(t) for n, t in leaves.items()}
    return outs, grads, {"d" + n: u for n, u in ups.items()}


def check(args, op, case, forms, folder):
    import torch

    build, states = OPS[op]
    c = Case(random.Random(f"{args.seed} {op} {case}"))
    outs, grads, ups = expected(c, build(c), states)
    tensors = {n: t.float() for n, t in {**c.tensors, **ups}.items()}
    for name, t in tensors.items():
        if c.kind.get(name, "tokens" if name in ("do", "dy") else "") == "tokens":
            for s, n in enumerate(c.lengths):
                t[s, n:] = math.nan  # padding must not be read
    if min(c.lengths) < c.T or c.maybe():
        tensors["lengths"] = torch.tensor(c.lengths, dtype=torch.int32)
    save(folder / "in", tensors)
    worst, wrong = 0.0, []
    for form, backward in forms:
        command = [str(args.braid), "op", op, "--in", str(folder / "in"), "--out", str(folder / "out"), "--form", form,
                   "--threads", str(args.threads), *(x for k, v in c.settings.items() for x in ("--set", f"{k}={v}")),
                   *(["--backward"] if backward else [])]
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode:
            sys.exit(f"{' '.join(command)}\n{done.stderr.strip()}")
        got, want = load(folder / "out"), {**outs, **(grads if backward else {})}
        if set(got) != set(want):
            sys.exit(f"{' '.join(command)}\nwrote {sorted(got)}, expected {sorted(want)}")
        for name, w in want.items():
            scale = w.square().mean().sqrt().item() or 1.0
            rms = (got[name].double() - w).square().mean().sqrt().item() / scale
            limit = LIMIT["grad" if name in grads and backward else "out"]
            worst = max(worst, rms)
            if not rms <= limit:
                wrong.append(f"{op} case {case}, {form}: {name} is off by {rms:.2e}")
    return worst, wrong


def main():
    args = parse_args()
    if not os.access(args.braid, os.X_OK):
        sys.exit(f"{args.braid} is missing: run `make` first")
    setup.enter(setup.peer_python())
    import torch

    torch.set_num_threads(args.threads)
    bad = 0
    with tempfile.TemporaryDirectory() as folder:
        for op in [args.op] if args.op else OPS:
            forms = forms_of(args, op)
            results = [check(args, op, i, forms, pathlib.Path(folder)) for i in range(args.cases)]
            wrong = [w for r in results for w in r[1]]
            bad += len(wrong)
            print(f"{op:16} {args.cases} cases, forms {' '.join(dict.fromkeys(f for f, _ in forms))}: "
                  f"{'ok' if not wrong else 'WRONG'}, worst rms {max(r[0] for r in results):.1e}", flush=True)
            print("".join(f"  {w}\n" for w in wrong[:20]), end="")
    sys.exit(bad > 0)


def forms_of(args, op):
    """(form, with backward?) of this build, from the op's help."""
    text = subprocess.run([str(args.braid), "op", op, "--help"], capture_output=True, text=True, check=True).stdout
    lines = text.split("\nForms:\n")[1].split("\n\n")[0].splitlines()
    return [(line.split()[0], with_backward) for line in lines
            for with_backward in ([False] if "no backward" in line else [False, True])]


if __name__ == "__main__":
    main()
