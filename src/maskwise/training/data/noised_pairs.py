"""The training set of `tune`: pairs noised into two views, and how they are put into micro-batches."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch

from maskwise.diffusion import Draw, Views, draw_noise, mask_agnostic, pad_visibly
from maskwise.support.randomness import torch_generator
from maskwise.training.data.epochs import Epochs
from maskwise.training.data.pairs import Pair
from maskwise.training.training_settings import TuneSettings

HELD_MASKS = 4


def largest_mask_count(settings: TuneSettings, micro: int) -> int:
    """The most masks appended in a micro-batch: a straight line from 1 to max_masks over the curriculum."""
    if micro >= settings.curriculum:
        return settings.max_masks
    return max(1, settings.max_masks * (micro + 1) // settings.curriculum)


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
        draw = draw_noise(len(pair.answer), max(1, most), generator, settings.mask_low, settings.mask_high)
        draw = anchored(draw, most, settings.held, generator) if settings.anchored else draw
        if not settings.max_masks:  # the sham control: the same rows and noise, no masks appended
            draw = replace(draw, l1=0, l2=0)
        prompt, answer = torch.tensor(pair.prompt), torch.tensor(pair.answer)
        return mask_agnostic(prompt, answer, draw, self.mask_id, settings.alpha, settings.beta)


def anchored(draw: Draw, most_masks: int, held: float, generator: torch.Generator) -> Draw:
    """No masks after the second view; after the first, in a share `held` of the draws, at most HELD_MASKS."""
    if float(torch.rand((), generator=generator)) < held:
        draw = replace(draw, l1=int(torch.randint(min(HELD_MASKS, most_masks) + 1, (), generator=generator)))
    return replace(draw, l2=0)


def collate_pairs(items: Sequence[dict[str, Any]], pad_token: int | None = None) -> dict[str, Any]:
    """Items of one process's micro-batch as {"micro", "pairs", "views"}; the views padded visibly with a pad token."""
    views = [item["views"] for item in items]
    if pad_token is not None:
        views = pad_visibly(views, pad_token)
    return {"micro": items[0]["micro"], "pairs": [item["pair"] for item in items], "views": views}
