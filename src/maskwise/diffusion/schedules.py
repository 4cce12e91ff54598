"""How fast tokens are absorbed: alpha(t) is the probability that a token is still visible at time t in [0, 1].

Every schedule falls from alpha(0) = 1 to alpha(1) = 0, the geometric one only up to its boundary terms. In continuous
time the choice does not change the NELBO, only the variance of its estimate: the integral of -alpha'/(1 - alpha) dt
is the integral of du/u in the masked share u = 1 - alpha.
"""

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from torch import Tensor


class Schedule(Protocol):
    """Element-wise functions of the time t, a tensor of any shape."""

    def alpha(self, t: "Tensor") -> "Tensor":
        """The probability that a token is visible."""
        ...

    def weight(self, t: "Tensor") -> "Tensor":
        """-alpha' / (1 - alpha): the factor of a masked token's cross-entropy in the continuous-time NELBO."""
        ...


@dataclass(frozen=True)
class Linear:
    """alpha = 1 - t, weight 1/t (also known as log-linear)."""

    def alpha(self, t: "Tensor") -> "Tensor":
        return 1 - t

    def weight(self, t: "Tensor") -> "Tensor":
        return 1 / t


@dataclass(frozen=True)
class Cosine:
    """alpha = 1 - cos(pi/2 (1 - t)): slow to mask at first, fast at the end."""

    def alpha(self, t: "Tensor") -> "Tensor":
        return 1 - (math.pi / 2 * (1 - t)).cos()

    def weight(self, t: "Tensor") -> "Tensor":
        return math.pi / 2 * (math.pi / 2 * (1 - t)).tan()


@dataclass(frozen=True)
class Polynomial:
    """alpha = 1 - t^power, weight power/t."""

    power: float = 2.0

    def alpha(self, t: "Tensor") -> "Tensor":
        return 1 - t**self.power

    def weight(self, t: "Tensor") -> "Tensor":
        return self.power / t


@dataclass(frozen=True)
class Geometric:
    """alpha = exp(-low^(1-t) high^t): the level grows by a constant factor; alpha(0) and alpha(1) miss 1 and 0."""

    low: float = 1e-5
    high: float = 20.0

    def alpha(self, t: "Tensor") -> "Tensor":
        return (-self._level(t)).exp()

    def weight(self, t: "Tensor") -> "Tensor":
        level = self._level(t)
        return math.log(self.high / self.low) * level / level.expm1()

    def _level(self, t: "Tensor") -> "Tensor":
        return self.low ** (1 - t) * self.high**t


_ALL: tuple[Schedule, ...] = (Linear(), Cosine(), Polynomial(), Geometric())
SCHEDULES = {type(schedule).__name__.lower(): schedule for schedule in _ALL}


def step_weight(schedule: Schedule, earlier: "Tensor", later: "Tensor") -> "Tensor":
    """(alpha_s - alpha_t) / (1 - alpha_t) for times s < t: the factor in the NELBO of a process with finite steps, and
    the probability that the reverse process unmasks a token between the two times."""
    alpha_s, alpha_t = schedule.alpha(earlier), schedule.alpha(later)
    return (alpha_s - alpha_t) / (1 - alpha_t)
