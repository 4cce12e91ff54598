"""The training set of `train`: rows of documents noised by the objective, and the collator of their micro-batches."""

from collections.abc import Sequence
from typing import Any

import torch

from maskwise.diffusion import Noised, Noising
from maskwise.diffusion.objectives import find_objective
from maskwise.support.randomness import torch_generator
from maskwise.training.data.documents import PackedRow
from maskwise.training.data.epochs import Epochs
from maskwise.training.training_settings import TrainSettings


class NoisedRows(Epochs):
    """index -> {"micro", "row", "examples", "chances"}: the noised pieces of a row, and a random number in 0..1 for
    each. The weights of a row's losses are divided by the number of its tokens that carry loss. model_block: tokens
    of a block of a block diffusion model."""

    def __init__(
        self,
        rows: Sequence[PackedRow],
        settings: TrainSettings,
        mask_id: int,
        world: int,
        model_block: int | None = None,
    ) -> None:
        super().__init__(len(rows), settings, world)
        self.rows, self.settings, self.mask_id, self.model_block = rows, settings, mask_id, model_block
        self.noise = find_objective(settings.objective).noise

    def item(self, number: int, micro: int) -> dict[str, Any]:
        row, settings = self.rows[number], self.settings
        generator = torch_generator("noise", settings.seed, number, micro)
        noising = Noising(self.mask_id, generator, settings, self.model_block)
        drawn = [self.noise(piece.ids.long(), piece.places, noising) for piece in row]
        count = sum(piece.count for piece in row)
        return {
            "micro": micro,
            "row": number,
            "examples": [Noised(one.ids, one.rows, one.targets, one.weights / count) for one in drawn],
            "chances": torch.rand(len(row), generator=generator),
        }


def collate_rows(items: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Items of one process's micro-batch -> the same, the pieces of all rows in one list."""
    return {
        "micro": items[0]["micro"],
        "rows": [item["row"] for item in items],
        "examples": [one for item in items for one in item["examples"]],
        "chances": torch.cat([item["chances"] for item in items]),
    }
