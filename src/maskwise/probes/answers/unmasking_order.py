"""The order in which a model fills its canvas: three measures of how close it is to reading order.

With s_1..s_n the places revealed in steps 1..n, one token per step:

    Kendall's tau       (concordant - discordant) / all pairs of (place, step): 1 left to right, -1 right to left
    global AR-ness@k    share of steps that reveal one of the k leftmost places still masked
    local AR-ness@k     share of steps that extend a run of k reveals each one place to the right of the one before
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


def global_arness(order: Sequence[int], k: int = 1) -> float:
    places = revealed(order)
    left = sorted(places)
    hits = 0
    for place in places:
        hits += left.index(place) < k
        left.remove(place)
    return hits / len(places)


def local_arness(order: Sequence[int], k: int = 1) -> float:
    """Of the steps that have k steps before them."""
    places = revealed(order)
    runs = [all(places[t - j] == places[t] - j for j in range(1, k + 1)) for t in range(k, len(places))]
    return sum(runs) / max(1, len(runs))


def revealed(order: Sequence[int]) -> list[int]:
    """The places in the order in which they were revealed; those of one step from left to right."""
    return sorted(range(len(order)), key=lambda place: (order[place], place))


def watch_order(model: Model, prompts: Sequence[Prompt], rule: str, seed: int) -> list[Answer]:
    """Greedy, one token per step; the record's answer is what one pass says of the first mask."""
    answers = ask(model, prompts)
    chance = [torch_generator("order", seed, rule, prompt.ids) for prompt in prompts]
    written = generate(model, [prompt.ids for prompt in prompts], 0, rule=rule, generator=chance)
    return [replace(answer, evidence=_evidence(one.order)) for answer, one in zip(answers, written, strict=True)]


def _evidence(order: Sequence[int]) -> dict[str, float]:
    measured = {"tau": kendall_tau(order)}
    measured |= {f"global{k}": global_arness(order, k) for k in (1, 4)}
    measured |= {f"local{k}": local_arness(order, k) for k in (1, 4)}
    return {name: round(value, DIGITS) for name, value in measured.items()}
