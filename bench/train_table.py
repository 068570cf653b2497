#!/usr/bin/env python3
"""Markdown tables from the JSON lines of `braid bench train`.

    braid bench train --arch all --size 10M --tokens 8192 --length 512,2048,8192,16384 --precision f32,bf16 --json > train.jsonl
    bench/train_table.py train.jsonl [more.jsonl ...]

One table per precision (and with --recompute): a row per architecture; tokens per second, share of the FMA peak and memory
at each length, the growth of the time per token and of the memory from the shortest to the longest, and the time of a
step relative to the Transformer's. A case that was measured several times counts with its fastest run.
"""
import json
import sys


def read(paths):
    """(precision, recompute) -> arch -> length -> the fastest run"""
    tables = {}
    for path in paths:
        with open(path) as lines:
            for line in lines:
                row = json.loads(line)
                cases = tables.setdefault((row["precision"], row["recompute"]), {}).setdefault(row["arch"], {})
                best = cases.get(row["length"])
                if not best or row["tokens_per_second"] > best["tokens_per_second"]:
                    cases[row["length"]] = row
    return tables


def megabytes(row, key):
    return f"{row[key] / 1e6:,.0f}"


def tokens_at_once(row):
    """Tokens whose activations are in memory together: a slice (one sequence, or several up to 384 tokens) per thread."""
    sequences = max(1, 384 // row["length"])
    slices = -(-row["batch"] // sequences)
    return min(sequences, row["batch"]) * row["length"] * min(row["threads"], slices)


def table(archs):
    lengths = sorted({n for cases in archs.values() for n in cases})
    head = ["architecture"]
    for n in lengths:
        head += [f"tokens/s at {n}", "peak", "MB", "time / Transformer's"]
    if len(lengths) > 1:
        head += [f"time per token, {lengths[-1]} / {lengths[0]}", "activations per token, same"]
    out = [head, ["---"] * len(head)]
    for arch, cases in archs.items():
        line = [arch]
        for n in lengths:
            if n not in cases:
                line += ["", "", "", ""]
                continue
            row, base = cases[n], archs.get("transformer", {}).get(n)
            ratio = f"{base['tokens_per_second'] / row['tokens_per_second']:.2f}" if base else ""
            line += [f"{row['tokens_per_second']:,.0f}", f"{100 * row['share_of_peak']:.0f} %",
                     megabytes(row, "peak_memory_bytes"), ratio]
        if len(lengths) > 1:
            first, last = cases.get(lengths[0]), cases.get(lengths[-1])
            if first and last:
                per_token = [r["activation_bytes"] / tokens_at_once(r) for r in (first, last)]
                line += [f"{first['tokens_per_second'] / last['tokens_per_second']:.2f}", f"{per_token[1] / per_token[0]:.2f}"]
            else:
                line += ["", ""]
        out.append(line)
    return "\n".join("| " + " | ".join(cells) + " |" for cells in out)


def main():
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    for (precision, recompute), archs in read(sys.argv[1:]).items():
        some = next(iter(next(iter(archs.values())).values()))
        print(f"### {precision}{', recomputed' if recompute else ''}\n")
        print(f"{some['cpu']}, {some['isa']}, {some['threads']} threads, FMA peak {some['peak_gflops']:.0f} GFLOP/s, size "
              f"{some['size']}\n")
        print(table(archs) + "\n")


if __name__ == "__main__":
    main()
