"""Points: does the order of the examples matter for numbers too?

    R R R R d d d Q ?

Points in space are labelled Above or Below by a curved surface (four shapes with a seed each; tasks/point_clouds.py).
The same examples come in random order, with the points nearest to the one asked first, or last, and the masked question
stands after or before them. One figure goes over the number of examples, the other over masks worth a share of the
length, with one number of examples; a level line is what one would hope for there. If nearest last is clearly the
highest with the question last, and nearest first with the question first, what stands next to the question counts most.

The paper (arXiv 2511.21338, probe 13): nearest last is best: locality again.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from maskwise.probes.blocks import sees_past_the_question
from maskwise.probes.labelled import Labels, label_prompt, labels_of
from maskwise.probes.probe import Figure, Probe
from maskwise.probes.questions import Points, Questions
from maskwise.probes.setup import Asker, Setup
from maskwise.records.table import Table, Tables
from maskwise.scoring.estimates import SHARE, Estimate, change, curve, wide, without_skill
from maskwise.scoring.scores import LEAST_SKILL
from maskwise.support.typed import Count
from maskwise.tasks.point_clouds import LABELS, ORDERS, SHAPES, Cloud, arranged, draw_cloud, exercise
from maskwise.tasks.prompts import Prompt

NAME, LAST, GUESSING = "points", "nearest last", 0.5
BY = ["order", "question", "examples", "share"]
SPARED = 8  # tokens, for longer numbers than those of the point that was measured


def ask(
    setup: Setup,
    clouds: int = 5,
    examples: int = 100,
    points: int = 1000,
    counts: tuple[int, ...] = (0, 10, 30, 60, 90),
    masked_examples: int = 30,
    shares: tuple[float, ...] = (0.0, 0.05, 0.1, 0.2),
) -> Iterator[Questions]:
    asker, first = setup.asker, setup.settings.seed * clouds
    labels = labels_of(asker.tokenizer, LABELS)
    drawn = [draw_cloud(shape, examples, points, first + n) for shape in SHAPES for n in range(clouds)]
    # An answer of a causal model or in a block sees neither the masks after the question nor examples there.
    sees_all = sees_past_the_question(setup)
    sizes = dict.fromkeys([(n, 0.0) for n in counts] + [(masked_examples, one) for one in shares if sees_all])
    room = setup.model.window - (setup.model.block or 1) + 1  # a prompt is moved until its answer begins a block
    fitting = [size for size in sizes if fits(asker, drawn, labels, size, "left" if sees_all else "right", room)]
    if len(fitting) < len(sizes):
        most = max((count for count, _ in fitting), default=0)
        setup.note(f"{NAME}: at most {most} examples; with more the prompts exceed the context length")
    conditions = [
        {"order": order, "question": place, "examples": count, "share": share}
        for count, share in fitting
        for place in (("right", "left") if sees_all else ("right",))
        for order in ORDERS
    ]
    for cloud in drawn if conditions else []:

        def prompt(point: int, condition: Mapping[str, Any], cloud=cloud) -> Prompt:
            return cloud_prompt(asker, cloud, labels, point, **condition)

        yield Questions(Points(cloud.name, range(min(setup.settings.questions, points))), conditions, prompt)


def cloud_prompt(
    asker: Asker, cloud: Cloud, labels: Labels, point: int, order: Any, question: Any, examples: int, share: float
) -> Prompt:
    shown, test = arranged(cloud, point, order, examples), exercise(cloud.tests[point], cloud.test_labels[point])
    return label_prompt(asker, shown, test, labels, share=share, place=question)


def fits(asker: Asker, clouds: Sequence[Cloud], labels: Labels, size: tuple[int, float], place: str, room: int) -> bool:
    """By the first point of each cloud; numbers of others may be longer."""
    prompts = (cloud_prompt(asker, cloud, labels, 0, ORDERS[-1], place, *size) for cloud in clouds)
    return max(len(prompt.ids) for prompt in prompts) + SPARED <= room


def metrics(table: Table, others: Tables) -> list[Estimate]:
    """Nearest last is best, with the question last and no masks: mean over the numbers of examples above 0."""
    by_order = usual(table)
    if LAST not in by_order:
        return []
    found = [
        change(f"change of accuracy, {LAST} instead of {name}", by_order[LAST], by_order[name], claim="above")
        for name in ("random", "nearest first")
        if name in by_order
    ]
    skilled = by_order.mean().max() - GUESSING >= LEAST_SKILL
    return found if skilled else [without_skill(one) for one in found]


def usual(table: Table, value: str = "correct") -> Table:
    """Questions x orders: the mean over the numbers of examples that were asked in all of them."""
    asked = table.query("question == 'right' and share == 0 and examples > 0")
    in_all = asked.groupby("examples").order.nunique() == asked.order.nunique()
    asked = asked[asked.examples.map(in_all)]
    return wide(asked, ["order", "examples"], value).T.groupby("order", sort=False).mean().T


def by_examples(table: Table, others: Tables) -> Table:
    return orders(table[table.share == 0])


def by_share(table: Table, others: Tables) -> Table:
    """With the number of examples that was asked with masks."""
    return orders(table[table.examples.isin(table[table.share > 0].examples)])


def orders(table: Table) -> Table:
    placed = {"right": "question last", "left": "question first"}
    return curve(table.assign(question=table.question.map(placed)), BY, {"correct": SHARE}, {"order": "random"})


MASKS = "Masks at the end (share of the length)"

PROBE = Probe(
    NAME,
    __doc__,
    ask,
    metrics,
    figures=[
        Figure(by_examples, "examples", "Examples", series="order", panel="question", guessing=GUESSING),
        Figure(by_share, "share", MASKS, series="order", panel="question", guessing=GUESSING),
    ],
    condition={"order": str, "question": str, "examples": Count, "share": float},
    presets=("full", "paper"),
    sizes={"quick": {"clouds": 2, "examples": 40, "counts": (0, 10, 30), "shares": (0.0, 0.2)}},
)
