"""The generation canvas: which masks exist, which are being filled, and which the model sees.

A canvas is the prompt (which may itself hold masks, to be filled in) and `new` masks after it. It is filled block by
block; the kinds differ in how far past the active block the model sees:

    fixed     one block, everything shown
    blocks    blocks from left to right, everything shown (semi-autoregressive)
    growing   nothing past the active block exists yet
    window    the nearest `window` masks past the active block are shown
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from maskwise.decoding.end_of_step import commit, narrowed
from maskwise.decoding.sampling import entropy
from maskwise.diffusion.objectives.soft_mask import SoftMask, predicted_tokens, soft_share
from maskwise.models.batch import Batch
from maskwise.models.model import Model


@dataclass(frozen=True)
class Block:
    """One stage of the work on S canvases."""

    slots: list[list[int]]  # positions to fill, of each sequence; masks inside the prompt go with the first block
    shown: list[int]  # how many tokens of each canvas the model sees


def plan(
    prompts: Sequence[Sequence[int]],
    mask_id: int,
    new: int,
    canvas: str,
    block: int | None,
    window: int | None,
    seen: int | None = None,
) -> list[Block]:
    """The blocks of a decoding, first to last. seen: the blocks of a model that sees none after a token's own."""
    if seen is not None:
        return _plan_within(prompts, mask_id, new, block or seen, 1 if canvas == "growing" else seen)
    width = new if canvas == "fixed" or block is None else block
    blocks = []
    for first in range(0, new, width) if new else [0]:
        slots, shown = [], []
        for prompt in prompts:
            inside = [place for place, token in enumerate(prompt) if token == mask_id] if first == 0 else []
            start, end = len(prompt) + first, len(prompt) + first + width
            slots.append([*inside, *range(start, end)])
            past = {"growing": 0, "window": window or 0}.get(canvas, new)
            shown.append(min(end + past, len(prompt) + new))
        blocks.append(Block(slots, shown))
    return blocks


def _plan_within(prompts: Sequence[Sequence[int]], mask_id: int, new: int, block: int, seen: int) -> list[Block]:
    """Blocks that end where the model's own end, which are counted from the first token of the canvas.

    `block` divides them. The model does not see tokens after its block, so the canvas is shown up to a multiple of
    `seen`, which is the model's block, or 1 if nothing past the active block exists yet. A canvas that is full before
    the others has no slots in their last block.
    """
    stages = max(-(-(len(prompt) % block + new) // block) for prompt in prompts)
    blocks = []
    for stage in range(max(stages, 1)):
        slots, shown = [], []
        for prompt in prompts:
            inside = [place for place, token in enumerate(prompt) if token == mask_id] if stage == 0 else []
            first = len(prompt) // block * block + stage * block
            end = min(first + block, len(prompt) + new)
            slots.append([*inside, *range(max(first, len(prompt)), end)])
            shown.append(min(-(-end // seen) * seen, len(prompt) + new))
        blocks.append(Block(slots, shown))
    return blocks


@dataclass(frozen=True)
class Sheet:
    """The canvases of S sequences on the device, concatenated; decoding changes them in place.
    There is one more position at the end, to which padding writes."""

    ids: Tensor  # [T+1] int64
    order: Tensor  # [T+1] int64, the step at which each position was committed, -1 before
    starts: list[int]  # [S] where each canvas begins
    lengths: list[int]  # [S]

    @staticmethod
    def lay(prompts: Sequence[Sequence[int]], new: int, mask_id: int, device: torch.device) -> "Sheet":
        flat = [token for prompt in prompts for token in [*prompt, *[mask_id] * new]]
        lengths = [len(prompt) + new for prompt in prompts]
        starts = [sum(lengths[:s]) for s in range(len(lengths))]
        ids = torch.tensor([*flat, mask_id], dtype=torch.int64).to(device)
        return Sheet(ids, torch.full_like(ids, -1), starts, lengths)

    def canvases(self) -> list[list[int]]:
        """The current canvases, on the host."""
        return self._cut(self.ids)

    def orders(self) -> list[list[int]]:
        return self._cut(self.order)

    def _cut(self, tensor: Tensor) -> list[list[int]]:
        flat = tensor.tolist()
        return [flat[start : start + length] for start, length in zip(self.starts, self.lengths, strict=True)]

    def commit(self, places: Tensor, tokens: Tensor, flip: Tensor, open: Tensor, mask_id: int, step: Tensor) -> Tensor:
        """Writes tokens to open rows that flip and re-masks the others. All [S, W], step [S, 1] -> the open rows."""
        return commit(self.ids, self.order, places, tokens, flip, open, step, mask_id)


@dataclass(frozen=True)
class Grid:
    """The rows being decoded: W positions of each of S sequences, shorter lists padded with closed rows."""

    places: Tensor  # [S, W] int64, flat positions on the sheet; padding has the sheet's spare one
    positions: Tensor  # [S, W] int64, positions in the canvas
    open: Tensor  # [S, W] bool, still masked

    @staticmethod
    def over(sheet: Sheet, sequences: Sequence[int], slots: Sequence[Sequence[int]]) -> "Grid":
        """The slots of these sequences, all open."""
        width = max(len(listed) for listed in slots)
        padded = [[*listed, *[listed[-1]] * (width - len(listed))] for listed in slots]
        positions = torch.tensor(padded, dtype=torch.int64)
        real = torch.arange(width) < torch.tensor([[len(listed)] for listed in slots])
        starts = torch.tensor([[sheet.starts[s]] for s in sequences], dtype=torch.int64)
        places = torch.where(real, positions + starts, len(sheet.ids) - 1)
        device = sheet.ids.device
        return Grid(places.to(device), positions.to(device), real.to(device))

    def keep(self, lanes: Tensor) -> "Grid":
        """Only these sequences."""
        return Grid(self.places[lanes], self.positions[lanes], self.open[lanes])

    def narrow(self, width: int) -> "Grid":
        """The open rows moved to the front, in their order, and the grid cut to `width` columns."""
        if width == self.open.shape[1]:
            return self
        return Grid(*narrowed(self.places, self.positions, self.open, width))


@dataclass(frozen=True)
class Frame:
    """The input of a forward pass: a span of each sequence's canvas. Steps that read the same spans share it."""

    index: Tensor  # [T] places on the sheet
    offsets: Tensor  # [S+1] int32
    starts: Tensor  # [S] int64
    longest: int

    @staticmethod
    def of(sheet: Sheet, sequences: Sequence[int], spans: Sequence[tuple[int, int]]) -> "Frame":
        """spans: first and last + 1 position of each sequence; an empty span keeps a sequence's place in a cache."""
        lengths = [stop - start for start, stop in spans]
        index = [sheet.starts[s] + place for s, span in zip(sequences, spans, strict=True) for place in range(*span)]
        device = sheet.ids.device
        return Frame(
            torch.tensor(index, dtype=torch.int64).to(device),
            torch.tensor([0, *lengths]).cumsum(0).to(torch.int32).to(device),
            torch.tensor([start for start, _ in spans], dtype=torch.int64).to(device),
            max(lengths),
        )

    def batch(self, sheet: Sheet) -> Batch:
        return Batch(sheet.ids[self.index], None, self.offsets, self.starts, self.longest)

    def rows(self, model: Model, batch: Batch, members: Tensor, grid: Grid) -> Tensor:
        """Hidden rows that predict the grid's positions, [S * W]. members [S]: each lane's sequence in the batch."""
        return model.locate(batch, members[:, None], grid.positions).flatten()


@dataclass(frozen=True)
class SoftSheet:
    """Soft masks of a sheet, changed in place: a mask's embedding mixed with those of its likeliest tokens.
    Hersche et al., Soft-Masked Diffusion Language Models, arXiv 2510.17206."""

    embeds: Tensor  # [T+1, d]
    ready: Tensor  # [T+1] bool

    @staticmethod
    def blank(model: Model, places: int) -> "SoftSheet":
        width = model.head_weight.shape[1]
        embeds = torch.zeros(places, width, dtype=model.dtype, device=model.device)
        return SoftSheet(embeds, torch.zeros(places, dtype=torch.bool, device=model.device))

    def show(self, model: Model, ids: Tensor, index: Tensor) -> Tensor:
        """Embeddings of the tokens at `index` [T], mixtures where a mask already has one. -> [T, d]."""
        mixed = self.ready[index] & (ids == model.mask_id)
        return torch.where(mixed[:, None], self.embeds[index], model.embed(ids))

    def mix(self, model: Model, soft: SoftMask, logits: Tensor, places: Tensor) -> None:
        """Updates the mixtures of these positions. logits [S, W, V], places [S, W]."""
        tokens, among = predicted_tokens(logits)
        predicted = (among[..., None] * model.embed(tokens).float()).sum(dim=-2)
        assert model.mask_id is not None
        mask = model.embed(torch.full_like(places, model.mask_id)).float()
        weight = soft_share(entropy(logits), soft)[..., None]
        self.embeds[places] = ((1 - weight) * mask + weight * predicted).to(self.embeds.dtype)
        self.ready[places] = True
