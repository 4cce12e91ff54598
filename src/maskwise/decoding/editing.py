"""When a block whose tokens are edited is done."""

import torch
from torch import Tensor

PASSES_AFTER = 16  # over a block without masks, while tokens are edited


class Editing:
    """Token editing: a block is read again after its last mask, until a pass changes nothing, 16 times at most.

    As in LLaDA2.1's published loop, which edits the active block alone: the blocks before it, and what a cache holds of
    them, stay.
    """

    def __init__(self, lanes: int, device: torch.device) -> None:
        self.after = torch.zeros(lanes, dtype=torch.int64, device=device)  # [S] passes that began without a mask
        self.began_open = self.after < 0  # [S] whether the last one began with any

    def count(self, open: Tensor) -> None:
        """Before a pass. open [S, W]."""
        self.began_open = open.any(dim=-1)
        self.after = self.after + (~self.began_open)

    def goes_on(self, edits: Tensor) -> Tensor:
        """After it: whether there is to be another, with what it edited [S, W] -> [S]."""
        return self.began_open | (edits.any(dim=-1) & (self.after < PASSES_AFTER))

    def keep(self, lanes: Tensor) -> "Editing":
        self.after = self.after[lanes]
        return self
