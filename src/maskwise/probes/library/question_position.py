"""question-position: `location` with the masked question before, amid or after the examples: locality or recency?

Paper probe 2, format A. Condition: {"question": "left", "location": 20}.
"""

from collections.abc import Sequence

from maskwise.probes.examples import FEW_SHOT
from maskwise.probes.library.location import BOTH_SIDES as NAME
from maskwise.probes.library.location import DISTANCE_NATS, LOCALITY, LOCATIONS, moved_away, nearest, nearest_first
from maskwise.probes.probe import Probe, Setup, Variant
from maskwise.probes.section import Section, named_curves
from maskwise.records.groups import conditions_of
from maskwise.records.record import Record
from maskwise.scoring.claims import Claim, contrast_claim
from maskwise.scoring.contrasts import weights_of
from maskwise.support.typed import Count

PLACE_NAMES = {"left": "question first", "middle": "question in the middle", "right": "question last"}
PLACES = {"places": ("right", "middle", "left")}


def variants(setup: Setup) -> list[Variant]:
    return [
        Variant(NAME, {"question": place, "location": at}, location=at, place=place)
        for place in setup.own["places"]
        for at in setup.own["locations"]
    ]


def claims(records: Sequence[Record]) -> list[Claim]:
    """Accuracy is best with the examples near the mask wherever that is: locality, not recency.

    Measured for each place of the question: accuracy with the examples nearest to it less the mean of all other places,
    above zero. The finding needs every place to hold.
    """
    found = []
    for place, name in PLACE_NAMES.items():
        asked = [condition for condition in conditions_of(records) if condition["question"] == place]
        if len(asked) > 1:
            nearest_one, *others = nearest_first(asked)
            weighted = [(nearest_one, 1.0), *((other, -1 / len(others)) for other in others)]
            claim = f"{name}: accuracy is best with the examples near it"
            measure = "nearest place less the mean of the others"
            found.append(contrast_claim(f"near-best-{place}", claim, measure, records, weights_of(NAME, weighted)))
    return found


PROBE = Probe(
    name=NAME,
    group="context",
    about="the location probe with the question first, in the middle or last",
    condition=FEW_SHOT | {"question": str, "location": Count},
    condition_words={"right": "last", "left": "first"},
    presets=("default", "full", "paper"),
    variants=variants,
    parameters=LOCATIONS | PLACES,
    quick={"locations": (0, 15), "places": ("right", "left")},
    not_causal="an autoregressive model reads only what stands before the question, so it is always last",
    not_blocks="a block diffusion model sees no context after the block of the question, so it is always last",
    baseline=nearest,
    scores=(LOCALITY, DISTANCE_NATS),
    claims=claims,
    sections=(
        Section(
            title="Near the question, or simply near the end?",
            question="The same block is moved again, with the question at the start, in the middle or at the end of "
            "the prompt. Does it favour the latest text, or the text nearest to the gap it has to fill?",
            paper="Best near the gap wherever the gap is: locality, not recency. Lowest when the question stands first "
            "and the examples far behind it.",
            how_to_read="If the line of “question first” falls to the right while that of “question last” climbs, "
            "nearness is what counts. If both climb, it is the end of the prompt.",
            x_label="Distracting examples before the block",
            at="location {}",
            points=named_curves(NAME, "location", "question", PLACE_NAMES),
            claims=tuple(f"near-best-{place}" for place in PLACE_NAMES),
            effect=moved_away,
        ),
    ),
)
