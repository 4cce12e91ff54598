"""mask-count: more and more masks after the question, of which only the first is the answer.

Paper probe 4, format B: relevant examples and distractors mixed at random, k masks at the end. Condition:
{"masks": 50}. With a_k the accuracy under k masks and c = 1/3 of guessing, three scores are defined here:

    mask tax     1 - mean over k > 2 of (a_k - c) / (a_2 - c)
    degradation  (max - min) / max over all k that were asked, which the score names
    mask nats    mean over k > 2 of NLL_k - NLL_2, the negative log-likelihood of the right answer
"""

from collections.abc import Sequence

import numpy as np
from msgspec import structs

from maskwise.probes.blocks import visible_counts
from maskwise.probes.examples import FEW_SHOT, main_records
from maskwise.probes.library.filler import NAME as FILLER
from maskwise.probes.library.filler import filler_name, strictest
from maskwise.probes.library.steps import NAME as STEPS
from maskwise.probes.probe import NO_MASK_TOKEN, Probe, ScoreRule, Sentences, Setup, Variant
from maskwise.probes.section import Lead, Measure, Shown, by_masks, over_masks
from maskwise.records.groups import values_of
from maskwise.records.record import Condition, Record
from maskwise.scoring import scores
from maskwise.scoring.changes import Difference, paired_difference
from maskwise.scoring.claims import Claim, contrast_claim
from maskwise.scoring.contrasts import weights_of
from maskwise.scoring.numbers import percent, signed, tenths
from maskwise.scoring.scores import Score, bootstrapped, nats_score, null_score, share_of_skill, tables
from maskwise.scoring.skill import task_skill
from maskwise.support.typed import Count
from maskwise.tasks.episodes import CHANCE

NAME = "mask-count"
LARGEST_BLOCK = 32  # masks that a growing canvas may show at a time


def variants(setup: Setup) -> list[Variant]:
    counts = visible_counts(setup, NAME, setup.own["mask_counts"])
    return [Variant(NAME, {"masks": k}, open=True, masks=k, distractors=setup.own["among"]) for k in counts]


def two_masks(condition: Condition, conditions: Sequence[Condition]) -> Condition:
    """The baseline: the answer's mask and the closing bracket's, as in format A."""
    return next((c for c in conditions if c["masks"] == 2), conditions[0])


def mask_tax(records: Sequence[Record]) -> Score:
    counts = values_of(records, "masks")
    more = [column for column, k in enumerate(counts) if k > 2]
    if 2 not in counts or not more:
        return null_score()
    two = counts.index(2)

    def tax(accuracy: np.ndarray) -> np.ndarray:
        return share_of_skill((accuracy[:, [two]] - accuracy[:, more]).mean(1), accuracy[:, two] - CHANCE)

    return bootstrapped(tables(records, [{"masks": k} for k in counts]), tax)


def degradation(records: Sequence[Record]) -> Score:
    counts = values_of(records, "masks")
    if len(counts) < 2:
        return null_score()
    by_task = tables(records, [{"masks": k} for k in counts])
    found = bootstrapped(by_task, scores.relative_loss, low_end=scores.least_relative_loss)
    return found if found.value is None else structs.replace(found, over=f"k = {', '.join(map(str, counts))}")


def mask_nats(records: Sequence[Record]) -> Score:
    counts = values_of(records, "masks")
    more = [k for k in counts if k > 2]
    if 2 not in counts or not more:
        return null_score()
    return nats_score(records, [{"masks": k} for k in (2, *more)], [-1.0, *[1 / len(more)] * len(more)])


def claims(records: Sequence[Record]) -> list[Claim]:
    """Appended masks lower the accuracy. Measured: accuracy with 2 masks less that with the most, above zero."""
    counts = values_of(records, "masks")
    if 2 not in counts or counts[-1] == 2:
        return []
    weights = weights_of(NAME, [({"masks": 2}, 1.0), ({"masks": counts[-1]}, -1.0)])
    measure = f"2 masks less {counts[-1]}"
    return [contrast_claim("masks-cost", "appended masks lower the accuracy", measure, records, weights)]


def _seen(shown: Shown) -> str:
    entries = sorted(shown.entries(NAME), key=lambda entry: entry.masks)
    few, many = next((entry for entry in entries if entry.masks == 2), entries[0]), entries[-1]
    return (
        f"{percent(few.accuracy)} of its answers are right with {few.masks} masks, "
        f"{percent(many.accuracy)} with {many.masks}"
    )


def _fillers(shown: Shown) -> str:
    entries = strictest(shown.entries(FILLER))
    if len(entries) < 2:
        return ""
    first, last = entries[0], entries[-1]
    return (
        f" {filler_name(last.condition['filler']).capitalize()} in their place take it from "
        f"{percent(first.accuracy)} to {percent(last.accuracy)} ({last.condition['fillers']} of them)."
    )


def advice(records: Sequence[Record]) -> str | None:
    """Advice that the answers of a run support. All of it rests on a loss of accuracy to masks.

    A growing canvas shows few masks and needs no training, so it is named first; mask-agnostic tuning (Piskorz et al.,
    arXiv 2511.21338) addresses the loss itself; small blocks show all masks but take many steps, and are supported
    where these regain accuracy (probe steps). None where masks were not asked about, where they cannot show a loss
    (no skill, or too easy), and of block diffusion models, whose canvas is not a choice.
    """
    one_step = main_records([record for record in records if record.probe == NAME])
    counts = values_of(one_step, "masks")
    if 2 not in counts or counts[-1] <= LARGEST_BLOCK or any("visible" in record for record in one_step):
        return None
    if _cannot_show_a_loss(one_step, counts):
        return None
    most = counts[-1]
    lost = paired_difference(_under(one_step, 2), _under(one_step, most))
    compared = f"accuracy with 2 masks minus accuracy with {most}"
    if not _is_gain(lost):
        return (
            "No loss of accuracy to masks was detected, so this run gives no reason to tune the model or to decode "
            f"with fewer masks in view (--canvas growing, small blocks): {compared} is {_points(lost)}."
        )
    supported = [*_growing(one_step, counts), *_small_blocks(records, one_step, most)]
    named = " and ".join([*supported, "mask-agnostic tuning (maskwise tune)"])
    return f"This run supports {named}: {compared} is {_points(lost)}."


def _cannot_show_a_loss(one_step: Sequence[Record], counts: Sequence[int]) -> bool:
    few = _under(one_step, 2)
    changes = [paired_difference(_under(one_step, count), few) for count in counts if count != 2]
    right = sum(record.correct for record in few)
    return task_skill(round(right), len(few), changes=[(one.low, one.high) for one in changes]).skill != "skilled"


def _growing(one_step: Sequence[Record], counts: Sequence[int]) -> list[str]:
    """The most masks that a block may have and that were asked, against the most of all."""
    block = max(count for count in counts if count <= LARGEST_BLOCK)
    gain = paired_difference(_under(one_step, block), _under(one_step, counts[-1]))
    more = "" if block == 2 else f" ({block} masks minus {counts[-1]}: {_points(gain)})"
    return [f"decoding with --canvas growing{more}, which shows few masks at a time,"] if _is_gain(gain) else []


def _small_blocks(records: Sequence[Record], one_step: Sequence[Record], most: int) -> list[str]:
    asked = main_records([record for record in records if record.probe == STEPS])
    stepwise = [record for record in _under(asked, most) if record.condition["order"] == "confidence"]
    gain = paired_difference(stepwise, _under(one_step, most))
    return [f"small blocks (many steps minus one: {_points(gain)})"] if _is_gain(gain) else []


def _under(records: Sequence[Record], masks: int) -> list[Record]:
    return [record for record in records if record.condition["masks"] == masks]


def _is_gain(difference: Difference) -> bool:
    return difference.low is not None and difference.low > 0


def _points(one: Difference) -> str:
    assert one.low is not None and one.high is not None
    interval = f"95 % interval {tenths(100 * one.low)} to {tenths(100 * one.high)}"
    return f"{signed(100 * one.difference, 1)} points, {interval}"


MASK_TAX = ScoreRule(
    name="mask_tax",
    title="Mask tax",
    meaning="share of its skill above guessing lost to masks beyond the second, on average",
    formula=mask_tax,
    sentences=Sentences(
        topic="Appended masks",
        claims={
            1: "Appended masks lower its accuracy.",
            0: "No effect of appended masks was detected.",
            -1: "Appended masks raise its accuracy.",
        },
        change=("on average more masks", "cost", "raise"),
        seen=_seen,
        takes="It takes answers with 2 masks and with more, and not both are there.",
        addition=_fillers,
        autoregressive=("Not applicable: it has no masks.", "It is an autoregressive model, with causal attention."),
    ),
)
DEGRADATION = ScoreRule(
    name="degradation",
    title="Degradation",
    meaning="from the best to the worst of these numbers of masks, as a share of the best; biased upwards under the "
    "null",
    formula=degradation,
)
MASK_NATS = ScoreRule(
    name="mask_nats",
    title="Nats lost to masks",
    meaning="rise of the right answer's negative log-likelihood with masks beyond the second, on average",
    formula=mask_nats,
    unit="nats",
)


PROBE = Probe(
    name=NAME,
    group="context",
    about="more and more masks after the question",
    condition=FEW_SHOT | {"masks": Count},
    lead=Lead(lambda entries: entries, lambda entries: "masks", main=True, advice=advice),
    presets=("quick", "default", "full", "paper"),
    variants=variants,
    each_number=True,
    parameters={"mask_counts": (1, 2, 5, 10, 20, 50, 100, 200), "among": None},
    quick={"mask_counts": (2, 200), "among": 6},
    not_causal=NO_MASK_TOKEN,
    baseline=two_masks,
    scores=(MASK_TAX, DEGRADATION, MASK_NATS),
    claims=claims,
    sections=(
        over_masks(
            title="Do appended masks change the answer?",
            question="The same question is asked with more and more masks behind it. Only the first mask is the "
            "answer; the others state only how much room follows. Does the answer change?",
            paper="From few masks to 200: LLaDA-Base loses 23 points, LLaDA-Instruct 27. Dream-Base loses 6 and "
            "Dream-Instruct 8 by about 20 masks, then both stay level.",
            how_to_read="A level line is what one would hope for: empty space should not matter. A falling line is the "
            "mask tax. The axis widens the small counts; two masks are the baseline.",
            points=by_masks(NAME),
            claims=("masks-cost",),
            effect=lambda point, base: f"with {point.x:g} masks instead of {base.x:g}",
        ),
        over_masks(
            name="confidence",
            side_by_side=True,
            title="How sure is it of its answers?",
            question="The probability it gives to the answer it chooses, and the entropy of all its choices, with more "
            "and more masks behind the question.",
            paper="Tuning with the mask-agnostic loss lowers the entropy and keeps the confidence level; cross-entropy "
            "alone does not.",
            how_to_read="Level lines mean that masks leave its certainty alone. Sure and wrong is worse than unsure "
            "and wrong: compare with the accuracy above.",
            points=by_masks(NAME),
            measures=(
                Measure("confidence", "Probability of its answer", "", ""),
                Measure("entropy", "Entropy (nats)", "", "", percent=False),
            ),
            caption="Line: mean over all answers.",
        ),
    ),
)
