"""Result of a search: recommended settings, the finding, the Pareto frontier, the dropped settings."""

from collections.abc import Callable
from typing import Any

from maskwise.advice.search_request import SearchRequest
from maskwise.advice.selection import NEAR, NEARER, Confirmation
from maskwise.advice.setting_evaluator import SearchResult
from maskwise.records.search import (
    Advice,
    AdvisedSetting,
    ConfirmedSetting,
    MeanInterval,
    QuestionCounts,
    UndecidedGoal,
)
from maskwise.report.words.task_skill import conclusion, limit
from maskwise.scoring.numbers import number
from maskwise.scoring.skill import Skill
from maskwise.tasks.episodes import CHANCE

# Each goal with the setting that is shown to meet it (None where none is) and its margin.
GOALS: tuple[tuple[str, Callable[[Confirmation], int | None], float], ...] = (
    ("best quality", lambda confirmed: confirmed.best, NEAR),
    ("fastest within 1 point", lambda confirmed: confirmed.fastest_within(NEARER), NEARER),
    ("fastest within 3 points", lambda confirmed: confirmed.fastest_within(NEAR), NEAR),
)
WHAT_TO_TRY = (
    "look at the texts in records.jsonl of the folder, then try a longer text (-n), another --pattern, easier "
    "questions or a model that was tuned for such questions"
)
BEST = "with the best setting"
HARDER = "give harder questions to find the limits of the fast ones"


def outcome(found: SearchResult, request: SearchRequest, model: str, adapter: str | None, **costs: Any) -> Advice:
    """What `maskwise advise --json` prints. costs: the fields of `Advice` from `cost` on."""
    confirmed = found.confirmation
    skill = _skill(found, request)
    able, decided = skill is None or skill.shown, limit(skill) is None
    named = [(goal, pick(confirmed) if able else None, margin) for goal, pick, margin in GOALS]
    return Advice(
        model=model if adapter is None else f"{model}+{adapter}",
        quality=request.quality.in_words,
        unit="share" if request.quality.is_share else "value",
        questions=QuestionCounts(searched=found.plan.searched, held_back=found.plan.held, embedded=request.embedded),
        sentence=sentence(found, request),
        all_equal=confirmed.all_equal,
        winner=None if confirmed.winner is None or not able else _name(found, confirmed.winner),
        reference=_name(found, 0),
        advice=[_advised(found, goal, place, model, adapter, decided) for goal, place, _ in named if place is not None],
        undecided=[
            UndecidedGoal(goal=goal, questions=confirmed.questions_to_decide(margin) if able else None)
            for goal, place, margin in named
            if place is None
        ],
        confirmed=[
            _confirmed(found, place, decided)
            for place in sorted(range(len(found.finalists)), key=confirmed.cost.__getitem__)
        ],
        dropped=found.dropped,
        not_tried=request.space.not_tried(),
        **costs,
    )


def sentence(found: SearchResult, request: SearchRequest) -> str:
    """The finding: that the questions are too hard or too easy, or the winner, or the fastest setting shown to be as
    good, and what is not decided."""
    confirmed, held = found.confirmation, found.plan.held
    limited = limit(_skill(found, request))
    if limited is not None and not limited.shown:
        more = "; or ask more questions" if limited.skill == "undecided" else ""
        todo = f"What to do: {WHAT_TO_TRY}{more}."
        return f"{conclusion(limited)} No setting is advised: no other had more right. {todo}"
    fast, winner = confirmed.fastest_within(NEAR), confirmed.winner
    parts = []
    if limited is not None:
        parts.append(_nothing_lost(limited, request))
    elif winner is not None:
        gain = confirmed.difference(winner, 0)
        name = _name(found, winner)
        parts.append(
            f"{name[:1].upper()}{name[1:]} is better than the reference ({_name(found, 0)}) by "
            f"{amount(gain.mean, request)}{ends_of(gain, request)} on {held} questions held back, with "
            f"{_passes(found, winner)}."
        )
    else:
        better = f"No setting is significantly better than the reference ({_name(found, 0)})"
        none = "No two settings differ significantly" if confirmed.all_equal else better
        parts.append(f"{none} on {held} questions held back.")
    if fast is not None:
        parts.append(
            f"The fastest setting shown to be within {amount(NEAR, request)} of all others, {_name(found, fast)}, "
            f"takes {_passes(found, fast)}."
        )
    else:
        parts.append(_not_enough(found, request))
    return " ".join([*parts, *_price_of_speed(found, request)])


def _not_enough(found: SearchResult, request: SearchRequest) -> str:
    """The loss that is not excluded, and how many questions would decide."""
    confirmed = found.confirmation
    ends = [end for pair in confirmed.differences.values() for end in (pair.low, pair.high) if end is not None]
    needed = confirmed.questions_to_decide(NEAR)
    unseen = f": differences of up to {amount(max(map(abs, ends)), request)} are not excluded" if ends else ""
    decide = f"; about {needed:,} questions held back would decide" if needed is not None else ""
    return f"Not enough questions to call a setting within {amount(NEAR, request)} of all others{unseen}{decide}."


def _skill(found: SearchResult, request: SearchRequest) -> Skill | None:
    """Where the guessing rate is unknown, one right answer is above it."""
    return found.confirmation.skill(CHANCE if request.embedded and request.quality.is_share else 0.0)


def _nothing_lost(skill: Skill, request: SearchRequest) -> str:
    """Of a function of the user's, the highest value is not known: 1 may be the lowest grade."""
    if request.quality.is_share:
        return f"{conclusion(skill, place=BEST)} This holds for all settings compared: {HARDER}."
    got = f"{skill.right:,} of {skill.n:,} texts got 1 {BEST}, and no loss was detected."
    return f"{got} If 1 is the highest value, {HARDER}."


def _price_of_speed(found: SearchResult, request: SearchRequest) -> list[str]:
    """The significant loss of the fastest setting, where it is not recommended."""
    confirmed, fastest = found.confirmation, found.confirmation.cheapest
    loss = confirmed.difference(confirmed.highest, fastest)
    if fastest == confirmed.fastest_within(NEAR) or loss.low is None or loss.low <= 0:
        return []
    return [
        f"The fastest confirmed, {_name(found, fastest)}, takes {_passes(found, fastest)} and loses "
        f"{amount(loss.mean, request)}{ends_of(loss, request)} compared with {_name(found, confirmed.highest)}."
    ]


def amount(value: float, request: SearchRequest, unit: bool = True) -> str:
    """A difference in the measure's unit: points for shares."""
    shown = number(100 * value, 1) if request.quality.is_share else number(value, 3)
    return f"{shown} points" if unit and request.quality.is_share else shown


def ends_of(interval: MeanInterval, request: SearchRequest) -> str:
    if interval.low is None or interval.high is None:
        return ""
    return f" ({amount(interval.low, request, False)} to {amount(interval.high, request, False)})"


def _passes(found: SearchResult, place: int) -> str:
    own, reference = found.passes[place], found.passes[0]
    instead = "" if f"{own:.3g}" == f"{reference:.3g}" else f" instead of {reference:.3g}"
    noun = "pass" if own == 1 and not instead else "passes"
    return f"{own:.3g}{instead} forward {noun} and {found.seconds[place]:.2g} s per question"


def _name(found: SearchResult, place: int) -> str:
    return found.settings[found.finalists[place]].name


def _confirmed(found: SearchResult, place: int, decided: bool) -> ConfirmedSetting:
    """decided: where no loss can be shown, no setting is on the frontier."""
    confirmed = found.confirmation
    return ConfirmedSetting(
        setting=_name(found, place),
        quality=confirmed.quality[place],
        to_reference=confirmed.difference(place, 0),
        to_best=confirmed.difference(place, confirmed.highest),
        passes=found.passes[place],
        seconds=found.seconds[place],
        frontier=decided and place in confirmed.frontier,
    )


def _advised(
    found: SearchResult, goal: str, place: int, model: str, adapter: str | None, decided: bool
) -> AdvisedSetting:
    setting = found.settings[found.finalists[place]]
    return AdvisedSetting(
        goal=goal,
        **_confirmed(found, place, decided),
        options=dict(setting.given),
        command=setting.command(model, adapter),
        python=setting.python(),
        lm_eval=setting.lm_eval(model, adapter),
    )
