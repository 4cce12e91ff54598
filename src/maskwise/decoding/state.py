"""What a strategy is given and what it returns: the rows of a forward pass, the state of the decoding, the choice.

Shapes: S sequences, W rows of each (a block's masks, padded to the widest), V tokens.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from torch import Tensor

from maskwise.decoding.sampling import entropy, log_confidence, log_margin

Parameters = Mapping[str, float]  # of a strategy, by name


@dataclass(frozen=True)
class Rows:
    """What one forward pass says about the rows of a block."""

    logits: Tensor  # [S, W, V] float32, what the strategy judges by
    tokens: Tensor  # [S, W] the token each row would take
    open: Tensor  # [S, W] bool, still masked
    held: Tensor | None = None  # [S, W] bool, open rows committed only when nothing else is left (end tokens)
    known: Tensor | None = None  # [S, W] the log-probability of the tokens, where whoever chose them knows it

    @property
    def log_p(self) -> Tensor:
        """Log-probability of the proposed tokens, [S, W]."""
        return log_confidence(self.logits, self.tokens) if self.known is None else self.known

    def confidence(self) -> Tensor:
        """The same; minus infinity where held."""
        return self.unless_held(self.log_p)

    def margin(self) -> Tensor:
        """Logarithm of the difference between the probabilities of the two likeliest tokens."""
        return self.unless_held(log_margin(self.logits))

    def certainty(self) -> Tensor:
        """Negative entropy."""
        return self.unless_held(-entropy(self.logits))

    def unless_held(self, score: Tensor) -> Tensor:
        return score if self.held is None else score.masked_fill(self.held, float("-inf"))


@dataclass(frozen=True)
class Memory:
    """What KLASS keeps from one step to the next."""

    log_p: Tensor  # [S, W, V] the predictions of the step before
    calm: Tensor  # [S, W] int64, for how many consecutive steps they have hardly changed


@dataclass(frozen=True)
class State:
    """Where the decoding stands. `time` and `after` are the noise levels t > s between which this step goes."""

    count: Tensor | None = None  # [S] int64, how many rows the schedule commits in this step
    time: Tensor | None = None  # [S] float32
    after: Tensor | None = None  # [S] float32, 0 at the last step
    draws: Tensor | None = None  # [S, W] uniform in [0, 1)
    memory: Memory | None = None


@dataclass(frozen=True)
class Choice:
    flip: Tensor  # [S, W] bool
    memory: Memory | None = None
