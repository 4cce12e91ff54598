"""What `maskwise advise` says of a model whose price of speed is known: free for copy, ruinous for shuffle.

1. The small LLaDA of puzzles.py learns to copy four words, to put another in the place of one, and to shuffle them.
2. Its 8 words, the names of the tasks and the separator become the words of a tokenizer, so that lines are text.
3. For each task, `mw.advise` searches one and two blocks, all, half and a quarter of the steps, and two thresholds, on
   lines the search draws itself; a good answer is any right one.
4. A table: the frontier of each task. With exact marginals copy is right at any speed, and shuffle in one step is not:
   drawn tokens fit with 4!/4^4 = 9 %, the likeliest ones of four equal marginals never.

CPU, about two minutes:    python recipes/studies/advise_puzzles.py --out runs/advise-puzzles
"""

import argparse
import random
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

import maskwise as mw
from maskwise.models.model import Model
from maskwise.probes.paces import ITEMS
from maskwise.tasks.word_puzzles import NAMES, Name, make_puzzle
from puzzles import MASK, SEPARATOR, START, WORDS, draw_line, train

SEARCHED: dict[str, Any] = {
    "max_new_tokens": ITEMS,
    "canvases": "fixed,blocks",
    "blocks": [2],
    "caches": "none",
    "rules": "low-confidence,threshold:tau=0.9,threshold:tau=0.5",
}


def word_tokenizer() -> PreTrainedTokenizerFast:
    """A token per word: the words are called w0 to w7, a task by its name."""
    named = {f"w{number}": number for number in range(WORDS)} | {name: WORDS + n for n, name in enumerate(NAMES)}
    raw = Tokenizer(models.WordLevel(named | {"=": SEPARATOR, "<mask>": MASK}, unk_token="<mask>"))
    raw.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    return PreTrainedTokenizerFast(tokenizer_object=raw, mask_token="<mask>")


def draw_questions(name: Name, count: int, seed: int) -> list[dict[str, str]]:
    """Lines up to the separator as text; the answer is one of the right ones."""
    words, draws = word_tokenizer(), random.Random(f"advise {name} {seed}")
    lines = [draw_line(name, draws)[0] for _ in range(count)]
    return [{"prompt": words.decode(line[:START]) + " ", "answer": words.decode(line[START:])} for line in lines]


def is_right(name: Name, text: str, answer: str) -> float:
    """Any right answer counts. `answer` names the four words of a shuffle; a copy is unique."""
    return float(tuple(text.split()) in make_puzzle(name, answer.split()).answers)


def advise_on(model: Model, name: Name, questions: int, out: Path, seed: int = 0) -> dict[str, Any]:
    def is_solved(text: str, answer: str) -> float:
        return is_right(name, text, answer)

    asked = draw_questions(name, questions, seed)
    return mw.advise(model, asked, function=is_solved, out=out / name, seed=seed, **SEARCHED)


def table(output: dict[Name, dict[str, Any]]) -> list[str]:
    lines = [
        "| task | setting | right | difference from reference (points) | passes | frontier |",
        "|---" * 6 + "|",
    ]
    for name, found in output.items():
        for row in found["confirmed"]:
            mean, low, high = (row["to_reference"][end] for end in ("mean", "low", "high"))
            ends = "" if low is None or low == high else f" ({100 * low:.1f} to {100 * high:.1f})"
            lines.append(
                f"| {name} | {row['setting']} | {100 * row['quality']['mean']:.1f} % | {100 * mean:+.1f}{ends} | "
                f"{row['passes']:.2f} | {'yes' if row['frontier'] else ''} |"
            )
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("runs/advise-puzzles"))
    parser.add_argument("--steps", type=int, default=2000)
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--questions", type=int, default=400)
    parser.add_argument("--seed", type=int, default=0)
    asked = parser.parse_args()
    model = train(asked.steps, asked.batch, asked.seed)
    model.tokenizer = word_tokenizer()
    names: tuple[Name, ...] = ("copy", "shuffle")
    output = {name: advise_on(model, name, asked.questions, asked.out, asked.seed) for name in names}
    print("\n".join([*table(output), *(f"\n{name}: {found['sentence']}" for name, found in output.items())]))


if __name__ == "__main__":
    main()
