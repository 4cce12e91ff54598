"""A number with its interval, and the four ways to get one: a share, a change, a mean, a ratio.

They read tables of one row per answer (records/table.py). What the intervals are is in intervals.py and scores.py;
tests/scoring/test_coverage.py simulates how well they cover. A change is always after minus before, so a loss is
negative.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from maskwise.records.table import Table
from maskwise.scoring import intervals, scores
from maskwise.scoring.intervals import Bounds, Interval, Strata, means_of, points_of, variances_of

if TYPE_CHECKING:
    import pandas as pd

SHARE, POINTS, NATS, TOKENS = "%", "points", "nats", "tokens"
SCALE = {SHARE: 100, POINTS: 100}
COUNTS = (TOKENS, "tasks", "templates")
QUESTION = ["task", "point"]
LEVEL = 0.05
TOO_FEW = "too few answers"
SHOWN = ("unit", "value", "low", "high", "n", "tasks_low", "tasks_high")  # of an estimate, in a row of a curve


@dataclass(frozen=True)
class Estimate:
    """A value with its 95 % interval over questions and, where it has one, over tasks.

    n: questions. against: the threshold of a claim ("above" or "below" it), or what a change is compared with. p: of
    no difference from that, two-sided. why: there is no value, or no verdict.
    """

    name: str
    value: float | None
    low: float | None = None
    high: float | None = None
    n: int = 0
    unit: str = ""
    against: float | None = None
    claim: str = ""
    p: float | None = None
    tasks_low: float | None = None
    tasks_high: float | None = None
    why: str = ""

    @property
    def side(self) -> int:
        """+1 or -1 where the interval lies on one side of what it is compared with (0 if of nothing), else 0."""
        if self.low is None or self.high is None:
            return 0
        bar = self.against or 0.0
        return int(self.low > bar) - int(self.high < bar)

    @property
    def verdict(self) -> str:
        """Of a claim: holds, does not hold, undecided; empty of an estimate that claims nothing."""
        if not self.claim:
            return ""
        wanted = -1 if self.claim == "below" else 1
        return {wanted: "holds", -wanted: "does not hold", 0: "undecided"}[self.side]

    def __str__(self) -> str:
        """`mask tax: 56.2 % (34.2 to 75.9), n = 60`; a verdict where a threshold is stated."""
        if self.value is None:
            return f"{self.name}: {self.why or 'not measured'}"
        stated = self.verdict and self.against is not None
        judged = f": {self.verdict} ({self.claim} {self.text(self.against)})" if stated else ""
        return f"{self.name}: {self.short}, n = {self.n:,}{judged}"

    @property
    def short(self) -> str:
        """`56.2 % (34.2 to 75.9)`"""
        if self.value is None:
            return self.why or "not measured"
        return f"{self.text(self.value)} {self.unit}".rstrip() + self.brackets()

    def brackets(self, tasks: bool = False) -> str:
        """` (-28.9 to -18.0)`, with tasks the interval over them too; empty without an interval."""
        ends = [(self.low, self.high), (self.tasks_low, self.tasks_high)][: 1 + tasks]
        said = "; ".join(f"{self.text(low)} to {self.text(high)}" for low, high in ends if low is not None)
        return f" ({said})" if said else ""

    def text(self, value: float | None) -> str:
        """A value in the estimate's unit, without it: changes with their sign."""
        return in_unit(value or 0.0, self.unit)

    def __neg__(self) -> "Estimate":
        """Of a change: before minus after. 0 - x, because -0.0 would be printed with its sign."""
        ends = (self.value, self.high, self.low, self.tasks_high, self.tasks_low)
        value, low, high, tasks_low, tasks_high = (None if end is None else 0.0 - end for end in ends)
        return replace(self, value=value, low=low, high=high, tasks_low=tasks_low, tasks_high=tasks_high)

    @property
    def row(self) -> dict[str, Any]:
        return asdict(self)


def in_unit(value: float, unit: str, signed: bool = False) -> str:
    """A number in a unit, without the unit; changes in points always have a sign."""
    digits = 1 if unit in (*SCALE, *COUNTS) else 3
    scaled = round(SCALE.get(unit, 1) * value, digits)
    text = f"{scaled:{'+' if scaled and (signed or unit == POINTS) else ''}z.{digits}f}"
    return text.removesuffix(".0") if unit in COUNTS else text


# Tables


def wide(table: Table, by: str | list[str], value: str = "correct") -> Table:
    """Questions x conditions: only questions that were asked under all of them. The one join of all statistics."""
    keys = [*QUESTION, *([by] if isinstance(by, str) else by)]
    return table.set_index(keys)[value].unstack(keys[2:]).dropna()


def answers(table: Table, value: str = "correct") -> "pd.Series":
    """A column by question."""
    return table.set_index(QUESTION)[value]


def of_questions(table: Table, by: Sequence[str], times: int, in_full: bool = False) -> Table:
    """The means of questions that were asked several times, as so many consecutive points: "point" is the question.

    in_full: only questions that have all their answers.
    """
    if times == 1:
        return table
    measured = ["correct", "nll", "nll_allowed", "nll_choice"]
    grouped = table.assign(point=table.point // times).groupby([*QUESTION, *by], observed=True, dropna=False)
    means = grouped[measured].mean()
    return (means[grouped.size() == times] if in_full else means).reset_index()


def relevant_numbers(table: Table) -> list[int | None]:
    """The numbers of relevant examples: the paper's 10 first, then the larger before the smaller."""
    if "relevant" not in table:
        return [None]
    numbers = sorted((int(one) for one in table.relevant.dropna().unique()), key=lambda number: (number != 10, -number))
    return [*numbers] or [None]


def of_relevant(table: Table, number: int | None, is_main: bool) -> Table:
    """The answers with so many relevant examples; the shots of mask-count, which have none, belong to the main one."""
    if number is None or "relevant" not in table:
        return table
    return table[(table.relevant == number) | (is_main & table.relevant.isna())]


def strata(questions: "pd.Series | Table") -> dict[str, np.ndarray]:
    """The values of each task."""
    return {str(task): own.to_numpy(dtype=float) for task, own in questions.groupby(level="task", observed=True)}


# Estimates


def share(name: str, column: "pd.Series", **more: Any) -> Estimate:
    """The share of questions that are right, mean over tasks."""

    def interval(own: Strata) -> intervals.Arrays:
        return intervals.share_interval(*(each(own) for each in (means_of, points_of, variances_of)))

    return _estimate(name, column, interval, SHARE, (0.0, 1.0), more)


def change(name: str, after: "pd.Series", before: "pd.Series", level: float = LEVEL, **more: Any) -> Estimate:
    """After minus before, of right answers, over the questions that both have. level: less than .05 where several
    intervals are to hold together."""

    def interval(own: Strata) -> intervals.Arrays:
        return intervals.paired_share(own, variances_of(own), (level / 2, 1 - level / 2))

    return _estimate(name, (after - before).dropna(), interval, POINTS, (-1.0, 1.0), more)


def mean(
    name: str,
    column: "pd.Series",
    unit: str = NATS,
    bounds: Bounds | None = None,
    level: float = LEVEL,
    **more: Any,
) -> Estimate:
    """The mean over tasks of one value a question; `bounds` are the least and the most it can be."""
    interval = partial(intervals.mean_interval, bounds=bounds, tails=(level / 2, 1 - level / 2))
    return _estimate(name, column.dropna(), interval, unit, bounds, more)


def ratio(
    name: str,
    table: Table,
    formula: scores.Formula,
    why: str = scores.NO_SKILL,
    unit: str = SHARE,
    low_end: scores.LowEnd | None = None,
    **more: Any,
) -> Estimate:
    """Any formula of the accuracies [draws, conditions] of a `wide` table; the interval by posterior draws."""
    if table.empty:
        return Estimate(name, None, unit=unit, why=TOO_FEW, **more)
    groups = dict(sorted(strata(table).items()))  # the order of the draws
    value, low, high = scores.bootstrapped(groups, formula, low_end)
    if value is None:
        return Estimate(name, None, unit=unit, why=why, **more)
    tasks_low, tasks_high = scores.jackknife_over_tasks(groups, formula)
    one = Estimate(name, value, low, high, len(table), unit, tasks_low=tasks_low, tasks_high=tasks_high)
    return replace(one, **more)


def locality(name: str, near: "pd.Series", far: "pd.Series", guessing: float) -> Estimate:
    """(near - far) / (near - guessing): the share of the skill that is lost with the distance."""
    import pandas as pd

    ends = pd.concat([near, far], axis=1)
    return ratio(name, ends, lambda a: scores.share_of_skill(a[:, 0] - a[:, 1], a[:, 0] - guessing))


def recovered(name: str, few: "pd.Series", most: "pd.Series", after: "pd.Series") -> Estimate:
    """The share of the accuracy lost from few masks to the most that is there again after, with the most: lowering the
    accuracy with few masks recovers nothing."""
    import pandas as pd

    ends = pd.concat([few, most, after], axis=1).dropna()
    return ratio(name, ends, scores.share_recovered, scores.TOO_LITTLE_LOSS)


def _estimate(
    name: str,
    column: "pd.Series",
    interval: Callable[[Strata], Interval | intervals.Arrays],
    unit: str,
    bounds: Bounds | None,
    more: Mapping[str, Any],
) -> Estimate:
    if column.empty:
        return Estimate(name, None, unit=unit, why=TOO_FEW)
    groups = strata(column)
    value, low, high = (None if one is None else float(one) for one in interval(groups))
    tasks_low, tasks_high = intervals.over_tasks(groups, bounds)
    p = intervals.p_of_mean(groups, more.get("against") or 0.0, bounds)
    one = Estimate(name, value, low, high, len(column), unit, p=p, tasks_low=tasks_low, tasks_high=tasks_high)
    return replace(one, **more)


def without_skill(one: Estimate, why: str = scores.NO_SKILL) -> Estimate:
    """The same without a verdict: a model that guesses has nothing to lose."""
    return replace(one, low=None, high=None, p=None, why=why)


def curve(
    table: Table,
    by: Sequence[str],
    measures: Mapping[str, str],
    baseline: Callable[[Mapping[str, Any]], Mapping[str, Any]] | Mapping[str, Any] | None = None,
    times: int = 1,
) -> Table:
    """A row for each condition and measure: value, low, high, n, and the paired change from the baseline.

    It is the figure's data and the tables of page, terminal and JSON at once. measures: column -> unit; a share has the
    interval of a share. baseline: the entries of a condition that change on the way to the one it is compared with.
    """
    import pandas as pd

    by = list(by)
    table = of_questions(table, by, times)
    groups = {
        key: (own, dict(zip(by, key, strict=True)))
        for key, own in table.groupby(by, observed=True, dropna=False, sort=False)
    }
    rows: list[dict[str, Any]] = []
    for key, (own, condition) in groups.items():
        moved = baseline(condition) if callable(baseline) else baseline
        other = tuple({**condition, **(moved or {})}.values())
        for column, unit in measures.items():
            here = answers(own, column).dropna()
            if here.empty:
                continue
            one = share(column, here) if unit == SHARE else mean(column, here, unit)
            row = condition | {"measure": column} | {name: getattr(one, name) for name in SHOWN}
            if moved is not None and other != key and other in groups:
                before = answers(groups[other][0], column).dropna()
                paired = change(column, here, before) if unit == SHARE else mean(column, (here - before), unit)
                row |= {"change": paired.value, "change_low": paired.low, "change_high": paired.high, "p": paired.p}
            rows.append(row)
    return pd.DataFrame(rows)
