"""Cost of a search in forward passes, and the largest plan within a budget. Imports no torch.

A quarter of the budget at most goes to the search, the rest to the questions held back: they alone count.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from maskwise.advice.selection import FEWEST_HELD, FINALISTS, Plan, fewest_questions, make_plan, places_after
from maskwise.support.errors import UserError

SEARCH_SHARE = 0.25
FASTEST_PASS = 1e-4  # seconds per question of a forward pass: below what any machine needs


@dataclass(frozen=True)
class Cost:
    """Upper bounds in forward passes: of the search, and of each held-back question."""

    search: int
    per_held: int


def most_passes(settings: Sequence[Any], variants: int, plan: Plan) -> Cost:
    """Upper bound: the most expensive settings survive with all cache `variants`; adaptive ones take their maximum."""
    dear = sorted((setting.passes for setting in settings), reverse=True)
    total, alive = sum(dear) * plan.rounds[0], len(settings)
    for number in range(1, len(plan.rounds)):
        stay = places_after(number - 1, plan, alive)
        total += sum(dear[:stay]) * (plan.rounds[number] - plan.rounds[number - 1])
        alive = stay
        if number == 1:
            total += variants * sum(dear[:stay]) * plan.rounds[1]
            alive += variants * stay
    return Cost(total, sum((dear * (1 + variants))[:FINALISTS]))


def fit_plan(settings: Sequence[Any], variants: int, questions: int, per_pass: float, budget: float | None) -> Plan:
    """Largest plan whose search takes at most a quarter of `budget` seconds, at `per_pass` seconds a pass."""
    fewest = fewest_questions(len(settings))
    if questions < fewest:
        raise UserError(
            f"{questions} questions are too few for {len(settings)} settings: give {fewest} or more, or fewer settings "
            "to search"
        )
    plan = make_plan(len(settings), questions)
    if budget is None:
        return plan
    for total in range(questions, fewest - 1, -1):
        plan = make_plan(len(settings), total)
        cost = most_passes(settings, variants, plan)
        needed = max(cost.search / SEARCH_SHARE, FEWEST_HELD * cost.per_held / (1 - SEARCH_SHARE))
        if needed * per_pass <= budget:
            return replace(plan, held=questions - plan.searched)
    raise UserError(
        f"a budget of {budget / 60:g} minutes is too small for one round: up to {round(needed):,} forward "
        f"passes of {per_pass:.2g} s are {needed * per_pass / 60:.2g} minutes; give more, or fewer "
        "settings to search"
    )


def asked_at_most(settings: int, variants: int, plan: Plan) -> int:
    """Upper bound on questions over all rounds, repeats included: the total of the progress bar."""
    total, alive = 0, settings
    for number, questions in enumerate(plan.rounds):
        total += alive * questions
        alive = places_after(number, plan, alive) * (1 + variants if number == 0 else 1)
    return total
