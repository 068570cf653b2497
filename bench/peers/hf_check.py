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
import json
import os
import pathlib
import sys
import tempfile

import common
from hf_models import (MODELS, fla_logits, load_fla, load_transformers, plain_transformers, sample, save_model, shake,
                       transformers_logits)

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
    ("llama, biases, llama3", "LlamaForCausalLM", "transformer",
     ["pattern.0.mixer.bias=all", "pattern.0.mlp.bias=true", "pattern.0.mixer.rope_scaling=llama3", "pattern.0.mixer.rope_factor=8",
      "pattern.0.mixer.rope_original=64"], []),
    ("qwen2, yarn", "Qwen2ForCausalLM", "transformer",
     ["pattern.0.mixer.bias=qkv", "pattern.0.mixer.rope_scaling=yarn", "pattern.0.mixer.rope_factor=4",
      "pattern.0.mixer.rope_original=32"], []),
    ("olmo2, linear", "Olmo2ForCausalLM", "transformer",
     ["pattern.0.norm=post", "pattern.0.mixer.qk_norm=full", "pattern.0.mixer.rope_scaling=linear", "pattern.0.mixer.rope_factor=3"],
     []),
    ("olmo3, yarn", "Olmo3ForCausalLM", "samba",
     ['pattern=[{"mixer":{"type":"attention","qk_norm":"full","window":20},"mlp":{"type":"swiglu","d_ff":96},"norm":"post"},'
      '{"mixer":{"type":"attention","qk_norm":"full","rope_scaling":"yarn","rope_factor":4,"rope_original":32},'
      '"mlp":{"type":"swiglu","d_ff":96},"norm":"post"}]'], []),
    ("mamba2", "Mamba2ForCausalLM", "mamba2", [NO_MLP], []),
    ("mamba2, biases", "Mamba2ForCausalLM", "mamba2",
     [NO_MLP, "pattern.*.mixer.bias=true", "pattern.*.mixer.conv_bias=false"], []),
    ("mamba2, tied", "Mamba2ForCausalLM", "mamba2", [NO_MLP, "pattern.*.mixer.conv=3", "tie_embeddings=true"], []),
    ("fla-transformer", "TransformerForCausalLM", "transformer",
     ["pattern.0.mixer.kv_heads=2", "pattern.0.mixer.window=16", "pattern.0.mixer.bias=qkv", "pattern.0.mixer.qk_norm=head",
      "pattern.0.mixer.qk_eps=1e-5"], []),
    ("fla-delta_net", "DeltaNetForCausalLM", "deltanet", [], []),
    ("fla-delta_net, sum", "DeltaNetForCausalLM", "deltanet",
     ["pattern.*.mixer.feature_norm=l1", "pattern.*.mixer.feature=elu1"], []),
    ("fla-delta_net, switches", "DeltaNetForCausalLM", "deltanet",
     ["pattern.*.mixer.gate=silu", "pattern.*.mixer.negative_eigenvalues=true", "pattern.*.mixer.value_dim=24",
      "pattern.*.mixer.feature=elu1", "norm_eps=0.001"], []),
    ("fla-delta_net, no conv", "DeltaNetForCausalLM", "deltanet", ["pattern.*.mixer.conv=0"], []),
    ("fla-gated_deltanet", "GatedDeltaNetForCausalLM", "gated-deltanet", [], []),
    ("fla-gated_deltanet, switches", "GatedDeltaNetForCausalLM", "gated-deltanet",
     ["pattern.*.mixer.key_heads=2", "pattern.*.mixer.value_dim=24", "pattern.*.mixer.negative_eigenvalues=true",
      "pattern.*.mixer.gate=sigmoid", "pattern.*.mixer.conv=3"], []),
    ("fla-gated_deltanet with attention", "GatedDeltaNetForCausalLM", "gdn-h1", ["pattern.1.mixer.window=16"], []),
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


def parse_args():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--only", default="", help="the cases with this in their name")
    p.add_argument("--direction", choices=["out", "in"], help="only out of Braid, or only into it")
    p.add_argument("--mutants", action="store_true", help="out: also show that an error in any tensor would be noticed; slow")
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


def tiny_model(args, torch, folder, arch, settings):
    from safetensors.torch import load_file, save_file

    text = common.HERE.parent.parent / "share" / "shakespeare.txt"
    sets = [w for s in settings for w in ("--set", s)]
    braid(args, "train", "--text", text, "--arch", arch, "--size", "tiny", "--length", 32, "--steps", 2, "--batch", 2,
          "--threads", args.threads, "--run", folder, "--quiet", *sets)
    path = folder / "model.safetensors"
    save_file(shake(torch, load_file(path), 1), path)


# ---- comparison


def difference(got, want):
    want = want.double()
    delta = got.double() - want
    return delta.abs().max().item(), (delta.square().mean() / want.square().mean()).sqrt().item()


def compare(args, torch, folder, reference, batched, vocab=VOCAB):
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
        ids = sample(torch, n, n, vocab)
        row(f"length {n}", braid_logits(args, folder, ids), reference([ids])[0])
    row(f"length {n} in pieces", braid_logits(args, folder, ids, PIECES), reference([ids])[0])
    if batched:
        all_ids = [sample(torch, n, 100 + n, vocab) for n in BATCH]
        for ids, want in zip(all_ids, reference(all_ids)):
            row(f"length {len(ids)} in a batch", braid_logits(args, folder, ids), want)
    return rows


def blind_spots(args, torch, folder, reference):
    """Tensors that could be wrong without being noticed: of each, two rows are exchanged, and the logits must be off."""
    from safetensors.torch import load_file, save_file

    path = folder / "model.safetensors"
    good, ids, blind = load_file(path), sample(torch, 64, 64, VOCAB), []
    want = reference([ids])[0][0]
    for name, t in good.items():
        rows = [ids[0], ids[-1]] if name == "embedding.weight" else [0, len(t) - 1]
        bad = t.clone()
        bad[rows] = t[rows[::-1]]
        save_file(good | {name: bad}, path)
        if len(t) > 1 and not difference(braid_logits(args, folder, ids), want)[1] > LIMIT:
            blind.append(name)
    save_file(good, path)
    return blind


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
    of_fla = name.startswith("fla-")
    reference = (fla_logits(torch, theirs, load_fla(torch, theirs, wanted)) if of_fla else
                 transformers_logits(torch, load_transformers(torch, theirs, wanted)))
    rows = compare(args, torch, source, reference, not of_fla)
    if args.mutants and not narrow and (blind := blind_spots(args, torch, ours, reference)):
        raise RuntimeError(f"errors in these would not be noticed: {blind}")
    return wanted, rows


def in_case(args, torch, tmp, case):
    theirs, back = tmp / "hf", tmp / "braid"
    reference, model, class_name = save_model(torch, theirs, case)
    vocab = case[2].get("text_config", case[2])["vocab_size"]
    braid(args, "info", "--model", theirs, "--json")
    rows = compare(args, torch, theirs, reference, model is not None, vocab)
    braid(args, "convert", "--model", theirs, "--to", "braid", "--out", back, "--json")
    ids = sample(torch, 64, 64, vocab)
    if not torch.equal(braid_logits(args, theirs, ids), braid_logits(args, back, ids)):
        raise RuntimeError("the converted folder does not give the bits of the folder itself")
    return class_name, rows


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
    cases = [("out", c, out_case) for c in OUT] + [("in", c, in_case) for c in MODELS]
    cases = [c for c in cases if args.only in c[1][0] and args.direction in (None, c[0])]
    cases.sort(key=lambda c: c[1][0].startswith("fla-"))  # last: see fla_last
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
