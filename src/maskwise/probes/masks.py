"""What do appended masks do? Their number, fillers in their place, and their share of longer contexts.

The examples are mixed at random with the distractors.
"""

from collections.abc import Sequence

from maskwise.probes.variants import Variant


def mask_count(mask_counts: Sequence[int]) -> list[Variant]:
    """Format B: k masks at the end, only the first is scored."""
    return [Variant("mask-count", {"masks": k}, open=True, masks=k) for k in mask_counts]


def filler(filler_counts: Sequence[int], text: str) -> list[Variant]:
    """Format A with n fillers after the closed bracket: as many tokens as masks, none of them a mask."""
    return [Variant("filler", {"filler": text, "fillers": n}, fillers=n) for n in filler_counts]


def context_length(distractor_counts: Sequence[int], mask_share: float, causal: bool) -> list[Variant]:
    """Fewer or more distractors, with two masks and with a share of the length in masks (no masks if causal)."""
    amounts: list[tuple[str, int | float]] = (
        [("no masks", 0)] if causal else [("2 masks", 2), (f"{mask_share:.0%} masks", mask_share)]
    )
    return [
        Variant("context-length", {"distractors": n, "masks": name}, distractors=n, open=True, masks=masks)
        for name, masks in amounts
        for n in distractor_counts
    ]
