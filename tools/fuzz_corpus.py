#!/usr/bin/env python3
"""A fuzzer's folder of inputs as one file, and back.

    tools/fuzz_corpus.py pack FOLDER tests/data/fuzz/NAME [--limit BYTES]     the smallest inputs first, as many as fit
    tools/fuzz_corpus.py unpack tests/data/fuzz/NAME FOLDER

Each input is a line with its length, its bytes, and a line break. `build/fuzz_NAME tests/data/fuzz/NAME` replays them."""
import argparse
import hashlib
from pathlib import Path

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("action", choices=["pack", "unpack"])
parser.add_argument("source", type=Path)
parser.add_argument("target", type=Path)
parser.add_argument("--limit", type=int, default=150_000)
args = parser.parse_args()

if args.action == "pack":
    inputs = sorted({p.read_bytes() for p in args.source.iterdir()}, key=lambda b: (len(b), b))
    packed, kept = b"", 0
    for data in inputs:
        entry = b"%d\n%s\n" % (len(data), data)
        if len(packed) + len(entry) > args.limit:
            break
        packed, kept = packed + entry, kept + 1
    args.target.write_bytes(packed)
    print(f"{kept} of {len(inputs)} inputs, {len(packed)} bytes")
else:
    args.target.mkdir(parents=True, exist_ok=True)
    rest, count = args.source.read_bytes(), 0
    while rest:
        length, rest = rest.split(b"\n", 1)
        data, rest = rest[: int(length)], rest[int(length) + 1 :]
        (args.target / hashlib.sha1(data).hexdigest()).write_bytes(data)
        count += 1
    print(f"{count} inputs")
