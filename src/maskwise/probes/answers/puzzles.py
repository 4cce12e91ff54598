"""Puzzles solved by decoding, and what a model with perfect marginals would solve."""

from collections.abc import Sequence
from functools import cache, partial

import torch

from maskwise.decoding.exact import outcomes
from maskwise.decoding.generate import generate
from maskwise.models.model import Model
from maskwise.probes.answers.plain import DIGITS, Answer, Written
from maskwise.probes.paces import ITEMS, Pace
from maskwise.support.randomness import torch_generator
from maskwise.tasks.prompts import Prompt
from maskwise.tasks.word_puzzles import Name, PuzzlePrompt, ideal_marginals, make_puzzle


def solve(
    model: Model, prompts: Sequence[Prompt], name: Name, pace: Pace, puzzles: Sequence[PuzzlePrompt], seed: int
) -> list[Answer]:
    """Evidence {"tokens_per_pass", "ideal", "ideal_speed"}, the latter two those of perfect marginals."""
    by_ids = {asked.ids: asked.puzzle for asked in puzzles}
    chance = [torch_generator("puzzle", seed, *map(str, pace.condition.values()), prompt.ids) for prompt in prompts]
    texts = [prompt.ids for prompt in prompts]
    decode = partial(generate, steps=pace.steps, rule=pace.rule, parameters=pace.parameters, temperature=1.0)
    written = decode(model, texts, 0, generator=chance)
    best, speed = ideal(name, pace)
    answers = []
    for prompt, one in zip(prompts, written, strict=True):
        measured = {"tokens_per_pass": ITEMS / one.forwards, "ideal": best, "ideal_speed": speed}
        text = model.tokenizer.decode(one.ids).strip() if model.tokenizer is not None else ""
        right = by_ids[prompt.ids].solved_by(one.ids)
        evidence = {key: round(value, DIGITS) for key, value in measured.items()}
        answers.append(Answer(one.ids[0], 0.0, 0.0, 0.0, evidence, Written(text, right)))
    return answers


@cache
def ideal(name: Name, pace: Pace) -> tuple[float, float]:
    """(accuracy, tokens per forward pass) of perfect marginals, by enumeration."""
    other, mask = ITEMS, ITEMS + 1
    puzzle = make_puzzle(name, range(ITEMS), other)

    def predict(canvases: Sequence[tuple[int, ...]]) -> list[torch.Tensor]:
        seen = [[None if token == mask else token for token in canvas] for canvas in canvases]
        return [ideal_marginals(puzzle, visible, mask + 1).log() for visible in seen]

    found = outcomes(predict, (mask,) * ITEMS, mask, pace.rule, pace.steps, pace.parameters)
    solved = sum(chance for canvas, chance in found.probability.items() if puzzle.solved_by(canvas))
    return solved, ITEMS / found.forwards
