#!/usr/bin/env python3
"""Braid's models in Hugging Face transformers and fla, and theirs in Braid: logits of every position compared.

    bench/peers/hf_check.py                  every family, both directions
    bench/peers/hf_check.py --only qwen      the cases with this in their name
    bench/peers/hf_check.py --json           one JSON object on stdout

out: `braid train` makes a tiny model, its numbers are shaken so that no norm is 1 and no bias 0, `braid convert --to hf`
writes it, transformers loads it (eager attention, its plain PyTorch forms) and computes it, whole and as a padded batch.
in: transformers makes a random model and saves it; Braid reads the folder as it is, whole and in pieces, and after
`braid convert --to braid`, which must give the same bits.

transformers computes in float32 and, with its own casts to float32 lifted, in float64. The float64 is the reference for
both: a Gated DeltaNet layer that answers with almost nothing is blown up by the norm after it, rounding included.

fla's kernels need a GPU. Its classes must load our files with all names and shapes, and the logits are compared with
a plain forward in float64 that is written here. The first run makes a virtual environment from requirements.txt.
"""
import argparse
import contextlib
import copy
import json
import math
import os
import pathlib
import subprocess
import sys
import tempfile

import common

LIMIT = 1e-5  # rms of the difference over rms of the reference, as in src/kernels/common/compare.h
LENGTHS = [1, 7, 64, 130]
BATCH = [5, 64, 33]
PIECES = "5,1,9,1,1,40"
VOCAB = 256

NO_MLP = 'pattern.*.mlp={"type":"none"}'
OUT = [  # name, class, arch, settings, options of convert
    ("llama", "LlamaForCausalLM", "transformer", [], []),
    ("llama, grouped, tied", "LlamaForCausalLM", "transformer",
     ["pattern.0.mixer.kv_heads=2", "pattern.0.mixer.head_dim=24", "pattern.0.mixer.rope_theta=500", "tie_embeddings=true",
      "norm_eps=0.001"], []),
    ("llama, bf16", "LlamaForCausalLM", "transformer", [], ["--dtype", "bf16"]),
    ("mistral", "MistralForCausalLM", "transformer", ["pattern.0.mixer.window=16"], []),
    ("qwen3", "Qwen3ForCausalLM", "samba",
     ['pattern=[{"mixer":{"type":"attention","qk_norm":"head","window":20},"mlp":{"type":"swiglu","d_ff":96}},'
      '{"mixer":{"type":"attention","qk_norm":"head"},"mlp":{"type":"swiglu","d_ff":96}}]'], []),
    ("mamba2", "Mamba2ForCausalLM", "mamba2", [NO_MLP], []),
    ("mamba2, tied", "Mamba2ForCausalLM", "mamba2", [NO_MLP, "pattern.*.mixer.conv=3", "tie_embeddings=true"], []),
    ("delta_net", "DeltaNetForCausalLM", "deltanet", [], []),
    ("delta_net, switches", "DeltaNetForCausalLM", "deltanet",
     ["pattern.*.mixer.gate=silu", "pattern.*.mixer.negative_eigenvalues=true", "pattern.*.mixer.value_dim=24",
      "pattern.*.mixer.feature=elu1", "norm_eps=0.001"], []),
    ("delta_net, no conv", "DeltaNetForCausalLM", "deltanet", ["pattern.*.mixer.conv=0"], []),
    ("gated_deltanet", "GatedDeltaNetForCausalLM", "gated-deltanet", [], []),
    ("gated_deltanet, switches", "GatedDeltaNetForCausalLM", "gated-deltanet",
     ["pattern.*.mixer.key_heads=2", "pattern.*.mixer.value_dim=24", "pattern.*.mixer.negative_eigenvalues=true",
      "pattern.*.mixer.gate=sigmoid", "pattern.*.mixer.conv=3"], []),
    ("gated_deltanet with attention", "GatedDeltaNetForCausalLM", "gdn-h1", ["pattern.1.mixer.window=16"], []),
    ("qwen3_next", "Qwen3NextForCausalLM", "qwen3-next", [], []),
    ("qwen3_next, one MLP", "Qwen3NextForCausalLM", "qwen3.5", ["pattern.0.mixer.value_dim=24", "pattern.1.mixer.value_dim=24",
                                                                "pattern.2.mixer.value_dim=24"], ["--family", "qwen3_next"]),
    ("qwen3_5", "Qwen3_5ForCausalLM", "qwen3.5", [], ["--family", "qwen3_5_text"]),
    ("qwen3_5_moe", "Qwen3_5MoeForCausalLM", "qwen3-next", [], ["--family", "qwen3_5_moe_text"]),
    ("olmo_hybrid", "OlmoHybridForCausalLM", "olmo-hybrid", [], []),
    ("olmo_hybrid, rotated", "OlmoHybridForCausalLM", "olmo-hybrid",
     ["pattern.3.mixer.rope_theta=10000", "pattern.3.mixer.kv_heads=2", "pattern.0.mixer.negative_eigenvalues=false",
      "pattern.1.mixer.negative_eigenvalues=false", "pattern.2.mixer.negative_eigenvalues=false"], []),
]

SIZE = {"vocab_size": VOCAB, "hidden_size": 48, "num_hidden_layers": 4, "num_attention_heads": 4, "num_key_value_heads": 2}
MLP = {"intermediate_size": 56}
EPS = {"rms_norm_eps": 1e-4}  # with experts: the norm of an almost empty answer magnifies rounding by up to 1 / sqrt(eps)
EXPERTS = {"num_experts": 6, "num_experts_per_tok": 2, "moe_intermediate_size": 24, "shared_expert_intermediate_size": 40}
LINEAR = {"linear_conv_kernel_dim": 3, "linear_key_head_dim": 8, "linear_value_head_dim": 16, "linear_num_key_heads": 2,
          "linear_num_value_heads": 6}
FLA = {"vocab_size": VOCAB, "hidden_size": 48, "num_hidden_layers": 3, "intermediate_size": 56}
OLMO = {"pad_token_id": None, "eos_token_id": None, "linear_num_value_heads": 8}
IN = [  # name, config class, its settings, how to save
    ("llama", "LlamaConfig", SIZE | MLP, {}),
    ("llama, shards of bf16", "LlamaConfig", SIZE | MLP, {"max_shard_size": "40KB", "bf16": True}),
    ("mistral", "MistralConfig", SIZE | MLP | {"sliding_window": 10}, {}),
    ("qwen3", "Qwen3Config", SIZE | MLP | {"head_dim": 16, "use_sliding_window": True, "sliding_window": 9, "max_window_layers": 2}, {}),
    ("mamba2", "Mamba2Config", {"vocab_size": VOCAB, "hidden_size": 48, "num_hidden_layers": 3, "num_heads": 12, "head_dim": 8,
                                "state_size": 20, "n_groups": 1}, {}),
    ("qwen3_next", "Qwen3NextConfig", SIZE | MLP | EXPERTS | LINEAR | EPS | {"head_dim": 16, "mlp_only_layers": [1]}, {}),
    ("qwen3_5", "Qwen3_5TextConfig", SIZE | MLP | LINEAR | {"head_dim": 16, "tie_word_embeddings": True}, {}),
    ("qwen3_5 with vision", "Qwen3_5Config",
     {"text_config": SIZE | MLP | LINEAR | {"head_dim": 16},
      "vision_config": {"depth": 1, "hidden_size": 16, "intermediate_size": 16, "num_heads": 2, "out_hidden_size": 48,
                        "num_position_embeddings": 16}}, {"class": "Qwen3_5ForConditionalGeneration", "loads_as": "Qwen3_5ForCausalLM"}),
    ("qwen3_5_moe", "Qwen3_5MoeTextConfig", SIZE | EXPERTS | LINEAR | EPS | {"head_dim": 16}, {}),
    ("olmo_hybrid", "OlmoHybridConfig", SIZE | MLP | OLMO | {"linear_key_head_dim": 12, "linear_value_head_dim": 24}, {}),
    ("olmo_hybrid, no positions", "OlmoHybridConfig",
     SIZE | MLP | OLMO | {"rope_parameters": {"rope_type": "default", "rope_theta": None}}, {}),
    ("delta_net", "DeltaNetConfig", FLA | {"num_heads": 2, "expand_k": 0.5, "use_gate": True}, {}),
    ("gated_deltanet", "GatedDeltaNetConfig", FLA | {"head_dim": 8, "num_heads": 2, "num_v_heads": 4}, {}),
]


def parse_args():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--only", default="", help="the cases with this in their name")
    p.add_argument("--direction", choices=["out", "in"], help="only out of Braid, or only into it")
    p.add_argument("--threads", type=int, default=2)
    p.add_argument("--braid", type=pathlib.Path, default=common.HERE.parent.parent / "build" / "braid")
    p.add_argument("--json", action="store_true", help="one JSON object on stdout")
    args = p.parse_args()
    args.peer_only = False
    return args


# ---- Braid


def braid(args, *words):
    return common.braid_rows([str(args.braid), *map(str, words)])


def braid_logits(args, folder, ids, split=None):
    from safetensors.torch import load_file

    with tempfile.TemporaryDirectory() as tmp:
        out = pathlib.Path(tmp) / "logits"
        extra = ["--split", split] if split else []
        braid(args, "logits", "--model", folder, "--tokens", ",".join(map(str, ids)), "--out", out, "--json",
              "--threads", args.threads, *extra)
        return load_file(out)["logits"]


def shake(torch, tensors, seed):
    """Every number moves, so that a part in the wrong place shows."""
    g = torch.Generator().manual_seed(seed)
    return {name: t + (0.1 if t.dim() > 1 else 0.3) * torch.randn(t.shape, generator=g) for name, t in sorted(tensors.items())}


def tiny_model(args, torch, folder, arch, settings):
    from safetensors.torch import load_file, save_file

    text = common.HERE.parent.parent / "share" / "shakespeare.txt"
    sets = [w for s in settings for w in ("--set", s)]
    braid(args, "train", "--text", text, "--arch", arch, "--size", "tiny", "--length", 32, "--steps", 2, "--batch", 2,
          "--threads", args.threads, "--run", folder, "--quiet", *sets)
    path = folder / "model.safetensors"
    save_file(shake(torch, load_file(path), 1), path)


def sample(torch, length, seed):
    return torch.randint(VOCAB, (length,), generator=torch.Generator().manual_seed(seed)).tolist()


# ---- comparison


def difference(got, want):
    want = want.double()
    delta = got.double() - want
    return delta.abs().max().item(), (delta.square().mean() / want.square().mean()).sqrt().item()


def compare(args, torch, folder, reference, batched):
    """A row for every length, the pieces and the batch. `folder` is what Braid reads; `reference` gives pairs of
    float64 and, where there is one, float32 logits."""
    rows = []

    def row(what, got, want):
        wide, narrow = want
        worst, rms = difference(got, wide)
        rows.append({"what": what, "max_abs": worst, "rms": rms})
        if narrow is not None:
            rows[-1] |= {"rms_to_float32": difference(got, narrow)[1], "rms_of_float32": difference(narrow, wide)[1]}

    for n in LENGTHS:
        ids = sample(torch, n, n)
        row(f"length {n}", braid_logits(args, folder, ids), reference([ids])[0])
    row(f"length {n} in pieces", braid_logits(args, folder, ids, PIECES), reference([ids])[0])
    if batched:
        all_ids = [sample(torch, n, 100 + n) for n in BATCH]
        for ids, want in zip(all_ids, reference(all_ids)):
            row(f"length {len(ids)} in a batch", braid_logits(args, folder, ids), want)
    return rows


# ---- transformers


def plain_transformers():
    """transformers would use fla's kernels, which need a GPU: the models are imported while fla cannot be."""
    import importlib

    sys.modules["fla"] = None
    for name in ("mamba2", "qwen3_next", "qwen3_5", "qwen3_5_moe", "olmo_hybrid"):
        importlib.import_module(f"transformers.models.{name}.modeling_{name}")
    del sys.modules["fla"]


def load_transformers(torch, folder, wanted):
    import transformers

    model, info = transformers.AutoModelForCausalLM.from_pretrained(
        folder, dtype=torch.float32, attn_implementation="eager", experts_implementation="eager", output_loading_info=True)
    bad = {k: v for k, v in info.items() if v}
    if type(model).__name__ != wanted or bad:
        raise RuntimeError(f"transformers loads it as {type(model).__name__} with {bad}")
    return model.eval()


@contextlib.contextmanager
def float64_only(torch):
    """Inside, code that asks for float32 gets float64."""
    narrow, cast = torch.float32, torch.Tensor.float
    torch.float32, torch.Tensor.float = torch.float64, torch.Tensor.double
    try:
        yield
    finally:
        torch.float32, torch.Tensor.float = narrow, cast


def transformers_logits(torch, model):
    wide = copy.deepcopy(model).double()

    def run(batch):
        longest = max(map(len, batch))
        ids = torch.tensor([b + [0] * (longest - len(b)) for b in batch])
        mask = torch.tensor([[1] * len(b) + [0] * (longest - len(b)) for b in batch])
        with torch.no_grad():
            narrow_out = model(input_ids=ids, attention_mask=mask, use_cache=False).logits
            with float64_only(torch):
                wide_out = wide(input_ids=ids, attention_mask=mask, use_cache=False).logits
        assert narrow_out.dtype == torch.float32 and wide_out.dtype == torch.float64
        return [(w[:len(b)], n[:len(b)]) for w, n, b in zip(wide_out, narrow_out, batch)]

    return run


# ---- fla


def import_fla():
    import fla.layers.attn
    import fla.models

    if fla.layers.attn.flash_attn_func is None:
        fla.layers.attn.flash_attn_func = import_fla  # asked for when a layer is made, called on a GPU only
    return fla.models


def load_fla(torch, folder, wanted):
    """Names and shapes, by fla's own classes."""
    from safetensors.torch import load_file

    import_fla()
    import transformers

    config = transformers.AutoConfig.from_pretrained(folder)
    model = transformers.AutoModelForCausalLM.from_config(config)
    if type(model).__name__ != wanted or json.loads((folder / "config.json").read_text())["architectures"] != [wanted]:
        raise RuntimeError(f"fla makes a {type(model).__name__} of it")
    model.load_state_dict(load_file(folder / "model.safetensors"), strict=True)
    return config


def fla_logits(torch, folder, config):
    """fla's models written plainly: one sequence at a time, token by token, float64."""
    import torch.nn.functional as F
    from safetensors.torch import load_file

    w = {k: v.double() for k, v in load_file(folder / "model.safetensors").items()}
    eps = config.norm_eps
    gated = config.model_type == "gated_deltanet"
    attention = {}
    specs = config.attn or []
    for spec in [specs] if isinstance(specs, dict) else specs:
        attention |= {layer: spec for layer in spec["layers"]}

    def norm(x, name):
        return x * (x.square().mean(-1, keepdim=True) + eps).rsqrt() * w[name + ".weight"]

    def conv(x, taps):
        padded = F.pad(x.T, (taps.shape[-1] - 1, 0))
        return F.conv1d(padded[None], taps, groups=len(taps))[0].T

    def softmax_attention(x, p, spec):
        H, Hkv = spec["num_heads"], spec["num_kv_heads"]
        q, k, v = (x @ w[f"{p}{n}_proj.weight"].T for n in "qkv")
        q, k, v = q.view(len(x), H, -1), k.view(len(x), Hkv, -1), v.view(len(x), Hkv, -1)
        d = q.shape[-1]
        angle = torch.arange(len(x)).double()[:, None] * spec["rope_theta"] ** -(torch.arange(0, d, 2).double() / d)
        cos, sin = angle.cos()[:, None], angle.sin()[:, None]

        def turn(t):
            a, b = t.chunk(2, -1)
            return torch.cat([a * cos - b * sin, b * cos + a * sin], -1)

        q, k = turn(q), turn(k).repeat_interleave(H // Hkv, 1)
        i = torch.arange(len(x))
        hidden = i[:, None] < i[None]
        if spec["window_size"]:
            hidden |= i[:, None] - i[None] >= spec["window_size"]
        s = torch.einsum("ihd,jhd->hij", q, k) * d**-0.5
        o = torch.einsum("hij,jhd->ihd", s.masked_fill(hidden, -math.inf).softmax(-1), v.repeat_interleave(H // Hkv, 1))
        return o.flatten(1) @ w[p + "o_proj.weight"].T

    def delta_rule(x, p):
        activation = "silu" if gated else config.qk_activation
        feature = {"silu": F.silu, "relu": F.relu, "elu": lambda t: F.elu(t) + 1, "identity": lambda t: t}
        parts = {}
        for n in "qkv":
            t = x @ w[f"{p}{n}_proj.weight"].T
            if config.use_short_conv:
                t = conv(t, w[f"{p}{n}_conv1d.weight"])
            parts[n] = feature["silu" if n == "v" else activation](t)
        Hk = config.num_heads
        Hv = config.num_v_heads if gated else Hk
        q, k = (parts[n].view(len(x), Hk, -1) for n in "qk")
        q, k = (t * (t.square().sum(-1, keepdim=True) + 1e-6).rsqrt() for t in (q, k))
        q, k = (t.repeat_interleave(Hv // Hk, 1) for t in (q, k))
        v = parts["v"].view(len(x), Hv, -1)
        beta = (x @ w[p + "b_proj.weight"].T).sigmoid() * (2 if config.allow_neg_eigval else 1)
        g = torch.zeros(len(x), Hv, dtype=torch.float64)
        if gated:
            g = -w[p + "A_log"].exp() * F.softplus(x @ w[p + "a_proj.weight"].T + w[p + "dt_bias"])
        S, out = torch.zeros(Hv, k.shape[-1], v.shape[-1], dtype=torch.float64), []
        for t in range(len(x)):
            S = S * g[t].exp()[:, None, None]
            u = beta[t][:, None] * (v[t] - torch.einsum("hkv,hk->hv", S, k[t]))
            S = S + k[t][:, :, None] * u[:, None]
            out.append(torch.einsum("hkv,hk->hv", S, q[t]) * k.shape[-1] ** -0.5)
        o = norm(torch.stack(out), p + "o_norm")
        if config.use_gate:
            gate = (x @ w[p + "g_proj.weight"].T).view(o.shape)
            o = o * (gate.sigmoid() if gated and config.output_gate_activation == "sigmoid" else F.silu(gate))
        return o.flatten(1) @ w[p + "o_proj.weight"].T

    def one(ids):
        x = w["model.embeddings.weight"][ids]
        for i in range(config.num_hidden_layers):
            p = f"model.layers.{i}."
            h = norm(x, p + "attn_norm")
            x = x + (softmax_attention(h, p + "attn.", attention[i]) if i in attention else delta_rule(h, p + "attn."))
            h = norm(x, p + "mlp_norm")
            inner = F.silu(h @ w[p + "mlp.gate_proj.weight"].T) * (h @ w[p + "mlp.up_proj.weight"].T)
            x = x + inner @ w[p + "mlp.down_proj.weight"].T
        head = w["model.embeddings.weight" if config.tie_word_embeddings else "lm_head.weight"]
        return norm(x, "model.norm") @ head.T

    return lambda batch: [(one(ids), None) for ids in batch]


# ---- the two directions


def out_case(args, torch, tmp, case):
    from safetensors.torch import load_file

    name, wanted, arch, settings, options = case
    ours, theirs, back = tmp / "braid", tmp / "hf", tmp / "back"
    tiny_model(args, torch, ours, arch, settings)
    braid(args, "convert", "--model", ours, "--to", "hf", "--out", theirs, "--json", *options)
    braid(args, "convert", "--model", theirs, "--to", "braid", "--out", back, "--json")
    narrow = "bf16" in options
    first, second = load_file(ours / "model.safetensors"), load_file(back / "model.safetensors")
    if not narrow and (first.keys() != second.keys() or any(not torch.equal(first[k], second[k]) for k in first)):
        raise RuntimeError("not the same bits after going there and back")
    source = theirs if narrow else ours  # rounded numbers are only in what was written
    if wanted in ("DeltaNetForCausalLM", "GatedDeltaNetForCausalLM"):
        config = load_fla(torch, theirs, wanted)
        return wanted, compare(args, torch, source, fla_logits(torch, theirs, config), False)
    return wanted, compare(args, torch, source, transformers_logits(torch, load_transformers(torch, theirs, wanted)), True)


def in_case(args, torch, tmp, case):
    import transformers

    name, config_class, settings, saving = case
    torch.manual_seed(0)
    of_fla = "DeltaNet" in config_class
    config = getattr(import_fla() if of_fla else transformers, config_class)(**settings)
    if "class" in saving:
        model = getattr(transformers, saving["class"])(config)
    elif of_fla:
        model = transformers.AutoModelForCausalLM.from_config(config)
    else:
        model = transformers.AutoModelForCausalLM.from_config(config, attn_implementation="eager")
    tied = model.config.get_text_config().tie_word_embeddings
    state = model.state_dict()
    model.load_state_dict(shake(torch, {k: v for k, v in state.items() if not (tied and k == "lm_head.weight")}, 2), strict=not tied)
    model = model.float().eval()
    if saving.get("bf16"):
        model = model.bfloat16()
    theirs, back = tmp / "hf", tmp / "braid"
    model.save_pretrained(theirs, **{k: v for k, v in saving.items() if k == "max_shard_size"})
    braid(args, "info", "--model", theirs, "--json")
    if of_fla:
        reference = fla_logits(torch, theirs, config)
    else:  # loaded again: in bf16 the table of rotations was rounded, too
        model = load_transformers(torch, theirs, saving.get("loads_as", type(model).__name__))
        reference = transformers_logits(torch, model)
    rows = compare(args, torch, theirs, reference, not of_fla)
    braid(args, "convert", "--model", theirs, "--to", "braid", "--out", back, "--json")
    ids = sample(torch, 64, 64)
    if not torch.equal(braid_logits(args, theirs, ids), braid_logits(args, back, ids)):
        raise RuntimeError("the converted folder does not give the bits of the folder itself")
    return type(model).__name__, rows


def main():
    args = parse_args()
    os.environ["HF_HUB_OFFLINE"] = "1"
    os.environ["TRANSFORMERS_VERBOSITY"] = "error"
    os.environ["HF_HUB_DISABLE_PROGRESS_BARS"] = "1"
    torch, _ = common.start(args)
    import transformers
    import warnings

    warnings.simplefilter("ignore")
    transformers.logging.disable_progress_bar()
    plain_transformers()
    cases = [("out", c, out_case) for c in OUT] + [("in", c, in_case) for c in IN]
    cases = [c for c in cases if args.only in c[1][0] and args.direction in (None, c[0])]
    cases.sort(key=lambda c: "delta" in c[1][0])  # last: fla makes itself known to transformers, Mamba2 included
    if not cases:
        sys.exit(f"no case has '{args.only}' in its name")
    report, failed = [], 0
    if not args.json:
        print(f"{'':4} {'':3} {'the largest of all lengths':30} {'':26} {'rms':>8} {'max abs':>8} {'float32':>8} {'to it':>8}")
    for direction, case, run in cases:
        entry = {"direction": direction, "case": case[0]}
        with tempfile.TemporaryDirectory() as tmp:
            try:
                entry["class"], rows = run(args, torch, pathlib.Path(tmp), case)
                entry["rows"] = rows
                entry["ok"] = all(r["rms"] <= LIMIT for r in rows)  # not for NaN, which compares as false
                most = {k: max(r.get(k, 0) for r in rows) for k in ("rms", "max_abs", "rms_of_float32", "rms_to_float32")}
                text = f"{most['rms']:8.1e} {most['max_abs']:8.1e}"
                if most["rms_of_float32"]:
                    text += f" {most['rms_of_float32']:8.1e} {most['rms_to_float32']:8.1e}"
            except (Exception, SystemExit) as e:  # one family must not hide the others
                entry["ok"], entry["error"], text = False, str(e), str(e)
        failed += not entry["ok"]
        report.append(entry)
        if not args.json:
            print(f"{'ok  ' if entry['ok'] else 'FAIL'} {direction:3} {case[0]:30} {entry.get('class', ''):26} {text}", flush=True)
    if args.json:
        print(json.dumps({"torch": torch.__version__, "transformers": transformers.__version__, "limit": LIMIT, "cases": report}))
    else:
        print(f"{len(report)} cases, {failed} failed. rms and max abs: Braid against float64, limit rms {LIMIT:g} of its rms; "
              "float32: transformers' own against float64; to it: Braid against that")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
