"""The type of unmasking strategies: function, schedule, parameters and paper. Imports no torch."""

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from maskwise.support.errors import UserError
from maskwise.support.imports import imported
from maskwise.support.nearest import did_you_mean

if TYPE_CHECKING:
    from maskwise.decoding.strategies.state import Choice, Parameters, Rows, State

Pick = Callable[["Rows", "State", "Parameters"], "Choice"]
Counts = Callable[[int, int, "Parameters"], list[int]]
Times = Callable[[int, "Parameters"], list[float]]


@dataclass(frozen=True)
class Parameter:
    """A number that tunes a strategy. None is negative: outside its range a strategy would leave masks unfilled."""

    name: str
    default: float
    largest: float = sys.float_info.max
    published: str = ""  # what the authors' code calls it, where that is another name

    @property
    def names(self) -> tuple[str, ...]:
        return (self.name, self.published) if self.published else (self.name,)

    def check(self, value: float, strategy: str) -> None:
        if not 0 <= value <= self.largest:
            within = "a number, 0 or more" if self.largest == sys.float_info.max else f"between 0 and {self.largest:g}"
            raise UserError(f"{self.name} of the strategy {strategy} is {value}: it must be {within}")


@dataclass(frozen=True)
class Strategy:
    """An unmasking strategy. Its functions are given directly or by import path, "module:name".

    pick_function(rows, state, parameters) says which rows a step commits; state.py has the types and shapes.
    count_function(masks, steps, parameters) gives the number of rows each step commits. time_function(steps,
    parameters) gives the noise levels of a strategy that decides each row by a random draw of its own. A strategy with
    neither is adaptive: it decides itself how many rows to commit, and ends when no mask is left.
    """

    name: str
    title: str  # which tokens a step commits, in one line
    pick_function: str | Pick
    count_function: str | Counts | None = None
    time_function: str | Times | None = None
    parameters: tuple[Parameter, ...] = ()
    paper: str = ""  # authors, title, arXiv number; empty where no paper introduces it
    draws: bool = False  # does it need random numbers of its own
    filtered: bool = False  # does it judge by the distribution after temperature, top-k and top-p, as Dream does

    @property
    def pick(self) -> Pick:
        return _function(self.pick_function)

    @property
    def counts(self) -> Counts | None:
        return None if self.count_function is None else _function(self.count_function)

    @property
    def times(self) -> Times | None:
        return None if self.time_function is None else _function(self.time_function)

    @property
    def adaptive(self) -> bool:
        return self.count_function is None and self.time_function is None

    def complete(self, given: "Parameters | None", others: Sequence["Strategy"] = ()) -> dict[str, float]:
        """The given parameters, by our names or the published ones, checked, and the defaults of the others.

        others: the strategies among which an error looks for one that has the parameter.
        """
        known = {name: parameter for parameter in self.parameters for name in parameter.names}
        values = {parameter.name: parameter.default for parameter in self.parameters}
        for name, value in (given or {}).items():
            if name not in known:
                having = [one.name for one in others if any(name in of.names for of in one.parameters)]
                owner = f": {' and '.join(having)} have it" if len(having) > 1 else f": {''.join(having)} has it"
                near = did_you_mean(name, known) if known else ": it has none, leave it out"
                remedy = f"{owner}, give --rule {having[0]}" if having else near
                raise UserError(f"the strategy {self.name} has no parameter {name!r}{remedy}")
            known[name].check(value, self.name)
            values[known[name].name] = value
        return values


def _function(reference: Any) -> Any:
    return imported(reference) if isinstance(reference, str) else reference
