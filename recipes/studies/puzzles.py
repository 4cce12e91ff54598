"""Copy, replace and shuffle on a model that has learnt them: what speed costs, with the closed forms.

1. Lines `task other w1 w2 w3 w4 = a1 a2 a3 a4` over 8 words; the answer copies the four words, puts the other in the
   place of one of them (any), or shuffles them. A small LLaDA learns to fill in the answer (the
   NELBO: one to four of its tokens masked).
2. Every decoding rule writes the answers of new lines at several speeds, tokens drawn at temperature 1, exactly as
   the probe `coherence` does with a language model (`maskwise.probes.library.coherence`).
3. Two tables: the share solved with one, two and four tokens per step with the closed form, over the rules that do not
   look at what was drawn; and for every rule the area under accuracy against tokens per forward pass (AUP) with that
   of perfect marginals.

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
from maskwise.probes.answers.puzzles import solve
from maskwise.probes.library.coherence import BLIND, areas
from maskwise.probes.paces import ITEMS, Pace, paces
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


def answers_of(model: Model, name: Name, pace: Pace, tries: int, seed: int) -> list[dict[str, Any]]:
    """What the probe's table would hold of so many puzzles."""
    draws = random.Random(f"{name} {seed}")
    puzzles = [draw_line(name, draws)[1] for _ in range(tries)]
    prompts = [Prompt(one.ids, START, one.puzzle.items[0], ITEMS) for one in puzzles]
    condition = {"task": name, "puzzle": name, **pace.condition}
    return [
        {**condition, "point": point, "correct": one.written is not None and one.written.right, **one.evidence}
        for point, one in enumerate(solve(model, prompts, name, pace, puzzles, seed))
    ]


def by_closed_form(table: pd.DataFrame) -> list[dict[str, Any]]:
    """For each puzzle and number of tokens a step: the share solved under the blind rules, and the closed form."""
    found = []
    for name, count in product(NAMES, (1, 2, ITEMS)):
        asked = table[(table.puzzle == name) & (table.speed == f"{count} a step") & table.rule.isin(BLIND)]
        solved = int(asked.correct.sum())
        interval = stats.binomtest(solved, len(asked)).proportion_ci(method="wilson")
        row = {"puzzle": name, "tokens a step": count, "n": len(asked), "solved": solved / len(asked)}
        row |= {"low": float(interval.low), "high": float(interval.high)}
        row["closed form"] = closed_form(name, [count] * (ITEMS // count))
        found.append(row | {"verdict": equivalence(row["low"], row["high"], row["closed form"], MARGIN)})
    return found


def table_lines(closed: list[dict[str, Any]], found: pd.DataFrame) -> list[str]:
    """Both tables in Markdown."""
    lines = [
        f"| puzzle | tokens a step | solved | 95 % interval | closed form | within {100 * MARGIN:.0f} points |",
        "|---|---|---|---|---|---|",
    ]
    lines += [
        f"| {row['puzzle']} | {row['tokens a step']} | {100 * row['solved']:.1f} % | {100 * row['low']:.1f} to "
        f"{100 * row['high']:.1f} % | {100 * row['closed form']:.1f} % | {row['verdict']} |"
        for row in closed
    ]
    lines += [
        "",
        f"| rule | {' | '.join(f'{name}: AUP (perfect)' for name in NAMES)} |",
        "|---" * (1 + len(NAMES)) + "|",
    ]
    for rule, of_rule in found.groupby("rule", sort=False):
        cells = [f"{area:.2f} ({ideal:.2f})" for area, ideal in zip(of_rule.value, of_rule.ideal, strict=True)]
        lines.append(f"| {rule} | {' | '.join(cells)} |")
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("runs/puzzles"))
    parser.add_argument("--steps", type=int, default=2000)
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--tries", type=int, default=200, help="puzzles for each task, rule and speed")
    parser.add_argument("--seed", type=int, default=0)
    asked = parser.parse_args()
    asked.out.mkdir(parents=True, exist_ok=True)
    model = train(asked.steps, asked.batch, asked.seed)
    answers = [
        answer
        for pace in track(paces(), "Decoding", console=Console(stderr=True))
        for name in NAMES
        for answer in answers_of(model, name, pace, asked.tries, asked.seed)
    ]
    table = pd.DataFrame(answers)
    closed, found = by_closed_form(table), areas(table, {})
    stored = {"closed form": closed, "aup": found.to_dict("records")}
    replace_file(asked.out / "puzzles.json", [json.dumps(stored, indent=2)])
    print("\n".join(table_lines(closed, found)))


if __name__ == "__main__":
    main()
