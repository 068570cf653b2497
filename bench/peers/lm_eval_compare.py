#!/usr/bin/env python3
"""Braid's benchmarks against lm-evaluation-harness with transformers, document by document, on the same checkpoints.

    python3 -m venv .venv && .venv/bin/pip install -r bench/peers/lm_eval_requirements.txt
    .venv/bin/python bench/peers/lm_eval_compare.py --data DATA --model FOLDER_HF [--model FOLDER_HF] [--limit 200]

FOLDER_HF is a checkpoint that both read, e.g. of `braid convert --to hf`. Without --model two small ones are trained on
DATA's texts: a Transformer and a hybrid. lm-eval runs its own task files; only the place of the data is another: rows of
DATA's files, in the form in which the hub serves them, in a temporary folder. squad has no counterpart there and is a
task file of this script.

Compared: every prompt and continuation, the log-likelihood of every request (at most --tolerance apart, pages of a text
one unit of float32's last place), which continuations are greedy, generated texts, and the metrics with their standard
errors. Timed: both as a whole on the same
requests, in seconds of the clock and of the processors. lm-eval's begin with the model and the data loaded; Braid's are
those of its program, with both.
Exit code 1 if anything differs.

    lm_eval_compare.py --render a.json b.json      the tables of docs/results/lm-eval.md from files of --json
"""
import argparse
import json
import os
import pathlib
import resource
import subprocess
import sys
import tempfile
import time

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("HF_DATASETS_OFFLINE", "1")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
os.environ.setdefault("DISABLE_MULTIPROC", "1")

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
LETTERS = "ABCDEFGH"


def labelled(row):
    """Choices as the hub has them."""
    labels = list(LETTERS[: len(row["choices"])])
    return {k: v for k, v in row.items() if k not in ("choices", "gold")} | {
        "choices": {"text": row["choices"], "label": labels}, "answerKey": labels[row["gold"]]}


def last(split):
    return {"test_split": split, "fewshot_split": split, "validation_split": None, "training_split": None}


SQUAD = {
    "task": "squad", "output_type": "generate_until",
    "doc_to_text": "Title: {{title}}\n\nBackground: {{context}}\n\nQuestion: {{question}}\n\nAnswer:",
    "doc_to_target": "{{answers[0]}}",
    "generation_kwargs": {"until": ["\n"], "do_sample": False, "temperature": 0.0},
    "metric_list": [{"metric": "bypass"}]}
FILES = {
    "lambada_openai": "lambada/lambada_test_openai.jsonl", "lambada_standard": "lambada/lambada_test_plain_text.txt",
    "piqa": "piqa/piqa_validation.jsonl", "hellaswag": "hellaswag/hellaswag_validation.jsonl",
    "winogrande": "winogrande/winogrande_xl_validation.jsonl", "arc_easy": "arc/arc_easy_test.jsonl",
    "arc_challenge": "arc/arc_challenge_test.jsonl", "social_iqa": "siqa/siqa_validation.jsonl",
    "boolq": "boolq/boolq_validation.jsonl", "openbookqa": "openbookqa/openbookqa_test.jsonl",
    "sciq": "sciq/sciq_validation.jsonl", "copa": "copa/copa_validation.jsonl",
    "squad": "squad/squad_v1.1_validation_sample1000.jsonl", "drop": "drop/drop_validation_sample1000_answerlists.jsonl",
    "triviaqa": "triviaqa/triviaqa_nocontext_sample3000.jsonl", "nq_open": "nq_open/NQ-open.dev.jsonl",
    "blimp_anaphor_gender_agreement": "blimp/anaphor_gender_agreement.jsonl", "blimp_wh_island": "blimp/wh_island.jsonl"}
# task: what a row becomes, what the task's own file needs besides
TASKS = {
    "wikitext": (lambda r: r, {}),
    "lambada_openai": (lambda r: r, {}),
    "lambada_standard": (lambda r: r, {}),
    "piqa": (lambda r: r, {}),
    # The file has the texts that the task's process_docs makes.
    "hellaswag": (lambda r: r, {"process_docs": None, "doc_to_target": "{{gold}}"}),
    "winogrande": (lambda r: r, {}),
    "arc_easy": (labelled, {}),
    "arc_challenge": (labelled, {}),
    "social_iqa": (lambda r: r, {}),
    "boolq": (lambda r: r, {}),
    "openbookqa": (labelled, {}),
    "sciq": (lambda r: r, {}),
    "copa": (lambda r: r, {}),
    "squad": (lambda r: r, SQUAD),
    # Answers are already lists of spans.
    "drop": (lambda r: r, {"process_docs": None, "doc_to_target": "{{answers[0]|join(',')}}"}),
    "triviaqa": (lambda r: {"question": r["question"], "answer": {"aliases": r["aliases"]}}, {}),
    "nq_open": (lambda r: r, {}),
    "blimp_anaphor_gender_agreement": (lambda r: r, {}),
    "blimp_wh_island": (lambda r: r, {}),
}


def parse_args():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--data", required=True, type=pathlib.Path, help="folder with the benchmarks' files")
    p.add_argument("--model", action="append", default=[], type=pathlib.Path, help="checkpoint; repeatable")
    p.add_argument("--tasks", default=",".join(TASKS))
    p.add_argument("--limit", type=int, default=200, help="documents of a task; 0: all")
    p.add_argument("--fewshot", type=int, default=0)
    p.add_argument("--max-length", type=int, default=2048)
    p.add_argument("--threads", type=int, default=2)
    p.add_argument("--batch-size", default="16", help="of lm-eval: a number or auto")
    p.add_argument("--tolerance", type=float, default=1e-3)
    p.add_argument("--bootstrap", type=int, default=1000)
    p.add_argument("--driver", action="store_true", help="also lm-eval with Braid as its model (lm_eval_braid.py)")
    p.add_argument("--braid", type=pathlib.Path, default=ROOT / "build" / "braid")
    p.add_argument("--json", type=pathlib.Path, help="file for the rows of the table")
    return p.parse_args()


def render(files):
    """The rows of several runs as Markdown."""
    rows = [r for f in files for r in json.loads(pathlib.Path(f).read_text())]
    print("| model | task | documents | requests | largest difference of log p | differences |\n|---|---|---|---|---|---|")
    for r in rows:
        if "task" in r:
            worst = f"{r['worst']:.1e}" if r["worst"] else "-"
            print(f"| {r['model']} | {r['task']}{', ' + str(r['fewshot']) + '-shot' if r.get('fewshot') else ''} | {r['docs']} | "
                  f"{r['requests']} | {worst} | {r['prompts']} / {r['greedy']} / {r['texts']} / {r['metrics']} / {r['errors']} |")
    print("\n| model | tasks | lm-eval, clock s | Braid, clock s | ratio | lm-eval, CPU s | Braid, CPU s | ratio |\n"
          "|---|---|---|---|---|---|---|---|")
    for r in rows:
        if "lm_eval_seconds" in r:
            a, b, c, d = (r[k] for k in ("lm_eval_seconds", "braid_seconds", "lm_eval_cpu_seconds", "braid_cpu_seconds"))
            print(f"| {r['model']} | {r['tasks']} | {a:.1f} | {b:.1f} | {a / b:.1f} | {c:.1f} | {d:.1f} | {c / d:.1f} |")


def run(command):
    done = subprocess.run([str(c) for c in command], capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"{' '.join(map(str, command))}\nfailed with exit code {done.returncode}:\n{done.stderr}")
    return done.stdout


def train(args, folder):
    """Two small models of different families, exported."""
    text = folder / "text.txt"
    text.write_text("".join((args.data / f).read_text() for f in ("tinystories/tinystories_val_sample.txt",
                                                                   "openstax/openstax_valid.txt")))
    tokenizer = folder / "tokenizer.json"
    run([args.braid, "tokenizer", "train", "--text", text, "--vocab", 4096, "--special", "<|endoftext|>", "--out", tokenizer,
         "--quiet"])
    out = []
    for arch in ("transformer", "olmo-hybrid"):
        run([args.braid, "train", "--text", text, "--tokenizer", tokenizer, "--arch", arch, "--size", "1M", "--length", 256,
             "--steps", 60, "--batch", 8, "--threads", args.threads, "--run", folder / arch, "--quiet"])
        run([args.braid, "convert", "--model", folder / arch, "--to", "hf", "--out", folder / f"{arch}-hf"])
        (folder / f"{arch}-hf" / "tokenizer_config.json").write_text(
            json.dumps({"tokenizer_class": "PreTrainedTokenizerFast", "eos_token": "<|endoftext|>"}))
        out.append(folder / f"{arch}-hf")
    return out


def samples_of(folder, task):
    return {s["doc_id"]: s for s in map(json.loads, (folder / f"samples_{task}.jsonl").open())}


def cpu_seconds():
    """Of this process and of the programs that it ran."""
    return sum(u.ru_utime + u.ru_stime for u in map(resource.getrusage, (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)))


def timed(call):
    clock, cpu = time.perf_counter(), cpu_seconds()
    return call(), time.perf_counter() - clock, cpu_seconds() - cpu


def braid_eval(args, model, tasks, folder):
    command = [args.braid, "eval", "--model", model, "--tasks", ",".join(tasks), "--data", args.data, "--max-length",
               args.max_length, "--threads", args.threads, "--limit", args.limit, "--fewshot", args.fewshot, "--bootstrap",
               args.bootstrap, "--bos", "--log-samples", folder, "--json"]
    return json.loads(run(command))


def rows_of(args, name, samples):
    """All rows of a task's file, because examples are drawn from them; pages of WikiText as Braid cut them."""
    if name == "wikitext":
        return [s["doc"] for s in samples.values()]
    lines = (args.data / FILES[name]).read_text().split("\n")
    return [json.loads(line) if FILES[name].endswith(".jsonl") else {"text": line} for line in lines if line.strip()]


def harness_tasks(args, names, rows, folder):
    from lm_eval.tasks import TaskManager

    manager, files = TaskManager(), []
    for name in names:
        data = folder / f"{name}.jsonl"
        convert, more = TASKS[name]
        data.write_text("".join(json.dumps(convert(r)) + "\n" for r in rows[name]))
        config = {"task": name, "dataset_path": "json", "dataset_name": None,
                  "dataset_kwargs": {"data_files": {"test": str(data)}}, **last("test"), **more}
        if name != "squad":
            config = {"include": str(manager.task_index[name].yaml_path)} | config
        files.append(str(folder / f"{name}.yaml"))
        pathlib.Path(files[-1]).write_text(json.dumps(config))  # JSON is YAML
    return manager.load(files)


def harness_eval(args, lm, tasks):
    import lm_eval

    for task in tasks["tasks"].values():
        task.set_config("num_fewshot", args.fewshot)
        task.set_fewshot_seed(1234)
    return lm_eval.evaluate(lm, tasks, limit=args.limit or None, bootstrap_iters=args.bootstrap)


def compare(name, ours, theirs, our_results, their_results, tolerance):
    """A row of the table: the largest differences over all documents of a task."""
    row = {"task": name, "docs": len(theirs), "prompts": 0, "requests": 0, "worst": 0.0, "too_far": 0, "greedy": 0, "texts": 0,
           "metrics": 0, "errors": 0}
    for sample in theirs:
        mine = ours[sample["doc_id"]]
        for i, (resp, my_resp) in enumerate(zip(sample["filtered_resps"], mine["filtered_resps"], strict=True)):
            row["requests"] += 1
            arguments, my_arguments = sample["arguments"][i], mine["arguments"][f"gen_args_{i}"]
            row["prompts"] += arguments[0] != my_arguments["arg_0"]
            if isinstance(resp, str):
                row["texts"] += resp != my_resp
            elif isinstance(resp, float):
                # The harness adds up the tokens of a window in float32: a page is known to one unit of its last place.
                row["worst"] = max(row["worst"], abs(resp - float(my_resp)))
                row["too_far"] += abs(resp - float(my_resp)) > max(tolerance, 2**-23 * abs(resp))
            else:
                row["prompts"] += arguments[1] != my_arguments["arg_1"]
                row["worst"] = max(row["worst"], abs(resp[0] - float(my_resp[0])))
                row["too_far"] += abs(resp[0] - float(my_resp[0])) > tolerance
                row["greedy"] += str(bool(resp[1])) != my_resp[1]
    for metric, value in their_results.items():
        if metric == "alias" or metric.startswith(("bypass", "sample_", "name")) or not isinstance(value, float | int):
            continue
        wanted = our_results.get(metric)
        if not isinstance(wanted, float | int):
            row["metrics"] += 1
            continue
        # Means of 0 and 1 agree to the last bits; perplexities as far as the log-likelihoods do.
        close = abs(wanted - value) <= (1e-9 if "perplexity" not in metric and "bits" not in metric else
                                        tolerance * max(abs(value), 1))
        row["errors" if "_stderr" in metric else "metrics"] += not close
        if "_stderr" not in metric:
            row.setdefault("values", {})[metric.split(",")[0]] = value
    row["ok"] = not any(row[k] for k in ("too_far", "prompts", "greedy", "texts", "metrics", "errors"))
    return row


def main():
    if sys.argv[1:2] == ["--render"]:
        return render(sys.argv[2:])
    args = parse_args()
    import logging

    import datasets
    import torch
    import transformers

    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    datasets.disable_progress_bar()
    logging.disable(logging.WARNING)
    torch.set_num_threads(args.threads)
    from lm_eval.models.huggingface import HFLM

    names = args.tasks.split(",")
    report, failed = [], False
    with tempfile.TemporaryDirectory() as tmp:
        tmp = pathlib.Path(tmp)
        for number, model in enumerate(args.model or train(args, tmp)):
            print(f"\n{model.name}", flush=True)
            samples = tmp / f"samples{number}"
            ours, seconds, cpu = timed(lambda: braid_eval(args, model, names, samples))
            rows = {n: rows_of(args, n, samples_of(samples, n)) for n in names}
            (tmp / f"data{number}").mkdir()
            tasks = harness_tasks(args, names, rows, tmp / f"data{number}")
            batch = args.batch_size if args.batch_size == "auto" else int(args.batch_size)
            lm = HFLM(pretrained=str(model), device="cpu", dtype="float32", batch_size=batch, max_length=args.max_length)
            theirs, their_seconds, their_cpu = timed(lambda: harness_eval(args, lm, tasks))
            print(f"{'task':32} {'docs':>5} {'requests':>8} {'worst d log p':>13} {'prompts':>8} {'greedy':>7} {'texts':>6} "
                  f"{'metrics':>8} {'stderrs':>8}   (counts of differences)")
            for name in names:
                row = compare(name, samples_of(samples, name), theirs["samples"][name],
                              ours["results"][name], theirs["results"][name], args.tolerance)
                row["model"], row["fewshot"] = model.name, args.fewshot
                report.append(row)
                failed |= not row["ok"]
                print(f"{name:32} {row['docs']:5} {row['requests']:8} {row['worst']:13.1e} {row['prompts']:8} {row['greedy']:7} "
                      f"{row['texts']:6} {row['metrics']:8} {row['errors']:8} {'ok' if row['ok'] else 'DIFFERS'}", flush=True)
            print(f"clock: lm-eval {their_seconds:.1f} s, Braid {seconds:.1f} s: {their_seconds / seconds:.1f} x; processors: "
                  f"{their_cpu:.1f} s, {cpu:.1f} s: {their_cpu / cpu:.1f} x", flush=True)
            report.append({"model": model.name, "tasks": ", ".join(names) if len(names) < 5 else f"{len(names)} tasks", "lm_eval_seconds": their_seconds, "braid_seconds": seconds,
                           "lm_eval_cpu_seconds": their_cpu, "braid_cpu_seconds": cpu})
            if args.driver:
                import lm_eval_braid

                driver = lm_eval_braid.BraidLM(pretrained=model, braid=args.braid, max_length=args.max_length,
                                               threads=args.threads, add_bos_token=True)
                driven, driver_seconds, _ = timed(lambda: harness_eval(args, driver, tasks))
                same = all(abs(a - driven["results"][n][k]) <= args.tolerance * max(1, abs(a))
                           for n in names for k, a in theirs["results"][n].items() if isinstance(a, float | int))
                failed |= not same
                print(f"lm-eval driving Braid {driver_seconds:.1f} s: metrics {'equal' if same else 'DIFFER'}")
                report.append({"model": model.name, "driver_seconds": driver_seconds, "ok": same})
    if args.json:
        args.json.write_text(json.dumps(report, indent=1) + "\n")
    sys.exit(failed)


if __name__ == "__main__":
    main()
