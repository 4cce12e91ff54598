"""Points in space, labelled Above or Below by a rule over their three coordinates, integers of 1..100.

How each shape becomes three integers (`noise` is scikit-learn's; every axis is stretched so that its smallest value
over all points of a cloud becomes 1 and its largest 100, then rounded):

    nonlinear    x, y, z uniform; Above where z > 50 + 25 sin(2 pi x / 100) + 25 cos(2 pi y / 100)
    swiss-roll   make_swiss_roll (noise .5), its three axes; Above in the outer half of the roll
    moons        make_moons (noise .1), its two axes, and a third that is uniform and says nothing; Above: second moon
    circles      make_circles (noise .05, factor .5), likewise; Above: the inner circle
"""

from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np

from maskwise.randomness import numpy_generator
from maskwise.tasks.labelled import Labelled

Shape = Literal["nonlinear", "swiss-roll", "moons", "circles"]
Order = Literal["random", "nearest first", "nearest last"]
SHAPES: tuple[Shape, ...] = get_args(Shape)
ORDERS: tuple[Order, ...] = get_args(Order)
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


def draw_cloud(shape: Shape, examples: int, tests: int, seed: int) -> Cloud:
    """Examples and tests of one shape in random order; the same seed gives the same cloud."""
    places, labels = _shape(shape, examples + tests, seed)
    lowest, highest = places.min(0), places.max(0)
    scaled = np.rint(1 + (SIDE - 1) * (places - lowest) / (highest - lowest)).astype(np.int64)
    return Cloud(f"{shape}-{seed}", scaled[:examples], labels[:examples], scaled[examples:], labels[examples:])


def arranged(cloud: Cloud, test: int, order: Order, count: int | None = None) -> list[Labelled]:
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
    """`Point: (12, 87, 45)` / `Answer:[Above].`"""
    return Labelled(f"Point: ({', '.join(str(value) for value in place)})", LABELS[label])


def _shape(shape: Shape, count: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Places [count, 3] float64 and labels [count] 0 or 1, in random order."""
    draws = numpy_generator("cloud", seed, shape)
    if shape == "nonlinear":
        places = draws.uniform(1, SIDE, (count, 3))
        turn = 2 * np.pi / SIDE * places
        return places, (places[:, 2] > 50 + 25 * np.sin(turn[:, 0]) + 25 * np.cos(turn[:, 1])).astype(int)
    from sklearn import datasets

    state = int(draws.integers(2**31))
    if shape == "swiss-roll":
        places, along = datasets.make_swiss_roll(count, noise=0.5, random_state=state)
        return places, (along > np.median(along)).astype(int)
    if shape == "moons":
        flat, labels = datasets.make_moons(count, noise=0.1, random_state=state)
    else:
        flat, labels = datasets.make_circles(count, noise=0.05, factor=0.5, random_state=state)
    return np.column_stack([flat, draws.uniform(size=count)]), labels
