"""Arguments and result of a strategy: the rows of a forward pass, the state of the decoding, the choice.

Shapes: S sequences, W rows of each (a block's masks, padded to the widest), V tokens. Strategies are listed without
torch, so it is imported here only when a row is judged.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor

Parameters = Mapping[str, float]  # of a strategy, by name


@dataclass(frozen=True)
class Rows:
    """The predictions of one forward pass for the rows of a block."""

    logits: Tensor  # [S, W, V] float32, what the strategy judges by
    tokens: Tensor  # [S, W] the token each row would take
    open: Tensor  # [S, W] bool, still masked
    held: Tensor | None = None  # [S, W] bool, open rows committed only when nothing else is left (end tokens)
    known: Tensor | None = None  # [S, W] the log-probability of the tokens, if already computed

    @property
    def log_p(self) -> Tensor:
        """Log-probability of the proposed tokens, [S, W]."""
        from maskwise.decoding.sampling import log_confidence

        return log_confidence(self.logits, self.tokens) if self.known is None else self.known

    def confidence(self) -> Tensor:
        """Log-probability of the proposed tokens, minus infinity where held."""
        return self.unless_held(self.log_p)

    def margin(self) -> Tensor:
        """Logarithm of the difference between the probabilities of the two likeliest tokens."""
        from maskwise.decoding.sampling import log_margin

        return self.unless_held(log_margin(self.logits))

    def certainty(self) -> Tensor:
        """Negative entropy."""
        from maskwise.decoding.sampling import entropy

        return self.unless_held(-entropy(self.logits))

    def unless_held(self, score: Tensor) -> Tensor:
        return score if self.held is None else score.masked_fill(self.held, float("-inf"))


@dataclass(frozen=True)
class Memory:
    """The state of KLASS between steps."""

    log_p: Tensor  # [S, W, V] the predictions of the step before
    calm: Tensor  # [S, W] int64, for how many consecutive steps they have hardly changed


@dataclass(frozen=True)
class State:
    """The state of a decoding step. `time` and `after` are the noise levels t > s before and after it."""

    count: Tensor | None = None  # [S] int64, how many rows the schedule commits in this step
    time: Tensor | None = None  # [S] float32
    after: Tensor | None = None  # [S] float32, 0 at the last step
    draws: Tensor | None = None  # [S, W] uniform in [0, 1)
    memory: Memory | None = None


@dataclass(frozen=True)
class Choice:
    """The rows that a step changes: open rows are committed, and (ReMDM only) committed rows masked again."""

    flip: Tensor  # [S, W] bool
    memory: Memory | None = None
