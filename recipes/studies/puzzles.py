"""Copy, replace and shuffle on a model that has learnt them: what speed costs, with the closed forms.

1. Lines `task other w1 w2 w3 w4 = a1 a2 a3 a4` over 8 words; the answer copies the four words, puts the other in the
   place of one of them (any), or shuffles them. A small LLaDA learns to fill in the answer (the
   NELBO: one to four of its tokens masked).
2. Strategies that do not look at what was drawn write the answers of new lines, one, two and four tokens per step,
   drawn at temperature 1, exactly as the probe `coherence` does with a language model.
3. A table: the share solved at each speed, with the closed form.

CPU, about three minutes:    python recipes/studies/puzzles.py --out runs/puzzles
"""

import argparse
import json
import random
from itertools import product
from pathlib import Path
from typing import Any

import pandas as pd
import torch
from rich.console import Console
from rich.progress import track
from scipy import stats

from closed_forms import closed_form, equivalence
from maskwise.diffusion import Noised, blockwise
from maskwise.models.families.llada import LLaDAConfig
from maskwise.models.model import Model
from maskwise.probes.answers.decoded import solve
from maskwise.probes.library.coherence import BLIND, ITEMS, SPEEDS
from maskwise.support.files import replace_file
from maskwise.tasks.prompts import Prompt
from maskwise.tasks.word_puzzles import NAMES, Name, PuzzlePrompt, make_puzzle
from small_llada import train_small

WORDS = 8
SEPARATOR = WORDS + len(NAMES)
MASK = SEPARATOR + 1
MARGIN = 0.05  # of the closed form: what counts as equal to it
START = 2 + ITEMS + 1  # the answer's first place


def draw_line(name: Name, draws: random.Random) -> tuple[list[int], PuzzlePrompt]:
    """A line with one of its right answers, and the same line with the answer masked."""
    *items, other = draws.sample(range(WORDS), ITEMS + 1)
    answer = list(items)
    if name == "shuffle":
        draws.shuffle(answer)
    elif name == "replace":
        answer[draws.randrange(ITEMS)] = other
    given = [WORDS + NAMES.index(name), other, *items, SEPARATOR]
    return given + answer, PuzzlePrompt((*given, *[MASK] * ITEMS), make_puzzle(name, items, other))


def train(steps: int, batch: int, seed: int) -> Model:
    config = LLaDAConfig(
        d_model=64,
        n_layers=3,
        n_heads=4,
        mlp_hidden_size=192,
        vocab_size=MASK + 1,
        max_sequence_length=16,
        mask_token_id=MASK,
        init_std=0.05,
    )
    lines, noise = random.Random(seed), torch.Generator().manual_seed(seed)

    def draw() -> list[Noised]:
        drawn = [torch.tensor(draw_line(lines.choice(NAMES), lines)[0]) for _ in range(batch)]
        return [blockwise(ids, MASK, ITEMS, noise, start=START) for ids in drawn]

    return train_small(config, draw, steps, seed, "puzzles")


def answers_of(model: Model, name: Name, rule: str, tokens: int, tries: int, seed: int) -> list[dict[str, Any]]:
    """Which of so many puzzles are solved, so many tokens per step."""
    draws = random.Random(f"{name} {seed}")
    puzzles = [draw_line(name, draws)[1] for _ in range(tries)]
    prompts = [Prompt(one.ids, START, one.puzzle.items[0], ITEMS) for one in puzzles]
    return [
        {"puzzle": name, "tokens": tokens, "correct": one.written is not None and one.written.right}
        for one in solve(model, prompts, rule, tokens, puzzles, seed)
    ]


def by_closed_form(table: pd.DataFrame) -> list[dict[str, Any]]:
    """For each puzzle and number of tokens a step: the share solved, and the closed form."""
    found = []
    for name, count in product(NAMES, SPEEDS.values()):
        asked = table[(table.puzzle == name) & (table.tokens == count)]
        solved = int(asked.correct.sum())
        interval = stats.binomtest(solved, len(asked)).proportion_ci(method="wilson")
        row: dict[str, Any] = {"puzzle": name, "tokens a step": count, "n": len(asked), "solved": solved / len(asked)}
        row |= {"low": float(interval.low), "high": float(interval.high)}
        row["closed form"] = closed_form(name, [count] * (ITEMS // count))
        found.append(row | {"verdict": equivalence(row["low"], row["high"], row["closed form"], MARGIN)})
    return found


def table_lines(closed: list[dict[str, Any]]) -> list[str]:
    """In Markdown."""
    return [
        f"| puzzle | tokens a step | solved | 95 % interval | closed form | within {100 * MARGIN:.0f} points |",
        "|---|---|---|---|---|---|",
        *(
            f"| {row['puzzle']} | {row['tokens a step']} | {100 * row['solved']:.1f} % | {100 * row['low']:.1f} to "
            f"{100 * row['high']:.1f} % | {100 * row['closed form']:.1f} % | {row['verdict']} |"
            for row in closed
        ),
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("runs/puzzles"))
    parser.add_argument("--steps", type=int, default=2000)
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--tries", type=int, default=200, help="puzzles for each task, strategy and speed")
    parser.add_argument("--seed", type=int, default=0)
    asked = parser.parse_args()
    asked.out.mkdir(parents=True, exist_ok=True)
    model = train(asked.steps, asked.batch, asked.seed)
    asked_rules = track([*product(BLIND, SPEEDS.values())], "Decoding", console=Console(stderr=True))
    answers = [
        answer
        for rule, tokens in asked_rules
        for name in NAMES
        for answer in answers_of(model, name, rule, tokens, asked.tries, asked.seed)
    ]
    closed = by_closed_form(pd.DataFrame(answers))
    replace_file(asked.out / "puzzles.json", [json.dumps({"closed form": closed}, indent=2)])
    print("\n".join(table_lines(closed)))


if __name__ == "__main__":
    main()
