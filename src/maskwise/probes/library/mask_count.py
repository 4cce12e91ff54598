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
from maskwise.probes.examples import FewShotCondition
from maskwise.probes.library.filler import NAME as FILLER
from maskwise.probes.library.filler import filler_name, strictest
from maskwise.probes.probe import NO_MASK_TOKEN, VARIES_MASKS, Probe, ScoreRule, Sentences, Setup, Variant
from maskwise.probes.section import K_EQUALS, MASKS_AT_THE_END, Lead, Measure, Section, Shown, by_masks
from maskwise.records.groups import values_of
from maskwise.records.record import Condition, Record
from maskwise.scoring.claims import Claim, contrast_claim
from maskwise.scoring.contrasts import weights_of
from maskwise.scoring.numbers import percent
from maskwise.scoring.scores import (
    Score,
    bootstrapped,
    least_relative_loss,
    nats_score,
    null_score,
    relative_loss,
    share_of_skill,
    tables,
)
from maskwise.support.typed import Count
from maskwise.tasks.episodes import CHANCE

NAME = "mask-count"


def variants(setup: Setup) -> list[Variant]:
    counts = visible_counts(setup, NAME, setup.own["mask_counts"])
    return [Variant(NAME, {"masks": k}, open=True, masks=k, distractors=setup.own["among"]) for k in counts]


def two_masks(condition: Condition, conditions: Sequence[Condition]) -> Condition:
    """The baseline: the answer's mask and the closing bracket's, as in format A."""
    return next((c for c in conditions if c["masks"] == 2), conditions[0])


# The scores


def mask_tax(records: Sequence[Record]) -> Score:
    counts = _counts(records)
    more = [column for column, k in enumerate(counts) if k > 2]
    if 2 not in counts or not more:
        return null_score()
    two = counts.index(2)

    def tax(accuracy: np.ndarray) -> np.ndarray:
        return share_of_skill((accuracy[:, [two]] - accuracy[:, more]).mean(1), accuracy[:, two] - CHANCE)

    return bootstrapped(tables(records, [{"masks": k} for k in counts]), tax)


def degradation(records: Sequence[Record]) -> Score:
    counts = _counts(records)
    if len(counts) < 2:
        return null_score()
    found = bootstrapped(tables(records, [{"masks": k} for k in counts]), relative_loss, low_end=least_relative_loss)
    return found if found.value is None else structs.replace(found, over=f"k = {', '.join(map(str, counts))}")


def mask_nats(records: Sequence[Record]) -> Score:
    counts = _counts(records)
    more = [k for k in counts if k > 2]
    if 2 not in counts or not more:
        return null_score()
    return nats_score(records, [{"masks": k} for k in (2, *more)], [-1.0, *[1 / len(more)] * len(more)])


# The paper's claim


def claims(records: Sequence[Record]) -> list[Claim]:
    """Appended masks lower the accuracy. Measured: accuracy with 2 masks less that with the most, above zero."""
    counts = _counts(records)
    if 2 not in counts or counts[-1] == 2:
        return []
    weighted: list[tuple[Condition, float]] = [({"masks": 2}, 1.0), ({"masks": counts[-1]}, -1.0)]
    return [
        contrast_claim(
            "masks-cost",
            "appended masks lower the accuracy",
            f"2 masks less {counts[-1]}",
            records,
            weights_of(NAME, weighted),
        )
    ]


def _counts(records: Sequence[Record]) -> list[int]:
    return values_of(records, "masks")


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
        beside=_fillers,
        autoregressive=(
            "Not applicable: it has no masks.",
            "It is an autoregressive model, with causal attention.",
        ),
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


class MaskCountCondition(FewShotCondition, frozen=True, kw_only=True):
    masks: Count


PROBE = Probe(
    name=NAME,
    group="context",
    not_text=VARIES_MASKS,
    about="more and more masks after the question",
    condition=MaskCountCondition,
    lead=Lead(lambda entries: entries, lambda entries: "masks", main=True),
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
        Section(
            title="Do appended masks change the answer?",
            question="The same question is asked with more and more masks behind it. Only the first mask is the "
            "answer; the others state only how much room follows. Does the answer change?",
            paper="From few masks to 200: LLaDA-Base loses 23 points, LLaDA-Instruct 27. Dream-Base loses 6 and "
            "Dream-Instruct 8 by about 20 masks, then both stay level.",
            how_to_read="A level line is what one would hope for: empty space should not matter. A falling line is the "
            "mask tax. The axis widens the small counts; two masks are the baseline.",
            x_label=MASKS_AT_THE_END,
            at=K_EQUALS,
            points=by_masks(NAME),
            spread=True,
            claims=("masks-cost",),
            effect=lambda point, base: f"with {point.x:g} masks in place of {base.x:g}",
        ),
        Section(
            name="confidence",
            side_by_side=True,
            title="How sure is it of its answers?",
            question="The probability it gives to the answer it chooses, and the entropy of all its choices, with more "
            "and more masks behind the question.",
            paper="Tuning with the mask-agnostic loss lowers the entropy and keeps the confidence level; cross-entropy "
            "alone does not.",
            how_to_read="Level lines mean that masks leave its certainty alone. Sure and wrong is worse than unsure "
            "and wrong: compare with the accuracy above.",
            x_label=MASKS_AT_THE_END,
            at=K_EQUALS,
            points=by_masks(NAME),
            measures=(
                Measure("confidence", "Probability of its answer", "", ""),
                Measure("entropy", "Entropy (nats)", "", "", percent=False),
            ),
            caption="Line: mean over all answers.",
            spread=True,
        ),
    ),
)
