#!/usr/bin/env python3
"""Makes tests/data/families: small random models as transformers and fla save them, and what they answer.

    tools/make_fixtures.py                 all of them (needs the network once, for torch and transformers)
    tools/make_fixtures.py --only qwen     those with this in their name
    tools/make_fixtures.py --check         makes them elsewhere and compares with what is there

Each folder is what save_pretrained wrote, and expected.safetensors: `tokens`; `logits`, of the whole sequence at once; `cached`, the
same sequence as a prefill of `prefill` tokens and single steps with the cache; `greedy`, what follows the prefill when always the
likeliest token is taken. All in float32 on the stored numbers, whatever their type. fla's kernels need a GPU: its models are computed by
the plain float64 forward of bench/peers/hf_models.py, and `cached` is the same.
"""
import argparse
import os
import pathlib
import shutil
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "bench" / "peers"))

import common  # noqa: E402
from hf_models import MODELS, fla_last, plain_transformers, sample, save_model  # noqa: E402

FOLDER = ROOT / "tests" / "data" / "families"
LENGTH, PREFILL, GREEDY = 20, 7, 12
FLOAT32 = 5e-6  # most that the class's own float32 may differ from its float64, relative to the rms: else another seed
GAP = 1e-3  # least distance of the two likeliest tokens, relative to the rms, so that rounding cannot exchange them


def with_cache(torch, model, ids):
    """Logits of a prefill and of single steps after it."""
    with torch.no_grad():
        out = model(input_ids=torch.tensor([ids[:PREFILL]]), use_cache=True)
        name = "cache_params" if hasattr(out, "cache_params") else "past_key_values"
        rows = [out.logits[0]]
        for token in ids[PREFILL:]:
            out = model(input_ids=torch.tensor([[token]]), use_cache=True, **{name: getattr(out, name)})
            rows.append(out.logits[0])
    return torch.cat(rows)


def greedy(torch, logits_of, ids):
    """By whole forwards, so that it depends on no cache. Returns the tokens and the smallest gap on the way."""
    ids, gap = list(ids), float("inf")
    for _ in range(GREEDY):
        row = logits_of(ids)[-1]
        best = row.topk(2)
        gap = min(gap, ((best.values[0] - best.values[1]) / row.square().mean().sqrt()).item())
        ids.append(best.indices[0].item())
    return ids[-GREEDY:], gap


def make(torch, case, folder, seed):
    from safetensors.torch import save_file

    reference, model, class_name = save_model(torch, folder, case, seed)
    vocab = case[2].get("text_config", case[2])["vocab_size"]
    ids = sample(torch, LENGTH, 11, vocab)
    wide, narrow = reference([ids])[0]
    logits = wide.float() if narrow is None else narrow
    rms = wide.square().mean().sqrt()
    error = ((logits - wide).square().mean().sqrt() / rms).item()
    cached = logits if model is None else with_cache(torch, model, ids)
    cache_error = ((cached - wide).square().mean().sqrt() / rms).item()
    follow, gap = greedy(torch, lambda x: reference([x])[0][0], ids[:PREFILL])
    save_file({"tokens": torch.tensor(ids, dtype=torch.int32), "prefill": torch.tensor([PREFILL], dtype=torch.int32),
               "logits": logits.contiguous(), "cached": cached.clone(), "greedy": torch.tensor(follow, dtype=torch.int32)},
              folder / "expected.safetensors")
    size = sum(f.stat().st_size for f in folder.iterdir())
    return class_name, error, cache_error, gap, size


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--only", default="", help="the models with this in their name")
    p.add_argument("--check", action="store_true", help="compare with what is there instead of replacing it")
    args = p.parse_args()
    args.threads, args.peer_only = 1, True  # one thread: the same sums on every machine, and small models are not faster with more
    os.environ["HF_HUB_OFFLINE"] = "1"
    os.environ["TRANSFORMERS_VERBOSITY"] = "error"
    os.environ["HF_HUB_DISABLE_PROGRESS_BARS"] = "1"
    torch, _ = common.start(args)
    import transformers
    import warnings
    from safetensors.torch import load_file

    warnings.simplefilter("ignore")
    transformers.logging.disable_progress_bar()
    plain_transformers()
    failed = 0
    print(f"{'':22} {'class':28} {'float32':>8} {'cached':>8} {'gap':>7} {'bytes':>7}")
    for case in fla_last([m for m in MODELS if args.only in m[0]]):
        with tempfile.TemporaryDirectory() as tmp:
            for seed in range(2, 12):
                made = pathlib.Path(tmp) / str(seed)
                class_name, error, cache_error, gap, size = make(torch, case, made, seed)
                if max(error, cache_error) <= FLOAT32 and gap >= GAP:
                    break
            else:
                failed += 1
            there = FOLDER / case[0]
            note = "" if max(error, cache_error) <= FLOAT32 and gap >= GAP else "  NO SEED IS GOOD ENOUGH"
            if args.check:
                old, new = load_file(there / "expected.safetensors"), load_file(made / "expected.safetensors")
                same = all(torch.allclose(old[k].float(), new[k].float(), rtol=1e-4, atol=1e-5) for k in new)
                failed += not same
                note += "" if same else "  DIFFERS"
            else:
                shutil.rmtree(there, ignore_errors=True)
                shutil.copytree(made, there)
            print(f"{case[0]:22} {class_name:28} {error:8.1e} {cache_error:8.1e} {gap:7.3f} {size:7d}{note}", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
