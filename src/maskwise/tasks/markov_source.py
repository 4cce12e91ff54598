"""A Markov source: text whose every conditional marginal is known, as a reference for a model's predictions.

The probe confidence draws sequences of it.

Given the nearest visible token on each side, everything further away is irrelevant, so for a masked place at distance
a from l on its left and b from r on its right

    p(x | visible)  is proportional to  P^a[l, x] * P^b[x, r]        (pi[x] without a left, 1 without a right)

With nothing visible on the right it tends to the stationary pi.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import torch
from torch import Tensor


@dataclass(frozen=True)
class Chain:
    """A Markov chain over V states."""

    kernel: Tensor  # [V, V] float64, rows add up to 1

    @property
    def states(self) -> int:
        return len(self.kernel)

    @property
    def stationary(self) -> Tensor:
        """[V], the left eigenvector of eigenvalue 1: pi P = pi, sum pi = 1."""
        identity, ones = torch.eye(self.states, dtype=torch.float64), torch.ones(1, self.states, dtype=torch.float64)
        equations = torch.cat([self.kernel.T - identity, ones])
        target = torch.zeros(self.states + 1, dtype=torch.float64)
        target[-1] = 1
        return torch.linalg.lstsq(equations, target[:, None]).solution[:, 0].clamp(min=0)

    def ahead(self, distance: int) -> Tensor:
        """P^distance, [V, V]: where each state has got after so many steps."""
        return torch.linalg.matrix_power(self.kernel, distance)

    def conditional(self, visible: Sequence[int | None]) -> Tensor:
        """p(x_i | visible) of every place, [n, V]; a visible place is certain."""
        rows = []
        for place, seen in enumerate(visible):
            if seen is not None:
                rows.append(torch.nn.functional.one_hot(torch.tensor(seen), self.states).double())
                continue
            left = next((at for at in range(place - 1, -1, -1) if visible[at] is not None), None)
            right = next((at for at in range(place + 1, len(visible)) if visible[at] is not None), None)
            p = self.stationary if left is None else self.ahead(place - left)[visible[left]]
            if right is not None:
                p = p * self.ahead(right - place)[:, visible[right]]
            rows.append(p / p.sum())
        return torch.stack(rows)

    def sample(self, count: int, length: int, generator: torch.Generator) -> Tensor:
        """[count, length], begun in the stationary distribution."""
        columns = [torch.multinomial(self.stationary, count, replacement=True, generator=generator)]
        for _ in range(length - 1):
            columns.append(torch.multinomial(self.kernel[columns[-1]], 1, generator=generator)[:, 0])
        return torch.stack(columns, dim=1)

    def possible(self, sequence: Sequence[int]) -> list[bool]:
        """For each token but the first, whether the chain can go there from the one before."""
        return [bool(self.kernel[a, b] > 0) for a, b in pairwise(sequence)]


def small_chain(states: int = 12) -> Chain:
    """From every state one step on (.5), two steps on (.3) or back to state 0 (.2), the source's commonest word."""
    kernel = torch.zeros(states, states, dtype=torch.float64)
    for state in range(states):
        for target, chance in (((state + 1) % states, 0.5), ((state + 2) % states, 0.3), (0, 0.2)):
            kernel[state, target] += chance
    return Chain(kernel)
