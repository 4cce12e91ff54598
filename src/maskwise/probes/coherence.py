"""What does decoding many tokens at once cost? Copy, replace and shuffle under every rule, at several speeds.

Tokens are sampled (temperature 1), because that is what the closed forms of `tasks.coherence` are about; `ideal` gives
the accuracy a model with perfect marginals has under the same rule and speed. Speed is tokens per forward pass.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import torch

from maskwise.decoding.generate import generate
from maskwise.decoding.rules import RULES
from maskwise.models.base import Model
from maskwise.probes.exact import outcomes
from maskwise.probes.records import Condition, Key, still_to_ask
from maskwise.probes.runner import DIGITS, Answer, Written, own_generator
from maskwise.probes.settings import ITEMS
from maskwise.probes.variants import Item
from maskwise.tasks.coherence import NAMES, Asked, Name, ask, ideal_marginals, make_puzzle, one_token_words
from maskwise.tasks.prompts import Prompt
from maskwise.tasks.words import Words

PROBE = "coherence"


@dataclass(frozen=True)
class Pace:
    """A rule at one speed: so many steps, or for a rule that keeps its own pace one value of its knob."""

    rule: str
    steps: int | None = None
    knobs: Mapping[str, float] | None = field(default=None, hash=False)

    @property
    def condition(self) -> Condition:
        if self.steps is not None:
            return {"rule": self.rule, "speed": f"{ITEMS // self.steps} a step"}
        return {
            "rule": self.rule,
            "speed": ", ".join(f"{name} {value:g}" for name, value in (self.knobs or {}).items()),
        }


# From careful to hasty. None lies on what perfect marginals give (1/4, 1/2, 3/4 ...), where rounding would decide.
OWN_PACE: dict[str, tuple[dict[str, float], ...]] = {
    "threshold": ({"tau": 0.9}, {"tau": 0.45}, {"tau": 0.2}),
    "factor": ({"f": 0.4}, {"f": 1.1}, {"f": 2.9}),
    "entropy-bound": ({"gamma": 0.1}, {"gamma": 1.0}, {"gamma": 3.0}),
    "klass": ({"tau": 0.9}, {"tau": 0.45}),
}


def paces() -> list[Pace]:
    """Every rule: one, two and four tokens a step, or from careful to hasty."""
    found = []
    for name, rule in RULES.items():
        if rule.own_pace:
            found += [Pace(name, knobs=knobs) for knobs in OWN_PACE[name]]
        else:
            found += [Pace(name, steps) for steps in (ITEMS, ITEMS // 2, 1)]
    return found


# Asking a model


def draw_puzzles(tokenizer: Any, mask_id: int, words: Words, count: int, seed: int) -> dict[Name, list[Asked]]:
    """`count` puzzles a task, in words that are one token each."""
    short = one_token_words(tokenizer, sorted({word for listed in words.values() for word in listed}))
    return {
        name: [ask(tokenizer, mask_id, name, ITEMS, short, seed * 10_000 + number) for number in range(count)]
        for name in NAMES
    }


def puzzle_items(
    tokenizer: Any, name: Name, puzzles: Sequence[Asked], pace: Pace, points: Sequence[int], done: Collection[Key]
) -> Iterator[Item]:
    for key, point, condition in still_to_ask(PROBE, name, points, [{"puzzle": name, **pace.condition}], done):
        asked = puzzles[point]
        right = tokenizer.decode(min(asked.puzzle.answers)).strip()
        row = len(asked.ids) - ITEMS
        yield Item(key, condition, Prompt(asked.ids, row, asked.puzzle.items[0], ITEMS), right)


def solve(
    model: Model, prompts: Sequence[Prompt], name: Name, pace: Pace, puzzles: Sequence[Asked], seed: int
) -> list[Answer]:
    """Evidence {"tokens_per_pass", "ideal", "ideal_speed"}, the latter two those of perfect marginals.

    Confidence, entropy and surprise are not measured (0 in the record): an answer has many tokens, each of its own
    step.
    """
    by_ids = {asked.ids: asked.puzzle for asked in puzzles}
    chance = [own_generator(seed, *map(str, pace.condition.values()), *prompt.ids) for prompt in prompts]
    written = generate(
        model, [prompt.ids for prompt in prompts], 0, steps=pace.steps, rule=pace.rule, knobs=pace.knobs,
        temperature=1.0, generator=chance,
    )  # fmt: skip
    best, speed = ideal(name, pace)
    answers = []
    for prompt, one in zip(prompts, written, strict=True):
        told = {"tokens_per_pass": ITEMS / one.forwards, "ideal": best, "ideal_speed": speed}
        text = model.tokenizer.decode(one.ids).strip() if model.tokenizer is not None else ""
        right = by_ids[prompt.ids].solved_by(one.ids)
        evidence = {key: round(value, DIGITS) for key, value in told.items()}
        answers.append(Answer(one.ids[0], 0.0, 0.0, 0.0, evidence, Written(text, right)))
    return answers


# What a perfect model does


@cache
def ideal(name: Name, pace: Pace) -> tuple[float, float]:
    """(accuracy, tokens per forward pass) of perfect marginals, by enumeration."""
    other, mask = ITEMS, ITEMS + 1
    puzzle = make_puzzle(name, range(ITEMS), other)

    def predict(canvases: Sequence[tuple[int, ...]]) -> list[torch.Tensor]:
        seen = [[None if token == mask else token for token in canvas] for canvas in canvases]
        return [ideal_marginals(puzzle, visible, mask + 1).log() for visible in seen]

    found = outcomes(predict, (mask,) * ITEMS, mask, pace.rule, pace.steps, pace.knobs)
    solved = sum(chance for canvas, chance in found.probability.items() if puzzle.solved_by(canvas))
    return solved, ITEMS / found.forwards
