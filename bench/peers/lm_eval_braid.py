#!/usr/bin/env python3
"""Braid as a model of lm-evaluation-harness, so that every task of the harness can drive it.

    python bench/peers/lm_eval_braid.py run --model braid --model_args pretrained=FOLDER --tasks piqa

The arguments are those of lm_eval. In a program: `import lm_eval_braid` registers the model "braid".

model_args:
    pretrained     the model folder
    braid          the program, default build/braid of this repository
    threads        0: all cores
    max_length     longest input; without it as the folder's files say
    add_bos_token  BOS before contexts, default False
    max_gen_toks   longest generation of tasks that name no limit, default 256
    options        more words for `braid eval`, e.g. "--quant q8"

The program runs as a subprocess: requests go in as lines of JSON, an empty line ends a batch, answers come back in
the same order.
"""
import json
import pathlib
import subprocess
import sys

from lm_eval.api.model import LM
from lm_eval.api.registry import register_model

PROGRAM = pathlib.Path(__file__).resolve().parent.parent.parent / "build" / "braid"


@register_model("braid")
class BraidLM(LM):
    def __init__(self, pretrained, braid=PROGRAM, threads=0, max_length=None, add_bos_token=False, max_gen_toks=256,
                 options="", batch_size=None, device=None, max_batch_size=None):
        super().__init__()
        self.max_gen_toks = int(max_gen_toks)
        command = [str(braid), "eval", "--model", str(pretrained), "--request-lines", "--threads", str(threads)]
        if max_length:
            command += ["--max-length", str(max_length)]
        if str(add_bos_token).lower() == "true":
            command += ["--bos"]
        self.process = subprocess.Popen(command + options.split(), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
                                        encoding="utf-8")

    def _batch(self, requests):
        if not requests:
            return []
        # All of them first: the program answers after the empty line, so that neither side waits for the other.
        self.process.stdin.write("".join(json.dumps(r) + "\n" for r in requests) + "\n")
        self.process.stdin.flush()
        answers = []
        for line in self.process.stdout:
            if not line.strip():
                return answers
            answers.append(json.loads(line))
        raise RuntimeError(f"braid ended with code {self.process.wait()} after {len(answers)} of {len(requests)} answers")

    def loglikelihood(self, requests, disable_tqdm=False):
        answers = self._batch([{"type": "loglikelihood", "context": r.args[0], "continuation": r.args[1]} for r in requests])
        return [(a["log_likelihood"], a["greedy"]) for a in answers]

    def loglikelihood_rolling(self, requests, disable_tqdm=False):
        answers = self._batch([{"type": "loglikelihood_rolling", "text": r.args[0]} for r in requests])
        return [a["log_likelihood"] for a in answers]

    def generate_until(self, requests, disable_tqdm=False):
        batch = []
        for r in requests:
            context, options = r.args
            if options.get("do_sample") and options.get("temperature", 1.0) > 0:
                raise NotImplementedError("braid eval generates greedily; use a task without do_sample")
            until = options.get("until") or []
            batch.append({"type": "generate_until", "context": context, "until": [until] if isinstance(until, str) else until,
                          "max_gen_toks": int(options.get("max_gen_toks", self.max_gen_toks))})
        return [a["text"] for a in self._batch(batch)]


if __name__ == "__main__":
    from lm_eval.__main__ import cli_evaluate

    if len(sys.argv) > 1 and sys.argv[1] == "run":
        del sys.argv[1]
    cli_evaluate()
