"""The probes beyond the core: attribution, attention, decoding in steps, shots, points, data sets, likelihood.

Each is a function from settings to units. At most `points` points a task are asked of any of them, of nelbo `passages`.
"""

from collections.abc import Iterator, Mapping, Sequence
from functools import partial

from maskwise.errors import UserError
from maskwise.models.base import Model
from maskwise.probes import attention, attribution, labelled, likelihood, natural, steps
from maskwise.probes.records import Condition
from maskwise.probes.settings import Settings
from maskwise.probes.units import Unit, episodes, slices
from maskwise.probes.variants import Asker, Variant, few_shot_items
from maskwise.tasks.datasets import HOTPOTQA, READERS, Dataset, with_distinct_labels
from maskwise.tasks.labelled import answer_masks
from maskwise.tasks.points import LABELS, ORDERS, SHAPES, draw_cloud
from maskwise.tasks.prompts import Place
from maskwise.tasks.words import Words

GRADIENT_COST, ATTENTION_COST, DECODING_COST = 4, 4, 4


def evidence_units(
    model: Model,
    asker: Asker,
    settings: Settings,
    words: Words,
    passages: Sequence[natural.Passage],
    data: Mapping[str, Dataset],
) -> tuple[list[Unit], list[str]]:
    """The units of these probes, and notes on what could not be run as asked."""
    notes: list[str] = []
    units = [
        *attribution_units(asker, settings, words, model, notes),
        *step_units(asker, settings, words),
        *shot_units(asker, settings, words),
        *point_units(asker, settings, model, notes),
        *data_units(asker, settings, model, data, notes),
        *likelihood_units(asker, settings, passages),
    ]
    return units, notes


def attribution_units(asker: Asker, settings: Settings, words: Words, model: Model, notes: list[str]) -> Iterator[Unit]:
    """Probes 3 and 3b, and attention."""
    wanted = settings.evidence
    asked = [p for p in (attribution.EXAMPLES, attribution.MASKS, attention.PROBE) if p in settings.probes]
    if attention.PROBE in asked and model.kind == "wrapped":
        notes.append("attention was not run: the attention of a wrapped model cannot be read")
        asked.remove(attention.PROBE)
    if not asked:
        return
    places: tuple[Place, ...] = ("right",) if model.causal else settings.places
    count = min(settings.points, wanted.orderings * wanted.questions)
    gradient = partial(attribution.attribute, near=wanted.near)
    for episode in episodes(settings, words, settings.relevant, settings.distractors, wanted.questions):
        for points in slices(count):
            if attribution.EXAMPLES in asked:
                make = partial(attribution.example_items, asker, episode, wanted.orderings, places)
                yield Unit(points, len(places), make, gradient, GRADIENT_COST)
            for probe, answer, cost in (
                (attribution.MASKS, gradient, GRADIENT_COST),
                (attention.PROBE, partial(attention.watch, near=wanted.near), ATTENTION_COST),
            ):
                if probe in asked:
                    with_masks = partial(attribution.mask_items, probe, asker, episode, wanted.orderings, wanted.masks)
                    yield Unit(points, 1, with_masks, answer, cost)


def step_units(asker: Asker, settings: Settings, words: Words) -> Iterator[Unit]:
    """Probes 7 and 10."""
    wanted = settings.evidence
    plans: list[tuple[str, str, int, str]] = []  # probe, name and value in the condition, order
    if steps.UNMASKING in settings.probes:
        plans += [(steps.UNMASKING, "order", wanted.unmasking_steps, order) for order in steps.ORDERS]
    if steps.FEW_STEPS in settings.probes:
        plans += [(steps.FEW_STEPS, "steps", count, "random") for count in wanted.few_steps]
    if not plans:
        return
    count = min(settings.points, wanted.step_points)
    for episode in episodes(settings, words, settings.relevant, settings.distractors, count):
        for probe, name, total, order in plans:
            for masks in wanted.step_masks:
                condition: Condition = {name: order if name == "order" else total, "masks": masks}
                answer = partial(steps.decode, steps=total, order=order, seed=settings.seed)
                for points in slices(count):
                    make = partial(steps.step_items, asker, episode, probe, condition)
                    yield Unit(points, 1, make, answer, DECODING_COST)


def shot_units(asker: Asker, settings: Settings, words: Words) -> Iterator[Unit]:
    """Probe 11: relevant examples alone, few and many of them, with few and many masks."""
    if "shots-masks" not in settings.probes:
        return
    for shots in settings.evidence.shots:
        variants = [
            Variant("shots-masks", {"shots": shots, "extra masks": extra}, open=True, masks=1 + extra)
            for extra in settings.evidence.shot_masks
        ]
        for episode in episodes(settings, words, shots, 0, settings.points):
            for points in slices(settings.points):
                yield Unit(points, len(variants), partial(few_shot_items, asker, episode, variants))


def point_units(asker: Asker, settings: Settings, model: Model, notes: list[str]) -> Iterator[Unit]:
    """Probe 13."""
    if labelled.POINTS not in settings.probes:
        return
    wanted = settings.evidence
    masks = answer_masks(asker.tokenizer, LABELS)
    count = min(settings.points, wanted.cloud_points)
    clouds = [
        draw_cloud(shape, wanted.cloud_examples, wanted.cloud_points, seed)
        for shape in SHAPES
        for seed in range(settings.seed * wanted.clouds, (settings.seed + 1) * wanted.clouds)
    ]
    shown = min(labelled.examples_that_fit(asker, cloud, model.window) for cloud in clouds)
    if shown < wanted.cloud_examples:
        notes.append(f"points: {shown} examples instead of {wanted.cloud_examples}, which the window does not hold")
    for cloud in clouds:
        for points in slices(count):
            yield Unit(points, len(ORDERS), partial(labelled.point_items, asker, cloud, shown, masks))


def refuse_unasked(data: Mapping[str, Dataset], probes: Sequence[str]) -> None:
    """A data set that no probe of the run would ask about."""
    for name in data:
        probe = HOTPOTQA if name == HOTPOTQA else labelled.TEXTS
        if probe not in probes:
            raise UserError(f"no probe of this run asks about {name}: add {probe} with --probes, or use --full")


def data_units(
    asker: Asker, settings: Settings, model: Model, data: Mapping[str, Dataset], notes: list[str]
) -> Iterator[Unit]:
    """Probe 12, and the same with other data sets."""
    wanted = settings.evidence
    shares = (0.0,) if model.causal else wanted.data_shares
    for probe in (HOTPOTQA, labelled.TEXTS):
        if probe not in settings.probes:
            continue
        given = [found for name, found in data.items() if (name == HOTPOTQA) == (probe == HOTPOTQA)]
        if not given:
            notes.append(f"{probe} was not run for want of data: give it with --data {_example_of(probe)}")
        for read in given:
            found = with_distinct_labels(read, asker.tokenizer)
            if found.labels != read.labels:
                notes.append(f"{found.name}: its labels begin alike in this tokenizer and were given letters")
            masks = answer_masks(asker.tokenizer, found.labels)
            examples = labelled.data_examples(asker, found, wanted.data_shots, settings.seed)
            longest = min(wanted.longest_prompt, labelled.longest_prompt(model, shares, masks))
            tests = labelled.tests_that_fit(asker, found, examples, settings.points, longest, settings.seed)
            if len(tests) < settings.points:
                notes.append(f"{found.name}: {len(tests)} questions of at most {longest} tokens, not {settings.points}")
            make = partial(labelled.data_items, asker, probe, found.name, examples, tests, masks, shares)
            for points in slices(len(tests)):
                yield Unit(points, len(shares), make)


def likelihood_units(asker: Asker, settings: Settings, passages: Sequence[natural.Passage]) -> Iterator[Unit]:
    """The held-out NELBO."""
    if likelihood.PROBE not in settings.probes:
        return
    draws = settings.evidence.nelbo_draws
    make = partial(likelihood.passage_items, asker, passages, draws, settings.seed)
    answer = partial(likelihood.score, draws=draws, seed=settings.seed)
    for points in slices(len(passages)):
        yield Unit(points, 1, make, answer, draws)


def _example_of(probe: str) -> str:
    return f"{HOTPOTQA}=FILE" if probe == HOTPOTQA else f"NAME=PATH ({', '.join(READERS)} or a file of your own)"
