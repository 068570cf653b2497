#!/usr/bin/env python3
"""Reading a prompt and writing tokens: transformers on the CPU in bf16 against Braid on the same model folder, in
alternating rounds.

    build/braid convert --random qwen3.5-0.8b --out qwen
    bench/peers/inference.py --model qwen                 pp512 and tg16
    bench/peers/inference.py --model qwen --activations bf16
    bench/peers/inference.py --model qwen --quant q8      Braid with 8 bits; the peer stays at bf16
    bench/peers/inference.py --model qwen --peer-dtype float32

transformers runs its own code for these models on CPUs, with its key-value and recurrent caches. Its logits after the
prompt are compared with Braid's before anything is timed: both read the same bf16 weights, but transformers also rounds
activations to bf16, so the likeliest token need not be the same; the correlation of the logits must be above 0.98.
"""
import json
import statistics
import subprocess
import sys
import tempfile
import time

import common
from hf_models import plain_transformers


def tokens(count, vocab):
    x, ids = 3, []
    for _ in range(count):
        x = (x * 6364136223846793005 + 1442695040888963407) % (1 << 64)
        ids.append((x >> 33) % vocab)
    return ids


def compare(torch, args, model, ids):
    """Correlation of the logits after a short prompt."""
    from safetensors.torch import load_file

    with torch.inference_mode():
        theirs = model(torch.tensor([ids])).logits[0, -1].float()
    with tempfile.TemporaryDirectory() as folder:
        out = f"{folder}/logits.safetensors"
        subprocess.run([str(args.braid), "logits", "--model", args.model, "--tokens", ",".join(map(str, ids)), "--out", out],
                       check=True, capture_output=True)
        ours = load_file(out)["logits"][-1].float()
    return torch.corrcoef(torch.stack([ours, theirs]))[0, 1].item()


def main():
    p = common.parser(__doc__, rounds=3)
    p.add_argument("--model", required=True, help="a folder that both can read")
    p.add_argument("--prompt", type=int, default=512)
    p.add_argument("--gen", type=int, default=16)
    p.add_argument("--peer-dtype", choices=["bfloat16", "float32"], default="bfloat16",
                   help="the peer's weights; without bf16 arithmetic in the processor float32 is its faster side")
    p.add_argument("--activations", choices=["f32", "bf16"], default="f32",
                   help="of Braid's prompts; bf16 is what the peer does")
    p.add_argument("--quant", choices=["q8", "q4"], help="Braid's weights; the peer has none of these")
    args = p.parse_args()
    common.positive(p, args, "threads", "rounds", "prompt", "gen")
    torch, load = common.start(args)
    plain_transformers()
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(args.model, dtype=getattr(torch, args.peer_dtype)).eval()
    vocab = model.config.vocab_size
    ids = torch.tensor([tokens(args.prompt, vocab)])
    correlation = None
    if not args.peer_only:
        correlation = compare(torch, args, model, tokens(8, vocab))
        if not correlation > 0.98:
            sys.exit(f"the logits differ (correlation {correlation:.4f}): the times would mean nothing")

    @torch.inference_mode()
    def prefill():
        model(ids, use_cache=True, logits_to_keep=1)

    @torch.inference_mode()
    def decode():
        cache = model(ids[:, :1], use_cache=True).past_key_values
        start = time.perf_counter()
        for i in range(args.gen):
            cache = model(ids[:, i:i + 1], past_key_values=cache, use_cache=True).past_key_values
        return time.perf_counter() - start

    prefill(), decode()
    seconds = {(side, test): [] for side in ("transformers", "braid") for test in ("prefill", "decode")}
    command = [str(args.braid), "bench", "prefill,decode", "--model", args.model, "--threads", str(args.threads), "--prompt",
               str(args.prompt), "--gen", str(args.gen), "--repeat", "1", "--json"]
    if args.quant:
        command += ["--quant", args.quant]
    command += ["--activations", args.activations]
    for _ in range(args.rounds):
        start = time.perf_counter()
        prefill()
        seconds["transformers", "prefill"].append(time.perf_counter() - start)
        seconds["transformers", "decode"].append(decode())
        if args.peer_only:
            continue
        for row in common.braid_rows(command):
            seconds["braid", "prefill" if row["test"].startswith("pp") else "decode"].append(row["seconds"])

    result = {"torch": torch.__version__, "threads": args.threads, "load_before": load, "model": args.model,
              "weights": args.quant or "bf16", "activations": args.activations, "peer_weights": args.peer_dtype, "correlation": correlation, "tests": {}}
    for test, name, count in (("prefill", f"pp{args.prompt}", args.prompt), ("decode", f"tg{args.gen}", args.gen)):
        rates = {side: count / statistics.median(seconds[side, test]) for side in ("transformers", "braid")
                 if seconds[side, test]}
        result["tests"][name] = {"tokens_per_second": rates}
        if "braid" in rates:
            result["tests"][name]["ratio"] = rates["braid"] / rates["transformers"]
    if args.json:
        print(json.dumps(result))
        return
    print(f"{args.model}, {args.threads} threads, torch {torch.__version__} in {args.peer_dtype}; medians of {args.rounds} alternating rounds")
    for name, r in result["tests"].items():
        line = ", ".join(f"{side} {rate:.1f} tokens/s" for side, rate in r["tokens_per_second"].items())
        print(f"  {name:8} {line}" + (f": {r['ratio']:.1f} x" if "ratio" in r else ""))


if __name__ == "__main__":
    main()
