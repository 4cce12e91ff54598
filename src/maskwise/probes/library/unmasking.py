"""unmasking: the masks are filled in many steps instead of one: does decoding undo what masks do?

Paper probe 7: 40 decoding steps, random or highest-confidence order, format B. Condition: {"order": "confidence",
"masks": 50}, or "random". What `few-steps` asks differs only in its steps, so its questions are made here too.
"""

from collections.abc import Callable, Iterator, Sequence
from functools import partial

from maskwise.probes.examples import FEW_SHOT, labelled, one_context_per_task
from maskwise.probes.few_shot import context_of, episodes
from maskwise.probes.probe import BY_BLOCKS, NO_MASK_TOKEN, Probe, Setup, Unit, first_of_same, units_for
from maskwise.probes.section import Point, Shown, named_curves, over_masks
from maskwise.records.groups import records_of, values_of
from maskwise.records.record import Condition, Record
from maskwise.scoring.claims import Claim, clearly_above_zero, contrast_claim
from maskwise.scoring.contrasts import weighted_sums, weights_of
from maskwise.support.typed import Count
from maskwise.tasks.episodes import Episode, mixed
from maskwise.tasks.prompts import Prompt, encode_question, opened

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
        made = partial(step_prompt, setup, context_of(setup, episode, not one_context_per_task(number)))
        for condition, steps, order in plans:
            answer = partial(decode, steps=steps, rule=STRATEGY_OF_ORDER[order], seed=settings.seed)
            for masks in setup.own["masks"]:
                asked = [labelled(condition | {"masks": masks}, number)]
                yield from units_for(probe, episode.task.name, count, asked, made, answer, DECODING_COST)


def step_prompt(
    setup: Setup, context: Callable[[int], Episode], point: int, condition: Condition
) -> tuple[Prompt, str]:
    """Format B with mixed examples, as in the mask-count probe."""
    asker, episode = setup.asker, context(point)
    test = episode.tests[point]
    encoded = encode_question(asker.tokenizer, mixed(episode), test, "right", asker.chat)
    return opened(encoded, asker.mask_id, int(condition["masks"])), test.letter


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
        gained |= weights_of(MASK_COUNT, [({"masks": most}, -1.0)])
        claim, measure = "many steps recover what masks take away", f"surest first less one step, {most} masks"
        enough = clearly_above_zero(weighted_sums(one_step, lost))
        found.append(contrast_claim("steps-recover", claim, measure, records, gained, enough=enough))
    most = values_of(own, "masks")[-1]
    orders = {"confidence": 1.0, "random": -1.0}
    weights = weights_of(NAME, [({"order": order, "masks": most}, sign) for order, sign in orders.items()])
    claim, measure = "the surest first is better than a random order", f"surest first less random order, {most} masks"
    return [*found, contrast_claim("surest-first-best", claim, measure, own, weights)]


def beside_one_step(probe: str, curves: Callable[[Shown], list[Point]]) -> Callable[[Shown], list[Point]]:
    """A probe's curves and the mask-count curve at the same numbers of masks."""

    def points(shown: Shown) -> list[Point]:
        counts = {entry.masks for entry in shown.entries(probe)}
        one_step = [Point("1 step", e.masks, e) for e in shown.entries("mask-count") if e.masks in counts]
        return one_step + curves(shown)

    return points


ORDER_NAMES = {"confidence": "most confident first", "random": "random order"}


PROBE = Probe(
    name=NAME,
    group="evidence",
    about="the masks filled in many steps",
    condition=FEW_SHOT | {"order": str, "masks": Count},
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
        over_masks(
            title="Does decoding step by step undo the harm?",
            question="The masks are filled in many steps, in random order or the most confident first, instead of all "
            "at once. Is the answer then right again?",
            paper="In 40 steps the loss is recovered, best with the most confident first.",
            how_to_read="Lines above “1 step” show what patience buys. If they lie on it, steps do not help.",
            points=beside_one_step(NAME, named_curves(NAME, "masks", "order", ORDER_NAMES)),
            claims=("steps-recover", "surest-first-best"),
        ),
    ),
)
