"""The state of a decoding after each step, as callbacks receive it."""

from dataclasses import dataclass

import torch
from torch import Tensor

from maskwise.decoding.canvas import Sheet
from maskwise.decoding.strategies.state import Rows


@dataclass(frozen=True)
class Snapshot:
    """The state of a batch after a step. Read it at once: the next step changes the canvas."""

    step: int
    sheet: Sheet
    prompts: list[list[int]]  # of the batch
    shown: list[int]  # how many tokens of each canvas the model sees in this block
    rows: Rows  # the predictions of this step
    places: Tensor  # [S, W] the positions of these rows on the sheet
    mask_id: int

    @property
    def canvases(self) -> list[list[int]]:
        """The canvases, with masks where nothing is committed yet; each access copies them from the device."""
        return self.sheet.canvases()[: len(self.prompts)]

    @property
    def confidences(self) -> list[dict[int, float]]:
        """For each canvas, by position: the probability of the token that this step proposed there."""
        chances = self.rows.log_p.exp().flatten().tolist()
        by_place = dict(zip(self.places.flatten().tolist(), chances, strict=True))
        spans = list(zip(self.sheet.starts, self.sheet.lengths, strict=True))[: len(self.prompts)]
        return [
            {position: by_place[start + position] for position in range(length) if start + position in by_place}
            for start, length in spans
        ]

    @property
    def committed(self) -> Tensor:
        """True for rows that this step committed, [S, W]."""
        return self.rows.open & (self.sheet.ids[self.places] != self.mask_id)

    @property
    def sequences(self) -> list[int]:
        """The number of each row's sequence, [S]: those that are done are left out."""
        starts = torch.tensor(self.sheet.starts[1 : len(self.prompts)], device=self.places.device)
        return torch.bucketize(self.places[:, 0].contiguous(), starts, right=True).tolist()

    def completions(self) -> dict[int, Tensor]:
        """For each sequence of this step, its canvas with the likeliest token in place of every mask of the active
        block; masks of later blocks stay masks."""
        ids, best = self.sheet.ids, self.rows.logits.argmax(dim=-1)
        guessed = ids.clone()
        guessed[self.places] = torch.where(ids[self.places] == self.mask_id, best, ids[self.places])
        guessed[-1] = self.mask_id  # the spare place, where padding writes
        return {
            number: guessed[self.sheet.starts[number] : self.sheet.starts[number] + self.sheet.lengths[number]]
            for number in self.sequences
        }
