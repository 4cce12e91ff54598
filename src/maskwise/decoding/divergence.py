"""How far decoding with a cache or a window is from exact decoding."""

from collections.abc import Sequence
from dataclasses import dataclass

from maskwise.decoding.checks import is_approximate
from maskwise.decoding.options import DecodingOptions
from maskwise.models.generation import Generation
from maskwise.models.model import Model
from maskwise.support.errors import UserError


@dataclass(frozen=True)
class Divergence:
    """How an approximate decoding differs from the exact one with the same strategy, steps and blocks."""

    tokens: int  # compared
    agreement: float  # share of positions with the same token
    first: int | None  # the first position at which any sequence differs

    @staticmethod
    def between(exact: Sequence[Generation], approximate: Sequence[Generation]) -> "Divergence":
        pairs = [
            (place, one == two)
            for a, b in zip(exact, approximate, strict=True)
            for place, (one, two) in enumerate(zip(a.ids, b.ids, strict=True))
        ]
        different = [place for place, same in pairs if not same]
        return Divergence(len(pairs), 1 - len(different) / len(pairs), min(different, default=None))


def check_divergence(model: Model, options: DecodingOptions) -> None:
    """Refuses options under which decoding is exact, or draws tokens at random."""
    if options.approximate and not is_approximate(model, options):
        raise UserError("this cache is exact for a block diffusion model: leave divergence out")
    if not options.approximate or options.temperature:
        raise UserError("divergence compares greedy decoding with a cache or a window with exact decoding: choose one")
