"""In which order does a model fill its canvas? Three measures of how close it is to reading order.

With s_1..s_n the places revealed in steps 1..n, one token a step:

    Kendall's tau       (concordant - discordant) / all pairs of (place, step): 1 left to right, -1 right to left
    global AR-ness@k    share of steps that reveal one of the k leftmost places still masked
    local AR-ness@k     share of steps that extend a run of k reveals each one place to the right of the one before
"""

from collections.abc import Sequence

from scipy import stats


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
