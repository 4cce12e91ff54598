"""Conditions of the mechanism probe, each compared with two masks, and the paths by which tokens act.

With y the accuracy (or the negative log-likelihood) where the answer's row, and where the other rows, see the extra
tokens:

    total        y(seen, seen) - y(cut, cut)
    answer       y(seen, cut) - y(cut, cut)       the answer's row alone sees them
    others       y(cut, seen) - y(cut, cut)       all other rows alone see them
    interaction  total - answer - others

y(cut, cut) is asked as two masks without extra tokens.
"""

from collections.abc import Mapping, Sequence
from typing import ClassVar

from msgspec import UNSET, UnsetType

from maskwise.probes.extra_tokens import ANSWER, BOTH, CHANGES, CUTS, END, OTHERS, PLACES, WHOLE
from maskwise.records.record import Condition, Record
from maskwise.scoring.contrasts import Answers, weights_of
from maskwise.scoring.scores import Score, direction, mean_score
from maskwise.support.typed import Typed

NAME = "mechanism"
MASKS, FILLERS = "masks", "fillers"
BASELINE: Condition = {"masks": 2}
# The field of the records, and the largest difference of a point. "content": the choice among the allowed answers, the
# part of the negative log-likelihood that is no change of format; of records that hold it.
MEASURES = {"points": ("correct", 1.0), "nats": ("nll", None), "content": ("nll_choice", None)}
NO_EFFECT, INCONCLUSIVE = "no effect detected", "inconclusive"
LARGEST_DIFFERENCE = "largest difference"


class InEachUnit(Typed, frozen=True, kw_only=True):
    """A difference in points of accuracy and in nats; `content` is in nats too."""

    points: Score
    nats: Score
    content: Score | UnsetType = UNSET


class MechanismChange(InEachUnit, frozen=True, kw_only=True):
    """A condition against two masks."""

    condition: Condition


class PlaceContrast(InEachUnit, frozen=True, kw_only=True):
    """Masks less fillers in the same place."""

    place: str
    masks: int


class PathParts(Typed, frozen=True, kw_only=True):
    """Total, answer, others and interaction; their shares of the total where it excludes zero; and the path."""

    total: Score
    answer: Score
    others: Score
    interaction: Score
    shares: dict[str, float | None] | None
    path: str


class TokenPaths(Typed, frozen=True, kw_only=True):
    """The paths by which `masks` masks act, or as many tokens of which all but two are fillers."""

    tokens: str
    masks: int
    points: PathParts
    nats: PathParts
    content: PathParts | UnsetType = UNSET


class Mechanism(Typed, frozen=True, kw_only=True):
    """The summary of the probe. checks: LARGEST_DIFFERENCE, of the negative log-likelihoods with both cut from those
    with two masks, which should be rounding."""

    OPEN: ClassVar[str] = "checks"

    changes: list[MechanismChange]
    paths: list[TokenPaths]
    places: list[PlaceContrast]
    checks: dict[str, float | None]


def condition_of(tokens: str, masks: int, place: str = END, attention: str = WHOLE) -> Condition:
    """`masks` masks, or as many tokens of which all but two are fillers."""
    counts: Condition = {"masks": masks} if tokens == MASKS else {"masks": 2, "fillers": masks - 2}
    return {**counts, "place": place, "attention": attention}


def conditions(counts: Sequence[int]) -> list[Condition]:
    found = [BASELINE]
    for count in counts:
        found += [condition_of(MASKS, count, attention=attention) for attention in CHANGES]
        found += [condition_of(FILLERS, count, attention=attention) for attention in CUTS]
        found += [condition_of(tokens, count, place) for place in PLACES[1:] for tokens in (MASKS, FILLERS)]
    return found


def mechanism(records: Sequence[Record]) -> Mechanism:
    """Every condition against two masks; the paths with their interaction; masks less fillers in each place."""
    answers = Answers(records)
    units = [unit for unit, (field, _) in MEASURES.items() if all(group.has(field) for group in answers.of.values())]
    found = [group.condition for group in answers.of.values()]
    changed = [condition for condition in found if condition != BASELINE]
    counts = sorted({tokens_and_count(condition) for condition in changed}, key=lambda one: (-one[1], one[0] != MASKS))
    changed.sort(key=lambda condition: (counts.index(tokens_and_count(condition)), _order(condition)))
    if "nats" not in units:
        raise LookupError("nll")

    def less(condition: Condition, other: Condition) -> dict[str, Score]:
        return {unit: _contrast(answers, unit, _less(condition, other)) for unit in units}

    def places(count: int) -> list[PlaceContrast]:
        of_both = {place: [condition_of(tokens, count, place) for tokens in (MASKS, FILLERS)] for place in PLACES}
        return [PlaceContrast(place=place, masks=count, **less(*both)) for place, both in of_both.items()]

    return Mechanism(
        changes=[MechanismChange(condition=condition, **less(condition, BASELINE)) for condition in changed],
        paths=[
            TokenPaths(tokens=tokens, masks=count, **{unit: _paths(answers, tokens, count, unit) for unit in units})
            for tokens, count in counts
        ],
        places=[one for tokens, count in counts if tokens == MASKS for one in places(count)],
        checks={LARGEST_DIFFERENCE: _largest_difference(answers, changed)},
    )


def tokens_and_count(condition: Condition) -> tuple[str, int]:
    fillers = condition.get("fillers")
    return (FILLERS, int(fillers) + 2) if fillers else (MASKS, int(condition["masks"]))


def _order(condition: Condition) -> tuple[int, int]:
    return PLACES.index(str(condition["place"])), CHANGES.index(str(condition["attention"]))


Weighted = list[tuple[Condition, float]]


def _less(condition: Condition, other: Condition) -> Weighted:
    return [(condition, 1.0), (other, -1.0)]


def _contrast(answers: Answers, unit: str, weighted: Weighted) -> Score:
    field, most = MEASURES[unit]
    largest = sum(max(0.0, weight) for _, weight in weighted)  # the weights add up to zero
    bounds = None if most is None else (-largest * most, largest * most)
    return mean_score(answers.sums(weights_of(NAME, weighted), field), bounds)


def _paths(answers: Answers, tokens: str, count: int, unit: str) -> PathParts:
    whole, answer_cut, others_cut = (condition_of(tokens, count, attention=cut) for cut in (WHOLE, ANSWER, OTHERS))
    found = {
        "total": _contrast(answers, unit, _less(whole, BASELINE)),
        "answer": _contrast(answers, unit, _less(others_cut, BASELINE)),
        "others": _contrast(answers, unit, _less(answer_cut, BASELINE)),
        "interaction": _contrast(
            answers, unit, [(whole, 1.0), (others_cut, -1.0), (answer_cut, -1.0), (BASELINE, 1.0)]
        ),
    }
    total = found["total"].value
    shares = None
    if direction(found["total"]) and total is not None:
        parts = {name: found[name].value for name in ("answer", "others", "interaction")}
        shares = {name: None if value is None else value / total for name, value in parts.items()}
    return PathParts(**found, shares=shares, path=path_of(found))


def path_of(found: Mapping[str, Score]) -> str:
    """The parts whose interval lies on the total's side of zero; the interaction only where neither path does alone."""
    side = direction(found["total"])
    if side == 0:
        return NO_EFFECT
    acting = [name for name in ("answer", "others") if direction(found[name]) == side]
    if not acting and direction(found["interaction"]) == side:
        return "interaction"
    return " and ".join(acting) or INCONCLUSIVE


def _largest_difference(answers: Answers, changed: Sequence[Condition]) -> float | None:
    found = [
        max(map(float, abs(nats)))
        for condition in changed
        if condition["attention"] == BOTH
        for nats in answers.sums(weights_of(NAME, _less(condition, BASELINE)), "nll").values()
    ]
    return max(found, default=None)
