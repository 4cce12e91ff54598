"""Selection of decoding settings by successive halving and confirmation by intervals, on arrays alone.

Successive halving (Karnin et al. 2013; Jamieson and Talwalkar, arXiv 1502.07943): every setting answers the same few
questions, the better half answers more, and so on. The survivors' scores in that search are biased upwards, because
they were chosen by them. So the survivors answer questions held back, and only those answers count: every pair has an
interval of its paired difference, and all these intervals hold together in 95 % of runs (Bonferroni). The first setting
is the reference, which is always confirmed.

A setting is named only if it is non-inferior: the lower end of its paired difference to every other finalist lies above
minus the margin. So a setting that is truly worse than another by the margin or more is named in at most 5 % of runs.

Quality is an array [settings, questions], cost [settings]; 1 point is 0.01 of quality.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import combinations
from math import ceil, floor, log2, log10

import numpy as np
import scipy.special

from maskwise.records.search import MeanInterval
from maskwise.scoring.intervals import SAME, TAILS, difference_interval, jeffreys_bounds
from maskwise.scoring.skill import Skill, task_skill

FINALISTS = 4  # confirmed, the reference among them: six pairs
FEWEST_ASKED, FEWEST_HELD = 4, 24  # questions of the first round, and held back
SEARCHED = 0.4  # the share of the questions that the search may use
POINT = 0.01
CHEAPER = 0.9  # of the reference's cost: what counts as faster
NEAR, NEARER = 3 * POINT, 1 * POINT  # what may be given up for speed
POWER = 0.8  # chance that the stated number of questions decides

Ask = Callable[[Sequence[int], range], tuple[np.ndarray, np.ndarray]]


@dataclass(frozen=True)
class Plan:
    """Search plan: cumulative questions per round, then the questions held back."""

    rounds: tuple[int, ...]
    held: int

    @property
    def searched(self) -> int:
        return self.rounds[-1]

    @property
    def held_back(self) -> range:
        return range(self.searched, self.searched + self.held)


def rounds_for(settings: int) -> int:
    """Number of rounds, at least two: cached variants of the first round's survivors join in the second."""
    return max(2, ceil(log2(max(settings, 1) / FINALISTS)))


def fewest_questions(settings: int) -> int:
    return (FEWEST_ASKED << rounds_for(settings) - 1) + FEWEST_HELD


def make_plan(settings: int, questions: int) -> Plan:
    """Plan of rounds, each with twice the questions and half the settings of the one before."""
    count = rounds_for(settings)
    fewest = FEWEST_ASKED << count - 1
    searched = max(fewest, min(int(questions * SEARCHED), questions - FEWEST_HELD))
    rounds = tuple(searched >> count - 1 - number for number in range(count))
    return Plan(rounds, questions - rounds[-1])


def places_after(round: int, plan: Plan, settings: int) -> int:
    """Number of settings left after a round (from 0)."""
    return FINALISTS if round == len(plan.rounds) - 1 else max(FINALISTS, ceil(settings / 2))


def survivors(quality: np.ndarray, cost: np.ndarray, places: int) -> list[int]:
    """Surviving settings: the reference, then alternately the best and the cheapest that may be near the best.

    A setting may be near when its mean, one standard error of the paired difference more, is within 3 points of the
    best mean: with few questions that is nearly all, and the cheap ones are not lost to chance.
    """
    mean = quality.mean(1)
    by_quality = np.lexsort((cost, -mean)).tolist()
    gap = quality - quality[by_quality[0]]
    error = gap.std(1, ddof=1) / np.sqrt(quality.shape[1]) if quality.shape[1] > 1 else np.full(len(mean), np.inf)
    may_be_near = mean + error >= np.max(mean) - NEAR - SAME
    by_cost = [one for one in np.lexsort((-mean, cost)).tolist() if may_be_near[one]]
    kept = [0]
    while len(kept) < min(places, len(mean)):
        for order in (by_quality, by_cost):
            new = next((one for one in order if one not in kept), None)
            if new is not None and len(kept) < places:
                kept.append(new)
    return kept


@dataclass(frozen=True)
class Round:
    """Result of a round: its settings, their mean quality and cost, and the survivors."""

    questions: int
    settings: tuple[int, ...]
    quality: tuple[float, ...]
    cost: tuple[float, ...]
    kept: tuple[int, ...]


def halve(
    ask: Ask, settings: Sequence[int], plan: Plan, joining: Callable[[Sequence[int]], Sequence[int]] | None = None
) -> list[Round]:
    """Successive halving over settings, by their numbers; the reference comes first and stays.

    ask(settings, questions) gives quality and cost, both [settings, questions]. joining(survivors): settings that come
    in after the first round, asked from the first question on.
    """
    alive, found = list(settings), []
    for number, asked in enumerate(plan.rounds):
        quality, cost = ask(alive, range(asked))
        kept = [alive[place] for place in survivors(quality, cost.mean(1), places_after(number, plan, len(alive)))]
        means = (tuple(quality.mean(1).tolist()), tuple(cost.mean(1).tolist()))
        found.append(Round(asked, tuple(alive), *means, tuple(kept)))
        alive = kept
        if number == 0 and joining is not None:
            alive = [*alive, *joining(alive)]
    return found


def finalists(rounds: Sequence[Round]) -> tuple[int, ...]:
    """Finalists to confirm: the last round's survivors.

    Where none of them is cheaper than the reference, the cheapest setting of all takes the last place: what speed costs
    is then confirmed too, and not only that the search dropped what is fast.
    """
    kept = rounds[-1].kept
    cost = {number: cost for one in rounds for number, cost in zip(one.settings, one.cost, strict=True)}
    cheapest, dear = min(cost, key=cost.__getitem__), CHEAPER * cost[0]
    if cost[cheapest] >= dear or min(cost[one] for one in kept) < dear:
        return kept
    return (*kept[: FINALISTS - 1], cheapest)


@dataclass(frozen=True)
class Confirmation:
    """Results of the finalists on held-back questions, indexed by finalist, the reference first."""

    quality: tuple[MeanInterval, ...]  # each on its own
    cost: tuple[float, ...]
    differences: dict[tuple[int, int], MeanInterval]  # of every pair i < j: i less j; they hold together
    variances: dict[tuple[int, int], float]  # of one question's difference
    questions: int
    shares: bool  # every value is 0 or 1

    def difference(self, one: int, other: int) -> MeanInterval:
        if one == other:
            return MeanInterval(mean=0.0, low=0.0, high=0.0)
        return self.differences[one, other] if one < other else -self.differences[other, one]

    @property
    def all_equal(self) -> bool:
        """No pair differs significantly."""
        return not any(difference.excludes_zero for difference in self.differences.values())

    @property
    def highest(self) -> int:
        """The highest mean quality; of equal ones the cheapest."""
        return min(range(len(self.cost)), key=lambda one: (-self.quality[one].mean, self.cost[one]))

    @property
    def best(self) -> int | None:
        """The highest mean, if it is shown to be at most 3 points below every other; else None."""
        return self.highest if self.is_within(self.highest, NEAR) else None

    @property
    def winner(self) -> int | None:
        """The highest mean, if it is significantly better than the reference."""
        low = self.difference(self.highest, 0).low
        return self.highest if low is not None and low > 0 else None

    def is_within(self, one: int, margin: float) -> bool:
        """Non-inferiority: the interval excludes that `one` is worse than another finalist by the margin or more."""
        return all(pair.low is not None and pair.low > -margin for pair in self._to_others(one))

    def fastest_within(self, margin: float) -> int | None:
        """The cheapest that is shown to be within the margin of every other; None where none is."""
        shown = [one for one in range(len(self.cost)) if self.is_within(one, margin)]
        return self._cheapest(shown) if shown else None

    def questions_to_decide(self, margin: float) -> int | None:
        """Questions after which the cheapest setting not yet excluded is shown to be within the margin.

        If it is truly equal to the others, in 80 % of runs, the answers differing as often as in these. Two significant
        digits. None where nothing varies in a measure that is no share.
        """
        open_ones = [one for one in range(len(self.cost)) if not self._is_beyond(one, margin)]
        one = self._cheapest(open_ones or range(len(self.cost)))
        variance = max((found for pair, found in self.variances.items() if one in pair), default=0.0)
        if variance < SAME:
            return None
        tail = TAILS[0] / max(len(self.differences), 1)
        reach = float(scipy.special.ndtri(1 - tail) + scipy.special.ndtri(POWER))
        needed = max(variance * (reach / margin) ** 2, self.questions + 1)
        unit = 10 ** max(0, floor(log10(needed)) - 1)
        return int(ceil(needed / unit) * unit)

    def skill(self, chance: float) -> Skill | None:
        """Of the best finalist, with the changes to all others, whose tests hold together; None of other values than
        0 and 1."""
        if not self.shares:
            return None
        best = self.highest
        changes = [(pair.low, pair.high) for pair in (-one for one in self._to_others(best))]
        right, level = round(self.quality[best].mean * self.questions), TAILS[0] / len(self.quality)
        return task_skill(right, self.questions, chance, changes, level)

    @property
    def cheapest(self) -> int:
        return self._cheapest(range(len(self.cost)))

    @property
    def frontier(self) -> list[int]:
        """Pareto frontier of quality and cost, the cheapest first."""
        order = sorted(range(len(self.cost)), key=lambda one: (self.cost[one], -self.quality[one].mean))
        found: list[int] = []
        for one in order:
            if not found or self.quality[one].mean > self.quality[found[-1]].mean + SAME:
                found.append(one)
        return found

    def _is_beyond(self, one: int, margin: float) -> bool:
        """True if significantly worse than another finalist by more than the margin."""
        return any(pair.high is not None and pair.high < -margin for pair in self._to_others(one))

    def _to_others(self, one: int) -> list[MeanInterval]:
        return [self.difference(one, other) for other in range(len(self.cost)) if other != one]

    def _cheapest(self, among: Sequence[int]) -> int:
        return min(among, key=lambda one: (self.cost[one], -self.quality[one].mean))


def confirm(quality: np.ndarray, cost: np.ndarray) -> Confirmation:
    """quality [finalists, questions held back], cost [finalists]."""
    pairs = list(combinations(range(len(quality)), 2))
    shares = bool(np.isin(quality, (0.0, 1.0)).all())
    ones, others = [one for one, _ in pairs], [other for _, other in pairs]
    found = paired_intervals(quality[ones], quality[others], shares, TAILS[0] / max(len(pairs), 1))
    return Confirmation(
        tuple(_mean_intervals(quality, shares)),
        tuple(cost.tolist()),
        dict(zip(pairs, found, strict=True)),
        dict(zip(pairs, _variances(quality[ones] - quality[others], shares), strict=True)),
        quality.shape[1],
        shares,
    )


def _variances(change: np.ndarray, shares: bool) -> list[float]:
    """Of one question's difference [pairs, questions]; for right and wrong answers after adding one gain and one loss
    (Bonett and Price 2012), so that answers that never differed here are not taken to be equal for ever."""
    variance, count = change.var(1), change.shape[1]
    return ((count * variance + 2) / (count + 2) if shares else variance).tolist()


def paired_intervals(one: np.ndarray, other: np.ndarray, shares: bool, tail: float = TAILS[0]) -> list[MeanInterval]:
    """Of the means of one - other [pairs, questions]: Jeffreys' bounds of right and wrong answers, else Student's."""
    change = one - other
    if not shares:
        return [_students(values, tail) for values in change]
    gained, lost = (change > 0).mean(1, keepdims=True), (change < 0).mean(1, keepdims=True)
    found = difference_interval(gained, lost, np.array([float(change.shape[1])]), tails=(tail, 1 - tail))
    return _as_intervals(*found)


def _mean_intervals(values: np.ndarray, shares: bool) -> list[MeanInterval]:
    if not shares:
        return [_students(line, TAILS[0]) for line in values]
    mean = values.mean(1)
    return _as_intervals(mean, *jeffreys_bounds(mean, float(values.shape[1])))


def _as_intervals(*ends: np.ndarray) -> list[MeanInterval]:
    """mean, low and high [n] -> n intervals."""
    means = zip(*(end.tolist() for end in ends), strict=True)
    return [MeanInterval(mean=mean, low=low, high=high) for mean, low, high in means]


def _students(values: np.ndarray, tail: float) -> MeanInterval:
    """Student's t intervals of means; none where the values do not vary."""
    mean, count = float(values.mean()), len(values)
    if count < 2 or np.ptp(values) < SAME:
        return MeanInterval(mean=mean, low=None, high=None)
    half = float(scipy.special.stdtrit(count - 1, 1 - tail) * values.std(ddof=1) / np.sqrt(count))
    return MeanInterval(mean=mean, low=mean - half, high=mean + half)
