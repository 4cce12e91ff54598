"""Answers by decoding in several steps with the real decoder.

The answer is the token the decoder wrote in the answer's place. Its confidence, entropy and negative log-likelihood are
those of the step in which it was written: the canvas of that step is laid out again from the order of the commits and
read once.

A random order depends on the seed, the question, its masks and the number of steps, and on nothing else.
"""

from collections.abc import Sequence
from dataclasses import replace

from maskwise.decoding.generate import Generation, generate
from maskwise.models.model import Model
from maskwise.probes.answers.plain import Answer, ask
from maskwise.support.randomness import torch_generator
from maskwise.tasks.prompts import Prompt


def decode(model: Model, prompts: Sequence[Prompt], steps: int, rule: str, seed: int) -> list[Answer]:
    """All prompts end in the same number of masks, which are filled in `steps` steps, or one each if they are fewer."""
    masks = prompts[0].masks
    assert all(prompt.masks == masks for prompt in prompts)
    chance = [torch_generator("steps", seed, steps, prompt.ids) for prompt in prompts]
    texts = [prompt.ids[: prompt.row] for prompt in prompts]
    done = generate(model, texts, masks, min(steps, masks), rule=rule, generator=chance)
    answers = ask(model, [before_commit(p, g) for p, g in zip(prompts, done, strict=True)])
    return [replace(answer, token=g.ids[0]) for answer, g in zip(answers, done, strict=True)]


def before_commit(prompt: Prompt, generation: Generation) -> Prompt:
    """The canvas the answer was read from: what was written in earlier steps stands, the rest is masks."""
    when = generation.order[0]
    mask = prompt.ids[prompt.row]
    seen = [token if step < when else mask for token, step in zip(generation.ids, generation.order, strict=True)]
    return replace(prompt, ids=(*prompt.ids[: prompt.row], *seen))
