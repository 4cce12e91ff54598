"""points: points in space, labelled Above or Below; the same examples in random order, nearest first or nearest last.

Paper probe 13. Condition: {"order": "nearest last", "question": "right", "examples": 30, "share": 0.05}: the order of
the examples, the masked question after (right) or before (left) them, how many there are, and the masks at the end as a
share of the length. One figure goes over the number of examples, without such masks; one over the masks, with
`masked_examples`. The tasks are shapes with a seed.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, cast

from msgspec import UnsetType

from maskwise.probes.blocks import sees_past_the_question
from maskwise.probes.labelled import Labels, label_prompt, labels_of
from maskwise.probes.probe import Asker, ItemMaker, Probe, Setup, Unit, items_of, units_of
from maskwise.probes.section import Entry, Measure, Point, Section, Shown
from maskwise.records.record import Condition, Record, condition_text
from maskwise.scoring.claims import Claim, contrast_claim
from maskwise.scoring.contrasts import weights_of
from maskwise.support.typed import Count
from maskwise.tasks.point_clouds import LABELS, ORDERS, SHAPES, Cloud, ExampleOrder, arranged, draw_cloud, exercise
from maskwise.tasks.prompts import Place, Prompt

NAME, LAST = "points", "nearest last"
PLACES: tuple[Place, ...] = ("right", "left")
SPARED = 8  # tokens, for longer numbers than those of the point that was measured
BEFORE = {"question": "right", "examples": 100, "share": 0.0}  # what records of version 0.1 do not say


def units(setup: Setup) -> Iterator[Unit]:
    asker, own, seed = setup.asker, setup.own, setup.settings.seed
    labels = labels_of(asker.tokenizer, LABELS)
    numbers = range(seed * own["clouds"], (seed + 1) * own["clouds"])
    clouds = [draw_cloud(shape, own["examples"], own["points"], number) for shape in SHAPES for number in numbers]
    asked = conditions(own, not sees_past_the_question(setup))
    sizes = {(one["examples"], one["share"]): one for one in asked}
    room = setup.model.window - (setup.model.block or 1) + 1  # a prompt is moved until its answer begins a block
    fitting = {size for size, one in sizes.items() if fits(asker, clouds, labels, one, room)}
    fit = [one for one in asked if (one["examples"], one["share"]) in fitting]
    if len(fit) < len(asked):
        most = max((one["examples"] for one in fit), default=0)
        setup.note(f"{NAME}: at most {most} examples; with more the prompts exceed the context length")
    for cloud in clouds:
        yield from units_of(min(setup.settings.points, own["points"]), len(fit), point_items(asker, cloud, labels, fit))


def conditions(own: Mapping[str, Any], causal: bool) -> list[Condition]:
    """Each number of examples without masks at the end, and one number of them with.

    A causal model sees neither masks nor examples after the question; nor does a block diffusion model, but for those
    of its block.
    """
    asked = [(count, 0.0) for count in own["counts"]]
    asked += [(own["masked_examples"], share) for share in own["shares"] if not causal]
    return [
        {"order": order, "question": place, "examples": count, "share": share}
        for count, share in dict.fromkeys(asked)
        for place in (["right"] if causal else PLACES)
        for order in ORDERS
    ]


def point_items(asker: Asker, cloud: Cloud, labels: Labels, asked: Sequence[Condition]) -> ItemMaker:
    def made(point: int, condition: Condition) -> tuple[Prompt, str]:
        test = exercise(cloud.tests[point], cloud.test_labels[point])
        examples = arranged(cloud, point, cast(ExampleOrder, condition["order"]), int(condition["examples"]))
        share, place = float(condition["share"]), cast(Place, condition["question"])
        return label_prompt(asker, examples, test, labels, share=share, place=place)

    return items_of(NAME, cloud.name, asked, made)


def fits(asker: Asker, clouds: Sequence[Cloud], labels: Labels, condition: Condition, window: int) -> bool:
    """By the first point of each cloud; numbers of others may be longer."""
    items = [item for cloud in clouds for item in point_items(asker, cloud, labels, [condition])([0], set())]
    return max(len(item.prompt.ids) for item in items) + SPARED <= window


def random_order(condition: Condition, conditions: Sequence[Condition]) -> Condition | None:
    """The baseline: the examples in random order, everything else alike."""
    return next((c for c in conditions if c == {**condition, "order": "random"}), None)


def claims(records: Sequence[Record]) -> list[Claim]:
    """Nearest last is best: locality again.

    Measured with the question last and no masks at the end, mean over the numbers of examples above 0: accuracy with
    the nearest examples last less that in random order, and less that with the nearest first; both above zero.
    """
    asked = {condition_text(record.condition): record.condition for record in records}
    usual = [c for c in asked.values() if _whole(c)["question"] == "right" and not _whole(c)["share"]]
    found = []
    for short, other in (("random", "random"), ("first", "nearest first")):
        pairs = [(c, {**c, "order": other}) for c in usual if c["order"] == LAST and _whole(c)["examples"]]
        pairs = [(last, before) for last, before in pairs if condition_text(before) in asked]
        weighted = [(c, sign / len(pairs)) for pair in pairs for c, sign in zip(pair, (1, -1), strict=True)]
        if pairs:
            claim, measure = f"nearest last is better than {other}", f"nearest last less {other}"
            weights = weights_of(NAME, weighted)
            found.append(contrast_claim(f"nearest-last-{short}", claim, measure, records, weights, chance=0.5))
    return found


def _whole(condition: Condition) -> dict[str, Any]:
    return {**BEFORE, **condition}


def _by_examples(shown: Shown) -> list[Point]:
    return _curves(shown, "examples", lambda whole: not whole["share"])


def _by_share(shown: Shown) -> list[Point]:
    masked = {_whole(entry.condition)["examples"] for entry in shown.entries(NAME) if _share(entry)}
    return _curves(shown, "share", lambda whole: whole["examples"] in masked, 100)


def _share(entry: Entry) -> float:
    return float(_whole(entry.condition)["share"])


def _curves(shown: Shown, along: str, wanted: Callable[[Mapping[str, Any]], bool], scale: float = 1) -> list[Point]:
    """A curve for each order and side of the question."""
    return [
        Point(f"{order}, question {'last' if place == 'right' else 'first'}", scale * whole[along], entry)
        for place in PLACES
        for order in ORDERS
        for entry in shown.entries(NAME)
        if (whole := _whole(entry.condition))["order"] == order and whole["question"] == place and wanted(whole)
    ]


of_clouds = partial(
    Section,
    measures=(Measure("accuracy", "Accuracy", chance=0.5),),
    caption="Line: mean over shapes and seeds; band: 95 % interval for these, with points drawn afresh.",
)

PROBE = Probe(
    name=NAME,
    group="evidence",
    about="classification of 3-D points by the order of the examples",
    condition={"order": str, "question": str | UnsetType, "examples": Count | UnsetType, "share": float | UnsetType},
    presets=("full", "paper"),
    units=units,
    one_pass=True,
    parameters={
        "clouds": 5,
        "examples": 100,
        "points": 1000,
        "counts": (0, 10, 30, 60, 90),
        "masked_examples": 30,
        "shares": (0.0, 0.05, 0.1, 0.2),
    },
    quick={"clouds": 2, "examples": 40, "counts": (0, 10, 30), "shares": (0.0, 0.2)},
    baseline=random_order,
    chance=0.5,
    claims=claims,
    sections=(
        of_clouds(
            title="Does the order of the examples matter for numbers too?",
            question="Points in space are labelled Above or Below by a curved surface. The same examples come in "
            "random order, with the points nearest to the one asked first, or last, and the masked question stands "
            "after or before them.",
            paper="Nearest last is best: locality again.",
            how_to_read="If “nearest last” is clearly the highest with the question last, and “nearest first” with "
            "the question first, what stands next to the question counts most.",
            x_label="Examples",
            at="{} examples",
            points=_by_examples,
            claims=("nearest-last-random", "nearest-last-first"),
        ),
        of_clouds(
            name="points-masks",
            title="And do masks change that?",
            question="The same with one number of examples and masks worth a share of the length at the end.",
            paper="Asked with 30 examples and masks up to 20 % of the length.",
            how_to_read="A level line is what one would hope for.",
            x_label="Masks at the end (% of the length)",
            at="{} %",
            points=_by_share,
        ),
    ),
)
