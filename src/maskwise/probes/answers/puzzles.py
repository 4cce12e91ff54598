"""Puzzles solved by decoding."""

from collections.abc import Sequence

from maskwise.decoding.generate import generate
from maskwise.models.model import Model
from maskwise.probes.answers.plain import Answer, Written
from maskwise.support.randomness import torch_generator
from maskwise.tasks.prompts import Prompt
from maskwise.tasks.word_puzzles import PuzzlePrompt


def solve(
    model: Model, prompts: Sequence[Prompt], rule: str, tokens: int, puzzles: Sequence[PuzzlePrompt], seed: int
) -> list[Answer]:
    """So many tokens per step."""
    by_ids = {asked.ids: asked.puzzle for asked in puzzles}
    chance = [torch_generator("puzzle", seed, rule, f"{tokens} a step", prompt.ids) for prompt in prompts]
    texts, steps = [prompt.ids for prompt in prompts], prompts[0].masks // tokens
    written = generate(model, texts, 0, steps=steps, rule=rule, temperature=1.0, generator=chance)
    answers = []
    for prompt, one in zip(prompts, written, strict=True):
        text = model.tokenizer.decode(one.ids).strip() if model.tokenizer is not None else ""
        right = by_ids[prompt.ids].solved_by(one.ids)
        answers.append(Answer(one.ids[0], 0.0, 0.0, 0.0, written=Written(text, right)))
    return answers
