"""The first token that `generate` writes after a prompt, by the step that commits it."""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from maskwise.decoding.generate import Snapshot, generate
from maskwise.models.model import Model
from maskwise.probes.answers.plain import Answer, answers_to
from maskwise.support.randomness import torch_generator
from maskwise.tasks.prompts import Prompt


class _Answered(Exception):
    """Leaves `generate` once every answer of a batch is committed: later steps cannot change it."""


def first_token(model: Model, prompts: Sequence[Prompt], steps: int, seed: int = 0, **options: Any) -> list[Answer]:
    """The masks that all prompts end in are the canvas. Confidence and likelihood are those of the committing step.

    A random order depends on the seed, the question, its masks and the number of steps, and on nothing else.
    """
    masks = prompts[0].masks
    assert all(prompt.masks == masks for prompt in prompts)
    chance = [torch_generator("steps", seed, steps, prompt.ids) for prompt in prompts]
    texts = [prompt.ids[: prompt.row] for prompt in prompts]
    found: dict[int, tuple[int, Tensor]] = {}

    def watch(snapshot: Snapshot) -> None:
        for number, (text, canvas) in enumerate(zip(texts, snapshot.canvases, strict=True)):
            if number not in found and canvas[len(text)] != model.mask_id:
                asked = snapshot.places == snapshot.sheet.starts[number] + len(text)
                found[number] = canvas[len(text)], snapshot.rows.logits[asked][0]
        if len(found) == len(texts):
            raise _Answered

    with suppress(_Answered):
        generate(model, texts, masks, min(steps, masks), generator=chance, on_step=watch, **options)
    written = [found[number] for number in range(len(prompts))]
    answers = answers_to(prompts, torch.stack([logits for _, logits in written]))
    return [replace(answer, token=token) for answer, (token, _) in zip(answers, written, strict=True)]
