"""The training set as a list of micro-batch slots: what a slot holds is a pure function of its number and the seed.

A run is one pass over `steps * accumulation * world * batch` slots. Which pair a slot holds, and its noise, p, l1 and
l2, depend on (seed, pair, micro-batch) alone, so a run that is killed and resumed sees what it would have seen, and
several processes see together what one would.
"""

import hashlib
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import torch
from torch.utils.data import Dataset

from maskwise.diffusion import Views, draw_noise, mask_agnostic, pad_visibly
from maskwise.tuning.pairs import Pair
from maskwise.tuning.settings import Settings


def seeded(*parts: int | str) -> torch.Generator:
    """A generator that depends on all parts and on nothing else, on every platform."""
    digest = hashlib.blake2b(repr(parts).encode(), digest_size=8).digest()
    return torch.Generator().manual_seed(int.from_bytes(digest, "big") >> 1)


def most_masks(settings: Settings, micro: int) -> int:
    """The largest mask count of a micro-batch: a straight line from 1 to max_masks over the curriculum."""
    if micro >= settings.curriculum:
        return settings.max_masks
    return max(1, settings.max_masks * (micro + 1) // settings.curriculum)


class Slots(Dataset[dict[str, Any]]):
    """Slot -> {"micro", "pair", "views"}; world is the number of processes that share the micro-batches."""

    def __init__(self, pairs: Sequence[Pair], settings: Settings, mask_id: int, world: int) -> None:
        self.pairs, self.settings, self.mask_id = pairs, settings, mask_id
        self.together = settings.batch * world  # slots of one micro-batch over all processes
        self._order = lru_cache(maxsize=2)(self._shuffled)

    def __len__(self) -> int:
        return self.settings.steps * self.settings.accumulation * self.together

    def __getitem__(self, slot: int) -> dict[str, Any]:
        micro = slot // self.together
        epoch, place = divmod(slot, len(self.pairs))
        number = self._order(epoch)[place]
        return {"micro": micro, "pair": number, "views": self.views(number, micro)}

    def views(self, number: int, micro: int) -> Views:
        settings, pair = self.settings, self.pairs[number]
        most = min(settings.context - pair.length, most_masks(settings, micro))
        generator = seeded(settings.seed, "noise", number, micro)
        draw = draw_noise(len(pair.answer), most, generator, settings.mask_low, settings.mask_high)
        prompt, answer = torch.tensor(pair.prompt), torch.tensor(pair.answer)
        return mask_agnostic(prompt, answer, draw, self.mask_id, settings.alpha, settings.beta)

    def _shuffled(self, epoch: int) -> list[int]:
        return torch.randperm(len(self.pairs), generator=seeded(self.settings.seed, "order", epoch)).tolist()


class Collator:
    """Slots of one process's micro-batch -> {"micro", "pairs", "views"}; a pad token fills the views up visibly."""

    def __init__(self, pad_token: int | None) -> None:
        self.pad_token = pad_token

    def __call__(self, slots: Sequence[dict[str, Any]]) -> dict[str, Any]:
        views = [slot["views"] for slot in slots]
        if self.pad_token is not None:
            views = pad_visibly(views, self.pad_token)
        return {"micro": slots[0]["micro"], "pairs": [slot["pair"] for slot in slots], "views": views}
