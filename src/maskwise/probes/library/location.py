"""location: the relevant examples stand in one block that is moved among the distractors; the question comes last.

Paper probe 1 (Piskorz et al., arXiv 2511.21338), format A. Condition: {"location": 20}, the distractors before the
block. The scores `locality` and `distance_nats` are defined here, for the question last (right) only;
`question-position` gives them too, from its points with the question last.
"""

from collections.abc import Sequence

import numpy as np

from maskwise.probes.examples import FEW_SHOT
from maskwise.probes.probe import Probe, ScoreRule, Sentences, Setup, Variant
from maskwise.probes.section import Point, Section, Shown, curve
from maskwise.records.groups import conditions_of, groups_of
from maskwise.records.record import Condition, Record
from maskwise.scoring.claims import Claim, contrast_claim
from maskwise.scoring.contrasts import weights_of
from maskwise.scoring.numbers import percent
from maskwise.scoring.scores import Score, nats_score, null_score, skill_lost, tables
from maskwise.support.typed import Count

NAME, BOTH_SIDES = "location", "question-position"
LOCATIONS = {"locations": (0, 10, 20, 30, 40)}
QUICK_LOCATIONS = {"locations": (0, 15)}
NEARER_TO_THE_RIGHT = "Distracting examples before the block (further right: nearer the question)"


def variants(setup: Setup) -> list[Variant]:
    return [Variant(NAME, {"location": at}, location=at) for at in setup.own["locations"]]


def nearest(condition: Condition, conditions: Sequence[Condition]) -> Condition:
    """The baseline: the examples nearest to the question, which stands in the same place."""
    return nearest_first([c for c in conditions if c.get("question") == condition.get("question")])[0]


def nearest_first(conditions: Sequence[Condition]) -> list[Condition]:
    """Conditions with one question position, by the distance of their block from the question."""
    places = [int(c["location"]) for c in conditions]
    sides = {"left": min(places), "middle": (min(places) + max(places)) / 2}
    asked_at = sides.get(str(conditions[0].get("question")), max(places))
    return sorted(conditions, key=lambda c: abs(int(c["location"]) - asked_at))


def locality(records: Sequence[Record]) -> Score:
    """(a_near - a_far) / (a_near - chance) with the question last.

    a_near and a_far are the accuracies with the block nearest to and farthest from the question.
    """
    ends = near_and_far_conditions(records)
    return skill_lost(tables(records, ends)) if ends else null_score()


def distance_nats(records: Sequence[Record]) -> Score:
    """NLL_far - NLL_near of the right answer with the question last."""
    ends = near_and_far_conditions(records)
    return nats_score(records, ends, [-1.0, 1.0]) if ends else null_score()


def near_and_far_conditions(records: Sequence[Record]) -> list[Condition]:
    """With the question last: the condition with the block nearest to it and the one farthest from it; else empty."""
    last = [c for c in conditions_of(records) if c.get("question", "right") == "right"]
    return nearest_first(last)[:: len(last) - 1] if len(last) > 1 else []


def claims(records: Sequence[Record]) -> list[Claim]:
    """Diffusion models: accuracy falls with the distance of the examples from the question.

    Measured: the fall from the nearest place to the farthest along the straight line fitted to all places, above zero.
    """
    conditions = conditions_of(records)
    has_masks = any(group.column("masks").any() for group in groups_of(records))  # not so of an autoregressive model
    if len(conditions) < 2 or not has_masks:
        return []
    claim = "accuracy falls with the distance of the examples"
    measure = "fitted fall from the nearest place to the farthest"
    return [contrast_claim("distance-costs", claim, measure, records, weights_of(NAME, fall(conditions)))]


def fall(conditions: Sequence[Condition]) -> list[tuple[Condition, float]]:
    """Weights of each condition in the fall of the fitted line from the nearest place to the farthest."""
    by_distance = nearest_first(conditions)
    nearest_at = int(by_distance[0]["location"])
    distances = np.array([abs(int(c["location"]) - nearest_at) for c in by_distance], dtype=float)
    centred = distances - distances.mean()
    weights = -centred / (centred**2).sum() * np.ptp(distances)
    return list(zip(by_distance, weights.tolist(), strict=True))


def _seen(shown: Shown) -> str:
    """Accuracy with the examples nearest to and farthest from the question, which is last."""
    both = [entry for entry in shown.entries(BOTH_SIDES) if entry.condition["question"] == "right"]
    last = sorted(both or shown.entries(NAME), key=lambda entry: entry.condition["location"])
    right = [entry.accuracy for entry in last if entry.accuracy is not None]
    near, far = right[-1], right[0]
    return f"{percent(near)} of its answers are right with the examples near the question, {percent(far)} with them far"


LOCALITY = ScoreRule(
    name="locality",
    title="Locality",
    meaning="share of its skill above guessing lost when the examples stand far from the question, which is last",
    formula=locality,
    sentences=Sentences(
        topic="Context locality",
        claims={
            1: "It uses near context more than distant context.",
            0: "No difference between near and distant context was detected.",
            -1: "It uses distant context more than near context.",
        },
        change=("moving the examples away", "costs", "raises"),
        seen=_seen,
        takes="It takes the examples at two places, near to and far from the question.",
    ),
)
DISTANCE_NATS = ScoreRule(
    name="distance_nats",
    title="Nats lost to distance",
    meaning="rise of the right answer's negative log-likelihood when the examples stand far from the question",
    formula=distance_nats,
    unit="nats",
)


def moved_away(point: Point, base: Point) -> str:
    places = f"{point.x:g} instead of {base.x:g} distractors before them"
    return f"with the examples moved away from the question ({places}{f', {point.series}' if point.series else ''})"


PROBE = Probe(
    name=NAME,
    group="context",
    about="the relevant examples moved away from the question",
    condition=FEW_SHOT | {"location": Count},
    presets=("default", "full", "paper"),
    variants=variants,
    each_number=True,
    parameters=LOCATIONS,
    quick=QUICK_LOCATIONS,
    baseline=nearest,
    scores=(LOCALITY, DISTANCE_NATS),
    claims=claims,
    sections=(
        Section(
            title="Does it matter where the examples stand?",
            question="The examples that show the rule stand in one block among examples of another rule, and the "
            "question comes last. The block is moved from the start of the prompt to right before the question. Is it "
            "still used?",
            paper="Diffusion models (LLaDA, Dream): the further the examples are from the question, the lower the "
            "accuracy, steadily. Autoregressive models (Llama 3, Qwen 2.5): a U, best at both ends of the prompt.",
            how_to_read="A line that climbs to the right means it favours what is near the question; a level line "
            "means distance does not matter. On the dotted line it might as well guess.",
            x_label=NEARER_TO_THE_RIGHT,
            at="location {}",
            points=curve(NAME, "location"),
            claims=("distance-costs",),
            effect=moved_away,
        ),
    ),
)
