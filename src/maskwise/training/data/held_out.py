"""Held-out examples: a fixed noise for each held-out pair or document, the same at every evaluation."""

from collections.abc import Sequence
from dataclasses import replace
from typing import TypeVar

import torch
from torch import Tensor

from maskwise.diffusion import Draw, Noised, Views, block_diffusion, draw_noise, mask_agnostic
from maskwise.support.randomness import torch_generator
from maskwise.training.data.documents import PackedRow
from maskwise.training.data.pairs import Pair
from maskwise.training.training_settings import SharedSettings, TrainSettings, TuneSettings

E = TypeVar("E")


def split(examples: Sequence[E], settings: SharedSettings) -> tuple[list[E], list[E]]:
    """(held-out examples, training examples): at most a fifth is held out, drawn with the seed."""
    order = torch.randperm(len(examples), generator=torch_generator("split", settings.seed)).tolist()
    count = min(settings.held_out, len(examples) // 5)
    return [examples[i] for i in order[:count]], [examples[i] for i in order[count:]]


def held_out_views(pairs: Sequence[Pair], settings: TuneSettings, mask_id: int) -> list[Views]:
    """One fixed noise per pair; the first view ends with few masks, the second with many (or as many as fit).

    The measures are over the masked content tokens, at least one per pair. The end token that closes every answer is
    masked as often as the others but not counted: it is the easiest, and a large share of a short answer. A pair that
    has no room for more than the few masks is left out.
    """
    views = []
    for number, pair in enumerate(pairs):
        room = settings.context - pair.length
        if room <= settings.few:
            continue
        chance = torch_generator("held out", settings.seed, number)
        noise = draw_noise(len(pair.answer) - 1, 1, chance, settings.mask_low, settings.mask_high)
        masked = torch.cat([noise.masked, torch.rand(1, generator=chance) < noise.p])
        draw = Draw(noise.p, masked, settings.few, min(settings.many, room))
        view = mask_agnostic(torch.tensor(pair.prompt), torch.tensor(pair.answer), draw, mask_id)
        kept = view.rows != pair.length - 1  # without the end token
        per_row = {name: getattr(view, name)[kept] for name in ("rows", "targets", "ce_weights", "tv_weights")}
        views.append(replace(view, **per_row))
    return views


def held_out_noise(rows: Sequence[PackedRow], seed: int, mask_id: int) -> list[Noised]:
    """One fixed draw of the NELBO for each piece, exact and never empty: l of n tokens masked, with weight n / l.
    l / n is stratified over the pieces, so that the estimate does not depend on a few draws with little masked."""
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


def held_out_blocks(rows: Sequence[PackedRow], seed: int, mask_id: int, block: int) -> list[Noised]:
    """`held_out_noise` for a block diffusion model: one fixed draw of its own NELBO for each piece."""
    pieces = [piece for row in rows for piece in row]
    return [
        block_diffusion(piece.ids.long(), mask_id, block, torch_generator("held out", seed, number), piece.places)
        for number, piece in enumerate(pieces)
    ]


def held_out_prefixes(rows: Sequence[PackedRow], settings: TrainSettings, mask_id: int, window: int) -> list[Views]:
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
