"""The training set of documents: rows noised by the objective. An item is a pure function of its index and the seed."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from maskwise.diffusion import (
    Cosine,
    Draw,
    Geometric,
    Linear,
    Noised,
    Polynomial,
    Schedule,
    Views,
    block_diffusion,
    blockwise,
    mask_agnostic,
    nelbo,
)
from maskwise.support.randomness import torch_generator
from maskwise.training.data.dataset import Epochs
from maskwise.training.data.documents import Piece, Row
from maskwise.training.settings import TrainSettings

SCHEDULES: dict[str, Schedule] = {
    "linear": Linear(), "cosine": Cosine(), "polynomial": Polynomial(), "geometric": Geometric(),
}  # fmt: skip


def noise_piece(
    piece: Piece, settings: TrainSettings, mask_id: int, generator: torch.Generator, block: int | None = None
) -> Noised:
    """One draw of the objective on a document. block: of a block diffusion model, which has one objective."""
    ids, places = piece.ids.long(), piece.places
    if block is not None:
        return block_diffusion(ids, mask_id, block, generator, places=places, weighted=settings.weighted)
    if settings.objective == "blockwise":
        assert settings.block is not None
        return blockwise(ids, mask_id, settings.block, generator, places=places, weighted=settings.weighted)
    schedule = SCHEDULES[settings.schedule]
    return nelbo(ids, mask_id, generator, schedule, places=places, weighted=settings.weighted)


def attention_block(settings: TrainSettings, step: int) -> int | None:
    """The block size of attention at an optimiser step: each size of `widen` for an equal share, then bidirectional."""
    until = settings.widen_share * settings.steps
    if step >= until or not settings.widen:
        return None
    return settings.widen[int(step / until * len(settings.widen))]


class NoisedRows(Epochs):
    """index -> {"micro", "row", "examples", "clean", "soft"}: a row's pieces noised, as they were, and which get soft
    masks. The weights of a row's losses are divided by the number of its tokens that carry loss."""

    def __init__(
        self, rows: Sequence[Row], settings: TrainSettings, mask_id: int, world: int, block: int | None = None
    ) -> None:
        super().__init__(len(rows), settings, world)
        self.rows, self.settings, self.mask_id, self.block = rows, settings, mask_id, block

    def item(self, number: int, micro: int) -> dict[str, Any]:
        row, settings = self.rows[number], self.settings
        generator = torch_generator("noise", settings.seed, number, micro)
        drawn = [noise_piece(piece, settings, self.mask_id, generator, self.block) for piece in row]
        count = sum(piece.count for piece in row)
        examples = [Noised(one.ids, one.rows, one.targets, one.weights / count) for one in drawn]
        soft = torch.rand(len(row), generator=generator) < settings.soft_share
        return {
            "micro": micro,
            "row": number,
            "examples": examples,
            "clean": [piece.ids.long() for piece in row],
            "soft": soft.tolist(),
        }


def collate_rows(items: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Items of one process's micro-batch -> the same with the pieces of all rows end to end."""
    joined = {name: [one for item in items for one in item[name]] for name in ("examples", "clean", "soft")}
    return {"micro": items[0]["micro"], "rows": [item["row"] for item in items], **joined}


# What is held out


def held_out_noise(rows: Sequence[Row], seed: int, mask_id: int) -> list[Noised]:
    """One fixed draw of the NELBO for each piece, exact and never empty: l of n tokens masked, with weight n / l.

    l / n is stratified over the pieces, so that the estimate does not hang on a few draws with little masked.
    """
    pieces = [piece for row in rows for piece in row]
    order = torch.randperm(len(pieces), generator=torch_generator("held out order", seed)).tolist()
    drawn = []
    for number, piece in enumerate(pieces):
        generator = torch_generator("held out", seed, number)
        share = (order[number] + float(torch.rand((), generator=generator))) / len(pieces)
        count = piece.count
        amount = min(int(share * count) + 1, count)
        places = torch.arange(len(piece.ids)) if piece.places is None else piece.places
        masked = places[torch.randperm(count, generator=generator)[:amount]].sort().values
        ids = piece.ids.long()
        noised = ids.clone()
        noised[masked] = mask_id
        drawn.append(Noised(noised, masked, ids[masked], torch.full((amount,), count / amount)))
    return drawn


def held_out_blocks(rows: Sequence[Row], seed: int, mask_id: int, block: int) -> list[Noised]:
    """`held_out_noise` for a block diffusion model: one fixed draw of its own NELBO for each piece."""
    pieces = [piece for row in rows for piece in row]
    return [
        block_diffusion(piece.ids.long(), mask_id, block, torch_generator("held out", seed, number), piece.places)
        for number, piece in enumerate(pieces)
    ]


def held_out_prefixes(rows: Sequence[Row], settings: TrainSettings, mask_id: int, window: int) -> list[Views]:
    """For each piece the next token after a clean prefix of at least half of it, masked, with few masks behind it and
    with many (or as many as fit)."""
    views = []
    for number, piece in enumerate(piece for row in rows for piece in row):
        places = torch.arange(len(piece.ids)) if piece.places is None else piece.places
        later = places[places >= max(1, len(piece.ids) // 2)]
        if len(later) == 0:
            continue
        generator = torch_generator("held out prefix", settings.seed, number)
        cut = int(later[torch.randint(len(later), (), generator=generator)])
        room = window - cut - 1
        if room <= settings.few:
            continue
        draw = Draw(1.0, torch.tensor([True]), settings.few, min(settings.many, room))
        ids: Tensor = piece.ids.long()
        views.append(mask_agnostic(ids[:cut], ids[cut : cut + 1], draw, mask_id))
    return views
