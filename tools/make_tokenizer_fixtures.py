#!/usr/bin/env python3
"""Makes tests/data/tokenizer: small tokenizers of every kind and what the packages `tokenizers` and `sentencepiece` do with awkward texts.
  python3 tools/make_tokenizer_fixtures.py [NAME ...]      all, or those named (needs tokenizers and sentencepiece; the result is committed)"""
import io
import json
import random
import struct
import sys
import tempfile
from pathlib import Path

import sentencepiece
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

ROOT = Path(__file__).resolve().parent.parent
OUT = ROOT / "tests/data/tokenizer"

GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
QWEN2 = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
QWEN35 = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
CL100K = QWEN2.replace(r"|\p{N}|", r"|\p{N}{1,3}|")
O200K = (r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|"
         r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|"
         r"\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+")

WORDS = """the quick brown fox jumps over a lazy dog and she didn't say they'll've WE'RE you'D 's 'S 'ſ it's I'M
été naïve café cafe\u0301 Ångström A\u030angström ﬁne ｆｕｌｌ ½ ² Ⅷ ٣٤٥ १२३ 12345 3.14159 1,000,000 0x1F 한국어 한글 텍스트 日本語 のテキスト 中文字符
русский язык Ελληνικά עברית العربية ไทย हिन्दी தமிழ் ქართული İstanbul ŒUVRE ß ẞ Ǆ ǅ 🙂 👍🏽 👩‍👩‍👧‍👦 🏳️‍🌈 🇩🇪 🤷‍♀️ z̸̡̢͝a̶l̷g̵o̴ a\u0323\u0307b \u1100\u1161\u11a8
\u200b \u200d \ufeff \u00a0 \u3000 \u2028 \u0085 \u180e \u00ad \x00 \x01 \x1b[0m \x7f \ufffd \U0001f9ff \U000e0001 \U0010ffff \ue000 _under_score_ __init__ snake_case
camelCase HTTPServer foo.bar() if(x!=0){y+=1;} /* c */ // d # e <br/> <s> </s> <unk> <|endoftext|> <|im_start|> <tool> [MASK] @user $x $$ %d \\n "quoted" 'single' “curly” ‘quote’ — – … • → ≠ ∑ ℝ ™ © ▁ ▁▁x Ġ Ċ é""".split(" ")
SPACES = [" ", "  ", "   ", "\n", "\n\n", "\r\n", "\t", " \n ", "\n \n", "\u00a0", "\u3000", " " * 17, "\n" * 9, "\t \r", "\x0b", "\x0c", ""]


def texts():
    rng = random.Random(1)
    out = ["", " ", "a", " a", "a ", "\n", " \n", "<|endoftext|>", "a<|endoftext|>b", " <|endoftext|> ", "<|endoftext|><|endoftext|>", "x <tool>  y", "xtool", "x tool y",
           "a" * 100, " " * 100, "\n" * 60, "ab" * 200, "é" * 80, "12" * 50, "日" * 60, "🙂" * 30, "!" * 70, "'s't're", "\u0301" * 20, "e\u0301" * 30, "a\u0327\u0301 a\u0301\u0327"]
    out += [w for w in WORDS if w] + [" " + w for w in WORDS[::4] if w]
    for _ in range(110):
        out.append("".join(rng.choice(WORDS) + rng.choice(SPACES) for _ in range(rng.randint(1, 9))))
    for _ in range(30):
        out.append("".join(chr(rng.choice([rng.randrange(0x20, 0x7F), rng.randrange(0xA0, 0x600), rng.randrange(0x900, 0x1200), rng.randrange(0x2000, 0x2C00), rng.randrange(0x3000, 0xD000), rng.randrange(0x1F000, 0x1FB00)])) for _ in range(rng.randint(1, 25))))
    return list(dict.fromkeys(out))


def broken():  # bytes that are not UTF-8
    rng = random.Random(2)
    out = [b"\xff", b"a\xc3", b"a\xc3b", b"\xe2\x96", b"\xf0\x9f\x99", b"\xed\xa0\x80", b"\xc0\xaf", b"\xf4\x90\x80\x80", b"\x80\x80 x", b"\xf0\x9f\x99a\xe2\x28\xa1"]
    for _ in range(15):
        b = bytearray("".join(rng.choice(WORDS) + " " for _ in range(5)).encode())
        for _ in range(3):
            b[rng.randrange(len(b))] = rng.randrange(256)
        out.append(bytes(b))
    return out


CORPUS = [t for t in texts()] + [(ROOT / f).read_text() for f in ("README.md", "docs/explanation/design.md", "src/io/json.cpp")]


def byte_level(pattern, size, normalizer=None, specials=("<|endoftext|>", "<|im_start|>"), prefix=False, **model):
    t = Tokenizer(models.BPE(**model))
    if normalizer:
        t.normalizer = normalizer
    level = pre_tokenizers.ByteLevel(add_prefix_space=prefix, use_regex=pattern is None)
    t.pre_tokenizer = level if pattern is None else pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(pattern), "isolated"), level])
    t.decoder = decoders.ByteLevel()
    t.train_from_iterator(CORPUS, trainers.BpeTrainer(vocab_size=size, special_tokens=list(specials), initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False))
    return t


def plain(size, pre, normalizer=None, decoder=None, specials=("<unk>", "<s>", "</s>"), trainer={}, **model):
    t = Tokenizer(models.BPE(unk_token="<unk>", **model))
    if normalizer:
        t.normalizer = normalizer
    if pre:
        t.pre_tokenizer = pre
    if decoder:
        t.decoder = decoder
    t.train_from_iterator(CORPUS, trainers.BpeTrainer(vocab_size=size, special_tokens=list(specials), limit_alphabet=140, show_progress=False, **trainer))
    return t


def with_bytes(t, **changes):  # adds <0x00> to <0xFF> to the vocabulary and turns byte fallback on
    j = json.loads(t.to_str())
    vocab = j["model"]["vocab"]
    for b in range(256):
        vocab[f"<0x{b:02X}>"] = len(vocab)
    j["model"]["byte_fallback"] = True
    j["model"].update(changes)
    return Tokenizer.from_str(json.dumps(j))


def by_hand(pieces, merges, pre, normalizer=None):  # without training, so that texts elsewhere do not change it
    vocab = {p: i for i, p in enumerate(["<unk>", *pieces, *("".join(m) for m in merges)])}
    t = Tokenizer(models.BPE(vocab=vocab, merges=merges, unk_token="<unk>"))
    t.normalizer, t.pre_tokenizer = normalizer, pre
    return t


# Whether a text still begins where it began: Metaspace with prepend_scheme "first" asks.
STARTS = ["", " ", "a", " a", "  a a", "ba", "bba", "bab a", "b a", " ba", "\u0301a", "e\u0301a", "\u0301\u0301a\u0301", "fa", "ﬁa", "ﬁ", "xa", " xa", "x a", " a x a", "A", " A", "İa", "\u3000a", "\u0301 a", "b\u0301a", "é a"]
FIRST = {
    "first_strip": normalizers.Strip(True, False),
    "first_accents": normalizers.Sequence([normalizers.NFD(), normalizers.StripAccents()]),
    "first_replace": normalizers.Replace("b", ""),
    "first_replace_two": normalizers.Sequence([normalizers.Replace("bb", "x"), normalizers.Replace(Regex("^x?a"), "xa"), normalizers.Lowercase()]),
    "first_prepend": normalizers.Sequence([normalizers.NFKD(), normalizers.Prepend(" b"), normalizers.Strip(True, True), normalizers.Replace("b", ""), normalizers.NFC()]),
}
# What is in \w, and in a class with it.
WORDY = list("①½²³¹¼¾a1_-") + ["\u0301"]


def tokenizers_of_every_kind():
    made = {}
    made["gpt2"] = byte_level(None, 420)
    t = byte_level(QWEN2, 420, normalizers.NFC())
    t.add_tokens([AddedToken("<tool>", normalized=False), AddedToken("tool", single_word=True, normalized=True), AddedToken("  \n", normalized=True)])
    t.add_special_tokens([AddedToken("[MASK]", lstrip=True, rstrip=True)])
    made["qwen2"] = t
    made["qwen35"] = byte_level(QWEN35, 400, normalizers.NFC())
    t = byte_level(CL100K, 420, ignore_merges=True)
    t.post_processor = processors.Sequence([processors.ByteLevel(), processors.TemplateProcessing(single="<|im_start|> $A <|endoftext|>", special_tokens=[("<|im_start|>", 1), ("<|endoftext|>", 0)])])
    made["cl100k"] = t
    made["o200k"] = byte_level(O200K, 380)
    t = byte_level(None, 400, normalizers.Sequence([normalizers.NFKC(), normalizers.Lowercase()]), prefix=True)
    t.add_tokens([" " * n for n in range(9, 1, -1)])
    made["neox"] = t
    llama = dict(normalizer=normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")]),
                 decoder=decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]))
    t = with_bytes(plain(330, pre_tokenizers.Split("▁", "merged_with_next"), **llama, fuse_unk=True))
    j = json.loads(t.to_str())
    j["pre_tokenizer"] = None
    t = Tokenizer.from_str(json.dumps(j))
    t.post_processor = processors.TemplateProcessing(single="<s> $A", pair="<s> $A <s> $B", special_tokens=[("<s>", 1)])
    made["llama"] = t
    made["metaspace"] = plain(330, pre_tokenizers.Metaspace(prepend_scheme="first"), decoder=decoders.Metaspace(prepend_scheme="first"), normalizer=normalizers.NFKD(), fuse_unk=True)
    made["metaspace_always"] = plain(300, pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.Metaspace(prepend_scheme="always")]), decoder=decoders.Metaspace(prepend_scheme="always"))
    made["words"] = plain(300, pre_tokenizers.Sequence([pre_tokenizers.Whitespace(), pre_tokenizers.Digits(individual_digits=False)]), normalizer=normalizers.Sequence([normalizers.NFD(), normalizers.StripAccents(), normalizers.Strip()]),
                          decoder=decoders.BPEDecoder(suffix="</w>"), trainer={"end_of_word_suffix": "</w>"}, end_of_word_suffix="</w>")
    made["pieces"] = plain(300, pre_tokenizers.Sequence([pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Punctuation("merged_with_previous")]), trainer={"continuing_subword_prefix": "##"}, continuing_subword_prefix="##", fuse_unk=True)
    for name, normalizer in FIRST.items():
        made[name] = by_hand(["▁", "a", "b", "e", "f", "i", "x", "é"], [("▁", "a"), ("▁", "b"), ("▁", "x"), ("▁", "é")], pre_tokenizers.Metaspace(prepend_scheme="first"), normalizer)
        made[name].add_tokens([AddedToken("f", normalized=True)])
    for name, pattern in (("word_class", r"\w+|[^\w\s]+"), ("word_class_inside", r"[\w-]+|\W")):
        made[name] = by_hand(WORDY, [(a, b) for a in WORDY for b in WORDY], pre_tokenizers.Split(Regex(pattern), "isolated"))
    for behavior in ("removed", "merged_with_previous", "merged_with_next", "contiguous"):
        made["split_" + behavior] = plain(260, pre_tokenizers.Split(Regex(r"[\s\d]|n't"), behavior), normalizer=normalizers.Replace(Regex(r"[^\S\n]+"), " "))
    return made


def case(t, text):
    ids = t.encode(text).ids
    plain = t.encode(text, add_special_tokens=False).ids
    decoded, full = t.decode(ids), t.decode(ids, skip_special_tokens=False)
    row = {"text": text, "ids": ids}
    if decoded != text:  # absent fields: the one before
        row["decoded"] = decoded
    if plain != ids:
        row["plain"] = plain
    if full != decoded:
        row["full"] = full
    return row


def sentencepieces():
    rules = tempfile.NamedTemporaryFile("w", suffix=".tsv")  # the usual table of rules alone would be 240 kB
    rules.write("FB01\t66 69\nBD\t31 2F 32\nA0\t20\n3000\t20\n")
    rules.flush()
    table = dict(normalization_rule_tsv=rules.name)
    identity = dict(normalization_rule_name="identity", remove_extra_whitespaces=False)
    for name, kind, options in (("spm_bpe", "bpe", dict(byte_fallback=True, **identity)),
                                ("spm_unk", "bpe", dict(byte_fallback=False, **identity)),
                                ("spm_table", "bpe", dict(byte_fallback=True, user_defined_symbols=["<tool>"], **table)),
                                ("spm_unigram", "unigram", dict(byte_fallback=True, **table))):
        out = io.BytesIO()
        sentencepiece.SentencePieceTrainer.train(sentence_iterator=iter(line for t in CORPUS for line in t.replace("\0", "").split("\n") if line), model_writer=out, model_type=kind, vocab_size=700 if options["byte_fallback"] else 440,
                                                 character_coverage=0.98, minloglevel=2, num_threads=1, hard_vocab_limit=False, **options)
        yield name, out.getvalue()


def main():
    only = sys.argv[1:]
    OUT.mkdir(parents=True, exist_ok=True)
    for old in OUT.glob("*"):
        if not only:
            old.unlink()
    all_texts, all_broken = texts(), broken()
    size = 0

    def write(name, data):
        nonlocal size
        (OUT / name).write_bytes(data)
        size += len(data)

    dump = lambda v: json.dumps(v, ensure_ascii=False, separators=(",", ":"))
    for i, (name, t) in enumerate(tokenizers_of_every_kind().items()):
        if only and name not in only:
            continue
        write(name + ".json", t.to_str().encode())
        if name in FIRST or name.startswith("word_class"):
            few = STARTS if name in FIRST else [a + b for a in WORDY for b in WORDY] + ["".join(WORDY), "a½ ①² b", "x²-³"]
        else:
            few = all_texts if name in ("gpt2", "qwen2") else all_texts[:27] + random.Random(i).sample(all_texts[27:], 30)
        write(name + ".cases", "".join(dump(case(t, s)) + "\n" for s in few).encode())
        if name == "qwen2":
            rows = [dict(case(t, b.decode(errors="replace")), bytes=b.hex()) for b in all_broken]
            write("broken.cases", "".join(dump(r) + "\n" for r in rows).encode())
    for i, (name, model) in enumerate([] if only else sentencepieces()):
        sp = sentencepiece.SentencePieceProcessor(model_proto=model)
        write(name + ".model", model)
        rows = []
        for s in all_texts[:27] + random.Random(i).sample(all_texts[27:], 30):
            if name == "spm_unigram" and s == "12" * 50:  # a tie that versions of the library break differently
                continue
            if "\0" in s or "<s>" in s or "</s>" in s:  # NUL ends a text there; names of control pieces are plain text there
                continue
            ids = sp.encode(s)
            decoded = sp.decode(ids)
            rows.append({"text": s, "plain": ids} | ({"decoded": decoded} if decoded != s else {}))
        write(name + ".cases", "".join(dump(r) + "\n" for r in rows).encode())
        if name == "spm_bpe":  # the same pieces as llama2.c has them
            pieces = [sp.id_to_piece(i).replace("▁", " ") if i > 2 else ["<unk>", "\n<s>\n", "\n</s>\n"][i] for i in range(sp.get_piece_size())]
            data = struct.pack("<i", max(len(p.encode()) for p in pieces))
            for i, p in enumerate(pieces):
                data += struct.pack("<fi", sp.get_score(i), len(p.encode())) + p.encode()
            write("llama2c.bin", data)
    print(f"{len(list(OUT.glob('*')))} files, {size / 1000:.0f} kB, {len(all_texts)} texts")


if __name__ == "__main__":
    main()
