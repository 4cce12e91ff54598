"""Where random numbers come from: every draw is made by a generator whose seed is computed from what is drawn for.

Torch is imported inside the functions, so that listing and help do not wait for it.
"""

import zlib
from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch


def own_generator(*parts: int | str, device: "torch.device | str" = "cpu") -> "torch.Generator":
    """A torch generator whose draws depend on `parts` alone, so batches and processes do not matter.

    On the CPU the draws are the same on every machine; on the model's own device large draws need not be copied.
    """
    import torch

    return torch.Generator(device).manual_seed(zlib.crc32(repr(parts).encode()))


def number_repeats(prompts: Sequence[Sequence[int]]) -> list[tuple[int, ...]]:
    """For each prompt the number of equal prompts before it, followed by its token ids.

    As parts of a seed these give every repetition of a prompt draws of its own, which depend on no other prompt.
    """
    seen: Counter[tuple[int, ...]] = Counter()
    numbered = []
    for ids in map(tuple, prompts):
        numbered.append((seen[ids], *ids))
        seen[ids] += 1
    return numbered
