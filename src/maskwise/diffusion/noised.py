"""A noised sequence: what every objective makes of a document, and what every loss is computed from."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True)
class Noised:
    """One noised sequence: sum(weights * CE at rows) is one draw of the objective. All but ids have m entries."""

    ids: "Tensor"  # [n]
    rows: "Tensor"  # [m] positions that carry loss
    targets: "Tensor"  # [m] their clean tokens
    weights: "Tensor"  # [m]
