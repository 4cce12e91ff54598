"""Temporal self-consistency: the answer that the steps of one decoding agree on, instead of the last step's.

Wang et al., Time Is a Feature: Exploiting Temporal Dynamics in Diffusion Language Models, arXiv 2508.09138. After each
step every mask is filled with its likeliest token; a pattern finds the answer in that text. Later steps weigh more:
look i of n has weight exp(SHARPNESS (i + 1) / n). The text is that of the last look with the answer of the largest
weight.
"""

import math
from collections import defaultdict
from collections.abc import Collection, Sequence
from dataclasses import replace

from torch import Tensor

from maskwise.decoding.history.snapshot import Snapshot
from maskwise.models.generation import Generation
from maskwise.models.model import Model
from maskwise.tasks.checkable import first_match

SHARPNESS = 5.0  # ours: the last look weighs e^5 times as much as one before the first


def elected(answers: Sequence[str | int | None]) -> int | None:
    """The last look with the answer of the largest weight; None where no look has one (None) to vote for."""
    weights: dict[str | int, float] = defaultdict(float)
    last: dict[str | int, int] = {}
    for look, answer in enumerate(answers):
        if answer is not None:
            weights[answer] += math.exp(SHARPNESS * (look + 1) / len(answers))
            last[answer] = look
    return max(last.values(), key=lambda look: (weights[answers[look]], look), default=None)  # type: ignore[index]


class Ballot:
    """Keeps the completion of every sequence after every step; called as `on_step`."""

    def __init__(self, prompts: Sequence[Sequence[int]], mask_id: int) -> None:
        self.prompts, self.mask_id = prompts, mask_id
        self.looks: list[list[Tensor]] = [[] for _ in prompts]

    def __call__(self, snapshot: Snapshot) -> None:
        for number, canvas in snapshot.completions().items():
            self.looks[number].append(canvas)

    def new_tokens(self, number: int) -> list[list[int]]:
        """After each look, the tokens of one sequence at the positions that were masked at first."""
        prompt = self.prompts[number]
        inside = [place for place, token in enumerate(prompt) if token == self.mask_id]
        canvases = [look.tolist() for look in self.looks[number]]
        return [[*(canvas[place] for place in inside), *canvas[len(prompt) :]] for canvas in canvases]

    def elect(
        self, model: Model, generations: Sequence[Generation], pattern: str, ends: Collection[int]
    ) -> list[Generation]:
        """Each generation as its elected look has it; as it is where the pattern finds nothing in any.
        Masks of blocks after the one that was active at that look take the tokens they got in the end."""
        found = []
        for number, made in enumerate(generations):
            new = self.new_tokens(number)
            look = elected([first_match(pattern, text_before_end(model, ids, ends)) for ids in new])
            if look is not None:
                ids = self._filled(new[look], made.ids)
                canvas = self._filled(self.looks[number][look].tolist(), made.sequence)
                shown = canvas if self.mask_id in self.prompts[number] else ids
                made = replace(
                    made, ids=ids, text=model.tokenizer.decode(shown, skip_special_tokens=True), sequence=canvas
                )
            found.append(made)
        return found

    def _filled(self, tokens: Sequence[int], last: Sequence[int]) -> list[int]:
        return [after if token == self.mask_id else token for token, after in zip(tokens, last, strict=True)]


def text_before_end(model: Model, ids: Sequence[int], ends: Collection[int]) -> str:
    """The text up to the first end token."""
    length = next((place for place, token in enumerate(ids) if token in ends), len(ids))
    return model.tokenizer.decode(ids[:length], skip_special_tokens=True)
