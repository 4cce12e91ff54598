"""The training set and its collator. What an item holds is a pure function of its index and the seed.

A run is one pass over `steps * accumulation * world * batch` items. Which pair an item holds, and its noise, p, l1 and
l2, depend on (seed, pair, micro-batch) alone, so a run that is killed and resumed sees what it would have seen, and
several processes see together what one would.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Any

import torch
from torch.utils.data import Dataset

from maskwise.diffusion import Draw, Views, draw_noise, mask_agnostic, pad_visibly
from maskwise.support.randomness import torch_generator
from maskwise.training.data.pairs import Pair
from maskwise.training.settings import RunSettings, TuneSettings

HELD_MASKS = 4


def largest_mask_count(settings: TuneSettings, micro: int) -> int:
    """The most masks appended in a micro-batch: a straight line from 1 to max_masks over the curriculum."""
    if micro >= settings.curriculum:
        return settings.max_masks
    return max(1, settings.max_masks * (micro + 1) // settings.curriculum)


class Epochs(Dataset[dict[str, Any]], ABC):
    """index -> item(example, micro): the example's number and that of the micro-batch.

    Items are in their final order: each epoch is a shuffle of its own. `world` is the number of processes that share
    the micro-batches.
    """

    def __init__(self, count: int, settings: RunSettings, world: int) -> None:
        self.count, self.run = count, settings
        self.items_per_micro_batch = settings.batch * world
        self._order = lru_cache(maxsize=2)(self._shuffled)

    def __len__(self) -> int:
        return self.run.steps * self.run.accumulation * self.items_per_micro_batch

    def __getitem__(self, index: int) -> dict[str, Any]:
        epoch, place = divmod(index, self.count)
        return self.item(self._order(epoch)[place], index // self.items_per_micro_batch)

    @abstractmethod
    def item(self, number: int, micro: int) -> dict[str, Any]:
        """What the collator is given for one example in one micro-batch."""

    def _shuffled(self, epoch: int) -> list[int]:
        return torch.randperm(self.count, generator=torch_generator("order", self.run.seed, epoch)).tolist()


class NoisedPairs(Epochs):
    """index -> {"micro", "pair", "views"}: the micro-batch's number, the pair's number, and its two noised views."""

    def __init__(self, pairs: Sequence[Pair], settings: TuneSettings, mask_id: int, world: int) -> None:
        super().__init__(len(pairs), settings, world)
        self.pairs, self.settings, self.mask_id = pairs, settings, mask_id

    def item(self, number: int, micro: int) -> dict[str, Any]:
        return {"micro": micro, "pair": number, "views": self.views(number, micro)}

    def views(self, number: int, micro: int) -> Views:
        settings, pair = self.settings, self.pairs[number]
        most = min(settings.context - pair.length, largest_mask_count(settings, micro))
        generator = torch_generator("noise", settings.seed, number, micro)
        draw = draw_noise(len(pair.answer), most, generator, settings.mask_low, settings.mask_high)
        draw = anchored(draw, most, settings.held, generator) if settings.anchored else draw
        prompt, answer = torch.tensor(pair.prompt), torch.tensor(pair.answer)
        return mask_agnostic(prompt, answer, draw, self.mask_id, settings.alpha, settings.beta)


def anchored(draw: Draw, most_masks: int, held: float, generator: torch.Generator) -> Draw:
    """No masks after the second view; after the first, in a share of the draws, 0..HELD_MASKS in place of many."""
    if float(torch.rand((), generator=generator)) < held:
        draw = replace(draw, l1=int(torch.randint(min(HELD_MASKS, most_masks) + 1, (), generator=generator)))
    return replace(draw, l2=0)


class Collator:
    """Items of one process's micro-batch -> {"micro", "pairs", "views"}; with a pad token the views are padded to
    equal length with it, visibly to the model."""

    def __init__(self, pad_token: int | None) -> None:
        self.pad_token = pad_token

    def __call__(self, items: Sequence[dict[str, Any]]) -> dict[str, Any]:
        views = [item["views"] for item in items]
        if self.pad_token is not None:
            views = pad_visibly(views, self.pad_token)
        return {"micro": items[0]["micro"], "pairs": [item["pair"] for item in items], "views": views}
