#!/usr/bin/env python3
"""Compares Braid's tokenizers with the packages `tokenizers` and `sentencepiece`, id for id, and times both on one thread.

    python3 -m venv .venv && .venv/bin/pip install -r bench/peers/tokenizer_requirements.txt
    .venv/bin/python bench/peers/tokenizer_check.py --data DATA [--speed-only | --no-speed]

DATA holds tokenizers/{gpt2,qwen2.5,gpt-neox-20b,llama2,mistral,llama.cpp}, wikitext2, reference, and any other *.txt; what is
missing is said and skipped. Texts: those files, strings from every Unicode block, this repository's own files, emoji and
damaged UTF-8. Exit code 1 if anything differs."""
import argparse
import hashlib
import json
import os
import random
import re
import statistics
import struct
import subprocess
import sys
import tempfile
import time
import unicodedata
from pathlib import Path

os.environ["TOKENIZERS_PARALLELISM"] = "false"
os.environ["RAYON_NUM_THREADS"] = "1"
try:
    import sentencepiece
    from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers
    import tokenizers
except ImportError as e:
    sys.exit(f"{e}\ninstall what bench/peers/tokenizer_requirements.txt lists; see the head of this file")

ROOT = Path(__file__).resolve().parent.parent.parent
GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
QWEN2 = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
QWEN35 = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
CL100K = QWEN2.replace(r"|\p{N}|", r"|\p{N}{1,3}|")
failed = False


def report(ok, text):
    global failed
    failed |= not ok
    print(("ok    " if ok else "WRONG ") + text, flush=True)


def braid_lines(model, texts, special):
    """Braid's results for a list of strings: dicts with ids, decoded, seconds."""
    with tempfile.NamedTemporaryFile("w", suffix=".jsonl") as f:
        f.write("".join(json.dumps(t) + "\n" for t in texts))
        f.flush()
        command = [str(args.braid), "tokenize", "--model", str(model), "--file", f.name, "--lines", "--json"] + ["--special"] * special
        done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"{' '.join(command)}\n{done.stderr}")
    return [json.loads(line) for line in done.stdout.split("\n") if line]


def braid_ids(model, raw):
    with tempfile.NamedTemporaryFile("wb") as f:
        f.write(raw)
        f.flush()
        out = subprocess.run([str(args.braid), "tokenize", "--model", str(model), "--file", f.name, "--ids"], capture_output=True, text=True, check=True).stdout.strip()
    return [int(i) for i in out.split(",")] if out else []


# ---- texts


def old_enough(text):
    """Marks that Unicode has had for long: the package's normaliser (NFC and the others) knows Unicode 9 or so, ours Unicode 15."""
    return all(unicodedata.category(c) != "Cn" and not (unicodedata.combining(c) and c not in OLD_MARKS) for c in text)


OLD_MARKS = {c for c in map(chr, range(0x110000)) if unicodedata.ucd_3_2_0.combining(c)}


def corpus(data):
    rng = random.Random(0)
    texts = {"unicode": [], "emoji": [], "files": [], "code": []}
    for block in range(0, 0x110000, 0x80):
        if 0xD800 <= block < 0xE000 or 0xF0100 <= block < 0x10FF00:
            continue
        chars = [chr(c) for c in range(block, block + 0x80)]
        texts["unicode"].append("".join(chars))
        for _ in range(3):
            texts["unicode"].append("".join(rng.choice(chars + [" ", "a", "1", "\n", "'s", "."]) for _ in range(60)))
    emoji = [chr(c) for c in [*range(0x1F300, 0x1FAFF), *range(0x2600, 0x27C0)]] + ["\u200d", "\ufe0f", "\U0001f3fd", " ", "\n", "x"]
    texts["emoji"] = ["".join(rng.choice(emoji) for _ in range(80)) for _ in range(300)]
    for folder in ("src", "docs", "tests", "bench", "tools", "cmake"):
        for f in sorted((ROOT / folder).rglob("*")):
            if f.suffix in (".cpp", ".h", ".py", ".md", ".cmake", ".sh") and ".venv" not in f.parts:
                texts["code"].append(f.read_text())
    for f in sorted(data.rglob("*")):
        if f.suffix in (".txt", ".raw", ".jsonl") and "llama.cpp" not in f.parts and f.is_file():
            text = f.read_text(errors="replace")[: args.megabytes * 1_000_000]
            texts["files"] += [text[i : i + 20000] for i in range(0, len(text), 20000)]
    return texts


def damaged(texts):
    rng = random.Random(1)
    joined = "\n".join(rng.sample(texts["unicode"], 200) + rng.sample(texts["emoji"], 50)).encode(errors="replace")
    raw = bytearray(joined)
    for _ in range(len(raw) // 40):
        raw[rng.randrange(len(raw))] = rng.randrange(256)
    return bytes(raw) + bytes(rng.randrange(256) for _ in range(20000)) + b"\xe2\x96"


# ---- peers


def from_vocab(folder, pattern, normalizer=None, added=()):
    t = Tokenizer(models.BPE.from_file(str(folder / "vocab.json"), str(folder / "merges.txt")))
    if normalizer:
        t.normalizer = normalizer
    t.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(pattern), "isolated"), pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    t.decoder = decoders.ByteLevel()
    for token in added:
        t.add_special_tokens([token]) if token.special else t.add_tokens([token])
    return t


def peers(data, folder):
    """name -> (the package's tokenizer, Braid's --model)"""
    found = {}
    base = data / "tokenizers"
    if (base / "gpt2/vocab.json").exists():
        end = [AddedToken("<|endoftext|>", special=True, normalized=False)]
        found["gpt2 (vocab.json)"] = (from_vocab(base / "gpt2", GPT2, added=end), base / "gpt2")
    if (base / "qwen2.5/vocab.json").exists():
        config = json.loads((base / "qwen2.5/tokenizer_config.json").read_text())
        added = [AddedToken(**v) for _, v in sorted(config["added_tokens_decoder"].items(), key=lambda kv: int(kv[0]))]
        found["qwen2.5 (vocab.json)"] = (from_vocab(base / "qwen2.5", QWEN2, normalizers.NFC(), added), base / "qwen2.5")
        for name, pattern, normalizer in (("qwen2", QWEN2, normalizers.NFC()), ("qwen3.5", QWEN35, normalizers.NFC()), ("cl100k", CL100K, None)):
            t = from_vocab(base / "qwen2.5", pattern, normalizer, added)
            t.save(str(folder / f"{name}.json"))
            found[f"{name} rules (tokenizer.json)"] = (t, folder / f"{name}.json")
    if (base / "gpt-neox-20b/tokenizer.json").exists():
        path = base / "gpt-neox-20b/tokenizer.json"
        found["gpt-neox-20b (tokenizer.json)"] = (Tokenizer.from_file(str(path)), path)
    for path in sorted((ROOT / "tests/data/tokenizer").glob("*.json")):
        found[f"fixture {path.stem}"] = (Tokenizer.from_file(str(path)), path)
    return found


def pieces(data):
    for path in [data / "tokenizers/llama2/tokenizer.model", data / "tokenizers/mistral/tokenizer.model.v1", *sorted((ROOT / "tests/data/tokenizer").glob("*.model"))]:
        if path.exists():
            yield path, sentencepiece.SentencePieceProcessor(model_file=str(path))


# ---- comparisons


def compare(name, model, groups, encode, decode, special):
    for group, texts in groups.items():
        if not texts:
            continue
        wrong = wrong_text = tokens = 0
        example = ""
        for text, row in zip(texts, braid_lines(model, texts, special), strict=True):
            ids = encode(text)
            tokens += len(ids)
            if ids != row["ids"]:
                wrong += 1
                example = example or f"; first: {text[:60]!r}"
            elif decode(ids) != row["decoded"]:
                wrong_text += 1
                example = example or f"; first decoded: {text[:60]!r}"
        report(not wrong and not wrong_text, f"{name}, {group}: {len(texts)} texts, {tokens} tokens; ids differ in {wrong}, decoded text in {wrong_text}{example}")


def llama_cpp_vectors(data, found):
    folder = data / "tokenizers/llama.cpp"
    sp = {p.parent.name: p for p, _ in pieces(data)}
    models_of = {"gpt-2": data / "tokenizers/gpt2", "qwen2": data / "tokenizers/qwen2.5", "llama-spm": sp.get("llama2"), "phi-3": sp.get("llama2")}
    for name, model in models_of.items():
        inp, out = folder / f"ggml-vocab-{name}.gguf.inp", folder / f"ggml-vocab-{name}.gguf.out"
        if not model or not inp.exists():
            print(f"      llama.cpp vectors {name}: not there")
            continue
        texts = inp.read_text().split("\n__ggml_vocab_test__\n")
        expected = [[int(i) for i in line.split()] for line in out.read_text().split("\n")]
        got = [row["ids"] for row in braid_lines(model, texts, False)]
        good = sum(a == b for a, b in zip(got, expected))
        report(good == len(texts), f"llama.cpp vectors {name}: {good} of {len(texts)}")
    if "gpt-neox-20b (tokenizer.json)" in found:  # llama.cpp has no .out for it: the package is the judge
        t, model = found["gpt-neox-20b (tokenizer.json)"]
        texts = (folder / "ggml-vocab-gpt-2.gguf.inp").read_text().split("\n__ggml_vocab_test__\n")
        good = sum(row["ids"] == t.encode(s).ids for s, row in zip(texts, braid_lines(model, texts, True)))
        report(good == len(texts), f"llama.cpp texts, gpt-neox as the package has them: {good} of {len(texts)}")


def pages(raw):
    lines, current, out = raw.split("\n"), [], []
    for line in lines:
        plain = line.replace("= = =", "===").replace("= =", "==").strip()
        if plain.startswith("= ") and plain.endswith(" ="):
            out.append("\n".join(current))
            current = []
        current.append(line)
    return [p for p in out + ["\n".join(current)] if p.strip()]


def detokenised(s):
    s = s.replace("s '", "s'")
    for a, b in ((" @-@ ", "-"), (" @,@ ", ","), (" @.@ ", "."), (" : ", ": "), (" ; ", "; "), (" . ", ". "), (" ! ", "! "), (" ? ", "? "), (" , ", ", ")):
        s = s.replace(a, b)
    for a, b in ((r"\(\s*([^\)]*?)\s*\)", r"(\1)"), (r"\[\s*([^\]]*?)\s*\]", r"[\1]"), (r"{\s*([^}]*?)\s*}", r"{\1}"), (r"\"\s*([^\"]*?)\s*\"", r'"\1"'), (r"'\s*([^']*?)\s*'", r"'\1'")):
        s = re.sub(a, b, s)
    for a, b in (("= = = =", "===="), ("= = =", "==="), ("= =", "=="), (" " + chr(176) + " ", chr(176)), (" \n", "\n"), ("\n ", "\n"), (" N ", " 1 "), (" 's", "'s")):
        s = s.replace(a, b)
    return s


def wikitext(data):
    reference = data / "reference/wikitext2_test_tokens.json"
    if not reference.exists():
        return print("      wikitext reference: not there")
    raw = (data / "wikitext2/wiki.test.raw").read_text()
    rows = [line + "\n" if line.strip() else "" for line in raw.split("\n")]
    texts = {"wiki.test.raw": [raw], "hf_rows_joined_by_2_newlines": ["\n\n".join(rows[:-1] if rows[-1] == "" else rows)], "detok_pages": [detokenised(p) for p in pages(raw)]}
    models_of = {"gpt2": "gpt2", "qwen2.5": "qwen2.5", "llama2": "llama2/tokenizer.model"}
    for name, facts in json.loads(reference.read_text()).items():
        for key, parts in texts.items():
            if f"{key}_tokens" not in facts:
                continue
            ids = [i for row in braid_lines(data / "tokenizers" / models_of[name], parts, False) for i in row["ids"]]
            good = len(ids) == facts[f"{key}_tokens"]
            text = f"wikitext-2 {name}, {key}: {len(ids)} tokens, expected {facts[f'{key}_tokens']}"
            for field in (f"{key}_sha256_uint32le", f"{key}_concat_sha256_uint32le"):
                if field in facts:
                    same = hashlib.sha256(struct.pack(f"<{len(ids)}I", *ids)).hexdigest() == facts[field]
                    good &= same
                    text += f", hash {'the same' if same else 'differs'}"
            report(good, text)


# ---- speed


def speed(name, model, texts, peer, special):
    """Both sides by turns, one thread each; the ratio of medians and of the best rounds."""
    size = sum(len(t.encode()) for t in texts)
    ours, theirs = [], []
    for _ in range(args.rounds):
        ours.append(sum(row["seconds"] for row in braid_lines_count(model, texts, special)))
        start = time.perf_counter()
        peer(texts)
        theirs.append(time.perf_counter() - start)
    m, best = statistics.median, min
    print(f"speed {name}: {size / 1e6:.1f} MB; MB/s braid {size / m(ours) / 1e6:.1f}, package {size / m(theirs) / 1e6:.2f}; ratio of medians {m(theirs) / m(ours):.1f}, of best rounds {best(theirs) / best(ours):.1f}", flush=True)


def braid_lines_count(model, texts, special):
    with tempfile.NamedTemporaryFile("w", suffix=".jsonl") as f:
        f.write("".join(json.dumps(t) + "\n" for t in texts))
        f.flush()
        out = subprocess.run([str(args.braid), "tokenize", "--model", str(model), "--file", f.name, "--lines", "--json", "--count"] + ["--special"] * special, capture_output=True, text=True, check=True).stdout
    return [json.loads(line) for line in out.split("\n") if line]


def speeds(data, found, texts):
    files = texts["files"][:: max(1, len(texts["files"]) // 250)]
    for name, (t, model) in found.items():
        if name.startswith("fixture"):
            continue
        for kind, docs in (("English", files), ("code", texts["code"]), ("all Unicode", texts["unicode"])):
            speed(f"{name}, {kind}", model, docs, lambda d: t.encode_batch_fast(d), True)
    for path, sp in pieces(data):
        if "fixture" not in str(path) and "tests" not in path.parts:
            speed(f"{path.parent.name} (SentencePiece), English", path, files, lambda d: [sp.encode(s) for s in d], False)
    for megabytes in (2.5, 5, 10):  # one word
        word = "".join(random.Random(3).choices("abcdefghijklmnopqrstuvwxyz", k=int(megabytes * 1e6)))
        for name, model in [(n, m) for n, (_, m) in found.items() if n.startswith("gpt2 ")] + [(p.parent.name, p) for p, _ in pieces(data) if p.parent.name == "llama2"]:
            row = braid_lines_count(model, [word], False)[0]
            print(f"one word of {megabytes} MB, {name}: {row['seconds']:.2f} s, {row['count']} tokens", flush=True)


p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
p.add_argument("--data", type=Path, required=True, help="folder with tokenizers and texts")
p.add_argument("--braid", type=Path, default=ROOT / "build/braid")
p.add_argument("--megabytes", type=int, default=2, help="at most so much of each file")
p.add_argument("--rounds", type=int, default=5, help="timed rounds per side")
p.add_argument("--no-speed", action="store_true")
p.add_argument("--speed-only", action="store_true")
args = p.parse_args()

print(f"tokenizers {tokenizers.__version__}, sentencepiece {sentencepiece.__version__}, Python {sys.version.split()[0]}")
with tempfile.TemporaryDirectory() as folder:
    texts = corpus(args.data)
    found = peers(args.data, Path(folder))
    if not args.speed_only:
        llama_cpp_vectors(args.data, found)
        wikitext(args.data)
        for name, (t, model) in found.items():
            groups = texts
            if t.normalizer is not None:  # what no version of Unicode in use agrees on
                groups = {k: [s for s in v if old_enough(s)] for k, v in texts.items()}
            if name.startswith("fixture"):
                groups = {k: v[: len(v) if k in ("unicode", "emoji") else 40] for k, v in groups.items()}
            compare(name, model, groups, lambda s: t.encode(s).ids, lambda ids: t.decode(ids, skip_special_tokens=False), True)
            if name.startswith(("gpt2", "qwen2", "gpt-neox")):
                raw = damaged(groups)
                t.encode_special_tokens = True
                same = braid_ids(model, raw) == t.encode(raw.decode(errors="replace"), add_special_tokens=False).ids
                t.encode_special_tokens = False
                report(same, f"{name}, damaged UTF-8: {len(raw)} bytes")
        for path, sp in pieces(args.data):
            groups = {k: [s.replace("\0", "") for s in v][: None if "tests" not in path.parts else 300] for k, v in texts.items()}
            compare(f"SentencePiece {path.parent.name}/{path.name}", path, groups, sp.encode, sp.decode, False)
    if not args.no_speed:
        speeds(args.data, found, texts)
sys.exit(failed)
