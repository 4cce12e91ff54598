"""unmasking: the masks are filled in many steps instead of one: does decoding undo what masks do?

Paper probe 7: 40 decoding steps, random or highest-confidence order, format B. Condition: {"order": "confidence",
"masks": 50}, or "random". What `few-steps` asks differs only in its steps, so its questions are made here too.
"""

from collections.abc import Callable, Collection, Iterator, Sequence
from functools import partial

from maskwise.probes.examples import FewShotCondition, labelled, one_context_per_task
from maskwise.probes.few_shot import context_of, episodes
from maskwise.probes.probe import (
    BY_BLOCKS,
    NO_MASK_TOKEN,
    VARIES_MASKS,
    Asker,
    Item,
    Probe,
    Setup,
    Unit,
    first_of_same,
    slices,
)
from maskwise.probes.section import MASKS_AT_THE_END, WITH_MASKS, Point, Section, Shown
from maskwise.records.groups import records_of, values_of
from maskwise.records.record import Condition, Key, Record, still_to_ask
from maskwise.scoring.claims import Claim, clearly_above_zero, contrast_claim
from maskwise.scoring.contrasts import weighted_sums, weights_of
from maskwise.support.typed import Count
from maskwise.tasks.episodes import Episode, mixed
from maskwise.tasks.prompts import encode_question, opened

NAME, MASK_COUNT = "unmasking", "mask-count"
# What the paper calls the orders, and the unmasking strategies they are.
STRATEGY_OF_ORDER = {"random": "random", "confidence": "low-confidence"}
DECODING_COST = 4
STEP_MASKS = {"masks": (2, 10, 20, 50, 100, 200), "points": 100}
QUICK_STEP_MASKS = {"masks": (2, 20, 100)}

StepPlan = tuple[Condition, int, str]  # the condition without its masks, steps, order


def units(setup: Setup) -> Iterator[Unit]:
    plans: list[StepPlan] = [({"order": order}, setup.own["steps"], order) for order in STRATEGY_OF_ORDER]
    return step_units(setup, NAME, plans)


def step_units(setup: Setup, probe: str, plans: Sequence[StepPlan]) -> Iterator[Unit]:
    from maskwise.probes.answers.steps import decode

    settings, count = setup.settings, min(setup.settings.points, setup.own["points"])
    number = settings.main_relevant
    for episode in episodes(setup, number, settings.distractors, count):
        context = context_of(setup, episode, not one_context_per_task(number))
        for condition, steps, order in plans:
            answer = partial(decode, steps=steps, rule=STRATEGY_OF_ORDER[order], seed=settings.seed)
            for masks in setup.own["masks"]:
                asked = labelled(condition | {"masks": masks}, number)
                make = partial(step_items, setup.asker, context, probe, episode.task.name, asked)
                for points in slices(count):
                    yield Unit(points, 1, make, answer, DECODING_COST)


def step_items(
    asker: Asker,
    context: Callable[[int], Episode],
    probe: str,
    task: str,
    condition: Condition,
    points: Sequence[int],
    done: Collection[Key],
) -> Iterator[Item]:
    """Format B with mixed examples, as in the mask-count probe; `condition` holds the number of masks."""
    for key, point, _ in still_to_ask(probe, task, points, [condition], done):
        episode = context(point)
        test = episode.tests[point]
        encoded = encode_question(asker.tokenizer, mixed(episode), test, "right", asker.chat)
        yield Item(key, condition, opened(encoded, asker.mask_id, int(condition["masks"])), test.letter)


def claims(records: Sequence[Record]) -> list[Claim]:
    """Many steps recover what masks take away, best with the surest first.

    Measured at the most masks asked of both probes: accuracy in many steps, the surest first, less that in one step,
    above zero; inconclusive unless masks lower accuracy significantly in one step. And: surest first less random order,
    above zero.
    """
    own, one_step = (records_of(records, probe) for probe in (NAME, MASK_COUNT))
    found = []
    counts = set(values_of(one_step, "masks"))
    common = set(values_of(own, "masks")) & counts
    if common and 2 in counts and max(common) > 2:
        most = max(common)
        lost = weights_of(MASK_COUNT, [({"masks": 2}, 1.0), ({"masks": most}, -1.0)])
        gained = weights_of(NAME, [({"order": "confidence", "masks": most}, 1.0)])
        found.append(
            contrast_claim(
                "steps-recover",
                "many steps recover what masks take away",
                f"surest first less one step, {most} masks",
                records,
                gained | weights_of(MASK_COUNT, [({"masks": most}, -1.0)]),
                enough=clearly_above_zero(weighted_sums(one_step, lost)),
            )
        )
    most = values_of(own, "masks")[-1]
    both: list[tuple[Condition, float]] = [
        ({"order": order, "masks": most}, sign) for order, sign in (("confidence", 1.0), ("random", -1.0))
    ]
    found.append(
        contrast_claim(
            "surest-first-best",
            "the surest first is better than a random order",
            f"surest first less random order, {most} masks",
            own,
            weights_of(NAME, both),
        )
    )
    return found


def beside_one_step(probe: str, curves: Callable[[Shown], list[Point]]) -> Callable[[Shown], list[Point]]:
    """A probe's curves and the mask-count curve at the same numbers of masks."""

    def points(shown: Shown) -> list[Point]:
        counts = {entry.masks for entry in shown.entries(probe)}
        one_step = [Point("1 step", e.masks, e) for e in shown.entries("mask-count") if e.masks in counts]
        return one_step + curves(shown)

    return points


def _curves(shown: Shown) -> list[Point]:
    names = {"confidence": "most confident first", "random": "random order"}
    return [
        Point(name, entry.masks, entry)
        for order, name in names.items()
        for entry in shown.entries(NAME)
        if entry.condition["order"] == order
    ]


class UnmaskingCondition(FewShotCondition, frozen=True, kw_only=True):
    order: str
    masks: Count


PROBE = Probe(
    name=NAME,
    group="evidence",
    not_text=VARIES_MASKS,
    about="the masks filled in many steps",
    condition=UnmaskingCondition,
    presets=("full", "paper"),
    units=units,
    parameters=STEP_MASKS | {"steps": 40},
    paper={"points": 1000},
    quick=QUICK_STEP_MASKS,
    not_causal=NO_MASK_TOKEN,
    not_blocks=BY_BLOCKS,
    baseline=first_of_same,
    claims=claims,
    claims_also_read=(MASK_COUNT,),
    sections=(
        Section(
            title="Does decoding step by step undo the harm?",
            question="The masks are filled in many steps, in random order or the most confident first, instead of all "
            "at once. Is the answer then right again?",
            paper="In 40 steps the loss is recovered, best with the most confident first.",
            how_to_read="Lines above “1 step” show what patience buys. If they lie on it, steps do not help.",
            x_label=MASKS_AT_THE_END,
            at=WITH_MASKS,
            points=beside_one_step(NAME, _curves),
            claims=("steps-recover", "surest-first-best"),
            spread=True,
        ),
    ),
)
