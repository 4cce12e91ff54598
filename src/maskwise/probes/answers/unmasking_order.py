"""The order in which a model fills its canvas: two measures of how close it is to reading order.

With s_1..s_n the places revealed in steps 1..n, one token per step:

    Kendall's tau       (concordant - discordant) / all pairs of (place, step): 1 left to right, -1 right to left
    global AR-ness@1    share of steps that reveal the leftmost place still masked
"""

from collections.abc import Sequence
from dataclasses import replace

from scipy import stats

from maskwise.decoding.generate import generate
from maskwise.models.model import Model
from maskwise.probes.answers.plain import DIGITS, Answer, ask
from maskwise.support.randomness import torch_generator
from maskwise.tasks.prompts import Prompt


def kendall_tau(order: Sequence[int]) -> float:
    """order[i] is the step at which place i was revealed (`Generation.order`); ties count for neither side (tau-b)."""
    return float(stats.kendalltau(range(len(order)), order).statistic)


def global_arness(order: Sequence[int]) -> float:
    """The steps whose place lies left of all that are revealed later; those of one step from left to right."""
    places = sorted(range(len(order)), key=lambda place: (order[place], place))
    return sum(place == min(places[step:]) for step, place in enumerate(places)) / len(places)


def watch_order(model: Model, prompts: Sequence[Prompt], rule: str, seed: int) -> list[Answer]:
    """Greedy, one token per step; the record's answer is what one pass says of the first mask."""
    answers = ask(model, prompts)
    chance = [torch_generator("order", seed, rule, prompt.ids) for prompt in prompts]
    written = generate(model, [prompt.ids for prompt in prompts], 0, rule=rule, generator=chance)
    measured = [{"tau": kendall_tau(one.order), "global1": global_arness(one.order)} for one in written]
    rounded = [{name: round(value, DIGITS) for name, value in one.items()} for one in measured]
    return [replace(answer, evidence=own) for answer, own in zip(answers, rounded, strict=True)]
