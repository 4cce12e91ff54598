"""Points in space, labelled Above or Below by a rule over their three coordinates, integers of 1..100.

The four types of Piskorz et al. (arXiv 2511.21338); what stands in brackets is ours. Every axis of a shape is stretched
so that its smallest value over all points of a cloud becomes 1 and its largest 100, then rounded. `noise` is the
standard deviation of normal noise. The shapes are scikit-learn's generators of these names, number for number.

    nonlinear    random integers; with u, v, w the three scaled to -1..1, Above where the logistic function of
                 a u + b v + c w + d u^2 + e v^2 + f w^2 + g uv + h uw + i vw - m exceeds .5 [standard normal
                 coefficients, m the median over the cloud]
    swiss-roll   make_swiss_roll [noise .5], its three axes; Above where its colour exceeds the median
    moons        make_moons [noise .1], its two axes, and a third that is uniform and says nothing; Above: second moon
    circles      make_circles [noise .05, factor .5], likewise; Above: the inner circle

Examples and tests are balanced: half of each are Above, in random order.
"""

from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np

from maskwise.support.randomness import numpy_generator
from maskwise.tasks.labelled_exercises import Labelled

CloudShape = Literal["nonlinear", "swiss-roll", "moons", "circles"]
ExampleOrder = Literal["random", "nearest first", "nearest last"]
SHAPES: tuple[CloudShape, ...] = get_args(CloudShape)
ORDERS: tuple[ExampleOrder, ...] = get_args(ExampleOrder)
LABELS = ("Below", "Above")
SIDE = 100


@dataclass(frozen=True)
class Cloud:
    """A shape's points: the examples, [n, 3] int64 with labels [n], and the test points likewise."""

    name: str
    examples: np.ndarray
    example_labels: np.ndarray
    tests: np.ndarray
    test_labels: np.ndarray


def draw_cloud(shape: CloudShape, examples: int, tests: int, seed: int) -> Cloud:
    """Examples and tests of one shape, each balanced and in random order; the same seed gives the same cloud."""
    draws = numpy_generator("cloud", seed, shape)
    # (Below, Above) of each part; as many of one label are drawn as of the other, and a few may be left over
    sizes = [((part + 1) // 2, part // 2) for part in (examples, tests)]
    places, labels = _shape(shape, 2 * sum(below for below, _ in sizes), draws)
    lowest, highest = places.min(0), places.max(0)
    scaled = np.rint(1 + (SIDE - 1) * (places - lowest) / (highest - lowest)).astype(np.int64)
    below, above = (draws.permutation(np.flatnonzero(labels == label)) for label in (0, 1))
    (first_below, first_above), (more_below, more_above) = sizes
    shown = draws.permutation([*below[:first_below], *above[:first_above]])
    asked = draws.permutation([*below[first_below:][:more_below], *above[first_above:][:more_above]])
    return Cloud(f"{shape}-{seed}", scaled[shown], labels[shown], scaled[asked], labels[asked])


def arranged(cloud: Cloud, test: int, order: ExampleOrder, count: int | None = None) -> list[Labelled]:
    """The first `count` examples (all if None) as exercises: as drawn, or by their distance from a test point."""
    examples, labels = cloud.examples[:count], cloud.example_labels[:count]
    distance = ((examples - cloud.tests[test]) ** 2).sum(1)
    turns = {
        "random": np.arange(len(examples)),
        "nearest first": np.argsort(distance, kind="stable"),
        "nearest last": np.argsort(distance, kind="stable")[::-1],
    }[order]
    return [exercise(examples[n], labels[n]) for n in turns]


def exercise(place: np.ndarray, label: int) -> Labelled:
    """`Point: 12 87 45` / `Answer:[Above].`"""
    return Labelled(f"Point: {' '.join(str(value) for value in place)}", LABELS[label])


def _shape(shape: CloudShape, count: int, draws: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Places [count, 3] float64 and labels [count] 0 or 1, as many of one as of the other, up to one."""
    if shape == "nonlinear":
        places = draws.integers(1, SIDE + 1, (count, 3)).astype(float)
        return places, _upper_half(_curved(2 * (places - 1) / (SIDE - 1) - 1, draws))
    shape_draws = np.random.RandomState(int(draws.integers(2**31)))  # scikit-learn's kind of generator
    if shape == "swiss-roll":
        places, along = swiss_roll(count, 0.5, shape_draws)
        return places, _upper_half(along)
    flat, labels = moons(count, 0.1, shape_draws) if shape == "moons" else circles(count, 0.05, 0.5, shape_draws)
    return np.column_stack([flat, draws.uniform(size=count)]), labels


def swiss_roll(count: int, noise: float, draws: np.random.RandomState) -> tuple[np.ndarray, np.ndarray]:
    """Places [count, 3] on a rolled-up plane and their angles along the roll [count]."""
    angle = 1.5 * np.pi * (1 + 2 * draws.uniform(size=count))
    across = 21 * draws.uniform(size=count)
    places = np.vstack([angle * np.cos(angle), across, angle * np.sin(angle)])
    return (places + noise * draws.standard_normal(size=(3, count))).T, angle


def moons(count: int, noise: float, draws: np.random.RandomState) -> tuple[np.ndarray, np.ndarray]:
    """Places [count, 2] on two interleaving half circles, and on which of them they lie [count]."""
    first, second = (np.linspace(0, np.pi, part) for part in (count // 2, count - count // 2))
    upper = np.column_stack([np.cos(first), np.sin(first)])
    lower = np.column_stack([1 - np.cos(second), 1 - np.sin(second) - 0.5])
    return _shuffled(upper, lower, noise, draws)


def circles(count: int, noise: float, factor: float, draws: np.random.RandomState) -> tuple[np.ndarray, np.ndarray]:
    """Places [count, 2] on a circle and on an inner one of radius `factor`, and on which of them they lie [count]."""
    first, second = (np.linspace(0, 2 * np.pi, part, endpoint=False) for part in (count // 2, count - count // 2))
    outer = np.column_stack([np.cos(first), np.sin(first)])
    inner = np.column_stack([np.cos(second) * factor, np.sin(second) * factor])
    return _shuffled(outer, inner, noise, draws)


def _shuffled(
    first: np.ndarray, second: np.ndarray, noise: float, draws: np.random.RandomState
) -> tuple[np.ndarray, np.ndarray]:
    """Both curves in one random order, with normal noise; labels 0 and 1."""
    places, labels = np.concatenate([first, second]), np.repeat([0, 1], [len(first), len(second)])
    order = np.arange(len(places))
    draws.shuffle(order)
    return places[order] + draws.normal(scale=noise, size=places.shape), labels[order]


def _curved(scaled: np.ndarray, draws: np.random.Generator) -> np.ndarray:
    """A random polynomial of places [count, 3]: each coordinate, its square and the products of two."""
    first, second = np.triu_indices(3)
    terms = np.column_stack([scaled, scaled[:, first] * scaled[:, second]])
    return terms @ draws.normal(size=terms.shape[1])


def _upper_half(values: np.ndarray) -> np.ndarray:
    """1 where a value is above the median (its logistic function, centred there, above .5), by rank where several are
    equal."""
    ranks = np.argsort(np.argsort(values, kind="stable"), kind="stable")
    return (ranks >= (len(values) + 1) // 2).astype(int)
