"""Every unmasking strategy at several speeds, for puzzles of four words."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from maskwise.decoding.strategies import STRATEGIES
from maskwise.records.record import Condition

ITEMS = 4  # words in a puzzle: few enough to enumerate what a perfect model would do


@dataclass(frozen=True)
class Pace:
    """A strategy at one speed: so many steps, or for an adaptive strategy one setting of its parameters."""

    rule: str
    steps: int | None = None
    parameters: Mapping[str, float] | None = field(default=None, hash=False)

    @property
    def condition(self) -> Condition:
        if self.steps is not None:
            return {"rule": self.rule, "speed": f"{ITEMS // self.steps} a step"}
        parameters = ", ".join(f"{name} {value:g}" for name, value in (self.parameters or {}).items())
        return {"rule": self.rule, "speed": parameters}


def paces() -> list[Pace]:
    """Every strategy: one, two and four tokens per step, or from slow to fast."""
    found = []
    for strategy in STRATEGIES:
        if strategy.adaptive:
            defaults = {parameter.name: parameter.default for parameter in strategy.parameters}
            found += [Pace(strategy.name, parameters=speed) for speed in strategy.speeds or (defaults,)]
        else:
            found += [Pace(strategy.name, steps) for steps in (ITEMS, ITEMS // 2, 1)]
    return found
