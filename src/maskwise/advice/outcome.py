"""The result of a search: three settings to use, the frontier, what was dropped and what was not tried."""

from collections.abc import Callable
from typing import Any

from maskwise.advice.evaluation import SearchResult
from maskwise.advice.search_request import SearchRequest
from maskwise.advice.search_space import not_tried
from maskwise.advice.selection import NEAR, NEARER, Interval
from maskwise.records.search import (
    Advice,
    AdvisedSetting,
    ConfirmedSetting,
    DroppedSetting,
    MeanInterval,
    QuestionCounts,
)

GOALS: tuple[tuple[str, Callable[[Any], int]], ...] = (
    ("best quality", lambda confirmed: confirmed.best),
    ("fastest within 1 point", lambda confirmed: confirmed.fastest_within(NEARER)),
    ("fastest within 3 points", lambda confirmed: confirmed.fastest_within(NEAR)),
)


def outcome(found: SearchResult, request: SearchRequest, model: str, adapter: str | None, **costs: Any) -> Advice:
    """What `maskwise advise --json` prints. costs: the fields of `Advice` from `cost` on."""
    confirmed = found.confirmation
    return Advice(
        model=model if adapter is None else f"{model}+{adapter}",
        quality=request.quality.in_words,
        unit="share" if request.quality.is_share else "value",
        questions=QuestionCounts(searched=found.plan.searched, held_back=found.plan.held, embedded=request.embedded),
        sentence=sentence(found, request),
        all_equal=confirmed.all_equal,
        winner=None if confirmed.winner is None else _name(found, confirmed.winner),
        reference=_name(found, 0),
        advice=[_advised(found, goal, pick(confirmed), model, adapter) for goal, pick in GOALS],
        confirmed=[
            _confirmed(found, place) for place in sorted(range(len(found.finalists)), key=confirmed.cost.__getitem__)
        ],
        dropped=_dropped(found),
        not_tried=not_tried(request.space),
        **costs,
    )


def sentence(found: SearchResult, request: SearchRequest) -> str:
    """The finding in one sentence."""
    confirmed, held = found.confirmation, found.plan.held
    best, fast = confirmed.best, confirmed.fastest_within(NEAR)
    if confirmed.all_equal:
        ends = [end for pair in confirmed.differences.values() for end in (pair.low, pair.high) if end is not None]
        unseen = f" (differences up to {amount(max(map(abs, ends)), request)} are not excluded)" if ends else ""
        return (
            f"All equal, as far as {held} questions held back can tell: no setting confirmed on them differs in "
            f"quality from another beyond chance{unseen}; the fastest, {_name(found, fast)}, is as good as any and "
            f"takes {_passes(found, fast)}."
        )
    if confirmed.winner is not None:
        gain = confirmed.difference(best, 0)
        return (
            f"{_capital(_name(found, best))} is better than the reference ({_name(found, 0)}) by "
            f"{amount(gain.mean, request)}{ends_of(gain, request)} on {held} questions held back, with "
            f"{_passes(found, best)}{_price_of_speed(found, request)}."
        )
    return (
        f"No setting is better than the reference ({_name(found, 0)}) beyond chance on {held} questions held back; the "
        f"fastest within 3 points of the best, {_name(found, fast)}, takes {_passes(found, fast)}"
        f"{_price_of_speed(found, request)}."
    )


def _price_of_speed(found: SearchResult, request: SearchRequest) -> str:
    """What the fastest setting of all loses beyond chance, where it is none of those that are advised."""
    confirmed = found.confirmation
    fastest = confirmed.cheapest
    loss = confirmed.difference(confirmed.best, fastest)
    if fastest == confirmed.fastest_within(NEAR) or loss.low is None or loss.low <= 0:
        return ""
    return (
        f"; the fastest confirmed, {_name(found, fastest)}, takes {_passes(found, fastest)} and loses "
        f"{amount(loss.mean, request)}{ends_of(loss, request)}"
    )


def amount(value: float, request: SearchRequest, unit: bool = True) -> str:
    """A difference in the measure's own unit: points where it is a share."""
    number = f"{100 * value:.1f}" if request.quality.is_share else f"{value:.3f}"
    return f"{number} points" if unit and request.quality.is_share else number


def ends_of(interval: Interval, request: SearchRequest) -> str:
    if interval.low is None or interval.high is None:
        return ""
    return f" ({amount(interval.low, request, False)} to {amount(interval.high, request, False)})"


def _passes(found: SearchResult, place: int) -> str:
    own, reference = found.passes[place], found.passes[0]
    beside = "" if f"{own:.3g}" == f"{reference:.3g}" else f" instead of {reference:.3g}"
    noun = "pass" if own == 1 and not beside else "passes"
    return f"{own:.3g}{beside} forward {noun} and {found.seconds[place]:.2g} s per question"


def _name(found: SearchResult, place: int) -> str:
    return found.settings[found.finalists[place]].name


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]


def _ends(interval: Interval) -> MeanInterval:
    return MeanInterval(mean=interval.mean, low=interval.low, high=interval.high)


def _confirmed(found: SearchResult, place: int) -> ConfirmedSetting:
    confirmed = found.confirmation
    return ConfirmedSetting(
        setting=_name(found, place),
        quality=_ends(confirmed.quality[place]),
        to_reference=_ends(confirmed.difference(place, 0)),
        to_best=_ends(confirmed.difference(place, confirmed.best)),
        passes=found.passes[place],
        seconds=found.seconds[place],
        frontier=place in confirmed.frontier,
    )


def _advised(found: SearchResult, goal: str, place: int, model: str, adapter: str | None) -> AdvisedSetting:
    setting = found.settings[found.finalists[place]]
    return AdvisedSetting(
        goal=goal,
        **_confirmed(found, place),
        options=setting.given,
        command=setting.command(model, adapter),
        python=setting.python(),
        lm_eval=setting.lm_eval(model, adapter),
    )


def _dropped(found: SearchResult) -> list[DroppedSetting]:
    """The settings that a round dropped, the latest first, with what they had reached by then."""
    return [
        DroppedSetting(
            setting=found.settings[one.setting].name,
            questions=one.questions,
            quality=one.quality,
            cost=round(one.cost, 3),
            passes=one.passes,
            seconds=one.seconds,
        )
        for one in found.dropped
    ]
