"""Is it the masks, their number or the length? More conditions of a model that smol_training.py trained.

1. Questions of smol_unfamiliar.py, 50 a set. After the answer's place: 2, 20, 60 or 200 masks; 2 masks and an empty
   line, which ends the answer; the same and then 198 masks, or 198 tokens of number questions with their answers.
2. Printed over the sets with room (by smol_training.py's screen): accuracy, format and choice, changes with t intervals
   over sets; then what the most probable token is (ANSWERS).

    python recipes/unplanted/smol_controls.py plain --state scratch/smol-e3 --out OUT      # after smol_training.py
"""

import argparse
import random
from pathlib import Path
from typing import Any

import numpy as np
import torch

import maskwise as mw
from smol_tables import HIGH, LOW, interval
from smol_unfamiliar import Asked, draw_all, measure

LENGTH = 198
ANSWERS = ("right option", "another option", "a token of the examples", "no token of the prompt")
Tail = tuple[int, list[int]]  # masks from the answer's place on, ids after them
BASE = {"closed, 198 masks": "closed", "closed, numbers": "closed"}  # else 2 masks


def number_questions(tokenizer: Any) -> list[int]:
    """Questions for the largest of three numbers, in the format of the others."""
    draw, text = random.Random("numbers"), ""
    for _ in range(LENGTH):
        numbers = draw.sample(range(1, 100), 3)
        text += f"Q: {', '.join(map(str, numbers))}\nA: {max(numbers)}\n\n"
    return tokenizer(text, add_special_tokens=False)["input_ids"][:LENGTH]


def conditions(tokenizer: Any, mask_id: int) -> dict[str, Tail]:
    empty = tokenizer("\n\n", add_special_tokens=False)["input_ids"]
    return {
        **{f"{count} masks": (count, []) for count in (2, 20, 60, 200)},
        "closed": (2, empty),
        "closed, 198 masks": (2, [*empty, *[mask_id] * LENGTH]),
        "closed, numbers": (2, [*empty, *number_questions(tokenizer)]),
    }


def answers(found: np.ndarray, asked: list[Asked]) -> np.ndarray:
    """The place in ANSWERS of the most probable tokens, [24, n] from found [24, n, 4]."""
    placed = [
        0 if token == options[0] else 1 if token in options else 2 if token in ids else 3
        for token, (ids, options) in zip(found[..., 3].flatten().astype(int).tolist(), asked, strict=True)
    ]
    return np.array(placed).reshape(found.shape[:2])


def show(found: dict[str, np.ndarray], asked: list[Asked], room: np.ndarray) -> None:
    """found: [24, n, 4] of each condition."""
    print("| condition | accuracy % | change, points | format | change, nats | choice | change, nats |")
    print("|---|---|---|---|---|---|---|")
    for name, values in found.items():
        means = values[room].mean((0, 1))
        change = (values - found[BASE.get(name, "2 masks")])[room].mean(1)
        points, form, choice = interval(100 * change[:, 0], 1), interval(change[:, 1], 3), interval(change[:, 2], 3)
        print(f"| {name} | {100 * means[0]:.1f} | {points} | {means[1]:.3f} | {form} | {means[2]:.3f} | {choice} |")
    print(f"\n| condition | {' | '.join(f'{name}, %' for name in ANSWERS)} | change of {ANSWERS[2]}, points |")
    print("|---|---|---|---|---|---|")
    given = {name: answers(values, asked)[room] for name, values in found.items()}
    for name, placed in given.items():
        shares = " | ".join(f"{100 * (placed == place).mean():.1f}" for place in range(len(ANSWERS)))
        before = given[BASE.get(name, "2 masks")]
        change = 100 * ((placed == 2).mean(1) - (before == 2).mean(1))
        print(f"| {name} | {shares} | {interval(change, 1)} |")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("name", help="a variant of smol_training.py")
    parser.add_argument("--state", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True, help="where smol_training.py wrote smol_NAME.npz")
    parser.add_argument("--questions", type=int, default=50, help="a set")
    options = parser.parse_args()
    torch.set_float32_matmul_precision("high")
    base = options.state / ("base-no-shift" if "no-shift" in options.name else "base")
    model = mw.open(base, dtype="float32", adapter=options.state / options.name)
    screened = np.load(options.out / f"smol_{options.name}.npz")["screen|masks 2"][..., 0].mean(1)
    asked, found = draw_all(model.tokenizer, options.questions)["asked"], {}
    for name, (masks, after) in conditions(model.tokenizer, model.mask_id or 0).items():
        found[name] = measure(model, asked, masks, after).reshape(24, options.questions, -1)
        np.savez_compressed(options.out / f"controls_{options.name}.npz", **found)
    show(found, asked, (screened >= LOW) & (screened <= HIGH))


if __name__ == "__main__":
    main()
