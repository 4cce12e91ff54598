"""points: points in space, labelled Above or Below; the same examples in random order, nearest first or nearest last.

Paper probe 13, format B. Condition: {"order": "nearest last"}; the tasks are shapes with a seed.
"""

from collections.abc import Collection, Iterator, Sequence
from functools import partial

from maskwise.probes.labelled import label_item
from maskwise.probes.probe import Asker, Item, Probe, Setup, Unit, slices
from maskwise.probes.section import Measure, Point, Section, Shown
from maskwise.records.record import Condition, Key, Record, still_to_ask
from maskwise.scoring.claims import Claim, contrast_claim, weights_of
from maskwise.tasks.labelled import answer_masks, first_tokens
from maskwise.tasks.points import LABELS, ORDERS, SHAPES, Cloud, arranged, draw_cloud, exercise

NAME, LAST = "points", "nearest last"


def units(setup: Setup) -> Iterator[Unit]:
    asker, own, seed = setup.asker, setup.own, setup.settings.seed
    masks = answer_masks(asker.tokenizer, LABELS)
    count = min(setup.settings.points, own["points"])
    clouds = [
        draw_cloud(shape, own["examples"], own["points"], number)
        for shape in SHAPES
        for number in range(seed * own["clouds"], (seed + 1) * own["clouds"])
    ]
    shown = min(examples_that_fit(asker, cloud, setup.model.window) for cloud in clouds)
    if shown < own["examples"]:
        setup.note(f"{NAME}: {shown} examples instead of {own['examples']}, which exceed the context length")
    for cloud in clouds:
        for points in slices(count):
            yield Unit(points, len(ORDERS), partial(point_items, asker, cloud, shown, masks))


def point_items(
    asker: Asker, cloud: Cloud, count: int, masks: int, points: Sequence[int], done: Collection[Key]
) -> Iterator[Item]:
    """Each test point after the same examples as drawn, nearest first and nearest last."""
    labels = first_tokens(asker.tokenizer, LABELS)
    for point in points:
        test = exercise(cloud.tests[point], cloud.test_labels[point])
        for order in ORDERS:
            for key, _, condition in still_to_ask(NAME, cloud.name, [point], [{"order": order}], done):
                yield label_item(asker, key, condition, arranged(cloud, point, order, count), test, masks, labels)


def examples_that_fit(asker: Asker, cloud: Cloud, window: int) -> int:
    """As many examples as the context length allows, a few tokens spared for longer numbers."""
    masks = answer_masks(asker.tokenizer, LABELS)
    count = len(cloud.examples)
    while count > 0:
        sample = list(point_items(asker, cloud, count, masks, [0], set()))
        if max(len(item.prompt.ids) for item in sample) + 8 <= window:
            break
        count = count * 9 // 10
    return count


def random_order(condition: Condition, conditions: Sequence[Condition]) -> Condition | None:
    return next((c for c in conditions if c["order"] == "random"), None)


def claims(records: Sequence[Record]) -> list[Claim]:
    """Nearest last is best: locality again.

    Measured: accuracy with the nearest examples last less that in random order, and less that with the nearest first;
    both above zero.
    """
    orders = {record["condition"]["order"] for record in records}
    return [
        contrast_claim(f"nearest-last-{short}", f"nearest last is better than {other}", f"nearest last less {other}",
                       records, weights_of(NAME, [({"order": LAST}, 1.0), ({"order": other}, -1.0)]), chance=0.5)
        for short, other in (("random", "random"), ("first", "nearest first"))
        if {LAST, other} <= orders
    ]  # fmt: skip


def _points(shown: Shown) -> list[Point]:
    entries = {entry["condition"]["order"]: entry for entry in shown.entries(NAME)}
    return [Point("", place, entries[order]) for place, order in enumerate(ORDERS) if order in entries]


PROBE = Probe(
    name=NAME,
    group="evidence",
    about="points in space by the order of the examples",
    presets=("full", "paper"),
    units=units,
    parameters={"clouds": 5, "examples": 100, "points": 1000},
    quick={"clouds": 2, "examples": 40},
    baseline=random_order,
    chance=0.5,
    claims=claims,
    sections=(
        Section(
            title="Does the order of the examples matter for numbers too?",
            question="Points in space are labelled Above or Below by a curved surface. The same examples come in "
            "random order, with the points nearest to the one asked first, or last.",
            paper="Nearest last is best: locality again.",
            how_to_read="If “nearest last” is clearly the highest, what stands next to the question counts most.",
            x_label="Order of the examples",
            at="{}",
            x_names=ORDERS,
            points=_points,
            claims=("nearest-last-random", "nearest-last-first"),
            measures=(Measure("accuracy", "Accuracy", chance=0.5),),
            caption="Mean over shapes and seeds; whisker: 95 % interval for these, with points drawn afresh.",
        ),
    ),
)
