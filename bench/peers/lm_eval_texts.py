#!/usr/bin/env python3
"""Greedy texts of Braid and of lm-eval with transformers, from the same checkpoint and prompts.

    .venv/bin/python bench/peers/lm_eval_texts.py --data DATA --model FOLDER_HF [--model FOLDER_HF]

Models of a few steps repeat one token. Normal noise on every matrix makes each text another one, and near ties rare but
possible: a text differs from the first token on which rounding decides. Exit code 1 if more than 1 % of the texts do.
"""
import argparse
import json
import logging
import os
import pathlib
import shutil
import sys
import tempfile

os.environ["HF_HUB_OFFLINE"] = "1"


def shake(torch, model, folder):
    from safetensors.torch import load_file, save_file

    shutil.copytree(model, folder)
    tensors = load_file(folder / "model.safetensors")
    noise = torch.Generator().manual_seed(1)
    tensors = {k: t + 0.05 * torch.randn(t.shape, generator=noise) if t.dim() == 2 else t for k, t in tensors.items()}
    save_file(tensors, folder / "model.safetensors", {"format": "pt"})


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--data", required=True, type=pathlib.Path)
    p.add_argument("--model", required=True, action="append", type=pathlib.Path)
    p.add_argument("--limit", type=int, default=200)
    p.add_argument("--tokens", type=int, default=32)
    args = p.parse_args()
    logging.disable(logging.WARNING)
    import torch
    from lm_eval.api.instance import Instance
    from lm_eval.models.huggingface import HFLM

    import lm_eval_braid

    lines = (args.data / "squad/squad_v1.1_validation_sample1000.jsonl").read_text().splitlines()[: args.limit]
    options = {"until": ["\n\n"], "do_sample": False, "temperature": 0.0, "max_gen_toks": args.tokens}
    failed = False
    for model in args.model:
        requests = []
        for i, d in enumerate(map(json.loads, lines)):
            prompt = f"Title: {d['title']}\n\nBackground: {d['context']}\n\nQuestion: {d['question']}\n\nAnswer:"
            requests.append(Instance("generate_until", d, (prompt, options), i))
        with tempfile.TemporaryDirectory() as tmp:
            folder = pathlib.Path(tmp) / model.name
            shake(torch, model, folder)
            theirs = HFLM(pretrained=str(folder), device="cpu", dtype="float32", batch_size=16,
                          max_length=2048).generate_until(requests, disable_tqdm=True)
            ours = lm_eval_braid.BraidLM(pretrained=folder, max_length=2048, add_bos_token=True).generate_until(requests)
        different = sum(a != b for a, b in zip(ours, theirs, strict=True))
        failed |= different > 0.01 * len(ours)
        print(f"{model.name}: {len(ours)} texts of up to {args.tokens} tokens, {len(set(theirs))} distinct, {different} differ",
              flush=True)
    sys.exit(failed)


if __name__ == "__main__":
    main()
